"""The database: its interface, its two engines, and how their failures are classified.

The rest of the broker passes a plain function over a `Connection` to `read`, `query` or `write` and
gets its result. The function may run more than once: it must have no other effects. Concurrency is
limited here and nowhere else: see the engines for what waits, and for how long.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
import sqlalchemy
import tenacity
from asyncpg.exceptions import TargetServerAttributeNotMatched
from sqlalchemy import Executable, event
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from scbroker.errors import InvalidArgumentError, OverloadedError
from scbroker.server import metrics
from scbroker.server.logs import count_wait, measured
from scbroker.server.storage.driver import (
    Connection,
    PostgresConnection,
    Row,
    SqliteConnection,
    connect_sqlite,
)
from scbroker.server.storage.notices import Notices, Wake

T = TypeVar("T")
Work = Callable[[Connection], T]
Migration = Callable[[sqlalchemy.Connection], T]
_WAIT_SECONDS: Final = 5.0
DISK_FULL: Final = "The broker's disk is full: tell its operator."
_TEMPORARY_SQLITE_CODES: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
# SQLSTATE classes: role or password refused, unknown database. They count as temporary, because an operator
# can correct them while brokers run.
_NOT_ADMITTED: Final = ("28", "3D")
# Classes: connection, rollback, resources, operator intervention. Codes: idle in transaction, lock timeout.
_TEMPORARY_STATES: Final = ("08", "40", "53", "57", "25P03", "55P03", *_NOT_ADMITTED)
_DISK_FULL: Final = "53100"
# A write that finds the server read-only met a primary that became a standby. A read that gets this error has
# tried to write, which is a bug.
_TEMPORARY_FOR_WRITES: Final = (*_TEMPORARY_STATES, "25006")
# SQLSTATE classes: data exception, constraint violation.
_REFUSED_STATES: Final = ("22", "23")


class Database(ABC):
    """The broker's database."""

    @abstractmethod
    async def read(self, work: Work[T], *, large: bool = False) -> T:
        """Run reads on one snapshot; `large` if they may take more than about a millisecond."""

    @abstractmethod
    async def query(self, work: Work[T]) -> T:
        """Run reads outside a transaction: each statement sees its own snapshot. Cheaper than `read`."""

    @abstractmethod
    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        """Run `work` in a transaction, which is durable when this returns.

        `work` may insert rows without reading first whether they exist. If the transaction fails with an
        IntegrityError, or may succeed when repeated, `otherwise` runs instead (by default `work` again).
        """

    @abstractmethod
    async def migrate(self, work: Migration[T]) -> T:
        """Run a migration on a connection of SQLAlchemy, of its own and without time limits.

        `work` starts and commits its transactions itself.
        """

    @abstractmethod
    def count_load(self) -> None:
        """Set the metrics of what this process does in the database now."""

    def version(self) -> int | None:
        """Return SQLite's `PRAGMA data_version`, which every commit changes; None on PostgreSQL."""
        return None

    async def scrub(self) -> bool:
        """Remove replaced and deleted rows from SQLite's write-ahead log; return whether that was possible.

        It is not possible while another process reads for long. PostgreSQL vacuums at times of its own.
        """
        return True

    async def clock_difference(self) -> float:
        """Return by how many seconds this machine's clock is ahead of the database's."""
        return 0.0  # a file is on this machine

    @abstractmethod
    def listening(self, wake: Wake) -> contextlib.AbstractAsyncContextManager[None]:
        """Call `wake` in a block with the users that committed transactions named in `Connection.woken`.

        On PostgreSQL this includes transactions of other processes. `wake(None)` stands for all users, after
        a time in which notices may have been missed.
        """

    @abstractmethod
    async def close(self) -> None: ...


