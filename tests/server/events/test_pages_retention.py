"""Old events are dropped where the operator wants it, and what is kept stays gapless (protocol.md, 5)."""

import uuid

import pytest

from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import NO_EVENTS, Event, Events, digest_with
from tests.kit.ageing import AGO, age, drop_old_events
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, Story, User, delete_user
from tests.server.conftest import NewUser


def log_of(user: User, text: str = "") -> Events:
    return user.wire.call("GET", f"/v1/events?{text}").expect(200).message(Events)


def digest_of(events: list[Event]) -> bytes:
    digest = NO_EVENTS
    for event in events:
        digest = digest_with(digest, event)
    return digest


def grown(user: User, count: int) -> Story:
    story = Story(user).created()
    for number in range(count - 1):
        story.tell(user, story.follow(user, content=b"%d" % number))
    return story


@pytest.mark.long
def test_old_events_are_deleted_and_the_log_has_its_first_id(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = grown(alice, 5)
    grown(bob, 2)
    log_of(alice)
    age(broker, alice.ring.userId, "id <= 3")
    before, others = log_of(alice), log_of(bob)
    drop_old_events(broker)
    assert log_of(alice) == Events(
        events=before.events[3:], firstId=4, lastId=5, droppedDigest=digest_of(before.events[:3])
    )
    assert log_of(alice, "startId=2&endId=4").events == before.events[3:4]
    assert log_of(bob) == others
    story.tell(alice, story.follow(alice, content=b"6"))
    age(broker, alice.ring.userId, "id = 4")
    whole = [*log_of(alice).events]
    drop_old_events(broker)
    left = log_of(alice)
    assert (left.firstId, left.lastId) == (5, 6)
    assert left.droppedDigest == digest_of([*before.events[:3], whole[0]])


def test_unnumbered_events_are_numbered_before_retention_deletes_them(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    for number in range(4):
        Story(alice).created({alice: OWNER, bob: READER | Level.ViewType}, type=str(number))
    age(broker, bob.ring.userId, "container_type IN ('0', '1', '2')")
    drop_old_events(broker)
    log = log_of(bob)
    assert (log.firstId, log.lastId, [event.id for event in log.events]) == (4, 4, [4])
    assert [event.containerType for event in log.events] == ["3"]


def test_an_old_event_behind_a_younger_one_stays_until_that_is_old_too(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """An expiry that was noticed late: dated when it was, told behind what came after it."""
    alice = new_user()
    grown(alice, 4)
    log_of(alice)
    age(broker, alice.ring.userId, "id IN (1, 3, 4)")
    drop_old_events(broker)
    assert [event.id for event in log_of(alice).events] == [2, 3, 4]
    age(broker, alice.ring.userId, "id = 2")
    drop_old_events(broker)
    assert [event.id for event in log_of(alice).events] == []


@pytest.mark.long
def test_a_long_log_goes_in_bites_and_others_do_not_keep_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """More than a bite of each of three, and old ones behind young ones ahead of them."""
    stuck, long = new_user(), [new_user(), new_user()]
    for user in (stuck, *long):
        write_rows(broker, user, 1201, clock() - AGO)
    write_rows(broker, long[0], 1, clock())
    log_of(stuck)
    query(
        broker.database_url, "UPDATE events SET date = ? WHERE user_id = ? AND id = 1",
        clock(), stuck.ring.userId.bytes,
    )  # fmt: skip
    drop_old_events(broker)
    ends = [(log.firstId, log.lastId) for log in map(log_of, (stuck, *long))]
    assert ends == [(1, 1201), (1202, 1202), (1202, 1201)]


def write_rows(broker: BrokerProcess, user: User, count: int, date: int) -> None:
    own = user.ring.userId.bytes
    columns = "event_type, container_id, date, application, changes, user_id, version, salt"
    row = f"('Updated', ?, {date}, 'by hand', 1, ?, 1, ?)"
    for start in range(0, count, 400):
        some = min(400, count - start)
        values = [own, own, own] * some
        places = ", ".join([row] * some)
        query(broker.database_url, f"INSERT INTO events ({columns}) VALUES {places}", *values)


def test_of_a_deleted_user_nothing_says_how_many_events_there_were(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    grown(alice, 3)
    age(broker, alice.ring.userId)
    drop_old_events(broker)
    delete_user(alice).expect(204)
    columns = "first_event, last_event, dropped_digest"
    found = query(
        broker.database_url, f"SELECT {columns} FROM users WHERE id = ?", uuid.UUID(alice.id).bytes
    )
    assert found == [(1, 0, None)]
    drop_old_events(broker)
