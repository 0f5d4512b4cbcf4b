"""Open a broker's database and object store, for the broker or for a command that runs beside it.

The objects of a database lie below a prefix with the database's id. A broker that is configured with another
broker's store by mistake therefore lists none of that broker's objects, and can remove none of them.
"""

import asyncio
import contextlib
import datetime as dt
import fcntl
import importlib.metadata
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, overload

import msgspec
import sqlalchemy
import structlog
from sqlalchemy import NullPool, text
from sqlalchemy.exc import DBAPIError

from scbroker.errors import InvalidArgumentError
from scbroker.server.keys import (
    KEY,
    KEY_CHECK,
    configured_keys,
    create_key,
    find_keys,
    hash_of_key,
    put_in_place,
)
from scbroker.server.migrations.upgrade import newest
from scbroker.server.settings import Settings
from scbroker.server.storage import audit
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import Blobs, open_blobs, path_of
from scbroker.server.storage.database import Database, open_database
from scbroker.server.storage.driver import Connection

T = TypeVar("T")
_log: Final = structlog.get_logger("scbroker.server")
DATABASE: Final = "broker.sqlite"
OBJECTS: Final = "objects"
RESTORING: Final = "restoring"
"""The folder, in the data folder, that a restore removes at its end."""
_SQLITE: Final = "sqlite:///"
_SIZE: Final = 32
# Names of rows in the table of checks.
_ID: Final = "objects"
_RESTORED: Final = "restored"
# Actions in the audit log.
_CREATED: Final = "broker-created"
_NEW_VERSION: Final = "version-started"
# Seconds to wait before the process ends: it would abort if threads of obstore still return results.
_AFTER_OBJECTS: Final = 0.1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def database_url(settings: Settings) -> str:
    """Return the URL of the database, which is a SQLite file in the data folder by default."""
    return settings.database_url or f"{_SQLITE}{settings.directory.resolve() / DATABASE}"


def sqlite_file(settings: Settings) -> Path | None:
    """Return the file of the database; None on PostgreSQL."""
    url = database_url(settings)
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def is_missing(settings: Settings) -> bool:
    """Return whether the database is a file of SQLite that does not exist yet."""
    path = sqlite_file(settings)
    return path is not None and not path.is_file()


def objects_url(settings: Settings) -> str:
    """Return the URL of the object store, which is a folder in the data folder by default."""
    return settings.object_store_url or (settings.directory.resolve() / OBJECTS).as_uri()


def embedded_paths(settings: Settings) -> tuple[Path, Path]:
    """Return the database file and the objects' folder of an embedded broker.

    Raises `InvalidArgumentError` if the broker is on PostgreSQL or on a remote object store.
    """
    database, objects = sqlite_file(settings), objects_url(settings)
    if database is None or not objects.startswith("file://"):
        raise InvalidArgumentError(
            "This command needs a broker on SQLite and a folder. For PostgreSQL and an object store see "
            "docs/guide/backup.md."
        )
    return database, path_of(objects)


@contextlib.contextmanager
def only_broker(settings: Settings) -> Iterator[None]:
    """Keep other processes from serving this SQLite database; raise if another one serves it.

    Only `serve` takes this lock, on the folder of the database: commands run beside a broker. The system
    releases it when the process ends, however it ends. Several brokers may serve one PostgreSQL.
    """
    path = sqlite_file(settings)
    if path is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        folder = path.parent
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgumentError(
                f"Another broker serves the database in {folder}: stop it first. SQLite allows one broker "
                "process; for more, set SCBROKER_DATABASE_URL to a PostgreSQL database."
            ) from None
        except OSError as error:
            raise InvalidArgumentError(
                f"{folder} cannot be locked ({error.strerror}): SQLite needs a folder on a local disk."
            ) from None
        yield


def make_private(folder: Path) -> None:
    """Close the data folder to other users of the machine, or raise an error that says how to close it.

    New folders and volumes are usually open. The broker closes a folder only if it contains nothing but the
    broker's files: closing a folder like /srv would lock out other programs.
    """
    mode = folder.stat().st_mode
    if mode & 0o077 and can_be_private(folder):
        with contextlib.suppress(OSError):  # the folder belongs to another user
            folder.chmod(mode & 0o700)
    if folder.stat().st_mode & 0o077:
        raise open_to_others(folder)


def can_be_private(folder: Path) -> bool:
    """Return whether the data folder is closed to other users, or contains only the broker's files."""
    return not folder.stat().st_mode & 0o077 or all(
        path.name.startswith((DATABASE, KEY, OBJECTS)) for path in folder.iterdir()
    )


def open_to_others(folder: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Other users of this machine can open the data folder {folder}: name a new folder in it with "
        f"--data-dir, which the broker creates. If {folder} is for the broker alone, run chmod 700 {folder}."
    )


