"""Define `scbroker serve`."""

from typing import Annotated

import typer

from scbroker.cli.admin.command import DataDir


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port; 0 chooses a free one.", min=0, max=65535)
    ] = 8400,
    data_dir: DataDir = None,
    workers: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of processes; more than one needs PostgreSQL.", min=1
        ),
    ] = 1,
) -> None:
    """Serve a broker until SIGTERM or Ctrl-C.

    Settings come from SCBROKER_… variables and from the TOML file that SCBROKER_CONFIG names.
    """
    from scbroker.server import commands

    commands.serve(commands.begin(data_dir), host, port, workers)
