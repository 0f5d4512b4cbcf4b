"""Start a broker, and load the settings of the commands that administer it.

`serve` opens the broker (data folder, key, database, object store, first API key) and runs it under uvicorn.
"""

import asyncio
import contextlib
import datetime
import gc
import importlib.metadata
import multiprocessing
import os
import shlex
import signal
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import structlog
import tenacity
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from scbroker import tracing
from scbroker.errors import BrokerUnavailableError, InvalidArgumentError
from scbroker.records.canonical import parse_uuid
from scbroker.server import capacity, logs, metrics
from scbroker.server.admin import api_keys, stores
from scbroker.server.admin.starting import address_of as address_of
from scbroker.server.admin.starting import bind, origins
from scbroker.server.app import create_app
from scbroker.server.broker import Broker
from scbroker.server.keys import KEY, Keys, find_keys
from scbroker.server.migrations.upgrade import bring_up, newest
from scbroker.server.settings import Settings as Settings
from scbroker.server.settings import changed, load_settings
from scbroker.server.settings import explain_settings as explain_settings
from scbroker.server.storage.blobs import Blobs
from scbroker.server.storage.database import Database, open_database
from scbroker.server.users.accounts import COUNT_USERS
from scbroker.wire.users import canonical_origin

_log: Final = structlog.get_logger("scbroker.server")
_GRACE_SECONDS: Final = 10
_BACKLOG: Final = 2048
_LISTENERS: Final = 16
# Longer than a database takes to restart or to fail over to another machine.
_WAIT_SECONDS: Final = 120


def _log_waiting(state: tenacity.RetryCallState) -> None:
    cause = state.outcome.exception() if state.outcome is not None else None
    _log.warning("waiting for the database", cause=repr(getattr(cause, "__cause__", None)))


_WAITING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception_type(BrokerUnavailableError),
    stop=tenacity.stop_after_delay(_WAIT_SECONDS),
    wait=tenacity.wait_exponential_jitter(multiplier=0.1, max=2.0, jitter=0.1),
    before_sleep=_log_waiting,
    reraise=True,
)


def begin(data_dir: str | None, **options: Any) -> Settings:
    """Load the settings of a command. Files that it creates from then on are closed to other users."""
    os.umask(0o077)
    logs.configure()
    return load_settings(data_dir=data_dir, **options)


def serve(settings: Settings) -> None:
    """Serve until a signal stops the process. More than one worker needs PostgreSQL."""
    if settings.workers > 1 and stores.sqlite_file(settings):
        raise InvalidArgumentError(
            "SQLite allows one broker process: set SCBROKER_DATABASE_URL to a PostgreSQL for more workers."
        )
    of_clients = origins(settings)
    listeners = _listen(settings.host, settings.port)
    address = address_of(settings.host, listeners[0].getsockname()[1])
    found = of_clients or frozenset([canonical_origin(address)])
    prepare(settings)
    with stores.only_broker(settings):
        key = uuid.uuid4()
        ready: tuple[int | None, bool] = asyncio.run(_WAITING.copy()(_provision, settings, key))
        users, is_first = ready
        _log.info(
            "started",
            version=importlib.metadata.version("scbroker"),
            address=address,
            workers=settings.workers,
            database=stores.database_url(settings).partition(":")[0],
            objects=stores.objects_url(settings).partition(":")[0],
            revision=newest(),
            settings=changed(settings),
        )
        _greet(address, settings, key if is_first else None, users)
        if settings.workers == 1:
            tracing.start("scbroker")
            app = create_app(lambda: _lasting_broker(settings, found))
            uvicorn.Server(_configuration(settings, app)).run(sockets=listeners)
            return
        # Workers are new processes, which load the settings from their environment.
        os.environ["SCBROKER_ORIGINS"] = ",".join(sorted(found))
        if settings.data_dir:
            os.environ["SCBROKER_DATA_DIR"] = settings.data_dir
        config = _configuration(
            settings, f"{__name__}:worker_app", factory=True, workers=settings.workers
        )
        with metrics.shared_by_workers():
            Multiprocess(config, sockets=listeners).run()


def worker_app() -> Starlette:
    """Return the application of one of several worker processes, which ends with its parent."""
    logs.configure()
    tracing.start("scbroker")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings = load_settings()
    return create_app(lambda: _lasting_broker(settings, frozenset(settings.origins)))


