"""The end of a user goes in parts: what stops in between is finished later, and others write meanwhile.

What goes and what stays is `test_deletion`'s matter. Spec: docs/spec/protocol.md, section 5.
"""

import asyncio
from functools import partial
from typing import Final

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.server import app
from scbroker.server.broker import Broker
from scbroker.server.containers import tombstones
from scbroker.server.storage.driver import Connection
from scbroker.server.users import deletion
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.kit.beside import beside
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.tables import query
from tests.kit.waiting import wait_until
from tests.kit.watching import watching
from tests.kit.writers import OWNER, READER, Grant, Story, User, closing, session_of
from tests.server.conftest import LASTS, NewUser, PassUntil
from tests.server.users.test_deletion import _assert_forgotten

LARGE: Final = 70_000


def end(broker: BrokerProcess, user: User) -> None:
    """The first part of a deletion, after which whoever was at it is gone."""
    mine, nonce = session_of(user).id, random_bytes(16) + bytes(32)
    last = closing(user).signed
    beside(broker, lambda b: b.database.write(lambda c: deletion.end(c, b, mine, 2, last, nonce)))


def purge_some(broker: BrokerProcess, user: User) -> bool:
    mine = session_of(user).id
    return beside(broker, lambda b: b.database.write(lambda c: deletion.purge_some(c, mine)))


def pending(broker: BrokerProcess) -> set[bytes]:
    return {bytes(each) for (each,) in query(broker.database_url, "SELECT * FROM pending_users")}


def check(broker: BrokerProcess) -> None:
    done = admin(broker, "check", "--quick").expect(0)
    assert done.lines == [done.last]


@pytest.fixture(autouse=True)
def not_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's own work would finish what a test leaves for a minute."""
    monkeypatch.setattr(app, "_SWEEP", 86_400.0)


@pytest.mark.long
@both_engines
def test_a_deletion_that_stops_after_any_part_of_it_is_no_damage_and_is_finished_by_anybody(
    start_broker: StartBroker,
    new_user: NewUser,
    monkeypatch: pytest.MonkeyPatch,
    pass_until: PassUntil,
) -> None:
    monkeypatch.setattr(tombstones, "_CONTAINERS", 1)
    monkeypatch.setattr(deletion, "_ROWS", 2)
    broker = start_broker()
    alice, bob, carol = (new_user(at=broker) for _ in range(3))
    listening = OWNER | Level.ReceiveAccessEvents
    ends = clock() + LASTS
    large = Story(alice)
    large.tell(alice, large.begin({alice: OWNER}, content=large.upload(alice, bytes(LARGE))))
    gone = [
        large,
        Story(alice).created(type="a"),
        Story(alice).created({alice: OWNER, bob: Grant(READER, ends)}),
        Story(bob).created({alice: OWNER}),
    ]
    shared = Story(alice).created(dict.fromkeys((alice, bob), listening), header=b"{}")
    given = Story(alice).created({carol: OWNER})
    alice.view(shared, "header=1")
    alice.events()
    shared.tell(bob, shared.follow(bob, content=b"2"))  # of which her log has no number yet
    wait_until(lambda: query(broker.database_url, "SELECT * FROM accesses"))
    pass_until(ends, at=broker)
    readers = ((bob, f"{shared.path}?header=1"), (carol, f"{given.path}?header=1"))
    end(broker, alice)
    views = [user.wire.call("GET", path).expect(200).body for user, path in readers]
    steps, more = 0, True
    while more:
        assert pending(broker) == {alice.ring.userId.bytes}
        check(broker)
        found = [user.wire.call("GET", path).expect(200).body for user, path in readers]
        assert found == views
        more = purge_some(broker, alice)
        steps += 1
    assert steps > len(gone) + 3
    assert pending(broker) == set()
    check(broker)
    admin(broker, "sweep").expect(0)
    _assert_forgotten(broker.database_url, alice, {shared.id, given.id})
    for story in gone:
        statement = "SELECT deleted, type FROM containers WHERE id = ?"
        dead = [] if story.creator is alice else [(True, None)]  # an id that Bob could use again
        assert query(broker.database_url, statement, story.id) == dead
    columns = "registered_at, last_event, first_event, dropped_digest, key_file_generation"
    statement = f"SELECT {columns} FROM users WHERE id = ?"
    tombstone = query(broker.database_url, statement, alice.ring.userId.bytes)
    assert tombstone == [(0, 0, 1, None, 0)]
    told = [e for e in bob.events(eventType="Deleted") if e.relatedUserId is None]
    went = [event for event in told if event.version == 0]
    assert told == went, "what his log said of the container is emptied with it"
    assert {event.containerId for event in went} == {gone[2].path.rpartition("/")[2]}


