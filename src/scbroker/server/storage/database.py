"""One set of queries, two engines: SQLite embedded, PostgreSQL for more than one machine.

The rest of the broker hands a plain function over a `Connection` to `read` or `write` and gets its
result. `write` runs it in a transaction that is durable when the call returns, and may run it
more than once: it must be pure but for the connection, and for what it does not take for granted
again. `read` gives it one snapshot.

When the disk fails: SQLite's WAL makes it safe to go on after an fsync that failed. The frames of a
commit are written and synced before any reader sees them, a commit whose sync failed is taken back,
and the next one writes all of its own frames anew at the same place; a checkpoint copies from the
log again until its own sync has succeeded. Nothing relies on a page that the kernel marked clean
without writing it. A commit that failed so may still be found by a restart: for the client it is
one without an answer, and the same record again is the same record. So the broker answers 503,
and works again when the disk does. (PostgreSQL ends itself instead, and recovers from its log.)

SQLite: one writer thread commits what has queued up as one transaction, a SAVEPOINT each (group
commit); a job that waited too long for its turn is refused, and not done. PostgreSQL: asyncpg;
serialisation failures and deadlocks are retried; the server ends what takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import sqlalchemy
import tenacity
from asyncpg.exceptions import TargetServerAttributeNotMatched
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, QueuePool, StaticPool
from sqlalchemy.util import greenlet_spawn

from scbroker.errors import InvalidArgumentError, OverloadedError

T = TypeVar("T")
Work = Callable[[Connection], T]
_BATCH: Final = 256
_READERS: Final = 4
_WAIT_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 30
# Ends on the server what a broker cannot end any more, or has forgotten.
_SERVER_SETTINGS: Final = {
    "statement_timeout": "25s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
_RETRY_STATES: Final = {"40001", "40P01"}
# Busy, locked, I/O error, full, cannot open; connections, rollbacks, resources, operator's stop.
_SQLITE_PASSING: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
# Also a transaction that idled, and a lock that was not had.
_POSTGRES_PASSING: Final = ("08", "40", "53", "57", "25P03", "55P03")
# Of who writes: the primary became a standby, or takes no writes for now. Of who reads it is a fault.
_WRITER_PASSING: Final = (*_POSTGRES_PASSING, "25006")
# What it was given is no such value, or breaks a constraint.
_REFUSED: Final = ("22", "23")


class Database(Protocol):
    """Where the broker keeps rows."""

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        """Runs a reading function on one snapshot; `large` when it may take more than a moment."""
        ...

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        """Run `work` in a transaction, which is durable when this returns.

        `work` may insert rows without reading first whether they exist. If the transaction fails with an
        IntegrityError, or may succeed when repeated, `otherwise` runs instead (by default `work` again).
        """
        ...

    async def change(self, work: Work[T]) -> T:
        """Runs what changes tables, in a transaction, however long it takes."""
        ...

    async def build(self, work: Work[T]) -> T:
        """Runs what changes tables beside writers: on PostgreSQL in no transaction, however long it takes."""
        ...

    async def look(self, work: Work[T]) -> T:
        """Reads where each statement stands for itself, and needs no transaction around it."""
        ...

    def version(self) -> int | None:
        """A number that is another one after whatever was written; None where there is none."""
        ...

    async def close(self) -> None: ...


def open_database(url: str, pool_size: int = 16, wait: float = _WAIT_SECONDS) -> Database:
    """The database of a URL; `InvalidArgumentError` if no engine of ours fits it.

    Whatever waited so many seconds for SQLite's writer, or for a connection to PostgreSQL, is refused.
    """
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")), wait)
    if url.startswith(("postgresql://", "postgresql+asyncpg://")):
        return PostgresDatabase(async_url(url), pool_size, wait)
    raise InvalidArgumentError("database_url must begin with sqlite:/// or postgresql://.")


def async_url(url: str) -> str:
    return "postgresql+asyncpg://" + url.split("://", 1)[1]


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    future: asyncio.Future[Any]
    until: float
    """When the one who asked waits no longer, on the monotonic clock."""
    outcome: Any = None
    error: BaseException | None = None

    def run(self, connection: Connection) -> None:
        self.outcome, self.error = None, None
        if time.monotonic() > self.until:
            self.error = OverloadedError("The write waited for too long: it was not done.", 2)
            return
        try:
            # By hand: `begin_nested` names each of them anew, and compiles a statement for the name.
            driver = _driver(connection)
            driver.execute("SAVEPOINT job")
            try:
                self.outcome = self.work(connection)
            except Exception as error:
                self.error = error
                driver.execute("ROLLBACK TO job")
            driver.execute("RELEASE job")
        except Exception as error:
            # Out of space SQLite has dropped the savepoint too: going back to it fails as well, and
            # only the first error says what to do.
            self.error = self.error or error

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome)


class SqliteDatabase:
    """SQLite in WAL mode, synchronous=FULL: an acknowledged write survives a power cut."""

    def __init__(self, path: Path, wait: float = _WAIT_SECONDS) -> None:
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writing = _sqlite_engine(path, "BEGIN IMMEDIATE", StaticPool)
        self._reading = _sqlite_engine(path, "BEGIN", StaticPool)
        self._reader = self._reading.connect()
        self._looking = _sqlite_engine(path, None, StaticPool)
        self._looker = self._looking.connect()
        self._large = _sqlite_engine(path, "BEGIN", QueuePool)
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="scbroker-read")
        self._writer = threading.Thread(target=self._write_all, name="scbroker-write", daemon=True)
        self._writer.start()

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        if large:
            return await self._loop.run_in_executor(self._pool, _read, self._large, work)
        try:
            with self._reader.begin():
                return work(self._reader)
        except DBAPIError as error:
            raise _translated(error) from error

    async def look(self, work: Work[T]) -> T:
        try:
            return work(self._looker)
        except DBAPIError as error:
            raise _translated(error) from error

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        until = time.monotonic() + self._wait
        try:
            try:
                return await self._queued(work, until)
            except IntegrityError:
                return await self._queued(otherwise or work, until)
        except (DBAPIError, sqlite3.Error) as error:
            raise _translated(error) from error

    def _queued(self, work: Work[T], until: float) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future, until))
        return future

    async def change(self, work: Work[T]) -> T:
        return await self.write(work)

    async def build(self, work: Work[T]) -> T:
        return await self.write(work)

    def version(self) -> int | None:
        try:
            return int(_driver(self._reader).execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:  # what is wrong, the next read tells
            return None

    async def close(self) -> None:
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        self._pool.shutdown()
        self._reader.close()
        self._looker.close()
        for engine in (self._writing, self._reading, self._looking, self._large):
            engine.dispose()

    def _write_all(self) -> None:
        stop = False
        while not stop:
            batch: list[_Job] = []
            job = self._jobs.get()
            while job is not None and len(batch) < _BATCH:
                batch.append(job)
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            else:
                if job is None:
                    stop = True
                else:
                    batch.append(job)
            self._commit(batch)
            self._loop.call_soon_threadsafe(_settle, batch)

    def _commit(self, batch: list[_Job]) -> None:
        """All of the batch in one transaction, or, if that breaks, each in its own."""
        if batch and not self._try_commit(batch):
            for job in batch:
                self._try_commit([job])

    def _try_commit(self, batch: list[_Job]) -> bool:
        try:
            with self._writing.connect() as connection, connection.begin():
                for job in batch:
                    job.run(connection)
                    if not _driver(connection).in_transaction:
                        # Out of space, SQLite rolled everything back; what follows would commit alone.
                        raise job.error or sqlite3.OperationalError("the transaction is gone")
        except Exception as error:
            for job in batch:
                if job.error is None or isinstance(job.error, DBAPIError):
                    job.outcome, job.error = None, error
            return False
        return True


def _settle(batch: list[_Job]) -> None:
    for job in batch:
        job.settle()


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def _sqlite_engine(path: Path, begin: str | None, pool: type[QueuePool | StaticPool]) -> Engine:
    """Transactions begin as `begin` says; without it each statement is one of its own."""
    engine = sqlalchemy.create_engine(
        f"sqlite:///{path}",
        poolclass=pool,
        connect_args={"isolation_level": None, "check_same_thread": False, "timeout": 30},
        hide_parameters=True,  # an error is logged, and what users sent is not for a log
    )

    @event.listens_for(engine, "connect")
    def _configure(driver: sqlite3.Connection, _: object) -> None:
        driver.execute("PRAGMA journal_mode=WAL")
        driver.execute("PRAGMA synchronous=FULL")
        driver.execute("PRAGMA foreign_keys=ON")

    if begin is None:
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _read(engine: Engine, work: Work[T]) -> T:
    try:
        return _run(engine, work)
    except DBAPIError as error:
        raise _translated(error) from error


def _run(engine: Engine, work: Work[T]) -> T:
    with engine.connect() as connection, connection.begin():
        return work(connection)


def _look(engine: Engine, work: Work[T]) -> T:
    with engine.connect() as connection:
        return work(connection)


def _translated(
    error: DBAPIError | sqlite3.Error, states: tuple[str, ...] = _POSTGRES_PASSING
) -> Exception:
    """A failure of the database that passes is the caller's to retry; any other is a fault."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    state = str(getattr(cause, "sqlstate", None) or "")
    passing = code in _SQLITE_PASSING or state.startswith(states)
    standby = isinstance(getattr(cause, "__cause__", None), TargetServerAttributeNotMatched)
    invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    if passing or standby or invalidated:
        return OverloadedError("The broker's database cannot answer just now.", retryAfter=1)
    return error