def _end_with_parent() -> None:
    """End this worker when its parent is gone: a worker that is left over would keep the port."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _configuration(settings: Settings, app: Any, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # a warning for each malformed request would let strangers fill the log
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=_BACKLOG,
        http=capacity.Connection,
        ws="none",
        **options,
    )


@contextlib.asynccontextmanager
async def in_process(
    variables: Mapping[str, str], data_dir: str, origin: str
) -> AsyncIterator[tuple[ASGIApp, dict[str, Any]]]:
    """Open a broker in this process, for tests; yield its ASGI application and the state of its requests.

    It has no log of its own: unless this process has configured structlog, lines go to `logging`.
    """
    settings = load_settings(variables, data_dir=data_dir)
    if not structlog.is_configured():
        structlog.configure(
            # Fields in the text: as attributes of a record some would collide with logging's own.
            processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
            logger_factory=structlog.stdlib.LoggerFactory(),
        )
    prepare(settings)
    with stores.only_broker(settings):
        await _provision(settings, uuid.uuid4())
        app = create_app(lambda: open_broker(settings, origins(settings) or frozenset([origin])))
        async with app.router.lifespan_context(app) as found:
            state = dict(found or {})
            try:
                yield capacity.served(app, state["gate"]), state
            finally:
                state["gate"].followers.end()


async def _lasting_broker(settings: Settings, origins: frozenset[str]) -> Broker:
    """Open a broker that lives as long as the process."""
    broker = await open_broker(settings, origins)
    gc.freeze()  # exclude what exists now from garbage collection
    return broker


async def open_broker(settings: Settings, origins: frozenset[str]) -> Broker:
    """Open a broker whose database was upgraded to this version before.

    Waits while the database is unavailable: a worker that fails to start would end all other workers.
    """
    url, limits = stores.database_url(settings), settings
    database = open_database(url, limits.database_connections, limits.database_wait_seconds)
    try:
        keys: Keys = await _WAITING.copy()(database.read, lambda c: find_keys(c, settings))
        objects: Blobs = await _WAITING.copy()(stores.open_objects, settings, database)
    except BaseException:
        await database.close()
        raise
    return Broker(settings, database, objects, keys.active, origins)


def prepare(settings: Settings) -> None:
    """Create the data folder, which only the operator can read, or check that it can be used."""
    try:
        settings.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidArgumentError(
            f"The data folder {settings.directory} cannot be created: {error.strerror}."
        ) from None
    try:
        stores.check_restored(settings.directory)
        stores.make_private(settings.directory)
    except PermissionError:
        folder = settings.directory
        raise InvalidArgumentError(
            f"The broker's user cannot list the data folder {folder}: run chown {os.geteuid()} {folder} and "
            f"chmod 700 {folder} as an administrator, or name another folder with --data-dir."
        ) from None
    if not os.access(settings.directory, os.W_OK | os.X_OK):
        raise InvalidArgumentError(f"The data folder {settings.directory} cannot be written.")


async def create_api_key(
    settings: Settings, name: str, expires: datetime.datetime | None = None
) -> uuid.UUID:
    """Create and return an API key, also before the first start; the broker stores only its hash."""
    prepare(settings)
    key = uuid.uuid4()
    async with _upgraded(settings) as (database, _):
        broker_key = await database.write(lambda c: stores.provision(c, settings))
        await database.write(lambda c: api_keys.create(c, broker_key, key, name, expires))
    return key


@contextlib.asynccontextmanager
async def _upgraded(settings: Settings) -> AsyncIterator[tuple[Database, bool]]:
    """Open the database with the tables of this version; yield also whether it is new."""
    database = open_database(stores.database_url(settings))
    try:
        before, seconds = await bring_up(database)
        if before != newest():
            _log.info("tables upgraded", before=before, after=newest(), seconds=seconds)
        yield database, before is None
    finally:
        await database.close()


async def _provision(settings: Settings, new_key: uuid.UUID) -> tuple[int | None, bool]:
    """Upgrade and prepare the database.

    Return how many users it has, None for a new database, and whether `new_key` became its first API key.
    """
    async with _upgraded(settings) as (database, is_new):
        users = (
            None if is_new else await database.read(lambda c: c.execute(COUNT_USERS).scalar_one())
        )
        broker_key = await database.write(lambda c: stores.provision(c, settings))
        await stores.open_objects(settings, database)  # report a wrong URL here, not in each worker
        if not settings.api_key:
            is_first = await database.write(lambda c: api_keys.add_first(c, broker_key, new_key))
            if is_first:
                _log.info("API key made")
            return users, is_first
        key = parse_uuid(settings.api_key)
        if not await database.write(lambda c: api_keys.add_of_settings(c, broker_key, key)):
            _log.warning("the API key of the settings was revoked or has expired")
        return users, False


def _listen(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket and duplicates: the event loop accepts one connection of each per iteration.

    With a single one, new connections to a busy broker, health checks among them, would wait for seconds.
    """
    bound = bind(host, port)
    bound.listen(_BACKLOG)
    listeners = [bound, *(bound.dup() for _ in range(_LISTENERS - 1))]
    for listener in listeners:
        listener.set_inheritable(True)
    return listeners


def _address_for_programs(address: str, settings: Settings) -> str:
    """Return an address at which log-ins are accepted: the bound one if it is among the origins."""
    origins = settings.origins or [address]
    with contextlib.suppress(InvalidArgumentError):  # raised for http to another machine
        if canonical_origin(address) in map(canonical_origin, origins):
            return address
    return origins[0]


def _greet(address: str, settings: Settings, key: uuid.UUID | None, users: int | None) -> None:
    """Print where the broker is, and what a newcomer does next. Programs read the first line."""
    print(f"scbroker serves {address}")
    if settings.origins:
        print(f"  for    {', '.join(settings.origins)}")
    folder = str(settings.directory.resolve())
    where = f"in {folder}" if stores.sqlite_file(settings) else f"on PostgreSQL, files in {folder}"
    # Say whether data was found: in a wrong folder, an empty broker starts.
    if users is None:
        print(f"  data   new database {where}")
    else:
        print(f"  data   existing database {where}, {users:,} user{'' if users == 1 else 's'}")
    print(f"  wire   {address}/openapi.json")
    if key is not None and not settings.broker_key:
        path = settings.directory.resolve() / KEY
        print(
            f"  key    {path}: store a copy elsewhere. Without it nobody can log in with a passphrase"
        )
    option = f" --data-dir {shlex.quote(settings.data_dir)}" if settings.data_dir else ""
    if key is not None:
        print("An API key for programs was created. It is printed only this once:")
        print(f"  export SCBROKER_SERVER_URL={_address_for_programs(address, settings)}")
        print(f"  export SCBROKER_API_KEY={key}")
        print("With these two set, this makes a user:")
        print("  scbroker register --name Alice")
    else:
        print(f"For an API key: scbroker admin api-keys create NAME{option}")
    sys.stdout.flush()
