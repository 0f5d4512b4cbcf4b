"""A broker's database and object store, for an operator's command that runs beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import statements as own
from scbroker.server.admin.owner import check_bound
from scbroker.server.migrations.upgrade import newest
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import Blobs, open_blobs, path_of
from scbroker.server.storage.database import Database
from scbroker.server.storage.engines import open_database

_SQLITE: Final = "sqlite:///"
_FILES: Final = "file://"
# Threads of obstore hand over their last answers; a process that ends meanwhile aborts.
_AFTER_OBJECTS: Final = 0.1

Tell = Callable[[str], None]
"""Takes a line for whoever runs the command."""
Progress = Callable[[str, int, int], None]
"""Takes what is being looked at, how much of it is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker keeps everything."""

    settings: Settings
    database_url: str
    objects_url: str

    @property
    def file(self) -> Path:
        """The file of an embedded database; `InvalidArgumentError` for any other."""
        if not self.database_url.startswith(_SQLITE) or not self.objects_url.startswith(_FILES):
            raise InvalidArgumentError(
                "This is for a broker on SQLite and a folder. For PostgreSQL and an object store see "
                "docs/guide/backup.md."
            )
        return Path(self.database_url.removeprefix(_SQLITE))

    @property
    def file_is_there(self) -> bool:
        return Path(self.database_url.removeprefix(_SQLITE)).is_file()

    @property
    def objects(self) -> Path:
        """The folder of the objects of an embedded broker."""
        return path_of(self.objects_url)


@dataclass(frozen=True, slots=True)
class Opened:
    """The two of them, open."""

    database: Database
    blobs: Blobs


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Opened]:
    """Both open; `InvalidArgumentError` unless they are there, belong together and are of this version."""
    if place.database_url.startswith(_SQLITE) and not place.file_is_there:
        raise InvalidArgumentError(f"There is no broker's database at {place.database_url}.")
    database = open_database(place.database_url)
    try:
        await _check_revision(database)
        blobs = open_blobs(place.objects_url)
        await check_bound(database, blobs)
        yield Opened(database, blobs)
    finally:
        await asyncio.sleep(_AFTER_OBJECTS)
        await database.close()


async def _check_revision(database: Database) -> None:
    def read(connection: Connection) -> str:
        return str(connection.execute(own.REVISION).scalar_one())

    try:
        found = await database.read(read)
    except DBAPIError:
        found = "none"
    if found != newest():
        raise InvalidArgumentError(
            f"The database has the tables of revision {found}, and this version has {newest()}: start the "
            "broker of this version once, or use the version that the broker has."
        )
