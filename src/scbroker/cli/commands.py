"""The commands and their options."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from scbroker import BrokerError

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="scbroker: containers that only their members can read, on a broker that cannot.",
)
admin: typer.Typer = typer.Typer(no_args_is_help=True, help="What an operator does to a broker.")
app.add_typer(admin, name="admin")

DataDir = Annotated[str | None, typer.Option(help="Where the embedded default keeps everything.")]


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for a free one.", min=0, max=65535)] = 8400,
    data_dir: DataDir = None,
    workers: Annotated[
        int, typer.Option(help="Processes; more than one needs PostgreSQL.", min=1)
    ] = 1,
) -> None:
    """Serves a broker until it is told to stop (SIGTERM or Ctrl-C).

    Settings come from SCBROKER_… variables and from the TOML file that SCBROKER_CONFIG names.
    """
    with _said():
        from scbroker.server import commands

        commands.serve(commands.load_settings(data_dir=data_dir), host, port, workers)


@admin.command("create-api-key")
def create_api_key(
    name: Annotated[str, typer.Argument(help="Whom the key is for; kept beside its hash.")],
    data_dir: DataDir = None,
) -> None:
    """Makes an API key and prints it, once; the broker keeps its hash."""
    with _said():
        from scbroker.server import commands

        settings = commands.load_settings(data_dir=data_dir)
        print(asyncio.run(commands.create_api_key(settings, name)))


@contextmanager
def _said() -> Iterator[None]:
    """Errors in words, without a traceback, and exit status 1."""
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(f"A broker needs {error.name}: install it with `pip install scbroker[server]`.")
    except BrokerError as error:
        sys.exit(f"scbroker: {error}")
