"""PostgreSQL through asyncpg; several broker processes may share one database.

A request waits for one of the pool's connections. Serialization failures and deadlocks are retried.
The server ends statements that take too long. All connections go to the primary: a standby lags, and a
client that was told of a write might not find it there.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import tenacity
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from scbroker.errors import OverloadedError
from scbroker.server.storage.database import (
    TEMPORARY_STATES,
    Work,
    in_transaction,
    on_connection,
    translated,
    waited_too_long,
)

T = TypeVar("T")
_CONNECT_SECONDS: Final = 10.0
_STATEMENT_SECONDS: Final = 30
# The server enforces these, also when the broker process has hung or is gone.
_SERVER_SETTINGS: Final = {
    "statement_timeout": "25s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
_RETRIED_STATES: Final = {"40001", "40P01"}
# A write that finds the server read-only met a primary that became a standby. For a read it is a fault.
_TEMPORARY_FOR_WRITES: Final = (*TEMPORARY_STATES, "25006")


class PostgresDatabase:
    """A pool of connections to PostgreSQL."""

    def __init__(self, url: str, pool_size: int, wait: float) -> None:
        self._url = url
        limits = {"command_timeout": _STATEMENT_SECONDS, "server_settings": _SERVER_SETTINGS}
        self._engine = _engine(url, limits, pool_size=pool_size, max_overflow=0, pool_timeout=wait)
        self._snapshot = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._autocommit = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        del large  # asyncpg does not block the event loop
        with _translating():
            return await _spawn(in_transaction, self._snapshot, work)

    async def query(self, work: Work[T]) -> T:
        with _translating():
            return await _spawn(on_connection, self._autocommit, work)

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        attempts = itertools.chain([work], itertools.repeat(otherwise or work))
        with _translating(_TEMPORARY_FOR_WRITES):
            async for attempt in _RETRYING.copy():
                with attempt:
                    return await _spawn(in_transaction, self._engine, next(attempts))
        raise AssertionError("the last attempt returns or raises")

    async def migrate(self, work: Work[T]) -> T:
        with _translating(_TEMPORARY_FOR_WRITES):
            return await _spawn(on_connection, _engine(self._url, {}, poolclass=NullPool), work)

    def version(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._engine.dispose()


def _engine(url: str, limits: dict[str, Any], **pool: Any) -> AsyncEngine:
    connect = {"timeout": _CONNECT_SECONDS, "target_session_attrs": "primary", **limits}
    # Errors are logged, and what users sent must not be in the log.
    return create_async_engine(url, connect_args=connect, hide_parameters=True, **pool)


async def _spawn(run: Callable[[Engine, Work[T]], T], engine: AsyncEngine, work: Work[T]) -> T:
    return await greenlet_spawn(run, engine.sync_engine, work)


@contextlib.contextmanager
def _translating(temporary: tuple[str, ...] = TEMPORARY_STATES) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise translated(error, temporary) from error
    except PoolTimeoutError as error:
        raise waited_too_long() from error
    except OSError as error:
        raise OverloadedError("The broker's database is not reachable.", retryAfter=1) from error


def _may_succeed_if_repeated(error: BaseException) -> bool:
    # Two transactions found a row absent and inserted it: the second finds it when repeated.
    if isinstance(error, IntegrityError):
        return True
    return (
        isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _RETRIED_STATES
    )


_RETRYING: Final = tenacity.AsyncRetrying(
    retry=tenacity.retry_if_exception(_may_succeed_if_repeated),
    stop=tenacity.stop_after_attempt(8),
    wait=tenacity.wait_exponential_jitter(multiplier=0.005, max=0.2, jitter=0.01),
    reraise=True,
)
