"""Check whether a broker can start, and read the state of its stores, without changing anything."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import text

from scbroker.errors import BrokerUnavailableError, InvalidArgumentError
from scbroker.server.admin import stores
from scbroker.server.admin.stores import objects_url, sqlite_file
from scbroker.server.broker import CLOCK_BOUND
from scbroker.server.keys import configured_keys, find_keys
from scbroker.server.migrations.upgrade import is_known, newest
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import open_blobs, path_of
from scbroker.server.storage.database import Database, open_database
from scbroker.server.storage.driver import Connection
from scbroker.wire.users import canonical_origin

_STORE_SECONDS: Final = 10.0
_PORT_SECONDS: Final = 2.0
_NEW: Final = "is created at the first start"


class Result(NamedTuple):
    text: str
    is_doubtful: bool = False
    """Whether the broker can start, but the operator should read the text."""


Check = Callable[[Settings], Coroutine[Any, Any, Result]]
"""A check. It raises a `BrokerError` if the broker cannot start."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address, and does not listen yet."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise InvalidArgumentError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    return bound


async def _check_folder(settings: Settings) -> Result:
    folder = settings.directory
    if not folder.exists():
        home = next(each for each in folder.absolute().parents if each.exists())
        if not os.access(home, os.W_OK | os.X_OK):
            raise InvalidArgumentError(
                f"{folder} cannot be created in {home}, which is not writable."
            )
        return Result(f"{folder} {_NEW}")
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidArgumentError(f"{folder} is not a folder that this user can read and write.")
    stores.check_restored(folder)
    if not stores.can_be_private(folder):
        raise stores.open_to_others(folder)
    return Result(str(folder))


async def _check_port(settings: Settings) -> Result:
    try:
        bind(settings.host, settings.port).close()
    except InvalidArgumentError:
        if not _is_broker(settings.host, settings.port):
            raise
        where = f"{settings.host}:{settings.port}"
        return Result(f"A broker serves at {where} now: stop it before the start", is_doubtful=True)
    return Result(f"{settings.host}:{settings.port} is free")


def _is_broker(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_PORT_SECONDS)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().getheader("Scbroker-Protocol") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def address_of(host: str, port: int) -> str:
    """Return the URL of a broker that listens at this host and port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def origins(settings: Settings) -> frozenset[str]:
    """Return the origins in canonical form.

    `InvalidArgumentError` names the wrong one, or says that one is needed: clients refuse plain HTTP to
    another machine.
    """
    if not settings.origins:
        try:
            canonical_origin(address_of(settings.host, settings.port))
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"At {settings.host} other machines can reach the broker, and clients refuse plain HTTP to "
                "another machine: put a proxy with TLS before it, set SCBROKER_ORIGINS to the https:// "
                "address that clients use, and SCBROKER_TRUSTED_PROXIES to the proxy's address. See "
                "docs/guide/running-a-broker.md."
            ) from None
    found = set[str]()
    for origin in settings.origins:
        try:
            found.add(canonical_origin(origin))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"SCBROKER_ORIGINS has {origin!r:.200}. {error.message}"
            ) from None
    return frozenset(found)


async def _check_origins(settings: Settings) -> Result:
    if not origins(settings):
        return Result(
            "None is set: only programs of this machine can log in. Set SCBROKER_ORIGINS to the "
            "https:// address that clients use.",
            is_doubtful=True,
        )
    is_public = any(origin.startswith("https:") for origin in settings.origins)
    if is_public and not settings.trusted_proxies:
        return Result(
            "SCBROKER_TRUSTED_PROXIES is empty: the throttle counts all users under the proxy's address",
            is_doubtful=True,
        )
    return Result(", ".join(settings.origins))


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database]:
    database = open_database(stores.database_url(settings))
    try:
        yield database
    finally:
        await database.close()


async def _check_database(settings: Settings) -> Result:
    if settings.workers > 1 and stores.sqlite_file(settings):
        raise InvalidArgumentError("SQLite allows one process: set SCBROKER_WORKERS to 1.")
    if stores.is_missing(settings):
        path = stores.sqlite_file(settings)
        if settings.database_url and path is not None and not path.parent.is_dir():
            raise InvalidArgumentError(f"The folder {path.parent} does not exist: create it.")
        return Result(_NEW)
    async with _opened(settings) as database:
        revision, ahead = await stores.find_revision(database), await database.clock_difference()
    if revision is None:
        return Result(f"is empty: the first start creates the tables of revision {newest()}")
    if not is_known(revision):
        raise InvalidArgumentError(
            f"The database has the tables of revision {revision}, which this version does not know: start "
            "the version that the database was last used with."
        )
    if abs(ahead) > CLOCK_BOUND:
        text = f"This machine's clock and the database's differ by {abs(ahead):.0f} seconds: synchronise them"
        return Result(text, is_doubtful=True)
    if revision != newest():
        return Result(
            f"The start upgrades its tables from revision {revision} to {newest()}",
            is_doubtful=True,
        )
    return Result(f"answers, with the tables of this version ({revision})")


async def _check_key(settings: Settings) -> Result:
    if stores.is_missing(settings):
        return Result("is given" if configured_keys(settings) else _NEW)
    async with _opened(settings) as database:
        if await stores.find_revision(database) is None:
            return Result("is given" if configured_keys(settings) else _NEW)
        keys = await database.read(lambda c: find_keys(c, settings))
    if keys.next is not None:
        text = "Its rotation was interrupted: complete it with `scbroker admin rotate-broker-key`"
        return Result(text, is_doubtful=True)
    return Result("is the one of this database")


async def _check_objects(settings: Settings) -> Result:
    url = stores.objects_url(settings)
    if url.startswith("file:"):
        folder = path_of(url)
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise InvalidArgumentError(f"{folder} cannot be read and written.")
        return Result(str(folder) if folder.exists() else f"{folder} {_NEW}")
    objects = open_blobs(url)  # not a file: URL: opening that would create the folder
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            async for _ in objects.pages():
                break
    except TimeoutError:
        raise BrokerUnavailableError("The object store did not answer in time.") from None
    return Result(
        "can be listed; /health/ready of the running broker says whether it can be written"
    )


START_CHECKS: Final[dict[str, Check]] = {
    "data folder": _check_folder,
    "address": _check_port,
    "origins": _check_origins,
    "database": _check_database,
    "broker's key": _check_key,
    "object store": _check_objects,
}


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

    def read(connection: Connection) -> tuple[str, int]:
        if connection.dialect.name == "sqlite":
            size = connection.execute(_SQLITE_SIZE).scalar_one()
            return f"SQLite {sqlite3.sqlite_version}", int(size)
        version = str(connection.execute(_POSTGRESQL_VERSION).scalar_one()).partition(" ")[0]
        return f"PostgreSQL {version}", int(connection.execute(_POSTGRESQL_SIZE).scalar_one())

    engine, size = await database.query(read)
    url = objects_url(settings)
    parts = urlsplit(url)
    objects = str(path_of(url)) if parts.scheme == "file" else f"{parts.scheme}://{parts.hostname}"
    return Health(engine, size, await database.clock_difference(), objects, disks(settings))


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
