"""Check whether a broker can start with its settings, without changing anything."""

import asyncio
import errno
import http.client
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from scbroker.errors import BrokerUnavailableError, InvalidArgumentError
from scbroker.server.admin import stores
from scbroker.server.admin.backup import UNFINISHED
from scbroker.server.keys import configured_keys, find_keys
from scbroker.server.migrations.upgrade import is_known, newest
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import open_blobs, path_of
from scbroker.server.storage.database import Database, open_database
from scbroker.wire.users import canonical_origin

T = TypeVar("T")
_STORE_SECONDS: Final = 10.0
_PORT_SECONDS: Final = 2.0
_CLOCK_BOUND: Final = 30.0
_NEW: Final = "is created at the first start"


class Result(NamedTuple):
    text: str
    is_doubtful: bool = False
    """Whether it stops nothing, but somebody should look at it."""


Check = Callable[[Settings], Coroutine[Any, Any, Result]]
"""Raises a `BrokerError` for what keeps a broker from starting."""


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
    if (folder / UNFINISHED).exists():
        raise InvalidArgumentError(
            f"A restore was cut off in {folder}: empty the folder and restore again."
        )
    if not stores.can_be_private(folder):
        raise stores.open_to_others(folder)
    return Result(str(folder))


async def _check_port(settings: Settings) -> Result:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        with socket.socket(family) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE and _is_broker(settings.host, settings.port):
            return Result(
                f"A broker serves at {where} now: stop it before the start", is_doubtful=True
            )
        raise InvalidArgumentError(f"{where}: {error.strerror}.") from None
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


def origins(settings: Settings) -> frozenset[str]:
    """Return the origins in canonical form; `InvalidArgumentError` names the wrong one."""
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


async def _check_database(settings: Settings) -> Result:
    url = stores.database_url(settings)
    if settings.workers > 1 and stores.is_sqlite(settings):
        raise InvalidArgumentError("SQLite allows one process: set SCBROKER_WORKERS to 1.")
    if not stores.exists(url):
        return Result(_NEW)
    revision, ahead = await _ask(url, _revision_and_clock)
    if revision is None:
        return Result(f"It is empty: its tables are those of {newest()} after the first start")
    if not is_known(revision):
        raise InvalidArgumentError(
            f"The database has the tables of revision {revision}, which this version does not know: start "
            "the version that the database was last used with."
        )
    if abs(ahead) > _CLOCK_BOUND:
        return Result(f"The clocks differ by {ahead:.0f} seconds: set them", is_doubtful=True)
    if revision != newest():
        return Result(
            f"It is brought from revision {revision} to {newest()} at the start", is_doubtful=True
        )
    return Result(f"answers, with the tables of this version ({revision})")


async def _revision_and_clock(database: Database) -> tuple[str | None, float]:
    return await stores.find_revision(database), await database.clock_difference()


async def _check_key(settings: Settings) -> Result:
    own = configured_keys(settings)
    url = stores.database_url(settings)
    if not stores.exists(url) or await _ask(url, stores.find_revision) is None:
        return Result("is given" if own else _NEW)

    async def find(database: Database) -> bool:
        keys = await database.read(lambda c: find_keys(c, settings))
        return keys.next is not None

    if await _ask(url, find):
        text = "It is being rotated: end that with `scbroker admin rotate-broker-key`"
        return Result(text, is_doubtful=True)
    return Result("is the one of this database")


async def _check_objects(settings: Settings) -> Result:
    url = stores.objects_url(settings)
    if url.startswith("file:"):
        folder = path_of(url)
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise InvalidArgumentError(f"{folder} cannot be read and written.")
        return Result(str(folder) if folder.exists() else f"{folder} {_NEW}")
    objects = open_blobs(url)  # it would create a folder
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            async for _ in objects.pages():
                break
    except TimeoutError:
        raise BrokerUnavailableError("The object store did not answer in time.") from None
    return Result("can be listed; whether it can be written is known at the start")


async def _ask(url: str, work: Callable[[Database], Awaitable[T]]) -> T:
    database = open_database(url)
    try:
        return await work(database)
    finally:
        await database.close()


START_CHECKS: Final[dict[str, Check]] = {
    "data folder": _check_folder,
    "address": _check_port,
    "origins": _check_origins,
    "database": _check_database,
    "broker's key": _check_key,
    "object store": _check_objects,
}
