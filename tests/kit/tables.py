"""What a broker has in its tables, and changes to them behind its back."""

import asyncio
import sqlite3
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import asyncpg

from scbroker.server.storage.tables import metadata
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE

Rows = dict[str, set[tuple[Any, ...]]]
_EXPIRY = {"sessions": "expires_at", "nonces": "expires_at", "guesses": "ends_at"}


def query(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Runs one statement with `?` for each value, and commits it."""
    if url.startswith("sqlite"):
        with closing(
            sqlite3.connect(url.removeprefix("sqlite:///"), timeout=PATIENCE)
        ) as connection:
            found = connection.execute(statement, values).fetchall()
            connection.commit()
            return found
    for number in range(1, len(values) + 1):
        statement = statement.replace("?", f"${number}", 1)
    with ThreadPoolExecutor(1) as beside:  # of a test that has an event loop
        return beside.submit(asyncio.run, _query(url, statement, values)).result()


def count_rows(url: str, table: str, where: str = "true", *values: object) -> int:
    """Return how many rows of a table there are for which this is true."""
    [(count,)] = query(url, f"SELECT count(*) FROM {table} WHERE {where}", *values)
    return int(count)


def damage_parts(url: str, container: uuid.UUID) -> None:
    """Change the sealed header and the small content of a container, which no part of its record does."""
    found = query(url, "SELECT part_id, inline FROM parts WHERE container_id = ?", container.bytes)
    for part, sealed in found:
        if sealed is not None:
            query(url, "UPDATE parts SET inline = ? WHERE part_id = ?", bytes(len(sealed)), part)


async def _query(url: str, statement: str, values: Iterable[object]) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()


async def _dump(url: str) -> Rows:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        async with connection.transaction(isolation="repeatable_read"):
            return {
                name: {tuple(row) for row in await connection.fetch(statement)}
                for name, statement in _statements().items()
            }
    finally:
        await connection.close()


def _statements() -> dict[str, str]:
    """Without what a broker writes on its own: of fetches, and of what has run out."""
    found = {}
    for name, table in metadata.tables.items():
        columns = ", ".join(
            f'"{column.name}"' for column in table.columns if column.name != "last_used_at"
        )
        where = "WHERE event_type <> 'Accessed'" if name == "events" else ""
        if name in _EXPIRY:
            where = f"WHERE {_EXPIRY[name]} > {clock() + 30_000_000}"
        if name != "accesses":
            found[name] = f"SELECT {columns} FROM {name} {where}"
    return found


def dump(url: str) -> Rows:
    """Every row of every table."""
    if not url.startswith("sqlite"):
        return asyncio.run(_dump(url))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=PATIENCE)) as connection:
        connection.execute("BEGIN")
        return {
            name: set(connection.execute(statement)) for name, statement in _statements().items()
        }


def added(before: Rows, after: Rows) -> Rows:
    """Rows that are new or changed, by table."""
    found = {name: rows - before[name] for name, rows in after.items()}
    return {name: rows for name, rows in found.items() if rows}


def gone(before: Rows, after: Rows) -> Rows:
    """Rows that are gone or changed, by table; not those that merely ran out or were swept in time."""
    found = {name: rows for name, rows in added(after, before).items() if name not in _EXPIRY}
    pending = {row for row in found.pop("pending_blobs", ()) if row[1] > 0}
    return found | ({"pending_blobs": pending} if pending else {})
