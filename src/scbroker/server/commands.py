"""Starting a broker, and what an operator does to one. The command line calls these.

`serve` opens the broker (folder, key, database, object store, API key) and hands it to uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any, Final

import structlog
import tenacity
import uvicorn
from sqlalchemy import Connection
from starlette.applications import Starlette
from uvicorn.supervisors import Multiprocess

from scbroker.crypto.verify import sha256
from scbroker.errors import BrokerUnavailableError, InvalidArgumentError
from scbroker.records.ids import parse_uuid
from scbroker.server.admin import backup as backups
from scbroker.server.admin import check as checks
from scbroker.server.admin import owner
from scbroker.server.admin import restore as restores
from scbroker.server.admin import sweep as sweeps
from scbroker.server.admin.opened import Place, Progress, Tell
from scbroker.server.app import create_app
from scbroker.server.broker import Broker, now
from scbroker.server.capacity import connections
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.settings import Settings, load_settings
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import open_blobs
from scbroker.server.storage.broker_key import find_key, provision_key
from scbroker.server.storage.database import Database
from scbroker.server.storage.engines import open_database
from scbroker.wire.origin import canonical_origin

_GRACE_SECONDS: Final = 10
_STORE_AT_START: Final = dt.timedelta(seconds=3)
_BACKLOG: Final = 2048
_LISTENERS: Final = 16
# Longer than a database takes to start again, or to move to another machine.
_WAIT_SECONDS: Final = 120


def _say_that_it_waits(state: tenacity.RetryCallState) -> None:
    cause = state.outcome.exception() if state.outcome is not None else None
    structlog.get_logger("scbroker.server").warning(
        "waiting for the database", cause=repr(getattr(cause, "__cause__", None))
    )


_WAITING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception_type(BrokerUnavailableError),
    stop=tenacity.stop_after_delay(_WAIT_SECONDS),
    wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
    before_sleep=_say_that_it_waits,
    reraise=True,
)


def serve(settings: Settings, host: str, port: int, workers: int = 1) -> None:
    """Serves until it is told to stop. With more than one worker, PostgreSQL is needed."""
    url = database_url(settings)
    if workers > 1 and url.startswith("sqlite"):
        raise InvalidArgumentError(
            "SQLite takes one broker process: set SCBROKER_DATABASE_URL to a PostgreSQL for more."
        )
    _configure_logs()
    bound = _listen(host, port)
    port = bound.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    origins = frozenset(canonical_origin(origin) for origin in settings.origins or [address])
    prepare(settings)
    open_blobs(_blobs_url(settings))  # what is wrong with it is said now, and not by a worker
    key = asyncio.run(_provision(settings))
    _greet(address, settings, key)
    if workers == 1:
        app = create_app(lambda: open_broker(settings, origins))
        uvicorn.Server(_configuration(settings, app)).run(sockets=_listeners(bound))
        return
    # Workers are new processes: they read the settings again, from their environment.
    os.environ["SCBROKER_ORIGINS"] = ",".join(sorted(origins))
    if settings.data_dir:
        os.environ["SCBROKER_DATA_DIR"] = settings.data_dir
    config = _configuration(settings, f"{__name__}:worker_app", factory=True, workers=workers)
    Multiprocess(config, sockets=_listeners(bound)).run()


def worker_app() -> Starlette:
    """The application of one of several worker processes."""
    _configure_logs()
    settings = load_settings()
    return create_app(lambda: open_broker(settings, frozenset(settings.origins)))


def _configuration(settings: Settings, app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # its warnings name what strangers send: a line for each malformed request
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=_BACKLOG,
        http=connections.Connection,
        ws="none",
        **options,
    )


async def open_broker(settings: Settings, origins: frozenset[str]) -> Broker:
    """A broker on its database and object store, both brought to this version before.

    Where the database is away for the moment, it is waited for: a worker that does not start ends all
    the others.
    """
    database = open_database(
        database_url(settings), settings.database_connections, settings.database_wait_seconds
    )
    try:
        key: bytes = await _WAITING.copy()(database.read, lambda c: find_key(c, settings))
    except BaseException:
        await database.close()
        raise
    return Broker(settings, database, open_blobs(_blobs_url(settings)), key, origins)


def prepare(settings: Settings) -> None:
    """Makes the data folder; a new one is the operator's alone."""
    try:
        settings.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidArgumentError(
            f"The data folder {settings.directory} cannot be made: {error.strerror}."
        ) from None
    if (settings.directory / restores.UNFINISHED).exists():
        raise InvalidArgumentError(
            f"A restore was cut off in {settings.directory}: empty the folder and restore again."
        )
    if not os.access(settings.directory, os.W_OK | os.X_OK):
        raise InvalidArgumentError(f"The data folder {settings.directory} cannot be written.")


async def create_api_key(settings: Settings, name: str) -> uuid.UUID:
    """A new API key; the broker keeps its hash alone."""
    prepare(settings)
    database = open_database(database_url(settings))
    try:
        await bring_up(database)
        return await _add_key(database, uuid.uuid4(), name)
    finally:
        await database.close()


