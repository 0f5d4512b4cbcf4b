"""What both engines promise: durable, all or nothing, one snapshot, errors that say whether to retry."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from scbroker.errors import ConflictError, InvalidArgumentError, OverloadedError
from scbroker.server import app
from scbroker.server.storage.database import Database, SqliteDatabase, open_database
from scbroker.server.storage.driver import Connection
from tests.kit.engines import PostgresServer
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, tick
from tests.kit.watching import watching

pytestmark = pytest.mark.postgresql_too

CREATE = "CREATE TABLE things (id INTEGER PRIMARY KEY, half INTEGER, data TEXT)"


@asynccontextmanager
async def _opened(url: str, *, create: bool = True) -> AsyncIterator[Database]:
    database = open_database(url)
    try:
        if create:
            await database.write(lambda c: c.execute(text(CREATE)))
        yield database
    finally:
        await database.close()


def _add(connection: Connection, number: int, data: str = "", half: int = 0) -> None:
    values = {"id": number, "half": half, "data": data}
    connection.execute(text("INSERT INTO things VALUES (:id, :half, :data)"), values)


def _ids(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT id FROM things ORDER BY id")).scalars())


async def test_a_write_gives_its_result_and_the_next_process_reads_it(database_url: str) -> None:
    async with _opened(database_url) as database:

        def add(connection: Connection) -> str:
            _add(connection, 1)
            return "result"

        assert await database.write(add) == "result"
        found = await asyncio.to_thread(query, database_url, "SELECT id FROM things")
        assert found == [(1,)]


async def test_a_write_that_fails_leaves_nothing_and_raises_its_error(database_url: str) -> None:
    def half(connection: Connection) -> None:
        _add(connection, 1)
        raise ConflictError("the word of the one who wrote")

    async with _opened(database_url) as database:
        with pytest.raises(ConflictError, match="the word of the one who wrote"):
            await database.write(half)
        assert await database.read(_ids) == []


@pytest.mark.only_on("sqlite")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_scrub_empties_the_log_as_soon_as_nobody_reads_an_older_state(
    database_url: str,
) -> None:
    """It gives up at once, since the writer waits for as long as it does; the broker tries again."""
    path = database_url.removeprefix("sqlite:///")
    async with _opened(database_url) as database:
        broker: Any = SimpleNamespace(database=database, is_scrubbed=False)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM things").fetchall()
            await database.write(lambda c: _add(c, 1, "secret"))
            await app._scrub(broker)
            assert not broker.is_scrubbed
            await database.write(lambda c: _add(c, 2))
        log = Path(f"{path}-wal")
        assert b"secret" in await asyncio.to_thread(log.read_bytes)
        await app._scrub(broker)
        assert broker.is_scrubbed
        assert await asyncio.to_thread(log.read_bytes) == b""
        assert await database.read(_ids) == [1, 2]


async def test_of_many_writers_one_fails_and_all_others_commit(database_url: str) -> None:
    def add(connection: Connection, number: int) -> None:
        _add(connection, number)
        if number == 13:
            connection.execute(text("SELECT nonsense"))
        if number == 31:
            raise ConflictError()

    async with _opened(database_url) as database:
        writes = [database.write(partial(add, number=n)) for n in range(50)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        failed = {n: error for n, error in enumerate(outcomes) if error is not None}
        assert failed.keys() == {13, 31}
        assert not isinstance(failed[13], OverloadedError)
        assert isinstance(failed[31], ConflictError)
        assert await database.read(_ids) == [n for n in range(50) if n not in failed]


async def test_what_has_queued_up_on_sqlite_is_one_commit(tmp_path: Path) -> None:
    async with _opened(f"sqlite:///{tmp_path / 'x.sqlite'}") as database:
        release = threading.Event()
        first = asyncio.ensure_future(database.write(lambda _: release.wait(PATIENCE)))
        others = [
            asyncio.ensure_future(database.write(partial(_add, number=n))) for n in range(100)
        ]
        await tick()  # each queues its job
        counted: list[str] = []
        assert isinstance(database, SqliteDatabase)
        with watching(database._writing, before=lambda sql, _: counted.append(sql)):
            release.set()
            await asyncio.gather(first, *others)
        assert 1 <= counted.count("COMMIT") <= 2, "the one under way, and all that queued up"
        assert len(await database.read(_ids)) == 100


async def test_sqlite_is_durable_at_each_commit(tmp_path: Path) -> None:
    async with _opened(f"sqlite:///{tmp_path / 'x.sqlite'}") as database:

        def pragma(connection: Connection) -> tuple[object, object]:
            found = [connection.execute(text(f"PRAGMA {name}")).scalar_one()
                     for name in ("journal_mode", "synchronous")]  # fmt: skip
            return found[0], found[1]

        assert await database.write(pragma) == ("wal", 2)


async def test_the_savepoint_of_a_large_write_needs_no_temporary_file(tmp_path: Path) -> None:
    """SQLite would write replaced pages of more than 64 KiB beside the data folder, where they stay."""

    def opened_by(connection: Connection) -> list[str]:
        for number in range(100):
            connection.execute(
                text("INSERT OR REPLACE INTO things VALUES (:id, 0, :data)"),
                {"id": number, "data": "x" * 4000},
            )
        connection.execute(text("UPDATE things SET data = 'y'"))
        folder = Path("/proc/self/fd")
        return [str(each.readlink()) for each in folder.iterdir() if each.is_symlink()]

    async with _opened(f"sqlite:///{tmp_path / 'x.sqlite'}") as database:
        await database.write(opened_by)
        assert not [path for path in await database.write(opened_by) if "etilqs" in path]


@pytest.mark.parametrize("large", [False, True])
async def test_a_read_sees_one_moment_despite_writes(database_url: str, large: bool) -> None:
    def twice(connection: Connection) -> tuple[list[int], list[int]]:
        before = _ids(connection)
        with ThreadPoolExecutor(1) as pool:  # another connection altogether
            statement = "INSERT INTO things VALUES (2, 0, '')"
            pool.submit(query, database_url, statement).result(PATIENCE)
        return before, _ids(connection)

    async with _opened(database_url) as database:
        await database.write(lambda c: _add(c, 1))
        assert await database.read(twice, large=large) == ([1], [1])
        assert await database.read(_ids, large=large) == [1, 2]


async def test_a_read_cannot_write_on_postgresql(postgres_url: str) -> None:
    async with _opened(postgres_url) as database:
        with pytest.raises(sqlalchemy.exc.DBAPIError, match="read-only"):
            await database.read(lambda c: _add(c, 1))


@pytest.mark.sampled
@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_serialisation_failure_is_tried_again_and_nothing_of_the_first_try_stays(
    postgres_url: str, state: str
) -> None:
    tries = 0

    def add(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        _add(connection, tries)
        if tries < 4:
            _raise(connection, state)
        return tries

    async with _opened(postgres_url) as database:
        assert await database.write(add) == 4
        assert await database.read(_ids) == [4]


def _raise(connection: Connection, state: str) -> None:
    connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$"))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "state, expected",
    [("53100", OverloadedError), ("57014", OverloadedError), ("08006", OverloadedError),
     ("42P01", ProgrammingError)],
)  # fmt: skip
async def test_a_failure_that_may_pass_is_to_be_retried_and_any_other_is_a_fault(
    postgres_url: str, state: str, expected: type[Exception]
) -> None:
    async with _opened(postgres_url) as database:
        for action in (database.read, database.write):
            with pytest.raises(expected):
                await action(lambda c: _raise(c, state))


async def test_after_an_insert_of_a_stored_row_the_other_function_runs(database_url: str) -> None:
    def insert_first(connection: Connection) -> str:
        _add(connection, 2)
        _add(connection, 1)
        return "inserted"

    async with _opened(database_url) as database:
        assert await database.write(insert_first, otherwise=lambda _: "read") == "inserted"
        await database.write(lambda c: c.execute(text("DELETE FROM things WHERE id = 2")))
        assert await database.write(insert_first, otherwise=lambda _: "read") == "read"
        assert await database.read(_ids) == [1], "nothing of the first function stays"


@pytest.mark.only_on("sqlite")
async def test_a_relative_file_is_of_the_working_directory_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with _opened("sqlite:///relative.sqlite") as database:
        monkeypatch.chdir("/")
        assert await database.read(_ids, large=True) == []


@pytest.mark.long
async def test_a_full_pool_is_overloaded_and_not_a_fault(postgres_url: str) -> None:
    database = open_database(postgres_url, pool_size=1, wait=0.2)
    begun = asyncio.Event()

    def occupy(connection: Connection) -> None:
        begun.set()
        connection.execute(text("SELECT pg_sleep(600)"))

    slow = asyncio.ensure_future(database.read(occupy))
    await begun.wait()
    for action in (database.read, database.write):
        with pytest.raises(OverloadedError):
            await action(lambda c: c.execute(text("SELECT 1")).all())
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    await database.close()


@pytest.mark.parametrize("url", ["", "mysql://x", "sqlite://x", "/tmp/x", "postgres://x"])
def test_an_engine_that_is_not_ours_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="database_url"):
        open_database(url)


@pytest.mark.long
def test_nothing_is_read_written_or_migrated_on_a_standby() -> None:
    with PostgresServer(settings=("wal_level=replica", "hot_standby=on")) as server:
        url = server.createdatabase()
        server.stop()
        server.become_standby()
        server.start()

        async def work() -> None:
            database = open_database(url)
            try:
                for ask in (database.read, database.query, database.write, database.migrate):
                    with pytest.raises(OverloadedError):
                        await ask(lambda connection: connection.execute(text("SELECT 1")))
            finally:
                await database.close()

        asyncio.run(work())