def check_restored(folder: Path) -> None:
    """Raise `InvalidArgumentError` if a restore into this data folder was cut off."""
    if (folder / RESTORING).exists():
        raise InvalidArgumentError(
            f"A restore was cut off in {folder}: empty the folder and restore again."
        )


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
    if is_missing(settings):  # opening it would create it
        raise InvalidArgumentError(
            f"{url} is not a broker's database: no such file exists. Name the broker's folder with "
            "--data-dir, or give this command the settings that the broker has."
        )
    database = open_database(url)
    try:
        found = await find_revision(database)
        if found != newest():
            raise InvalidArgumentError(
                f"The database has the tables of revision {found or 'none'}, and this version has "
                f"{newest()}: start the broker of this version once, or use the version that the broker has."
            )
        yield database, await open_objects(settings, database)
    finally:
        await asyncio.sleep(_AFTER_OBJECTS)
        await database.close()


async def find_revision(database: Database) -> str | None:
    """Return the revision of a database's tables, or None for an empty database."""
    statement = text("SELECT version_num FROM alembic_version")
    try:
        return str(await database.read(lambda c: c.execute(statement).scalar_one()))
    except DBAPIError:
        return None


def provision(connection: Connection, settings: Settings) -> bytes:
    """Give a new database its id and create the broker's key, or check that the key is this database's.

    Records in the audit log when a database is new, and when a version of scbroker first uses it. Ends a
    rotation that was interrupted between its last two steps. Returns the broker's key.
    """
    if sql.one(connection, sql.FIND_CHECK, check=KEY_CHECK) is None:
        found = configured_keys(settings)
        if not found:
            found = [create_key(settings.directory / KEY)]
            _log.info("broker key made", file=str(settings.directory / KEY))
        row = {"name": KEY_CHECK, "value": hash_of_key(found[0])}
        connection.execute(sql.ADD_CHECK, row)
    key = find_key(connection, settings)
    put_in_place(settings, key)
    is_new = sql.one(connection, sql.FIND_CHECK, check=_ID) is None
    if is_new:
        connection.execute(sql.ADD_CHECK, {"name": _ID, "value": os.urandom(_SIZE)})
    restored = sql.one(connection, sql.LOCK_CHECK, check=_RESTORED)  # by `mark_restored`
    if restored is not None:
        actor, times = msgspec.json.decode(restored.value, type=tuple[str, dict[str, str]])
        connection.execute(sql.DROP_CHECK, {"check": _RESTORED})
        audit.record(connection, key, "backup-restored", "broker", times, actor=actor)
    # Lock the key's row first, so that of several brokers that start at once only one records the version.
    sql.one(connection, sql.LOCK_CHECK, check=audit.KEY_CHECK)
    last = sql.one(connection, audit.LAST_AUDIT_OF, actions=[_CREATED, _NEW_VERSION])
    details = {"version": importlib.metadata.version("scbroker"), "tables": newest()}
    if last is None or msgspec.json.decode(last.details) != details:
        audit.record(connection, key, _CREATED if is_new else _NEW_VERSION, "broker", details)
    return key


def mark_restored(path: Path, taken_at: str) -> None:
    """Leave a note in a restored SQLite file, which `provision` records: the broker's key may come later."""
    restored_at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    times = {"takenAt": taken_at, "restoredAt": restored_at}
    engine = sqlalchemy.create_engine(f"{_SQLITE}{path}", poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(sql.DROP_CHECK, {"check": _RESTORED})
        value = msgspec.json.encode((audit.operator(), times))
        connection.execute(sql.ADD_CHECK, {"name": _RESTORED, "value": value})


def find_key(connection: Connection, settings: Settings) -> bytes:
    """Return the key; raise `InvalidArgumentError` if it is missing or not the one of this database."""
    return find_keys(connection, settings).active


class Stores(NamedTuple):
    """A broker's settings and database, for the acts of an operator."""

    settings: Settings
    database: Database

    async def act(self, work: Callable[[Connection, bytes], T]) -> T:
        """Run an act in a transaction, with the broker's key, under which it is recorded in the audit log.

        The key is read anew for each act: it may be rotated at any time.
        """
        return await self.database.write(lambda c: work(c, find_key(c, self.settings)))


@overload
def time_of(moment: int) -> dt.datetime: ...
@overload
def time_of(moment: int | None) -> dt.datetime | None: ...
def time_of(moment: int | None) -> dt.datetime | None:
    """Return the time of a table's column; None where it is NULL."""
    return None if moment is None else _EPOCH + moment * _MICROSECOND


def moment(time: dt.datetime) -> int:
    """Return a time with a zone as a table stores it."""
    return (time - _EPOCH) // _MICROSECOND
