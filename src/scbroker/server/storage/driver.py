"""Run SQLAlchemy Core statements on sqlite3 and asyncpg directly.

The statements stay Core objects: one set for both engines. SQLAlchemy compiles each of them once for a
dialect, and a `Connection` executes the text on the driver. That saves a quarter of the broker's processor
time for a create (docs/adr, 23).
"""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import asyncpg
from sqlalchemy import Dialect, Executable, Insert, LargeBinary, Table, exc, insert
from sqlalchemy.dialects import sqlite
from sqlalchemy.util import await_

T = TypeVar("T")
Values = Mapping[str, Any]
Statement = Executable | Table
"""A table stands for an INSERT into it."""
_NO_VALUES: Final[Values] = {}
_PLANS: Final = 2048
_PADDED: Final = 1024
_STATEMENTS: Final = 512
"""Prepared statements that each connection to SQLite keeps: more than the broker has."""


class Row(tuple[Any, ...]):
    """A row: a tuple whose values are attributes as well, by the names of their columns."""

    __slots__ = ()
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Rows(list[T]):
    """The rows that a statement returned, or with `scalars` the values of their first column."""

    def all(self) -> Rows[T]:
        return self

    def first(self) -> T | None:
        return self[0] if self else None

    def one_or_none(self) -> T | None:
        """Return the only row or None; raise `MultipleResultsFound` for several."""
        if len(self) > 1:
            raise exc.MultipleResultsFound("The statement returned several rows: one was expected.")
        return self[0] if self else None

    def one(self) -> T:
        """Like `one_or_none`, but raise `NoResultFound` instead of returning None."""
        if not self:
            raise exc.NoResultFound("The statement returned no row: one was expected.")
        self.one_or_none()
        return self[0]

    def scalars(self) -> Rows[Any]:
        return Rows([row[0] for row in self])  # type: ignore[index]  # of rows, which are tuples

    def scalar_one(self) -> Any:
        return self.one()[0]  # type: ignore[index]  # as above

    def scalar_one_or_none(self) -> Any:
        return self.scalar_one() if self else None


@lru_cache(maxsize=_PLANS)
def _row_type(names: tuple[str, ...]) -> type[Row]:
    # Of two columns with one name, neither becomes an attribute, as in SQLAlchemy.
    kept = [name if names.count(name) == 1 else "" for name in names]
    return type("Row", (namedtuple("Row", kept, rename=True), Row), {"__slots__": ()})


class Plan:
    """A statement's SQL for one dialect, how to arrange its values, and how to read its rows."""

    def __init__(
        self,
        dialect: Dialect,
        statement: Statement,
        names: tuple[str, ...],
        lengths: tuple[int, ...],
    ) -> None:
        if isinstance(statement, Table):
            statement = insert(statement)
        compiled: Any = statement.compile(  # type: ignore[attr-defined]  # every Executable is compiled
            dialect=dialect,
            column_keys=list(names),
            for_executemany=isinstance(statement, Insert),  # else the SQL would return the new key
        )
        self.lists: tuple[str, ...] = tuple(
            name for name, each in compiled.binds.items() if each.expanding and name in names
        )
        sizes = dict(zip(self.lists, lengths, strict=False))
        given = {
            name: [None] * sizes.get(name, 0) if name in self.lists else None for name in names
        }
        state = compiled.construct_expanded_state(given)
        self.sql: str = state.statement
        self._names: tuple[str, ...] = tuple(state.positiontup or ())
        self._expanded = {name: state.parameter_expansion[name] for name in self.lists}
        self._defaults = {column.key: column.default.arg for column in compiled.insert_prefetch}
        self._constants = {
            name: value for name, value in state.parameters.items() if name not in given
        }
        self._binders = [
            (number, state.processors[name])
            for number, name in enumerate(self._names)
            if name in state.processors
        ]
        columns = getattr(statement, "exported_columns", ())
        self._readers = [
            (number, process)
            for number, column in enumerate(columns)
            if not isinstance(column.type, LargeBinary)  # both drivers return bytes
            and (process := column.type.dialect_impl(dialect).result_processor(dialect, None))
        ]
        self._row: Any = None

    def arguments(self, values: Values) -> list[Any]:
        """Return the values in the order of the SQL."""
        if self._constants or self._expanded:
            values = {**self._constants, **values}
            for name, default in self._defaults.items():
                values[name] = default(None)
            for name, numbered in self._expanded.items():
                values.update(zip(numbered, _padded(values[name]), strict=True))
        found = [values[name] for name in self._names]
        for number, process in self._binders:
            found[number] = process(found[number])
        return found

    def rows(self, found: Sequence[Iterable[Any]], names: Iterable[str]) -> Rows[Row]:
        """Return the driver's rows with their values as attributes, converted to the types of the columns."""
        if not found:
            return Rows()
        if self._row is None:
            self._row = _row_type(tuple(names))._make  # type: ignore[attr-defined]  # of a namedtuple
        if not self._readers:
            return Rows(map(self._row, found))
        rows: Rows[Row] = Rows()
        for each in found:
            values = list(each)
            for number, process in self._readers:
                values[number] = process(values[number])
            rows.append(self._row(values))
        return rows


