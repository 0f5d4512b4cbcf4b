"""Open a broker's database and object store, for the broker or for a command that runs beside it.

The objects of a database lie below a prefix with the database's id. A database that is configured with
another broker's store therefore lists none of that broker's objects, and can remove none of them.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import statements as own
from scbroker.server.migrations.upgrade import newest
from scbroker.server.settings import Settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import Blobs, Stored, open_blobs, path_of
from scbroker.server.storage.database import Database, open_database

DATABASE: Final = "broker.sqlite"
OBJECTS: Final = "objects"
_SQLITE: Final = "sqlite:///"
_FILES: Final = "file://"
_ID: Final = "objects"  # the name of its row in the table of checks
_ID_SIZE: Final = 32
# The process must not end while threads of obstore still return results: it would abort.
_AFTER_OBJECTS: Final = 0.1


def database_url(settings: Settings) -> str:
    """Return the URL of the database, which is a SQLite file in the data folder by default."""
    return settings.database_url or f"{_SQLITE}{settings.directory.resolve() / DATABASE}"


def objects_url(settings: Settings) -> str:
    """Return the URL of the object store, which is a folder in the data folder by default."""
    return settings.object_store_url or (settings.directory.resolve() / OBJECTS).as_uri()


def embedded_paths(settings: Settings) -> tuple[Path, Path]:
    """Return the database file and the objects' folder of an embedded broker.

    Raises `InvalidArgumentError` if the broker is on PostgreSQL or on a remote object store.
    """
    database, objects = database_url(settings), objects_url(settings)
    if not database.startswith(_SQLITE) or not objects.startswith(_FILES):
        raise InvalidArgumentError(
            "This command needs a broker on SQLite and a folder. For PostgreSQL and an object store see "
            "docs/guide/backup.md."
        )
    return Path(database.removeprefix(_SQLITE)), path_of(objects)


def provision_id(connection: Connection) -> None:
    """Give the database an id, if it has none."""
    if sql.one(connection, sql.FIND_CHECK, check=_ID) is None:
        connection.execute(sql.ADD_CHECK, {"name": _ID, "value": os.urandom(_ID_SIZE)})


def object_prefix(connection: Connection) -> str:
    """Return the prefix of the database's objects: its id in hexadecimal digits."""
    row = sql.one(connection, sql.FIND_CHECK, check=_ID)
    if row is None:
        raise InvalidArgumentError("The database has no id: start the broker of this version once.")
    return bytes(row.value).hex()


async def open_objects(settings: Settings, database: Database) -> Blobs:
    """Open the part of the object store that belongs to the database; the store is not asked for anything."""
    prefix = await database.read(object_prefix)
    return open_blobs(f"{objects_url(settings).rstrip('/')}/{prefix}")


@contextlib.asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[tuple[Database, Blobs]]:
    """Open an existing database and its objects; `InvalidArgumentError` unless it is of this version."""
    url = database_url(settings)
    _check_file_exists(url)
    database = open_database(url)
    try:
        await _check_revision(database)
        yield database, await open_objects(settings, database)
    finally:
        await asyncio.sleep(_AFTER_OBJECTS)
        await database.close()


def _check_file_exists(url: str) -> None:
    """Raise if the database is a missing file of SQLite, which opening it would create."""
    if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).is_file():
        raise InvalidArgumentError(f"{url} is not a broker's database: no such file exists.")


async def unreferenced(database: Database, page: list[Stored]) -> list[Stored]:
    """Return the listed objects that no row names. The listing must be older than this call."""

    def read(connection: Connection) -> set[str]:
        parts = sorted({stored.part_id for stored in page})
        names = [stored.name for stored in page]
        in_use = connection.execute(own.BLOBS_OF_PARTS, {"some": parts}).scalars()
        pending_deletion = connection.execute(own.PENDING_DELETION_OF, {"names": names}).scalars()
        return {*in_use, *pending_deletion}

    if not page:
        return []
    known = await database.read(read, large=True)
    return [stored for stored in page if stored.name not in known]


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
