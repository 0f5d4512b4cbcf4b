"""The commands and their options."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from scbroker import BrokerError
from scbroker.cli.progress import shown

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


@admin.command()
def sweep(data_dir: DataDir = None) -> None:
    """Removes at once what nothing needs any more, and objects that nothing names; says how much."""
    with _said():
        from scbroker.server import commands

        commands.sweep(commands.load_settings(data_dir=data_dir), print)


@admin.command()
def check(
    quick: Annotated[
        bool, typer.Option(help="Leaves out the bytes of objects and the database's file.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Reads all that the broker keeps and says what is wrong; exit status 1 if anything is.

    It changes nothing, and can run beside the broker.
    """
    with _said():
        from scbroker.server import commands

        settings = commands.load_settings(data_dir=data_dir)
        with shown() as (tell, progress):
            right = commands.check(settings, tell, progress, quick=quick)
        sys.exit(not right)


@admin.command()
def backup(
    target: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    link: Annotated[
        bool, typer.Option(help="Hard links in place of copies, on the same file system.")
    ] = False,
    with_key: Annotated[bool, typer.Option(help="Puts the broker's key in as well.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Copies an embedded broker while it runs; exit status 1 if an object is missing or damaged."""
    with _said():
        from scbroker.server import commands

        settings = commands.load_settings(data_dir=data_dir)
        with shown() as (tell, progress):
            right = commands.backup(settings, target, tell, progress, link=link, with_key=with_key)
        sys.exit(not right)


@admin.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A folder that `backup` made.")],
    damaged: Annotated[
        bool, typer.Option(help="Also where objects are damaged or missing.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Verifies a backup and puts it into an empty data folder."""
    with _said():
        from scbroker.server import commands

        settings = commands.load_settings(data_dir=data_dir)
        with shown() as (tell, progress):
            commands.restore(settings, source, tell, progress, damaged=damaged)


@contextmanager
def _said() -> Iterator[None]:
    """Errors in words, without a traceback, and exit status 1."""
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(f"A broker needs {error.name}: install it with `pip install scbroker[server]`.")
    except BrokerError as error:
        sys.exit(f"scbroker: {error}")