def test_a_user_is_deleted_for_everybody_after_the_first_transaction(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    shared = Story(alice).created({alice: OWNER, bob: OWNER})
    own, new, joint = Story(alice).created(), Story(alice), Story(bob)
    log_in = alice.wire.log_in_request(alice.ring)
    end(broker, alice)
    new.send(alice, new.begin()).expect(401, "session")
    alice.wire.call("GET", "/v1/events").expect(401, "session")
    alice.wire.call("POST", "/v1/sessions", log_in).expect(401, "challenge")
    alice.wire.register(alice.ring).expect(409, "exists")
    joint.send(bob, joint.begin({alice: OWNER, bob: OWNER})).expect(404, "not-found")
    bob.wire.call("GET", own.path).expect(404, "not-found")
    shared.tell(bob, shared.follow(bob, content=b"on"))
    assert alice.ring.userId.bytes in pending(broker)


@pytest.mark.long
def test_a_running_broker_continues_a_deletion_that_another_started(
    start_broker: StartBroker, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_SWEEP", 0.01)
    broker = start_broker()
    users = [new_user(at=broker) for _ in range(3)]
    for user in users:
        Story(user).created()
        end(broker, user)

    def rows() -> object:
        return pending(broker) or query(broker.database_url, "SELECT part_id FROM parts")

    async def run(beside: Broker) -> None:
        async def opened() -> Broker:
            return beside

        found = app.create_app(opened)
        async with found.router.lifespan_context(found):
            await asyncio.to_thread(wait_until, lambda: not rows())

    beside(broker, run)
    for user in users:
        _assert_forgotten(broker.database_url, user, set())


@pytest.mark.long
@both_engines
def test_no_part_of_a_deletion_takes_more_rows_than_it_may(
    start_broker: StartBroker, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers by their number and by their records; a container goes as a whole all the same."""
    monkeypatch.setattr(tombstones, "_CONTAINERS", 4)
    monkeypatch.setattr(tombstones, "_RECORDS_AT_ONCE", 6)
    monkeypatch.setattr(deletion, "_ROWS", 5)
    broker = start_broker()
    alice = new_user(at=broker)
    for versions in (1, 1, 1, 1, 3, 3, 9):
        story = Story(alice).created(header=b"{}")
        for number in range(1, versions):
            story.tell(alice, story.follow(alice, content=b"%d" % number))
    parts: list[dict[str, int]] = []
    end(broker, alice)

    def purge(connection: Connection) -> bool:
        parts.append({})

        def count(sign: int, sql: str, _: object) -> None:
            if sql.startswith("DELETE FROM "):
                name = sql.split()[2]
                [[rows]], _ = connection.fetch(f"SELECT count(*) FROM {name}", [])
                parts[-1][name] = parts[-1].get(name, 0) + sign * rows

        with watching(connection, before=partial(count, 1), after=partial(count, -1)):
            return deletion.purge_some(connection, session_of(alice).id)

    while beside(broker, lambda b: b.database.write(purge)):
        pass
    assert sum(part.get("records", 0) for part in parts) == 19
    assert all(part.get("records", 0) <= 6 or part["records"] == 9 for part in parts)
    assert any(part.get("records", 0) == 9 and part["members"] == 1 for part in parts)
    assert sum(part.get("events", 0) for part in parts) == 19
    assert max(part.get("events", 0) for part in parts) == 5
    assert max(part.get("members", 0) for part in parts) <= 2 * 4
    admin(broker, "sweep").expect(0)
    _assert_forgotten(broker.database_url, alice, set())