class NewRows(dict[Any, list[dict[str, Any]]]):
    """Rows by their table, or by another statement, so that each statement runs once for all of its rows.

    `woken` are the users to wake after the transaction.
    """

    def __init__(self) -> None:
        super().__init__()
        self.woken: set[bytes] = set()

    def add(self, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.setdefault(statement, []).extend(rows)

    def of(self, statement: Any) -> Sequence[dict[str, Any]]:
        return self.get(statement, ())

    def take(self, other: NewRows) -> None:
        """Append the rows of another collection."""
        self.woken |= other.woken
        for statement, rows in other.items():
            self.add(statement, rows)

    def write(self, connection: Connection) -> None:
        """Run the statements in the order in which they were first added, and forget them."""
        while self:
            statement = next(iter(self))
            connection.execute(statement, self.pop(statement))
        connection.woken.update(self.woken)


def one(connection: Connection, statement: Executable, **values: object) -> Row | None:
    """Return the row, or None if there is none."""
    return connection.execute(statement, values).one_or_none()


def the(connection: Connection, statement: Executable, **values: object) -> Row:
    """Return the row, which must exist."""
    return connection.execute(statement, values).one()


# Failures


@contextlib.contextmanager
def _working(kind: str, temporary: tuple[str, ...] = _TEMPORARY_STATES) -> Iterator[None]:
    """Measure work of this kind; raise a temporary failure as `OverloadedError`: the client retries."""
    try:
        with measured("database", kind):
            yield
    except OverloadedError:
        metrics.DATABASE_FAILURES.inc()
        raise
    except (PoolTimeoutError, OSError, DBAPIError, sqlite3.Error) as error:
        failure = _failure(error, temporary)
        if failure is None:
            raise
        metrics.DATABASE_FAILURES.inc()
        raise failure from error


def _failure(error: Exception, temporary: tuple[str, ...]) -> OverloadedError | None:
    """Return the error that answers a temporary failure; None for any other failure."""
    if isinstance(error, PoolTimeoutError):
        return _waited_too_long()
    if isinstance(error, OSError):
        return OverloadedError("The broker's database is not reachable.", retryAfter=1)
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    standby = isinstance(getattr(cause, "__cause__", None), TargetServerAttributeNotMatched)
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    busy, state = code in _TEMPORARY_SQLITE_CODES, _state(error)
    if not (standby or lost or busy or state.startswith(temporary)):
        return None
    if state.startswith(_NOT_ADMITTED):
        text = "The broker's database does not admit the broker: tell its operator."
    elif code == sqlite3.SQLITE_FULL or state == _DISK_FULL:
        text = DISK_FULL
    else:
        text = "The broker's database cannot answer now: try again."
    return OverloadedError(text, retryAfter=1)


def _state(error: BaseException) -> str:
    """Return PostgreSQL's code of an error, or an empty string."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def _waited_too_long() -> OverloadedError:
    return OverloadedError("The request waited too long for the database: try again.", retryAfter=2)


def is_of_database(error: Exception) -> bool:
    """Return whether the database failed, as opposed to refusing this data: a retry may succeed."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | sqlite3.Error | OverloadedError)
    return not (
        isinstance(error, IntegrityError | DataError) or _state(error).startswith(_REFUSED_STATES)
    )


def _migrated(engine: sqlalchemy.Engine, work: Migration[T]) -> T:
    with engine.connect() as connection:
        return work(connection)


# SQLite

_BATCH: Final = 256
_READERS: Final = 4
# How long a scrub waits for readers. The writer waits for the scrub meanwhile.
_SCRUB_MILLISECONDS: Final = 100


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    future: asyncio.Future[Any]
    deadline: float
    """On the monotonic clock; a job that is not started by then is refused."""
    queued: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    """Seconds until the job was started."""
    result: Any = None
    error: BaseException | None = None
    woken: Collection[bytes] = ()

    def run(self, connection: Connection) -> None:
        self.result, self.error, self.woken = None, None, ()
        connection.woken = set()
        started = time.monotonic()
        self.waited = started - self.queued
        if started > self.deadline:
            self.error = _waited_too_long()
            return
        try:
            connection.run("SAVEPOINT job")
            try:
                self.result = self.work(connection)
                self.woken = connection.woken
            except Exception as error:
                self.error = error
                connection.run("ROLLBACK TO job")
            connection.run("RELEASE job")
        except Exception as error:
            # When the disk is full, SQLite drops the savepoint too and the rollback fails as well. Only
            # the first error says what to do.
            self.error = self.error or error


class SqliteDatabase(Database):
    """SQLite in WAL mode with synchronous=FULL: an acknowledged write survives a power cut.

    One writer thread commits all queued jobs as one transaction, each under a savepoint (group commit). Short
    reads run on the event loop, large ones in a few threads. A job that waited too long is refused undone.

    After a failed fsync it is safe to go on in WAL mode. The frames of a commit are written and synced before
    any reader sees them; a commit whose sync failed is rolled back, and the next commit writes its own frames
    anew at the same place. A checkpoint copies from the log until its own sync succeeds. Nothing relies on a
    page that the kernel marked clean without writing it. A commit that failed in this way may still be found
    after a restart: to the client it is a request without an answer, and sending the same record again is
    safe. So the broker answers 503, and works again when the disk does. (PostgreSQL ends itself instead, and
    recovers from its log.)
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path, self._wait = path, wait
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Connections for the writer thread, for reads on the event loop, and unused ones of reading threads.
        self._writing, self._reader = self._connect(), self._connect()
        # Savepoints keep replaced pages in memory: by default, even those of one create go to a temporary
        # file.
        self._writing.driver.execute("PRAGMA temp_store=MEMORY")
        self._unused: list[SqliteConnection] = []
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="scbroker-read")
        self._free_threads = asyncio.Semaphore(_READERS)
        self._reading = self._waiting = 0
        self._is_writing = False
        self._writer = threading.Thread(target=self._write_all, name="scbroker-write", daemon=True)
        self._wake: Wake = _wake_nobody
        self._writer.start()

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        with _working("read"):
            if large:
                return await self._read_in_thread(work)
            with self._reader.transaction():
                return work(self._reader)

    async def _read_in_thread(self, work: Work[T]) -> T:
        started = time.monotonic()
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait):
                await self._free_threads.acquire()
        except TimeoutError:
            raise _waited_too_long() from None
        finally:
            self._waiting -= 1
            count_wait(time.monotonic() - started)
        self._reading += 1
        try:
            return await self._loop.run_in_executor(self._threads, self._read_alone, work)
        finally:
            self._reading -= 1
            self._free_threads.release()

    def _connect(self) -> SqliteConnection:
        return SqliteConnection(connect_sqlite(self._path))

    def _read_alone(self, work: Work[T]) -> T:
        connection = self._unused.pop() if self._unused else self._connect()
        try:
            with connection.transaction():
                return work(connection)
        finally:
            self._unused.append(connection)

    async def query(self, work: Work[T]) -> T:
        with _working("query"):
            return work(self._reader)

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        deadline = time.monotonic() + self._wait
        with _working("write"):
            try:
                return await self._queued(work, deadline)
            except IntegrityError:
                return await self._queued(otherwise or work, deadline)

    async def _queued(self, work: Work[T], deadline: float) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        job = _Job(work, future, deadline)
        self._jobs.put(job)
        try:
            return await future
        finally:
            count_wait(job.waited)

    async def migrate(self, work: Migration[T]) -> T:
        engine = sqlalchemy.create_engine(
            "sqlite://", creator=partial(connect_sqlite, self._path), poolclass=NullPool
        )
        event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN IMMEDIATE"))
        with _working("migrate"):
            return await asyncio.to_thread(_migrated, engine, work)

    def count_load(self) -> None:
        metrics.DATABASE_IN_USE.set(self._reading + self._is_writing)
        metrics.DATABASE_LIMIT.set(_READERS + 1)
        metrics.DATABASE_WAITING.set(self._waiting + self._jobs.qsize())

    def version(self) -> int | None:
        try:
            return int(self._reader.driver.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:  # the next read raises the error
            return None

    async def scrub(self) -> bool:
        def truncate() -> bool:
            with contextlib.closing(connect_sqlite(self._path)) as driver:
                driver.execute(f"PRAGMA busy_timeout={_SCRUB_MILLISECONDS}")
                [is_busy, *_] = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not is_busy

        with _working("scrub"):
            return await asyncio.to_thread(truncate)

    @contextlib.asynccontextmanager
    async def listening(self, wake: Wake) -> AsyncIterator[None]:
        self._wake = wake  # no other process writes
        try:
            yield
        finally:
            self._wake = _wake_nobody

    async def close(self) -> None:
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        self._threads.shutdown()
        for each in (self._writing, self._reader, *self._unused):
            each.driver.close()

    def _write_all(self) -> None:
        """Commit batches until `close` queues None."""
        while True:
            queued = self._next_queued()
            batch = [job for job in queued if job is not None]
            self._is_writing = True
            # If the transaction breaks, each job gets one of its own.
            if batch and not self._try_commit(batch):
                for job in batch:
                    self._try_commit([job])
            self._is_writing = False
            self._loop.call_soon_threadsafe(self._resolve, batch)
            if queued[-1] is None:
                return

    def _resolve(self, jobs: list[_Job]) -> None:
        woken: set[bytes] = set()
        for job in jobs:
            if job.error is None:  # the job has committed, even if its request was cancelled
                woken.update(job.woken)
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)
        if woken:
            self._wake(woken)

    def _next_queued(self) -> list[_Job | None]:
        """Wait for a job; return it with those that are queued after it."""
        queued = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while queued[-1] is not None and len(queued) < _BATCH:
                queued.append(self._jobs.get_nowait())
        return queued

    def _try_commit(self, batch: list[_Job]) -> bool:
        try:
            with self._writing.transaction("BEGIN IMMEDIATE"):
                for job in batch:
                    job.run(self._writing)
                    if not self._writing.driver.in_transaction:
                        # The disk is full: SQLite rolled everything back, and later jobs would autocommit.
                        raise job.error or sqlite3.OperationalError("the transaction is gone")
        except Exception as error:
            for job in batch:
                if job.error is None or isinstance(job.error, DBAPIError):
                    job.result, job.error = None, error
            return False
        return True


def _wake_nobody(users: Collection[bytes] | None) -> None:
    del users


# PostgreSQL

_CONNECT_SECONDS: Final = 10.0
_OF_DIALECT: Final = {"prepared_statement_cache_size", "prepared_statement_name_func"}
"""Parameters of a URL that SQLAlchemy does not pass on to asyncpg."""
_STATEMENT_SECONDS: Final = 30
# The server enforces these, also when the broker process has hung or is gone.
_SERVER_SETTINGS: Final = {
    "statement_timeout": "25s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
_CLOCK: Final = sqlalchemy.text("SELECT extract(epoch FROM clock_timestamp())")
_RETRIED_STATES: Final = {"40001", "40P01"}
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresDatabase(Database):
    """PostgreSQL through asyncpg; several broker processes may share one database.

    A request waits for one of the pool's connections. Serialization failures and deadlocks are retried.
    The server ends statements that take too long. All connections go to the primary: a standby lags, and a
    client that was told of a write might not find it there.
    """

    def __init__(self, url: str, pool_size: int, wait: float) -> None:
        self._url = url
        limits = {"command_timeout": _STATEMENT_SECONDS, "server_settings": _SERVER_SETTINGS}
        self._engine = _postgresql_engine(
            url, limits, pool_size=pool_size, max_overflow=0, pool_timeout=wait
        )
        event.listen(self._engine.sync_engine, "checkout", _check_is_open)
        self._notices: Notices | None = None
        self._in_use = self._waiting = 0
        self._pool_size = pool_size

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        del large  # asyncpg does not block the event loop

        def read() -> T:
            with self._connected() as connection, connection.transaction(_SNAPSHOT):
                return work(connection)

        with _working("read"):
            return await greenlet_spawn(read)

    async def query(self, work: Work[T]) -> T:
        def query() -> T:
            with self._connected() as connection:
                return work(connection)

        with _working("query"):
            return await greenlet_spawn(query)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Wait for a pooled connection, and provide it. Outside of `transaction`, each statement commits."""
        started = time.monotonic()
        self._waiting += 1
        try:
            lent = self._engine.sync_engine.raw_connection()
        except self._engine.dialect.loaded_dbapi.Error as error:
            raise DBAPIError(None, None, error) from error
        finally:
            self._waiting -= 1
            count_wait(time.monotonic() - started)
        self._in_use += 1
        connection = PostgresConnection(lent.driver_connection, self._engine.dialect)
        try:
            yield connection
        except BaseException as error:
            # A statement of a cancelled request may still run on this connection.
            if not (isinstance(error, Exception) and connection.is_reusable):
                lent.invalidate()
            raise
        finally:
            self._in_use -= 1
            lent.close()

    def _written(self, work: Work[T], woken: set[bytes]) -> T:
        """Return the result of a committed transaction, and add the users to wake to `woken`."""
        with self._connected() as connection, connection.transaction():
            result = work(connection)
            woken.update(connection.woken)
        return result

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        attempts = itertools.chain([work], itertools.repeat(otherwise or work))
        with _working("write", _TEMPORARY_FOR_WRITES):
            async for attempt in _RETRYING.copy():
                with attempt:
                    woken: set[bytes] = set()
                    try:
                        return await greenlet_spawn(self._written, next(attempts), woken)
                    finally:  # also after an error: the transaction may have committed
                        if woken and self._notices is not None:
                            self._notices.add(woken)
        raise AssertionError("the last attempt returns or raises")

    async def migrate(self, work: Migration[T]) -> T:
        with _working("migrate", _TEMPORARY_FOR_WRITES):
            engine = _postgresql_engine(self._url, {}, poolclass=NullPool).sync_engine
            return await greenlet_spawn(_migrated, engine, work)

    def count_load(self) -> None:
        metrics.DATABASE_IN_USE.set(self._in_use)
        metrics.DATABASE_LIMIT.set(self._pool_size)
        metrics.DATABASE_WAITING.set(self._waiting)

    async def clock_difference(self) -> float:
        def ask(connection: Connection) -> float:
            before = time.time()
            stated = float(connection.execute(_CLOCK).scalar_one())
            return (before + time.time()) / 2 - stated

        return await self.query(ask)

    @contextlib.asynccontextmanager
    async def listening(self, wake: Wake) -> AsyncIterator[None]:
        self._notices = Notices(_postgresql_engine(self._url, {}, poolclass=NullPool), wake)
        listening = asyncio.create_task(self._notices.run())
        try:
            yield
        finally:
            self._notices = None
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def close(self) -> None:
        await self._engine.dispose()


def _check_is_open(adapted: Any, *_: object) -> None:
    """Make the pool replace its connections if the server has closed the one that is checked out."""
    if adapted.driver_connection.is_closed():
        raise InvalidatePoolError


def _postgresql_engine(url: str, limits: dict[str, Any], **pool: Any) -> AsyncEngine:
    connect = {"timeout": _CONNECT_SECONDS, "target_session_attrs": "primary", **limits}
    # Errors are logged, and what users sent must not be in the log.
    return create_async_engine(url, connect_args=connect, hide_parameters=True, **pool)


def _may_succeed_if_repeated(error: BaseException) -> bool:
    # Two transactions found a row absent and inserted it: the second finds it when repeated.
    return isinstance(error, IntegrityError) or _state(error) in _RETRIED_STATES


_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception(_may_succeed_if_repeated),
    stop=tenacity.stop_after_attempt(8),
    wait=tenacity.wait_exponential_jitter(multiplier=0.005, max=0.2, jitter=0.01),
    reraise=True,
)