def is_of_database(error: Exception) -> bool:
    """Whether the database failed, and does not merely refuse what it was given: later it may go well."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | sqlite3.Error | OverloadedError)
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return not (isinstance(error, IntegrityError | DataError) or state.startswith(_REFUSED))


@contextlib.contextmanager
def _reachable(states: tuple[str, ...] = _POSTGRES_PASSING) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _translated(error, states) from error
    except (OSError, PoolTimeoutError) as error:
        raise OverloadedError("The broker's database is not reachable.", retryAfter=1) from error


def _connecting() -> dict[str, Any]:
    """To the primary alone: on a standby, a moment behind, who was told of a write would not see it."""
    return {"timeout": _CONNECT_SECONDS, "target_session_attrs": "primary"}


class PostgresDatabase:
    """PostgreSQL through asyncpg; any number of broker processes share it."""

    def __init__(self, url: str, pool_size: int, wait: float = _WAIT_SECONDS) -> None:
        self._url = url
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=wait,
            connect_args={
                **_connecting(),
                "command_timeout": _STATEMENT_SECONDS,
                "server_settings": _SERVER_SETTINGS,
            },
            hide_parameters=True,
        )
        self._snapshot = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        del large  # asyncpg does not block the loop
        with _reachable():
            return await greenlet_spawn(_run, self._snapshot.sync_engine, work)

    async def look(self, work: Work[T]) -> T:
        with _reachable():
            return await _look_once(self._single, work)

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        attempts = itertools.chain([work], itertools.repeat(otherwise or work))
        with _reachable(_WRITER_PASSING):

            async def attempt() -> T:
                return await _write_once(self._engine, next(attempts))

            return await _RETRYING.copy()(attempt)

    async def change(self, work: Work[T]) -> T:
        """Over a connection of its own: an index of a large table takes longer than any statement may."""
        with _reachable(_WRITER_PASSING):
            return await _RETRYING.copy()(_write_once, self._patient(), work)

    async def build(self, work: Work[T]) -> T:
        with _reachable(_WRITER_PASSING):
            engine = self._patient(isolation_level="AUTOCOMMIT")
            return await _RETRYING.copy()(_look_once, engine, work)

    def _patient(self, **options: Any) -> AsyncEngine:
        given = {"connect_args": _connecting(), "hide_parameters": True, **options}
        return create_async_engine(self._url, poolclass=NullPool, **given)

    def version(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._engine.dispose()


async def _look_once(engine: AsyncEngine, work: Work[T]) -> T:
    return await greenlet_spawn(_look, engine.sync_engine, work)


async def _write_once(engine: AsyncEngine, work: Work[T]) -> T:
    return await greenlet_spawn(_run, engine.sync_engine, work)


def _passes(error: BaseException) -> bool:
    # Of two writers that both found a row absent, the second finds it the next time.
    if isinstance(error, IntegrityError):
        return True
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _RETRY_STATES


_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception(_passes),
    stop=tenacity.stop_after_attempt(8),
    wait=tenacity.wait_exponential_jitter(multiplier=0.005, max=0.2, jitter=0.01),
    reraise=True,
)
