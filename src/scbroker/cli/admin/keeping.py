"""Define the commands that serve, check, back up and restore a broker, and show its settings and page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from scbroker.cli.admin.command import Admin, DataDir, Url, command, group
from scbroker.cli.command import BROKER, Command, Minutes, Opens, Port, app
from scbroker.cli.output import Output

if TYPE_CHECKING:
    from scbroker.cli.commands.doctor import Finding
    from scbroker.server.admin.stores import Stores
    from scbroker.server.commands import Settings

config: Final = group("config", help="Show the settings of a broker.")
Tell = Callable[[str], None]
Progress = Callable[[str, int, int], None]


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


@command()
def sweep(run: Admin) -> None:
    """Delete abandoned, replaced and unreferenced data now.

    A running broker deletes abandoned uploads and replaced contents every minute. The command also lists the
    object store, to find objects that no row references.
    """
    from scbroker.server.admin.sweep import sweep

    run.do(sweep(run.settings, _teller(run)))


@command()
def check(
    run: Admin,
    quick: Annotated[
        bool, typer.Option(help="Skip the bytes of objects and the database file's own check.")
    ] = False,
) -> None:
    """Check everything that the broker stores.

    The command prints a line for each fault. The exit status is 1 if it finds one. It changes nothing, and
    can run beside the broker.
    """
    from scbroker.server.admin.check import check

    with _reporting(run) as (tell, progress):
        right = run.do(check(run.settings, tell, progress, quick=quick))
    sys.exit(not right)


@command()
def backup(
    run: Admin,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    link: Annotated[
        bool, typer.Option(help="Make hard links instead of copies, on the same file system only.")
    ] = False,
    with_key: Annotated[bool, typer.Option(help="Include the broker's key.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Make a new folder in FOLDER, named by the time, and remove all such backups but N.",
        ),
    ] = None,
) -> None:
    """Copy a broker on SQLite and a folder, while it runs.

    The exit status is 1 if an object was missing or damaged; then --keep removes no older backup.
    """
    from scbroker.server.admin.backup import backup

    with _reporting(run) as (tell, progress):
        work = backup(run.settings, target, tell, progress, keep=keep, link=link, with_key=with_key)
        right = run.do(work)
    sys.exit(not right)


@command()
def restore(
    run: Admin,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `backup` made.")],
    damaged: Annotated[
        bool, typer.Option(help="Restore even if objects are damaged or missing.")
    ] = False,
) -> None:
    """Verify a backup and put it into an empty data folder."""
    from scbroker.server.admin.backup import restore

    with _reporting(run) as (tell, progress):
        restore(run.settings, source, tell, progress, damaged=damaged)


@command("rotate-broker-key")
def rotate_broker_key(run: Admin) -> None:
    """Replace the broker's key while the broker runs.

    The command creates a new key, encrypts all stored KeyFiles and proofs of passphrases under it, and puts
    it into force. After an interruption, run it again. On PostgreSQL every broker needs the new key first:
    the command says what to do.
    """
    from scbroker.server.admin.rotation import rotate

    with _reporting(run) as (tell, progress):
        run.do(rotate(run.settings, tell, progress))


@command(of=config)
def show(run: Admin) -> None:
    """List every setting, with its value and where it comes from.

    The source is the default, the TOML file that SCBROKER_CONFIG names, a variable or an option. Secret keys
    are shown as "set", and URLs without their passwords.
    """
    from scbroker.server import commands

    listed = commands.explain_settings(data_dir=run.data_dir)
    columns = {"name": "SETTING", "value": "VALUE", "source": "SOURCE", "meaning": "MEANING"}
    run.out.rows((each._asdict() for each in listed), columns)


@command()
def ui(
    run: Admin, url: Url = None, port: Port = 0, minutes: Minutes = 60, opens: Opens = True
) -> None:
    """Open the operator's page in your browser, until Ctrl-C.

    The page listens on this machine only. Its URL is secret and valid once: the first browser that uses it is
    the only one that is admitted.
    """
    from scbroker.cli.admin.page.page import operators_page
    from scbroker.cli.web import serving

    async def show(at: Stores) -> None:
        page = partial(operators_page, at, url or run.address)
        await serving.run(run.out, port, minutes, opens, page)

    run.use(show)


def _teller(run: Admin) -> Tell:
    return lambda text: run.out.line({"message": text}, text)


@contextmanager
def _reporting(run: Admin) -> Iterator[tuple[Tell, Progress]]:
    """Yield a function that prints a line, and one that takes a step's name, items done and total."""
    with ExitStack() as bar:
        shown: dict[str, Callable[[int], None]] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in shown:
                bar.close()
                shown.clear()
                shown[what] = bar.enter_context(run.out.progress(what, total, of_bytes=False))
            shown[what](done)

        yield _teller(run), progress
