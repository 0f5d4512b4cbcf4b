"""A database gets this version's tables, whichever revision it has and however many brokers start."""

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from scbroker.errors import InvalidArgumentError, OverloadedError
from scbroker.server.migrations import upgrade
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.storage.database import open_database
from scbroker.server.storage.tables import metadata
from tests.kit.brokers import environment
from tests.kit.fixtures import StartBroker
from tests.kit.tables import dump, query
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import Story
from tests.server.conftest import NewUser

FOLDER = Path(__file__).parent
REVISION = "SELECT version_num FROM alembic_version"
NEWEST = upgrade.newest()
UPGRADE = """
import sys
from tests.server.migrations import test_upgrade as tests
tests.upgrade.VERSIONS.append(tests.FOLDER / "later")
tests.upgraded(sys.argv[1])
"""


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This version has two more revisions: an index of the events, and a column of the users."""
    monkeypatch.setattr(upgrade, "VERSIONS", [*upgrade.VERSIONS, FOLDER / "later"])


def upgraded(url: str) -> list[Any]:
    """Bring a database up to this version; return in what it differs from `tables.py` then."""

    def differences(connection: sqlalchemy.Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    async def work() -> list[Any]:
        database = open_database(url)
        try:
            await bring_up(database)
            return await database.migrate(differences)
        finally:
            await database.close()

    return asyncio.run(work())


def make_tables(url: str) -> None:
    """Create the tables without the later revisions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upgrade, "VERSIONS", upgrade.VERSIONS[:1])
        upgraded(url)


def check_examples(url: str, differences: list[Any]) -> None:
    """Check that nothing but what the two later revisions add differs from `tables.py`."""
    assert query(url, REVISION) == [("9002",)]
    found = {(each[0], getattr(each[-1], "name", None)) for each in differences}
    assert found == {("remove_index", "events_example"), ("remove_column", "example")}


def test_a_new_database_gets_these_tables_and_the_newest_revision(database_url: str) -> None:
    assert upgraded(database_url) == []
    assert query(database_url, REVISION) == [(upgrade.newest(),)]


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    upgraded(database_url)
    key = uuid.uuid4().bytes * 2
    query(database_url, "INSERT INTO api_keys (key_hash, name, created_at) VALUES (?, 'x', 1)", key)
    before = dump(database_url)
    upgraded(database_url)
    assert dump(database_url) == before
    assert before["api_keys"] == {(key, "x", 1, None, None)}


@pytest.mark.sampled
@pytest.mark.parametrize("revision", ["0009", "9999"])
def test_a_database_of_an_unknown_revision_is_refused_unchanged_with_what_to_do(
    database_url: str, revision: str
) -> None:
    upgraded(database_url)
    query(database_url, "UPDATE alembic_version SET version_num = ?", revision)
    with pytest.raises(
        InvalidArgumentError, match=f"revision {revision}.*Start the version.*backup"
    ):
        upgraded(database_url)
    assert query(database_url, REVISION) == [(revision,)]