def sweep(settings: Settings, tell: Tell) -> None:
    """Removes at once what the background would remove by now, and objects that nothing names."""
    asyncio.run(sweeps.sweep(_place(settings), tell))


def check(settings: Settings, tell: Tell, progress: Progress, *, quick: bool) -> bool:
    """Tells whatever is wrong in database and object store; gives whether nothing is."""
    return asyncio.run(checks.check(_place(settings), tell, progress, quick=quick))


def backup(
    settings: Settings, target: Path, tell: Tell, progress: Progress, *, link: bool, with_key: bool
) -> bool:
    """Copies an embedded broker into an empty folder; gives whether all objects were right."""
    work = backups.backup(_place(settings), target, tell, progress, link=link, with_key=with_key)
    return asyncio.run(work)


def restore(
    settings: Settings, source: Path, tell: Tell, progress: Progress, *, damaged: bool
) -> None:
    """Puts a backup into an empty data folder, once it was verified."""
    restores.restore(_place(settings), source, tell, progress, damaged=damaged)


def _place(settings: Settings) -> Place:
    return Place(settings, database_url(settings), _blobs_url(settings))


def database_url(settings: Settings) -> str:
    return settings.database_url or f"sqlite:///{settings.directory.resolve() / 'broker.sqlite'}"


def _blobs_url(settings: Settings) -> str:
    return settings.object_store_url or (settings.directory.resolve() / "objects").as_uri()


async def _provision(settings: Settings) -> uuid.UUID | None:
    """Brings the database up to date, when it is there; gives the API key that it made, if it made one."""
    key = uuid.uuid4()
    made: bool = await _WAITING.copy()(_provision_once, settings, key)
    return key if made else None


async def _provision_once(settings: Settings, new_key: uuid.UUID) -> bool:
    """Whether the new API key is the broker's first, and is to be shown."""
    database = open_database(database_url(settings))
    try:
        await bring_up(database)
        await database.write(lambda c: provision_key(c, settings))
        await _bind(settings, database)
        if settings.api_key:
            await _add_key(database, parse_uuid(settings.api_key), "from the settings")
            return False
        return await database.write(lambda c: _add_first_key(c, new_key))
    finally:
        await database.close()


async def _bind(settings: Settings, database: Database) -> None:
    """While its object store is away, a broker serves what is small; an operator's commands do not run."""
    try:
        await owner.bind(database, open_blobs(_blobs_url(settings), _STORE_AT_START))
    except BrokerUnavailableError as error:
        structlog.get_logger("scbroker.server").warning(
            "the object store could not be asked whether it is this database's", error=str(error)
        )


def _add_first_key(connection: Connection, key: uuid.UUID) -> bool:
    """Adds an API key where there is none; gives whether it is there, also if that was at the last try."""
    key_hash = sha256(key.bytes)
    if not connection.execute(sql.ANY_API_KEY).scalar_one():
        row = {"key_hash": key_hash, "name": "made at the first start", "created_at": now()}
        connection.execute(sql.ADD_API_KEY, row)
    return sql.one(connection, sql.FIND_API_KEY, hash=key_hash) is not None


async def _add_key(database: Database, key: uuid.UUID, name: str) -> uuid.UUID:
    key_hash = sha256(key.bytes)

    def add(connection: Connection) -> None:
        if sql.one(connection, sql.FIND_API_KEY, hash=key_hash) is None:
            row = {"key_hash": key_hash, "name": name, "created_at": now()}
            connection.execute(sql.ADD_API_KEY, row)

    await database.write(add)
    return key


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise InvalidArgumentError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    bound.listen(_BACKLOG)
    bound.set_inheritable(True)
    return bound


def _listeners(bound: socket.socket) -> list[socket.socket]:
    """The same socket several times: the loop accepts one connection of each between two rounds of work.

    With one alone, new connections of a busy broker, a health check among them, wait for seconds.
    """
    copies = [bound.dup() for _ in range(_LISTENERS - 1)]
    for copy in copies:
        copy.set_inheritable(True)
    return [bound, *copies]


class _StandardError(io.RawIOBase):
    """Where the log goes. A line that cannot be written is lost, and fails no request: the disk that
    is full for the log is often the one that is full for everything."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), data)
        return len(data)


def _configure_logs() -> None:
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(
            io.TextIOWrapper(io.BufferedWriter(_StandardError()), "utf-8", "backslashreplace")
        ),
    )


def _greet(address: str, settings: Settings, key: uuid.UUID | None) -> None:
    print(f"scbroker serves {address}")
    print(f"  data   {settings.directory.resolve()}")
    print(f"  wire   {address}/openapi.json")
    if key is not None:
        print("An API key was made for programs. It is shown this once:")
        print(f"  export SCBROKER_SERVER_URL={address}")
        print(f"  export SCBROKER_API_KEY={key}")
    sys.stdout.flush()


__all__ = [
    "backup",
    "check",
    "create_api_key",
    "load_settings",
    "open_broker",
    "prepare",
    "restore",
    "serve",
    "sweep",
]
