"""Define the commands of a broker's operator: `serve`, `admin …` and `conformance …`."""

import sys
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from scbroker.cli.command import Command

T = TypeVar("T")
admin: typer.Typer = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Administer a broker."
)
conformance: typer.Typer = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Test a broker or a client against the specification.",
)

Tell = Callable[[str], None]
Progress = Callable[[str, int, int], None]
DataDir = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="The folder of a broker without external stores."),
]


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


@admin.command("create-api-key", cls=Command)
def create_api_key(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name for the key, stored beside its hash.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Create an API key and print it.

    It is shown this once only: the broker stores its hash.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir)
    print(_run(commands.create_api_key(settings, name)))


@admin.command(cls=Command)
def sweep(data_dir: DataDir = None) -> None:
    """Delete what the broker does not need any more.

    These are abandoned uploads, replaced contents and unreferenced objects, which a running broker deletes
    from time to time.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir)
    _run(commands.sweep(settings, print))


@admin.command(cls=Command)
def check(
    quick: Annotated[
        bool, typer.Option(help="Skip the bytes of objects and the database file's own check.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Check everything that the broker keeps.

    Each fault is a line, and the exit status is 1 if there is one. The check changes nothing and can run
    beside the broker.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir)
    with _reporting() as (tell, progress):
        right = _run(commands.check(settings, tell, progress, quick=quick))
    sys.exit(not right)


@admin.command(cls=Command)
def backup(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    link: Annotated[
        bool, typer.Option(help="Make hard links instead of copies, on the same file system only.")
    ] = False,
    with_key: Annotated[bool, typer.Option(help="Include the broker's key.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Copy a broker on SQLite and a folder, while it runs.

    The exit status is 1 if an object was missing or damaged.
    """
    from scbroker.server import commands

    settings = commands.begin(data_dir)
    with _reporting() as (tell, progress):
        right = _run(
            commands.backup(settings, target, tell, progress, link=link, with_key=with_key)
        )
    sys.exit(not right)


@admin.command(cls=Command)
def restore(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `backup` made.")],
    damaged: Annotated[
        bool, typer.Option(help="Restore even if objects are damaged or missing.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Verify a backup and put it into an empty data folder."""
    from scbroker.server import commands

    settings = commands.begin(data_dir)
    with _reporting() as (tell, progress):
        commands.restore(settings, source, tell, progress, damaged=damaged)


AsJson = Annotated[bool, typer.Option("--json", help="Print the outcomes as a JSON list.")]


@conformance.command("broker", cls=Command)
def conformance_broker(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The broker's address, such as https://broker.example."),
    ],
    api_key: Annotated[
        uuid.UUID,
        typer.Option(metavar="KEY", help="An API key of the broker.", envvar="SCBROKER_API_KEY"),
    ],
    as_json: AsJson = False,
) -> None:
    """Compare the answers of a broker with the specification.

    The command sends about 190 requests. The exit status is 1 if an answer is wrong. It registers users of
    its own and deletes them at the end.
    """
    from scbroker.conformance.broker import probe
    from scbroker.conformance.outcomes import conclude

    right = conclude(lambda report: probe(url, api_key, report), as_json=as_json)
    sys.exit(not right)


@conformance.command("client", cls=Command)
def conformance_client(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program that drives the client.")
    ],
    as_json: AsJson = False,
) -> None:
    """Test a client against honest and lying brokers.

    The exit status is 1 if a scene ends wrong. COMMAND comes after `--`. It reads steps from standard input,
    one JSON object in each line.
    """
    from scbroker.conformance.client import play
    from scbroker.conformance.outcomes import conclude

    right = conclude(lambda report: play(command, report), as_json=as_json)
    sys.exit(not right)


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # a command without a broker starts without it

    return asyncio.run(work)


@contextmanager
def _reporting() -> Iterator[tuple[Tell, Progress]]:
    """Yield a function that prints a line, and one that takes a step's name, items done and total."""
    if not sys.stderr.isatty():
        yield print, lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=max(done, total))

        yield print, progress
