"""The interface to the database, the same for both engines, and how its failures are classified.

The rest of the broker passes a plain function over a `Connection` to `read`, `query` or `write` and
gets its result. The function may run more than once: it must have no other effects. Concurrency is
limited here and nowhere else: see the engines for what waits, and for how long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from asyncpg.exceptions import TargetServerAttributeNotMatched
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from scbroker.errors import OverloadedError

T = TypeVar("T")
Work = Callable[[Connection], T]
WAIT_SECONDS: Final = 5.0
_TEMPORARY_SQLITE_CODES: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
# Classes: connection, rollback, resources, operator intervention. Codes: idle in transaction, lock timeout.
TEMPORARY_STATES: Final = ("08", "40", "53", "57", "25P03", "55P03")
# Classes: data exception, constraint violation.
_REFUSED_STATES: Final = ("22", "23")


class Database(Protocol):
    """The broker's database."""

    async def read(self, work: Work[T], *, large: bool = False) -> T:
        """Run reads on one snapshot; `large` if they may take more than about a millisecond."""
        ...

    async def query(self, work: Work[T]) -> T:
        """Run reads outside a transaction: each statement sees its own snapshot. Cheaper than `read`."""
        ...

    async def write(self, work: Work[T], otherwise: Work[T] | None = None) -> T:
        """Run `work` in a transaction, which is durable when this returns.

        `work` may insert rows without reading first whether they exist. If the transaction fails with an
        IntegrityError, or may succeed when repeated, `otherwise` runs instead (by default `work` again).
        """
        ...

    async def migrate(self, work: Work[T]) -> T:
        """Run a migration on a connection of its own, without time limits.

        `work` starts and commits its transactions itself.
        """
        ...

    def version(self) -> int | None:
        """Return SQLite's `PRAGMA data_version`, which every commit changes; None on PostgreSQL."""
        ...

    async def close(self) -> None: ...


class NewRows:
    """Rows to insert, grouped by INSERT statement, so that each statement runs once for all of them."""

    def __init__(self) -> None:
        self._rows: dict[Any, list[dict[str, Any]]] = {}

    def add(self, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._rows.setdefault(statement, []).extend(rows)

    def of(self, statement: Any) -> Sequence[dict[str, Any]]:
        return self._rows.get(statement, ())

    def take(self, other: NewRows) -> None:
        """Append the rows of another collection."""
        for statement, rows in other._rows.items():
            self.add(statement, rows)

    def write(self, connection: Connection) -> None:
        """Insert the rows in the order in which their statements were first added, and forget them."""
        rows, self._rows = self._rows, {}
        for statement, some in rows.items():
            connection.execute(statement, some)


def translated(
    error: DBAPIError | sqlite3.Error, temporary: tuple[str, ...] = TEMPORARY_STATES
) -> Exception:
    """Return an `OverloadedError` for a temporary failure, which the client retries; else `error`."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    state = str(getattr(cause, "sqlstate", None) or "")
    standby = isinstance(getattr(cause, "__cause__", None), TargetServerAttributeNotMatched)
    invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    if code in _TEMPORARY_SQLITE_CODES or state.startswith(temporary) or standby or invalidated:
        return OverloadedError("The broker's database cannot answer now: try again.", retryAfter=1)
    return error


def waited_too_long() -> OverloadedError:
    return OverloadedError("The request waited too long for the database: try again.", retryAfter=2)


def is_of_database(error: Exception) -> bool:
    """Return whether the database failed, as opposed to refusing this data: a retry may succeed."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | sqlite3.Error | OverloadedError)
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return not (isinstance(error, IntegrityError | DataError) or state.startswith(_REFUSED_STATES))


def in_transaction(engine: Engine, work: Work[T]) -> T:
    with engine.connect() as connection, connection.begin():
        return work(connection)


def on_connection(engine: Engine, work: Work[T]) -> T:
    with engine.connect() as connection:
        return work(connection)
