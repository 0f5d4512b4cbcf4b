"""Fill a stopped broker's database with users, containers and events by the million.

The rows are those of a real user and a real container, copied under random ids, on either engine. They are
ballast: no signature in them verifies. The containers that are measured are written and read by clients.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from scbroker.server.storage import tables
from scbroker.server.storage.database import async_url
from scbroker.server.storage.tables import (
    access_lists,
    containers,
    key_files,
    key_records,
    members,
    metadata,
    parts,
    records,
    users,
)

T = TypeVar("T")
HEAVY: Final = 10
"""One in ten containers and events belongs to the heavy user."""
RARE: Final = 100
"""The number of the heavy user's events of the rare kind: of one container, of one type."""
RARE_TYPE: Final = "a rare type"
COMMON_TYPE: Final = "letter"
_AT_ONCE: Final = 50_000
_OF_A_USER: Final = (users, key_records, key_files)
_OF_A_CONTAINER: Final = (containers, records, access_lists, members, parts)
_AN_HOUR_AGO: Final = 3_600_000_000


@dataclass(frozen=True)
class Size:
    """The numbers of rows to add."""

    containers: int
    events: int
    users: int


@dataclass(frozen=True)
class Real:
    """The source of the copies: a container that the heavy user shares with one reader."""

    owner: uuid.UUID
    reader: uuid.UUID
    container: uuid.UUID


def on(database_url: str, work: Callable[[Connection], T]) -> T:
    """Run `work` over a connection in autocommit mode, without a timeout."""
    if database_url.startswith("sqlite"):
        engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
        with contextlib.closing(engine.connect()) as connection:
            connection.exec_driver_sql(
                "PRAGMA synchronous=OFF"
            )  # after a crash it is simply filled again
            connection.exec_driver_sql("PRAGMA cache_size=-1000000")  # KiB
            return work(connection)
    return asyncio.run(_on_postgresql(async_url(database_url), work))


async def _on_postgresql(url: str, work: Callable[[Connection], T]) -> T:
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def populate(connection: Connection, real: Real, size: Size, said: Callable[[str], object]) -> None:
    """Add the rows in blocks, and report each block by `said`."""
    filling = _Filling(connection, real, size)
    filling.users()
    said(f"{size.users:,} users")
    for first, last in _pieces(size.containers):
        filling.containers(first, last)
        said(f"{last:,} containers")
    with _indexed_afterwards(connection):
        for first, last in _pieces(size.events):
            filling.events(first, last)
            said(f"{last:,} events")
    filling.finish()


@contextlib.contextmanager
def _indexed_afterwards(connection: Connection) -> Iterator[None]:
    """Drop the non-unique indexes of events meanwhile: to build them at the end is far faster."""
    indexes = [index for index in tables.events.indexes if not index.unique]
    for index in indexes:
        index.drop(connection)
    yield
    for index in indexes:
        index.create(connection)


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    for first in range(1, count + 1, _AT_ONCE):
        yield first, min(first + _AT_ONCE - 1, count)