_plan: Final = lru_cache(maxsize=_PLANS)(Plan)


def _padded(values: Sequence[Any]) -> Sequence[Any]:
    """Pad a list with its last value to a power of two, so that few statements have to be compiled.

    A longer list stays as it is: engines limit the parameters of a statement to 32,766.
    """
    count = len(values)
    if count < 3 or count > _PADDED:
        return values
    return [*values, *[values[-1]] * ((1 << (count - 1).bit_length()) - count)]


class Connection(ABC):
    """A connection to a database, on which functions of the broker execute statements."""

    _failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.woken: set[bytes] = set()
        """Users whose waiting requests are woken once the transaction has committed."""

    def plan(self, statement: Statement, values: Values) -> Plan:
        """Return the statement compiled for these names of values, and for the lengths of its lists."""
        names = tuple(values)
        plan = _plan(self.dialect, statement, names, ())
        if plan.lists:
            lengths = tuple([len(_padded(values[name])) for name in plan.lists])
            plan = _plan(self.dialect, statement, names, lengths)
        return plan

    def add(self, table: Table, rows: Values | Sequence[Values]) -> None:
        """Insert a row, or several with the same columns."""
        self.execute(table, rows)

    def execute(
        self, statement: Statement, values: Values | Sequence[Values] = _NO_VALUES
    ) -> Rows[Row]:
        """Execute a statement and return its rows; with a list of values, once for each and without rows.

        Raises the exceptions of SQLAlchemy: `IntegrityError`, or another `DBAPIError`. They do not contain
        the values, because errors are logged.
        """
        if not (values or isinstance(values, Mapping)):
            return Rows()
        plan = self.plan(statement, values if isinstance(values, Mapping) else values[0])
        try:
            if isinstance(values, Mapping):
                return plan.rows(*self.fetch(plan.sql, plan.arguments(values)))
            self._run_each(plan.sql, [plan.arguments(each) for each in values])
        except self._failures as error:
            raise self._translated(plan.sql, error) from None
        return Rows()

    def run(self, sql: str) -> None:
        """Execute SQL without values, such as SAVEPOINT."""
        try:
            self._run(sql)
        except self._failures as error:
            raise self._translated(sql, error) from None

    @contextlib.contextmanager
    def transaction(self, begin: str = "BEGIN") -> Iterator[None]:
        """Commit what the block does, or roll it back if it raises."""
        self.run(begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException as error:
            with contextlib.suppress(exc.DBAPIError, OSError):
                self._roll_back(error)
            raise

    @abstractmethod
    def fetch(self, sql: str, arguments: Sequence[Any]) -> tuple[Sequence[Any], Iterable[str]]:
        """Execute one statement of the driver's own; return its rows and the names of its columns."""

    @abstractmethod
    def _run(self, sql: str) -> None: ...

    @abstractmethod
    def _run_each(self, sql: str, arguments: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    def _roll_back(self, error: BaseException) -> None: ...

    @abstractmethod
    def _translated(self, sql: str, error: Any) -> exc.DBAPIError: ...


class SqliteConnection(Connection):
    """Uses a connection of sqlite3 that commits each statement, except in a `transaction`."""

    _failures = (sqlite3.Error,)
    _DIALECT: Final = sqlite.dialect()

    def __init__(self, driver: sqlite3.Connection) -> None:
        super().__init__(self._DIALECT)
        self.driver = driver

    def fetch(self, sql: str, arguments: Sequence[Any]) -> tuple[Sequence[Any], Iterable[str]]:
        cursor = self.driver.execute(sql, arguments)
        return cursor.fetchall(), (column[0] for column in cursor.description or ())

    def _run(self, sql: str) -> None:
        self.driver.execute(sql)

    def _run_each(self, sql: str, arguments: Sequence[Sequence[Any]]) -> None:
        self.driver.executemany(sql, arguments)

    def _roll_back(self, error: BaseException) -> None:
        del error
        self.driver.rollback()  # does nothing if SQLite has rolled back itself, as on a full disk

    def _translated(self, sql: str, error: sqlite3.Error) -> exc.DBAPIError:
        kind = getattr(exc, type(error).__name__, exc.DatabaseError)
        return kind(sql, None, error)


def connect_sqlite(path: Path | str) -> sqlite3.Connection:
    """Open a file so that a committed write survives a power cut, and deleted rows are overwritten."""
    driver = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=30,
        cached_statements=_STATEMENTS,
    )
    driver.execute("PRAGMA journal_mode=WAL")
    driver.execute("PRAGMA synchronous=FULL")
    # Overwrite deleted rows with zeros. Distributions build SQLite with different defaults.
    driver.execute("PRAGMA secure_delete=ON")
    return driver


class ServerError(Exception):
    """An error of PostgreSQL or asyncpg, without the DETAIL, which may contain values of a row."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error.args[0] if error.args else ''}")
        self.sqlstate: str | None = getattr(error, "sqlstate", None)


_KINDS: Final = (
    (asyncpg.IntegrityConstraintViolationError, exc.IntegrityError),
    (asyncpg.SyntaxOrAccessError, exc.ProgrammingError),
    (asyncpg.InterfaceError, exc.InterfaceError),
)


class PostgresConnection(Connection):
    """Uses a connection of asyncpg, in a function that runs by `greenlet_spawn`."""

    _failures = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

    def __init__(self, driver: Any, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.driver = driver
        self._is_confused = False

    def fetch(self, sql: str, arguments: Sequence[Any]) -> tuple[Sequence[Any], Iterable[str]]:
        rows = await_(self.driver.fetch(sql, *arguments))
        return rows, rows[0].keys() if rows else ()

    def _run(self, sql: str) -> None:
        await_(self.driver.execute(sql))

    def _run_each(self, sql: str, arguments: Sequence[Sequence[Any]]) -> None:
        await_(self.driver.executemany(sql, arguments))

    def _roll_back(self, error: BaseException) -> None:
        if isinstance(error, Exception):  # a cancelled request must not wait for the server
            self.run("ROLLBACK")

    def _translated(self, sql: str, error: Any) -> exc.DBAPIError:
        kind = next((kind for each, kind in _KINDS if isinstance(error, each)), exc.DBAPIError)
        # asyncpg's own state is wrong, as after a server that ended between two messages.
        self._is_confused |= isinstance(error, asyncpg.InternalClientError)
        lost = self._is_confused or self.driver.is_closed()
        return kind(sql, None, ServerError(error), connection_invalidated=lost)

    @property
    def is_reusable(self) -> bool:
        """True if the connection may go back to the pool: it works, and has no open transaction."""
        return not (self._is_confused or self.driver.is_closed() or self.driver.is_in_transaction())
