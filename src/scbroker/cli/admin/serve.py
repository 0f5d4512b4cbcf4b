"""Define `scbroker serve`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from scbroker.cli.admin.command import Admin, DataDir
from scbroker.cli.command import BROKER, Command, app
from scbroker.cli.output import Output

if TYPE_CHECKING:
    from scbroker.cli.commands.doctor import Finding
    from scbroker.server.commands import Settings


@app.command(cls=Command, rich_help_panel=BROKER)
def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; 127.0.0.1 by default."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port; 8400 by default, and 0 chooses a free one.",
            min=0,
            max=65535,
        ),
    ] = None,
    data_dir: DataDir = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of processes; more than one needs PostgreSQL.", min=1
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check whether the broker can start; do not start it, and change nothing.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results of --check as a JSON list.")
    ] = False,
) -> None:
    """Serve a broker until SIGTERM or Ctrl-C.

    Settings come from SCBROKER_… variables and from the TOML file that SCBROKER_CONFIG names. An option
    overrides both.

    With --check, the command prints a line for each check: ok, warning or failed, with the reason and what to
    do. The exit status is that of the first failure.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir, host=host, port=port, workers=workers)
    if check:
        from scbroker.cli.commands.doctor import write

        out = Output(as_json=as_json, quiet=False)
        sys.exit(write(out, _findings(settings, Admin(data_dir, out))))
    commands.serve(settings)


def _findings(settings: Settings, run: Admin) -> Iterator[Finding]:
    from scbroker.cli.commands.doctor import DoubtfulError, found
    from scbroker.server.admin.starting import START_CHECKS, Check

    def result(check: Check) -> str:
        text, is_doubtful = run.do(check(settings))
        if is_doubtful:
            raise DoubtfulError(text)
        return text

    for name, check in START_CHECKS.items():
        yield found(name, partial(result, check))