class _Filling:
    def __init__(self, connection: Connection, real: Real, size: Size) -> None:
        self._connection, self._size = connection, size
        self._real = {
            "owner": real.owner.bytes, "reader": real.reader.bytes, "real": real.container.bytes,
        }  # fmt: skip
        sqlite = connection.dialect.name == "sqlite"
        self._random = "randomblob(16)" if sqlite else "uuid_send(gen_random_uuid())"
        self._numbers = (
            "(WITH RECURSIVE numbers (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers"
            " WHERE n < :last) SELECT n FROM numbers) AS numbers"
            if sqlite
            else "generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS numbers (n)"
        )
        for name in ("people", "copies"):
            columns = "" if name == "people" else ", owner BYTEA, reader BYTEA"
            self._run(f"CREATE TEMP TABLE {name} (n BIGINT PRIMARY KEY, id BYTEA{columns})")

    def users(self) -> None:
        self._run(
            f"INSERT INTO people SELECT n, {self._random} FROM {self._numbers}",
            first=0, last=self._size.users - 1,
        )  # fmt: skip
        for table in _OF_A_USER:
            own = "id" if table is users else "user_id"
            self._copy(table, own, "people", {own: "people.id"}, of="reader")

    def containers(self, first: int, last: int) -> None:
        """Add containers of the users in turn, each with one reader; one in ten is the heavy user's."""
        self._run(
            f"INSERT INTO copies SELECT numbers.n, {self._random},"
            " CASE WHEN numbers.n % :heavy = 0 THEN :owner ELSE own.id END, other.id"
            f" FROM {self._numbers}"
            " JOIN people AS own ON own.n = numbers.n % :people"
            " JOIN people AS other ON other.n = (numbers.n * 7919 + 1) % :people",
            first=first, last=last, people=self._size.users, heavy=HEAVY, owner=self._real["owner"],
        )  # fmt: skip
        member = "CASE WHEN members.user_id = :owner THEN copies.owner ELSE copies.reader END"
        new = {"part_id": self._random, "creator_id": "copies.owner", "user_id": "copies.owner"}
        for table in _OF_A_CONTAINER:
            own = "id" if table is containers else "container_id"
            chosen = {**new, own: "copies.id"} | ({"user_id": member} if table is members else {})
            self._copy(table, own, "copies", chosen, of="real", first=first, last=last)

    def _copy(
        self, table: Table, own: str, source: str, new: dict[str, str], of: str, **between: int
    ) -> None:
        columns = [column.name for column in metadata.tables[table.name].columns]
        chosen = ", ".join(new.get(name, f"{table.name}.{name}") for name in columns)
        some = f" AND {source}.n BETWEEN :first AND :last" if between else ""
        self._run(
            f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {chosen}"
            f" FROM {source} CROSS JOIN {table.name} WHERE {table.name}.{own} = :{of}{some}",
            **between, **{name: value for name, value in self._real.items() if name in (of, "owner")},
        )  # fmt: skip

    def events(self, first: int, last: int) -> None:
        """Add events in order of time: one in ten to the heavy user's log, the rest to the others'."""
        every = max(1, self._size.events // HEAVY // RARE)
        rare = f"(numbers.n % :heavy = 0 AND (numbers.n / :heavy) % {every} = 0)"
        before = "(numbers.n - numbers.n / :heavy - 1)"  # of the people's events
        self._run(
            "INSERT INTO events (user_id, id, event_type, container_id, container_type, date,"
            " version, related_user_id, application, changes, salt)"
            " SELECT CASE WHEN numbers.n % :heavy = 0 THEN :owner ELSE people.id END,"
            f" CASE WHEN numbers.n % :heavy = 0 THEN numbers.n / :heavy ELSE {before} / :people + 1 END,"
            f" CASE WHEN {rare} THEN 'Deleted' WHEN numbers.n / :heavy % 10 = 1 THEN 'Added'"
            "  WHEN numbers.n / :heavy % 10 = 2 THEN 'Accessed' ELSE 'Updated' END,"
            f" CASE WHEN {rare} THEN :real ELSE copies.id END,"
            f" CASE WHEN {rare} THEN '{RARE_TYPE}' ELSE '{COMMON_TYPE}' END,"
            " users.registered_at - :ago + numbers.n, 1 + numbers.n % 10, :reader, 'bench', 1, copies.id"
            f" FROM {self._numbers}"
            f" JOIN people ON people.n = {before} % :people"
            " JOIN copies ON copies.n = 1 + (numbers.n * 7919) % :containers"
            " JOIN users ON users.id = :owner ORDER BY numbers.n",
            **self._real, first=first, last=last, heavy=HEAVY, people=self._size.users,
            containers=self._size.containers, ago=_AN_HOUR_AGO,
        )  # fmt: skip

    def finish(self) -> None:
        """Set the number of each log's last event."""
        own = "SELECT coalesce(max(events.id), 0) FROM events WHERE events.user_id = users.id"
        self._run(f"UPDATE users SET last_event = ({own})")

    def _run(self, statement: str, **values: Any) -> None:
        self._connection.execute(text(statement), values)
