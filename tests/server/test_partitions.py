"""The events, parted by user by deploy/partition-events.sql: nobody at the broker notices."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from scbroker.server.migrations import upgrade
from scbroker.server.storage.tables import metadata
from tests.kit.fixtures import StartBroker
from tests.kit.plans import plans
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, Grants, Story, delete_user
from tests.server.conftest import NewUser
from tests.server.migrations.test_upgrade import upgraded

SCRIPT = Path(__file__).parents[2] / "deploy/partition-events.sql"
LATER = Path(__file__).parent / "migrations" / "later"
INDEXES = "SELECT indexname FROM pg_indexes WHERE tablename = 'events'"


async def _run(url: str, script: str) -> None:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        await connection.execute(script)
    finally:
        await connection.close()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_broker_goes_on_with_its_events_parted_by_user(
    database_url: str, start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    users = [new_user(at=broker) for _ in range(6)]
    alice, bob, *_ = users
    everybody: Grants = {user: OWNER if user is alice else READER for user in users}
    story = Story(alice).created(everybody, type="note")
    before = {user: user.events() for user in users[:-1]}  # the last one's stay without a number
    broker.stop()
    asyncio.run(_run(database_url, SCRIPT.read_text("utf-8")))
    indexes = {name for (name,) in query(database_url, INDEXES)}
    broker.start()
    for user in users:
        user.wire.close()

    assert indexes == {"events_pkey", *(index.name for index in metadata.tables["events"].indexes)}
    story.tell(alice, story.follow(alice, content=b"2"))
    other = Story(bob).created({bob: OWNER, alice: READER})
    for user, events in before.items():
        assert user.events()[: len(events)] == events
    logs = [[event.id for event in user.events()] for user in users]
    assert logs == [[1, 2, 3], [1, 2, 3], *[[1, 2]] * 4]
    assert [event.version for event in alice.events(containerType="note", eventType="Updated")] == [
        2
    ]
    assert len(bob.events(containerId=other.path.rpartition("/")[2])) == 1
    used = "SELECT count(DISTINCT tableoid), count(DISTINCT user_id) FROM events"
    [(parts, owners)] = query(database_url, used)
    assert 1 < parts <= owners == len(users)
    delete_user(bob).expect(204)
    kept = {bytes(each) for (each,) in query(database_url, "SELECT DISTINCT user_id FROM events")}
    assert kept == {user.ring.userId.bytes for user in users} - {bob.ring.userId.bytes}


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_an_upgrade_makes_an_index_of_partitioned_events(
    database_url: str, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL builds no index of a partitioned table concurrently."""
    start_broker().stop()
    asyncio.run(_run(database_url, SCRIPT.read_text("utf-8")))
    monkeypatch.setattr(upgrade, "VERSIONS", [*upgrade.VERSIONS, LATER])
    upgraded(database_url)
    found = {name for (name,) in query(database_url, INDEXES)}
    indexes = {index.name for index in metadata.tables["events"].indexes}
    assert found == {"events_pkey", "events_example", *indexes}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_what_belongs_to_a_user_is_looked_for_in_one_part_alone(
    database_url: str, start_broker: StartBroker
) -> None:
    start_broker().stop()
    asyncio.run(_run(database_url, SCRIPT.read_text("utf-8")))
    found = {
        name: {table for table in plan.tables if table.startswith("events_")}
        for name, plan in plans(database_url).items()
        if "events" in {table.partition("_")[0] for table in plan.tables}
    }
    assert {"UNNUMBERED", "NUMBER_EVENT", "events_page by id", "DROP_EVENT"} <= found.keys()
    # For retention, after deletions, and for the check of what they left.
    of_all = ("OLD_EVENTS", "NEXT_LOG_WITH", "IN_OTHER_LOGS", "ANY_EVENT_WITH_DETAILS")
    for of_all_users in of_all:
        assert len(found.pop(of_all_users)) > 1
    assert {name: len(tables) for name, tables in found.items()} == dict.fromkeys(found, 1)
