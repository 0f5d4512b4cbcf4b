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

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool, Pool, QueuePool, StaticPool

from scbroker.server.storage.database import (
    Work,
    in_transaction,
    on_connection,
    translated,
    waited_too_long,
)

T = TypeVar("T")
_BATCH: Final = 256
_READERS: Final = 4


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    future: asyncio.Future[Any]
    deadline: float
    """On the monotonic clock; a job that is not started by then is refused."""
    result: Any = None
    error: BaseException | None = None

    def run(self, connection: Connection) -> None:
        self.result, self.error = None, None
        if time.monotonic() > self.deadline:
            self.error = waited_too_long()
            return
        try:
            # Not `begin_nested`: it gives each savepoint a new name, and compiles a statement for it.
            driver = _driver(connection)
            driver.execute("SAVEPOINT job")
            try:
                self.result = self.work(connection)
            except Exception as error:
                self.error = error
                driver.execute("ROLLBACK TO job")
            driver.execute("RELEASE job")
        except Exception as error:
            # When the disk is full, SQLite drops the savepoint too and the rollback fails as well. Only
            # the first error says what to do.
            self.error = self.error or error

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """One SQLite file."""

    def __init__(self, path: Path, wait: float) -> None:
        self._path, self._wait = path, wait
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writing = _engine(path, "BEGIN IMMEDIATE", StaticPool)
        self._reading = _engine(path, "BEGIN", StaticPool)
        self._reader = self._reading.connect()
        self._autocommit = _engine(path, None, StaticPool)
        self._autocommitting = self._autocommit.connect()
        self._large = _engine(path, "BEGIN", QueuePool)
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="scbroker-read")
        self._free_threads = asyncio.Semaphore(_READERS)
        self._writer = threading.Thread(target=self._write_all, name="scbroker-write", daemon=True)
        self._writer.start()

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        try:
            if large:
                return await self._read_in_thread(work)
            with self._reader.begin():
                return work(self._reader)
        except DBAPIError as error:
            raise translated(error) from error

    async def _read_in_thread(self, work: Work[T]) -> T:
        try:
            async with asyncio.timeout(self._wait):
                await self._free_threads.acquire()
        except TimeoutError:
            raise waited_too_long() from None
        try:
            return await self._loop.run_in_executor(
                self._threads, in_transaction, self._large, work
            )
        finally:
            self._free_threads.release()

    async def query(self, work: Work[T]) -> T:
        try:
            return work(self._autocommitting)
        except DBAPIError as error:
            raise translated(error) from error

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        deadline = time.monotonic() + self._wait
        try:
            try:
                return await self._queued(work, deadline)
            except IntegrityError:
                return await self._queued(otherwise or work, deadline)
        except (DBAPIError, sqlite3.Error) as error:
            raise translated(error) from error

    def _queued(self, work: Work[T], deadline: float) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future, deadline))
        return future

    async def migrate(self, work: Work[T]) -> T:
        engine = _engine(self._path, "BEGIN IMMEDIATE", NullPool)
        try:
            return await asyncio.to_thread(on_connection, engine, work)
        except DBAPIError as error:
            raise translated(error) from error

    def version(self) -> int | None:
        try:
            return int(_driver(self._reader).execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:  # the next read raises it
            return None

    async def close(self) -> None:
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        self._threads.shutdown()
        self._reader.close()
        self._autocommitting.close()
        for engine in (self._writing, self._reading, self._autocommit, self._large):
            engine.dispose()

    def _write_all(self) -> None:
        """Commit batches until `close` queues None."""
        while True:
            queued = self._next_queued()
            batch = [job for job in queued if job is not None]
            # If the transaction breaks, each job gets one of its own.
            if batch and not self._try_commit(batch):
                for job in batch:
                    self._try_commit([job])
            self._loop.call_soon_threadsafe(_resolve, batch)
            if queued[-1] is None:
                return

    def _next_queued(self) -> list[_Job | None]:
        """Wait for a job; return it with those queued behind it."""
        queued = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while queued[-1] is not None and len(queued) < _BATCH:
                queued.append(self._jobs.get_nowait())
        return queued

    def _try_commit(self, batch: list[_Job]) -> bool:
        try:
            with self._writing.connect() as connection, connection.begin():
                for job in batch:
                    job.run(connection)
                    if not _driver(connection).in_transaction:
                        # The disk is full: SQLite rolled everything back, and later jobs would autocommit.
                        raise job.error or sqlite3.OperationalError("the transaction is gone")
        except Exception as error:
            for job in batch:
                if job.error is None or isinstance(job.error, DBAPIError):
                    job.result, job.error = None, error
            return False
        return True


def _resolve(batch: list[_Job]) -> None:
    for job in batch:
        job.resolve()


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def _engine(path: Path, begin: str | None, pool: type[Pool]) -> Engine:
    """Return an engine whose transactions start with the statement `begin`; None means autocommit."""
    engine = sqlalchemy.create_engine(
        f"sqlite:///{path}",
        poolclass=pool,
        connect_args={"isolation_level": None, "check_same_thread": False, "timeout": 30},
        hide_parameters=True,  # errors are logged, and what users sent must not be in the log
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