def _at_once(url: str, commands: list[list[str]]) -> list[str]:
    """What these processes print that run at the same time; none of them may fail."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", *command],
            env=environment({"database_url": url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    finished = [(*process.communicate(timeout=PATIENCE), process.returncode) for process in running]
    assert [code for _, _, code in finished] == [0] * len(commands), finished
    return [output.strip() for output, _, _ in finished]


@pytest.mark.long
@pytest.mark.usefixtures("later")
def test_processes_that_apply_revisions_at_once_all_succeed(database_url: str) -> None:
    make_tables(database_url)
    _at_once(database_url, [[UPGRADE, database_url]] * 3)
    check_examples(database_url, upgraded(database_url))


@pytest.mark.process
@pytest.mark.long
@pytest.mark.usefixtures("later")
def test_a_database_of_an_earlier_revision_goes_on_with_all_that_is_in_it(
    database_url: str, start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    alice = new_user(at=broker)
    story = Story(alice).created(header=b"{}", content=b"1", type="note")
    view = alice.wire.call("GET", f"{story.path}?header=1&content=1").expect(200).body
    log = alice.events()
    broker.stop()
    rows = dump(database_url)
    check_examples(database_url, upgraded(database_url))
    assert query(database_url, "SELECT DISTINCT example FROM users") == [(7,)]
    query(database_url, "ALTER TABLE users DROP COLUMN example")
    query(database_url, "UPDATE alembic_version SET version_num = ?", NEWEST)
    assert dump(database_url) == rows
    broker.start()
    alice.wire.close()
    assert alice.wire.call("GET", f"{story.path}?header=1&content=1").expect(200).body == view
    assert alice.events()[: len(log)] == log
    story.tell(alice, story.follow(alice, content=b"2"))


_EVENT = (
    "INSERT INTO events (user_id, event_type, container_id, date, version, application, changes) "
    "VALUES (decode(repeat('00', 16), 'hex'), 'Added', decode(repeat('00', 16), 'hex'), 1, 1, 'x', 0)"
)


class _Open:
    """Another program's transaction, which is open until `close`."""

    def __init__(self, url: str, *statements: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._run(asyncpg.connect(url.replace("+asyncpg", "")))
        for statement in (f"SET lock_timeout = '{PATIENCE}s'", "BEGIN", *statements):
            self._run(self._connection.execute(statement))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._run(self._connection.execute("COMMIT"))
        self._run(self._connection.close())
        self._loop.close()


def _await_statement(
    url: str, beginning: str, upgrading: Future[Any], longer_than: str = "0"
) -> None:
    """Until somebody waits in such a statement, since longer than this by the server's clock."""
    waiting = (
        "SELECT 1 FROM pg_stat_activity WHERE query LIKE ? AND wait_event_type = 'Lock' "
        f"AND clock_timestamp() - query_start > interval '{longer_than}'"
    )
    wait_until(lambda: upgrading.done() or query(url, waiting, f"{beginning}%"))
    assert not upgrading.done(), upgrading.result()


@pytest.mark.long
@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_others_read_and_write_while_an_index_is_built_and_it_waits_for_them_however_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "_LOCK_TIMEOUT", "100ms")
    make_tables(database_url)
    writer = _Open(database_url, _EVENT)
    with ThreadPoolExecutor(1) as beside:
        upgrading = beside.submit(upgraded, database_url)
        try:
            _await_statement(database_url, "CREATE INDEX", upgrading)
            _Open(database_url, _EVENT, "SELECT * FROM users").close()
            _await_statement(database_url, "CREATE INDEX", upgrading, "500ms")
        finally:
            writer.close()
        check_examples(database_url, upgrading.result(PATIENCE))
    assert query(database_url, "SELECT count(*) FROM events") == [(2,)]


@pytest.mark.long
@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_revision_waits_for_a_table_no_longer_than_a_moment_and_can_be_tried_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other transaction that needs the table waits behind it."""
    monkeypatch.setattr(upgrade, "_LOCK_TIMEOUT", "100ms")
    make_tables(database_url)
    with ThreadPoolExecutor(1) as beside:
        writer = _Open(database_url, _EVENT)  # the index is built, and waits: then the reader comes
        upgrading = beside.submit(upgraded, database_url)
        _await_statement(database_url, "CREATE INDEX", upgrading)
        reader = _Open(database_url, "LOCK users IN ACCESS SHARE MODE")
        writer.close()
        try:
            with pytest.raises(OverloadedError):
                upgrading.result(PATIENCE)
            assert query(database_url, REVISION) == [("9001",)]
        finally:
            reader.close()
    check_examples(database_url, upgraded(database_url))


@pytest.mark.long
@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_an_index_whose_building_was_cut_off_is_built_again(database_url: str) -> None:
    make_tables(database_url)
    query(database_url, "CREATE INDEX events_example ON events (date)")
    spoil = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'events_example'::regclass"
    query(database_url, spoil)
    check_examples(database_url, upgraded(database_url))
    definition = "SELECT indexdef FROM pg_indexes WHERE indexname = 'events_example'"
    assert "user_id" in query(database_url, definition)[0][0]
    assert query(database_url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
