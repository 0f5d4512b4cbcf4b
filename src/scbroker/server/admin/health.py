"""Read the state of a broker's database and disks."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import text

from scbroker.server.admin.stores import objects_url, sqlite_file
from scbroker.server.broker import CLOCK_BOUND
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import path_of
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection

_SQLITE_SIZE: Final = text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
_POSTGRESQL_SIZE: Final = text("SELECT pg_database_size(current_database())")
_POSTGRESQL_VERSION: Final = text("SHOW server_version")


class Disk(NamedTuple):
    """A local disk that the broker writes to, in bytes."""

    folder: Path
    free: int
    size: int

    @property
    def is_nearly_full(self) -> bool:
        return self.free < self.size / 10


class Health(NamedTuple):
    """The state of a broker's stores."""

    engine: str
    database_bytes: int
    clock_difference: float
    """Seconds by which this machine's clock is ahead of the database's."""
    objects: str
    """Folder or host of the object store, without the parts of its URL that may be secret."""
    disks: list[Disk]

    @property
    def is_clock_right(self) -> bool:
        return abs(self.clock_difference) <= CLOCK_BOUND


async def health(settings: Settings, database: Database) -> Health:
    """Read the state of the stores; raise `BrokerUnavailableError` if the database does not answer."""
    engine, size = await database.query(_engine_and_size)
    return Health(
        engine,
        size,
        await database.clock_difference(),
        _objects(objects_url(settings)),
        disks(settings),
    )


def _engine_and_size(connection: Connection) -> tuple[str, int]:
    if connection.dialect.name == "sqlite":
        size = connection.execute(_SQLITE_SIZE).scalar_one()
        return f"SQLite {sqlite3.sqlite_version}", int(size)
    version = str(connection.execute(_POSTGRESQL_VERSION).scalar_one()).partition(" ")[0]
    return f"PostgreSQL {version}", int(connection.execute(_POSTGRESQL_SIZE).scalar_one())


def _objects(url: str) -> str:
    parts = urlsplit(url)
    return str(path_of(url)) if parts.scheme == "file" else f"{parts.scheme}://{parts.hostname}"


def folders(settings: Settings) -> dict[str, Path]:
    """Return the local folders of the database and the objects, or those in which they will be made."""
    database, objects = sqlite_file(settings), objects_url(settings)
    found: dict[str, Path] = {}
    if database is not None:
        found["database"] = database
    if objects.startswith("file:"):
        found["objects"] = path_of(objects)
    return {
        name: next(each for each in (path, *path.parents) if each.is_dir())
        for name, path in found.items()
    }


def disks(settings: Settings) -> list[Disk]:
    """Return the local disks of database and objects, each once."""
    found: dict[int, Disk] = {}
    for folder in folders(settings).values():
        usage = shutil.disk_usage(folder)
        found.setdefault(folder.stat().st_dev, Disk(folder, usage.free, usage.total))
    return list(found.values())
