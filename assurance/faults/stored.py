"""Read what the broker stores without it: rows in one snapshot, and the names of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import obstore
import sqlalchemy
import tenacity
from sqlalchemy import Connection, Row, Table, event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from scbroker.server.storage import tables as t
from tests.kit.brokers import BrokerProcess
from tests.kit.objects import store_of
from tests.kit.tables import query

T = TypeVar("T")
_OF_CONTAINERS = (t.records, t.access_lists, t.members, t.parts, t.events)


def files(root: Path) -> set[str]:
    """Return the names of objects in a broker's own folder, below the id of its one database.

    With what a killed broker left incomplete, which obstore does not list.
    """
    return {
        str(Path(*path.relative_to(root).parts[1:]))
        for path in root.rglob("*")
        if not path.is_dir() and path.name != "check"
    }


def in_bucket(broker: BrokerProcess) -> set[str]:
    """Return the names of objects in a broker's S3, unreferenced ones included."""
    listed = (each["path"] for page in obstore.list(store_of(broker)) for each in page)
    return {name for name in listed if not name.endswith("/check")}


@dataclass(frozen=True)
class Stored:
    """Rows of one moment, by table."""

    rows: dict[str, list[Row[Any]]]

    def of(self, table: Table) -> list[Row[Any]]:
        return self.rows[table.name]

    @property
    def pending_deletion(self) -> set[str]:
        return {row.name for row in self.of(t.pending_blobs)}


def look(url: str, containers: Collection[bytes] | None = None) -> Stored:
    """Return the rows of these containers, or of all; always all chunks, users and pending deletions."""

    def read(connection: Connection) -> Stored:
        found = {}
        for table in (t.chunks, t.pending_blobs, t.users):
            found[table.name] = list(connection.execute(select(table)))
        for table, column in [(t.containers, t.containers.c.id)] + [
            (table, table.c.container_id) for table in _OF_CONTAINERS
        ]:
            statement = select(table)
            if containers is not None:
                statement = statement.where(column.in_(list(containers)))
            found[table.name] = list(connection.execute(statement))
        return Stored(found)

    return on_snapshot(url, read)


# During a fail-over no database answers.
@tenacity.retry(
    retry=tenacity.retry_if_exception_type((OSError, DBAPIError)),
    stop=tenacity.stop_after_delay(60),
    wait=tenacity.wait_fixed(0.5),
    reraise=True,
)
def on_snapshot(url: str, work: Callable[[Connection], T]) -> T:
    """Run a reading function on one snapshot, without the broker's own code."""
    if url.startswith("sqlite"):
        return _on_sqlite(url, work)
    return asyncio.run(_on_postgresql(url, work))


def _on_sqlite(url: str, work: Callable[[Connection], T]) -> T:
    engine = sqlalchemy.create_engine(
        url, poolclass=NullPool, connect_args={"isolation_level": None, "timeout": 30}
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection, connection.begin():
        return work(connection)


async def _on_postgresql(url: str, work: Callable[[Connection], T]) -> T:
    engine = create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://"),
        poolclass=NullPool,
        isolation_level="REPEATABLE READ",
    )
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def make_old(url: str) -> None:
    """Set the dates of everything that waits for a sweep to 0, so that the next sweep takes it."""
    query(url, "UPDATE pending_blobs SET since = 0")
    query(url, "UPDATE parts SET touched_at = 0 WHERE NOT committed")
    query(url, "UPDATE parts SET replaced_at = 0 WHERE replaced_at IS NOT NULL")
