"""Nothing waits for a database for ever: what comes too late is refused, and was not done."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from scbroker.errors import OverloadedError
from scbroker.server.storage import database as storage
from scbroker.server.storage.database import Database, async_url, open_database
from scbroker.server.storage.driver import Connection
from tests.kit.waiting import PATIENCE


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = open_database(url, wait=PATIENCE)
    try:
        await database.write(lambda c: c.execute(text("CREATE TABLE things (id INTEGER)")))
        yield database
    finally:
        await database.close()


def add(connection: Connection) -> None:
    connection.execute(text("INSERT INTO things VALUES (1)"))


def count(connection: Connection) -> int:
    return int(connection.execute(text("SELECT count(*) FROM things")).scalar_one())


@pytest.mark.long
async def test_a_write_that_waited_too_long_for_its_turn_is_refused_and_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, ahead = time.monotonic, [0.0]
    monkeypatch.setattr(storage, "time", SimpleNamespace(monotonic=lambda: right() + ahead[0]))
    async with opened(f"sqlite:///{tmp_path / 'x.sqlite'}") as database:
        both, release = threading.Barrier(2), threading.Event()

        def block(_: Connection) -> bool:
            both.wait(PATIENCE)
            return release.wait(PATIENCE)

        blocker = asyncio.ensure_future(database.write(block))
        late = [asyncio.ensure_future(database.write(add)) for _ in range(10)]
        await asyncio.to_thread(both.wait, PATIENCE)
        ahead[0] = 3600.0
        release.set()
        assert await blocker
        for refused in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(refused, OverloadedError)
            assert refused.retryAfter
        assert await database.read(count) == 0
        await database.write(add)  # at once well again
        assert await database.read(count) == 1


@pytest.mark.sampled
@pytest.mark.parametrize(
    "limit, statement",
    [("statement_timeout", "SELECT pg_sleep(600)"), ("lock_timeout", "LOCK TABLE things")],
)
async def test_the_server_ends_what_takes_too_long_or_waits_too_long_for_a_lock(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, limit: str, statement: str
) -> None:
    async with opened(postgres_url):
        monkeypatch.setitem(storage._SERVER_SETTINGS, limit, "200ms")
        database = open_database(postgres_url)
        locked, release = asyncio.Event(), asyncio.Event()
        holder = asyncio.ensure_future(hold(postgres_url, locked, release))
        await locked.wait()
        with pytest.raises(OverloadedError):
            await database.write(lambda c: c.execute(text(statement)))
        release.set()
        await holder
        await database.close()


async def hold(url: str, locked: asyncio.Event, release: asyncio.Event) -> None:
    """Another program that keeps the table to itself."""
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(async_url(url))
    async with engine.connect() as connection, connection.begin():
        await connection.execute(text("LOCK TABLE things IN ACCESS EXCLUSIVE MODE"))
        locked.set()
        await release.wait()
    await engine.dispose()


async def test_the_limits_of_the_server_side_are_set_for_each_connection(postgres_url: str) -> None:
    def shown(connection: Connection) -> list[str]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return [str(connection.execute(text(f"SHOW {name}")).scalar_one()) for name in names]

    async with opened(postgres_url) as database:
        for action in (database.read, database.query, database.write):
            assert await action(shown) == ["25s", "10s", "1min"]