def open_database(url: str, pool_size: int = 16, wait: float = _WAIT_SECONDS) -> Database:
    """Open a SQLite file, or a pool of `pool_size` connections to a PostgreSQL server.

    A request that waits longer than `wait` seconds for a thread or connection is refused. Raises
    `InvalidArgumentError` if the URL names another engine.
    """
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")).absolute(), wait)
    if url.startswith(("postgresql://", "postgresql+asyncpg://")):
        _check_parameters(async_url(url))
        return PostgresDatabase(async_url(url), pool_size, wait)
    raise InvalidArgumentError("database_url must begin with sqlite:/// or postgresql://.")


def _check_parameters(url: str) -> None:
    """Raise `InvalidArgumentError`, without the password, if a URL is invalid or has an unknown parameter."""
    try:
        parsed = sqlalchemy.make_url(url)
        _, given = parsed.get_dialect()().create_connect_args(parsed)
    except (ValueError, ArgumentError):
        raise InvalidArgumentError(
            "database_url must be as postgresql://USER:PASSWORD@HOST:5432/NAME, with %2F for a slash in the "
            "password and so on."
        ) from None
    for name in given.keys() - inspect.signature(asyncpg.connect).parameters.keys() - _OF_DIALECT:
        raise InvalidArgumentError(
            f"database_url has the unknown parameter {name}: it takes those of asyncpg, such as ssl=require."
        )


def async_url(url: str) -> str:
    """Return the URL of a PostgreSQL database with the driver that SQLAlchemy is to use."""
    return "postgresql+asyncpg://" + url.split("://", 1)[1]
