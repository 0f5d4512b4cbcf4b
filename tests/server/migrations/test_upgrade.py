"""A database is brought to the tables of this version, whoever tries and how often."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from msgspec.structs import replace
from sqlalchemy import Connection, MetaData

from scbroker.errors import OverloadedError
from scbroker.server.migrations import upgrade as upgrades
from scbroker.server.migrations.upgrade import bring_up, upgrade
from scbroker.server.storage.database import open_database
from scbroker.server.storage.tables import metadata
from scbroker.wire.users import KeyFileState
from tests.kit.brokers import clock, environment
from tests.kit.fixtures import StartBroker
from tests.kit.tables import dump, query
from tests.kit.writers import (
    MINUTE,
    OWNER,
    READER,
    Grant,
    Grants,
    Story,
    authorized,
    delete_user,
    renewed,
    store,
    storing,
)
from tests.server.conftest import NewUser

pytestmark = pytest.mark.mostly_on_sqlite

ADMIN = "import sys; from scbroker.cli import main; sys.argv[1:1] = ['admin']; main()"


def _run(url: str, *works: object) -> list[object]:
    async def work() -> list[object]:
        database = open_database(url)
        try:
            return [await database.write(each) for each in works]  # type: ignore[arg-type]
        finally:
            await database.close()

    return asyncio.run(work())


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


def test_migrations_make_exactly_the_tables_that_the_broker_uses(database_url: str) -> None:
    before, _, after = _run(database_url, _differences, upgrade, _differences)
    assert before, "an empty database differs"
    assert after == []


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    _run(database_url, upgrade)
    key = uuid.uuid4().bytes * 2
    query(database_url, "INSERT INTO api_keys VALUES (?, 'x', 1)", key)
    before = dump(database_url)
    _run(database_url, upgrade, upgrade)
    assert dump(database_url) == before
    assert before["api_keys"] == {(key, "x", 1)}


@pytest.mark.parametrize("revision", [None, "0002"])
def test_processes_that_upgrade_at_once_all_succeed(
    database_url: str, tmp_path: Path, revision: str | None
) -> None:
    if revision is not None:
        _run(database_url, _to(revision))
    command = [sys.executable, "-c", ADMIN, "create-api-key"]
    options = ["--data-dir", str(tmp_path / "data")]
    running = [
        subprocess.Popen(
            [*command, f"of {number}", *options],
            env=environment({"database_url": database_url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    finished = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert [code for _, _, code in finished] == [0, 0, 0], finished
    assert {name for (name,) in query(database_url, "SELECT name FROM api_keys")} == {
        "of 0",
        "of 1",
        "of 2",
    }
    assert len({uuid.UUID(output.strip()) for output, _, _ in finished}) == 3


# What each revision added to the tables of the one before.
NEW_IN = {
    "0002": {
        "users": {"key_file_generation"},
        "containers": {"creator_id"},
        "members": {"expiry_told"},
    },
    "0003": {"users": {"first_event", "dropped_digest"}},
    "0007": {"events": {"previous_type"}},
    "0008": {"users": {"deleted"}},
    "0009": {"events": {"salt", "details_hash"}},
}
NEW_TABLES = {"0005": {"doomed_users"}, "0008": {"authors"}, "0009": {"containers_to_purge"}}
EARLIER = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
Tables = dict[str, list[dict[str, Any]]]


def _new_since(revision: str, name: str) -> set[str]:
    """The columns of a table that revisions after this one added."""
    return {c for later, new in NEW_IN.items() if later > revision for c in new.get(name, ())}


def _to(revision: str) -> Any:
    """An empty database with the tables of a revision."""

    def work(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(upgrades.__file__).parent))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)

    return work


def _take_out(revision: str) -> Any:
    """All rows, as this revision would have kept them; then no table is left."""

    def work(connection: Connection) -> Tables:
        found: Tables = {}
        later = {name for since, names in NEW_TABLES.items() if since > revision for name in names}
        for name, table in metadata.tables.items():
            if name in later:
                continue
            rows = connection.execute(table.select()).mappings().all()
            new = _new_since(revision, name)
            found[name] = [{k: v for k, v in row.items() if k not in new} for row in rows]
            if name == "users":  # the time of a deletion, in place of the mark that there is now
                for kept, row in zip(found[name], rows, strict=True):
                    kept["deleted_at"] = clock() if row["deleted"] else None
        metadata.drop_all(connection)
        connection.execute(sqlalchemy.text("DROP TABLE alembic_version"))
        return found

    return work


def _put_in(revision: str, rows: Tables) -> Any:
    def work(connection: Connection) -> None:
        tables = MetaData()
        tables.reflect(connection)
        for name, found in rows.items():
            columns = {column.name for column in tables.tables[name].columns}
            now = {c.name for c in metadata.tables[name].columns}
            assert columns - {"deleted_at"} == now - _new_since(revision, name)
            if found:
                connection.execute(tables.tables[name].insert(), found)
        if connection.dialect.name == "postgresql":
            sequence = "pg_get_serial_sequence('events', 'row_id')"
            newest = "SELECT max(row_id) FROM events"
            connection.execute(sqlalchemy.text(f"SELECT setval({sequence}, ({newest}))"))

    return work


@pytest.mark.parametrize("revision", EARLIER)
def test_a_database_of_an_earlier_revision_goes_on_with_all_that_is_in_it(
    database_url: str, start_broker: StartBroker, new_user: NewUser, revision: str
) -> None:
    broker = start_broker()
    alice, bob, carol = (new_user(at=broker) for _ in range(3))
    ends = clock() + MINUTE // 40
    expiring: Grants = {alice: OWNER, bob: Grant(READER, ends)}
    stories = {
        "with one who expires": Story(alice).created(expiring, type="note"),
        "of one": Story(alice).created(header=b"{}", type="note"),
        "of two": Story(alice).created({alice: OWNER, bob: OWNER}),
        "for another": Story(bob).created({carol: OWNER}),
        "with a tombstone": Story(carol).created({carol: OWNER, bob: READER}),
    }
    stories["of two"].tell(bob, stories["of two"].follow(bob, grants={bob: OWNER}, content=b"2"))
    stories["with a tombstone"].tell(
        carol, stories["with a tombstone"].follow(carol, tombstone=True)
    )
    readers = {"of one": alice, "of two": bob, "for another": carol, "with a tombstone": carol}
    views = {
        name: user.wire.call("GET", f"{stories[name].path}?header=1&content=1").expect(200).body
        for name, user in readers.items()
    }
    logs = {user: user.events() for user in (alice, bob, carol)}
    broker.stop()

    [rows] = _run(database_url, _take_out(revision))
    assert isinstance(rows, dict)
    assert rows["records"]
    _run(database_url, _to(revision), _put_in(revision, rows))
    assert query(database_url, "SELECT version_num FROM alembic_version") == [(revision,)]
    broker.start()

    assert _run(database_url, _differences) == [[]]
    creators = dict(query(database_url, "SELECT id, creator_id FROM containers"))
    assert creators == {story.id: story.creator.ring.userId.bytes for story in stories.values()}
    new = "key_file_generation, first_event, dropped_digest"
    assert set(query(database_url, f"SELECT {new} FROM users")) == {(1, 1, None)}
    for user, log in logs.items():
        user.wire.close()
        now = user.events()[: len(log)]
        bare = [[replace(e, salt=None, detailsHash=None) for e in each] for each in (now, log)]
        assert bare[0] == bare[1]
    # Who expired is told so, as anybody is.
    sleep(max(0, ends - clock()) / 1e6)
    expiries = [
        (e.eventType, e.date) for e in bob.events() if e.relatedUserId is None and e.version
    ]
    assert expiries == [("Deleted", ends)]
    for name, user in readers.items():
        path = f"{stories[name].path}?header=1&content=1"
        assert user.wire.call("GET", path).expect(200).body == views[name], name
    # And on it goes: a record, a KeyFile, a rotation, the end of a user.
    stories["of two"].tell(bob, stories["of two"].follow(bob, content=b"3"))
    state = alice.wire.call("GET", "/v1/key-file").expect(200).message(KeyFileState)
    assert state.generation == 1
    message = storing(alice, keyRecords=renewed(alice)[1])
    store(alice, authorized(alice, message)).expect(204)
    delete_user(bob).expect(204)
    gone = {row[0] for row in query(database_url, "SELECT id FROM containers WHERE deleted")}
    assert gone == {stories[name].id for name in ("of two", "with a tombstone")}


def _bring_up(url: str) -> None:
    async def work() -> None:
        database = open_database(url)
        try:
            await bring_up(database)
        finally:
            await database.close()

    asyncio.run(work())


_EVENT = (
    "INSERT INTO events (user_id, event_type, container_id, date, version, application, changes) "
    "VALUES (decode(repeat('00', 16), 'hex'), 'Added', decode(repeat('00', 16), 'hex'), 1, 1, 'x', 0)"
)


class _Open:
    """A transaction of somebody's that goes on until `close`."""

    def __init__(self, url: str, *statements: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._run(asyncpg.connect(url.replace("+asyncpg", "")))
        for statement in ("SET lock_timeout = '5s'", "BEGIN", *statements):
            self._run(self._connection.execute(statement))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._run(self._connection.execute("COMMIT"))
        self._run(self._connection.close())
        self._loop.close()


def _await_statement(url: str, beginning: str, upgrading: Future[None]) -> None:
    """Until somebody waits in such a statement."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE query LIKE ? AND wait_event_type = 'Lock'"
    deadline = monotonic() + 60
    while not query(url, waiting, f"{beginning}%"):
        assert monotonic() < deadline
        assert not upgrading.done(), upgrading.result()
        sleep(0.02)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("revision", ["0002", "0003"])
def test_others_read_and_write_while_an_upgrade_builds_what_takes_long(
    database_url: str, revision: str
) -> None:
    _run(database_url, _to(revision))
    writer = _Open(database_url, _EVENT)
    with ThreadPoolExecutor(1) as beside:
        upgrading = beside.submit(_bring_up, database_url)
        try:
            _await_statement(database_url, "CREATE INDEX", upgrading)
            _Open(database_url, _EVENT, "SELECT * FROM users").close()
        finally:
            writer.close()
        upgrading.result(60)
    assert _run(database_url, _differences) == [[]]
    assert query(database_url, "SELECT count(*) FROM events") == [(2,)]


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_an_upgrade_waits_for_a_table_no_longer_than_a_moment_and_can_be_tried_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever needs the table waits behind it."""
    _run(database_url, _to("0002"))
    monkeypatch.setattr(upgrades, "_LOCK_TIMEOUT", "100ms")
    reader = _Open(database_url, "SELECT * FROM users")
    try:
        with pytest.raises(OverloadedError):
            _bring_up(database_url)
        assert query(database_url, "SELECT version_num FROM alembic_version") == [("0002",)]
    finally:
        reader.close()
    _bring_up(database_url)
    assert _run(database_url, _differences) == [[]]


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_an_index_whose_building_was_cut_off_is_built_again(database_url: str) -> None:
    _run(database_url, _to("0003"))
    query(database_url, "CREATE INDEX events_of_kind ON events (date)")
    spoil = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'events_of_kind'::regclass"
    query(database_url, spoil)
    _bring_up(database_url)
    assert _run(database_url, _differences) == [[]]
    definition = "SELECT indexdef FROM pg_indexes WHERE indexname = 'events_of_kind'"
    assert "event_type" in query(database_url, definition)[0][0]
    assert query(database_url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]
