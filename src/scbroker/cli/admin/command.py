"""Declare a function as an operator's command, with the broker's settings, its database and its output.

    @command()
    def sweep(run: Admin) -> None:

adds `scbroker admin sweep [--data-dir FOLDER] [--json] [--quiet]`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from scbroker import errors
from scbroker.cli import command as of_users
from scbroker.cli.command import AsJson, BaseRun, Function, Quiet
from scbroker.cli.output import Output, Size

if TYPE_CHECKING:
    from scbroker.server.admin.stores import Stores
    from scbroker.server.commands import Settings

T = TypeVar("T")
admin: Final = of_users.group("admin", of_users.BROKER, "Administer a broker.")
DataDir = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="The data folder; by default that of the settings."),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The broker's own address, not the proxy's; by default that of the settings.",
    ),
]


class Admin(BaseRun):
    """One run of an operator's command, in a process of its own beside the broker's."""

    def __init__(self, data_dir: str | None, out: Output) -> None:
        super().__init__(out)
        self.data_dir = data_dir

    @cached_property
    def settings(self) -> Settings:
        """The broker's settings. Files that the command creates from then on are closed to other users."""
        from scbroker.server import commands

        return commands.begin(self.data_dir)

    @property
    def address(self) -> str:
        """The address at which a broker with these settings is reached on this machine."""
        from scbroker.server import commands

        host = self.settings.host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return commands.address_of(host, self.settings.port)

    def use(self, work: Callable[[Stores], Coroutine[Any, Any, T]]) -> T:
        """Do some work on the broker's database, which must be of this version; return its result."""
        from scbroker.server.admin.stores import Stores, open_stores

        async def run() -> T:
            async with open_stores(self.settings) as (database, _):
                return await work(Stores(self.settings, database))

        return self.do(run())

    def read(self, work: Callable[[Any], T], *, large: bool = False) -> T:
        """Run a read of the broker's database and return its result; `large` as in `Database.read`."""
        return self.use(lambda at: at.database.read(work, large=large))

    def act(self, work: Callable[[Any, bytes], T]) -> T:
        """Run `Stores.act` and return its result."""
        return self.use(lambda at: at.act(work))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result. An error of a store names its cause."""
        import asyncio  # lazy: the help of a command does not need it

        try:
            return asyncio.run(work)
        except errors.BrokerUnavailableError as error:
            if (cause := error.__cause__) is None:
                raise
            why = getattr(cause, "orig", None) or cause  # the database's own error
            raise errors.BrokerUnavailableError(f"{error.message} The cause: {why}") from error


def row_of(found: Any) -> dict[str, Any]:
    """Return the fields of a named tuple by the names that they have in JSON."""
    return {
        "".join((first, *map(str.capitalize, more))): Size(value)
        if value is not None and name.endswith("bytes")
        else value
        for name, value in found._asdict().items()
        for first, *more in [name.removeprefix("is_").split("_")]
    }


def command(name: str | None = None, *, of: typer.Typer = admin) -> Callable[[Function], Function]:
    """Return a decorator that adds a function, whose first parameter is an `Admin`, as a command."""
    return of_users.command("", name, of=of, start=start)


def start(data_dir: DataDir = None, as_json: AsJson = False, quiet: Quiet = False) -> Admin:
    """Start an operator's command: the parameters are the options that all these commands have."""
    return Admin(data_dir, Output(as_json=as_json, quiet=quiet))
