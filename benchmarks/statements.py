"""Measure single statements on PostgreSQL by asyncpg alone: the database's floor of a create or a get.

`python -m benchmarks.statements DATABASE_URL OCTETS JOB CONNECTIONS` is one of the client processes: see
`crowd.rate_of`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import asyncpg

from scbroker.crypto.seal import random_bytes

_ROWS: Final = 128
_MAKE: Final = (
    "CREATE TABLE IF NOT EXISTS floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " value bytea NOT NULL)"
)
_INSERT: Final = "INSERT INTO floor (value) VALUES ($1)"
_SELECT: Final = "SELECT value FROM floor WHERE id = $1"


def for_asyncpg(database_url: str) -> str:
    """Return a database URL in the form that asyncpg takes."""
    return database_url.replace("postgresql+asyncpg://", "postgresql://")


async def make(database_url: str, octets: int) -> None:
    """Create the table with 128 rows of `octets` bytes."""
    connection = await asyncpg.connect(for_asyncpg(database_url))
    await connection.execute(_MAKE)
    await connection.executemany(_INSERT, [[random_bytes(octets)] for _ in range(_ROWS)])
    await connection.close()


class Statement:
    """A connection with its one statement: an INSERT that commits, or a SELECT by primary key."""

    def __init__(self, connection: Any, octets: int, job: str) -> None:
        self._connection, self._value = connection, random_bytes(octets)
        self._numbers = itertools.cycle(range(1, _ROWS + 1))
        self.once: Callable[[], Coroutine[Any, Any, object]] = (
            self._insert if job == "create" else self._select
        )

    @classmethod
    async def open(cls, database_url: str, octets: int, job: str) -> Statement:
        return cls(await asyncpg.connect(for_asyncpg(database_url)), octets, job)

    async def close(self) -> None:
        await self._connection.close()

    async def _insert(self) -> object:
        return await self._connection.execute(_INSERT, self._value)

    async def _select(self) -> object:
        return await self._connection.fetchval(_SELECT, next(self._numbers))


async def _main(database_url: str, octets: str, job: str, connections: str) -> None:
    from benchmarks.crowd import wait_for_start

    number = int(connections)
    statements = [await Statement.open(database_url, int(octets), job) for _ in range(number)]
    seconds = await wait_for_start()
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def repeat(once: Callable[[], Coroutine[Any, Any, object]]) -> int:
        count = 0
        while loop.time() < began + seconds:
            await once()
            count += 1
        return count

    counts = await asyncio.gather(*(repeat(each.once) for each in statements))
    each_second = sum(counts) / (loop.time() - began)
    for each in statements:
        await each.close()
    print(json.dumps({"rate": each_second, "failed": []}))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
