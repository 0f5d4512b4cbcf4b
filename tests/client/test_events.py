"""The event log through the provider: five filters, paging inside, nothing missed and nothing doubled."""

import itertools
import uuid
from typing import Any

import msgspec
import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    ContainerEventType,
    MemoryTrustStore,
    ServerProvider,
)
from tests.client.conftest import id_of
from tests.kit.ageing import DAY, age, drop_old_events
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.fixtures import NewProvider
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

Added, Updated, Accessed, Deleted = ContainerEventType
READER = ContainerAccessLevel.DefaultUserPermissions
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
PAGE = 1_000
Told = dict[str, uuid.UUID]


@pytest.fixture
def told(alice: ServerProvider, bob: ServerProvider) -> Told:
    """Two containers of alice, of which her log has eight events."""
    both = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), READER)]
    letter = alice.createContainer(b"", accessLevels=both, type="letter").result(PATIENCE).id
    note = alice.createContainer(b"", type="note").result(PATIENCE).id
    alice.updateContainerHeader(letter, 1).result(PATIENCE)
    alice.updateContainerHeader(note, 1).result(PATIENCE)
    alice.updateContainerType(note, "letter").result(PATIENCE)
    alice.updateContainerContent(letter, b"x").result(PATIENCE)
    alice.deleteContainer(note).result(PATIENCE)
    alice.updateContainerType(letter, None).result(PATIENCE)
    return {"letter": letter, "note": note}


LOG = {
    1: (Added, "letter", "letter"),
    2: (Added, "note", None),
    3: (Updated, "letter", "letter"),
    4: (Updated, "note", None),
    5: (Updated, "note", None),
    6: (Updated, "letter", "letter"),
    7: (Deleted, "note", None),
    8: (Updated, "letter", None),
}
BEFORE = {8: "letter"}
"""The type before the event that changed it."""
KINDS = [None, [Added], [Added, Deleted], [Accessed]]
NAMES = [None, "letter", "note"]
TYPES = [None, "letter", "note", "no such"]
RANGES = [(None, None), (3, None), (None, 4), (2, 6), (9, None), (5, 4), (0, 0)]


@pytest.mark.long
@both_engines
def test_every_joint_use_of_the_five_filters_gives_exactly_what_matches_all_of_them(
    alice: ServerProvider, told: Told
) -> None:
    questions = itertools.product(KINDS, NAMES, TYPES, RANGES)
    asked = [
        (
            [
                number
                for number, (event, container, label) in LOG.items()
                if (kinds is None or event in kinds)
                and (name is None or container == name)
                and (text is None or text in (label, BEFORE.get(number)))
                and (start is None or number >= start)
                and (end is None or number <= end)
            ],
            alice.getEvents(kinds, None if name is None else told[name], text, start, end),
        )
        for kinds, name, text, (start, end) in questions
    ]
    assert len(asked) == 4 * 3 * 4 * 7
    for expected, promise in asked:
        assert [event.id for event in promise.result(PATIENCE)] == expected


def write_events(broker: BrokerProcess, user: uuid.UUID, count: int) -> None:
    """Add events of a user by hand, of types `odd` and `even` in turn. The broker numbers them later."""
    columns = "user_id, event_type, container_id, container_type, date, version, application, changes, salt"
    rows = range(1, count + 1)
    for start in range(0, count, 500):
        some = rows[start : start + 500]
        values: list[Any] = []
        for number in some:
            label = "odd" if number % 2 else "even"
            values += [user.bytes, "Updated", user.bytes, label, clock(), number, "by hand", 1]
            values.append(user.bytes)
        places = ", ".join(f"({', '.join('?' * 9)})" for _ in some)
        query(broker.database_url, f"INSERT INTO events ({columns}) VALUES {places}", *values)


@pytest.mark.long
@both_engines
def test_a_log_of_several_pages_comes_whole_and_by_any_range(
    broker: BrokerProcess, alice: ServerProvider
) -> None:
    count = 2 * PAGE + 17
    write_events(broker, id_of(alice), count)
    everything = alice.getEvents().result(PATIENCE)
    assert [event.id for event in everything] == list(range(1, count + 1))
    assert [event.version for event in everything] == list(range(1, count + 1))
    for start, end in ((1, PAGE), (2, PAGE + 1), (PAGE, 2 * PAGE + 1), (PAGE + 1, count)):
        found = alice.getEvents(startId=start, endId=end).result(PATIENCE)
        assert [event.id for event in found] == list(range(start, end + 1))
    even = alice.getEvents(containerType="even").result(PATIENCE)
    assert [event.id for event in even] == list(range(2, count + 1, 2))


@pytest.mark.long
@both_engines
def test_who_names_no_first_event_gets_what_is_kept(
    broker: BrokerProcess, alice: ServerProvider, told: Told, new_provider: NewProvider
) -> None:
    """A device that read the log, one that never did, and one that was told of a part of what went."""
    ring = alice.getKeyRing().result(PATIENCE)
    new_provider(ring).getEvents().result(PATIENCE)
    age(broker, id_of(alice))
    age(broker, id_of(alice), "id <= 4")
    devices = [alice, new_provider(ring), new_provider(ring)]
    before = alice.getEvents().result(PATIENCE)
    assert devices[1].getEvents(endId=2).result(PATIENCE) == before[:2]
    drop_old_events(broker, 3 * DAY)
    for device in devices:
        assert device.getEvents().result(PATIENCE) == before[4:]
        assert device.getEvents(endId=6).result(PATIENCE) == before[4:6]
        assert device.getEvents(endId=3).result(PATIENCE) == []
        assert [e.id for e in device.getEvents(Updated).result(PATIENCE)] == [5, 6, 8]
    drop_old_events(broker)
    assert [device.getEvents().result(PATIENCE) for device in devices] == [[], [], []]
    alice.updateContainerHeader(told["letter"], 9).result(PATIENCE)
    for device in devices:
        assert [event.id for event in device.getEvents().result(PATIENCE)] == [9]
        assert [event.id for event in device.getEvents(startId=9).result(PATIENCE)] == [9]


@pytest.mark.long
def test_marks_of_an_earlier_version_still_hold(
    broker: BrokerProcess, alice: ServerProvider, told: Told, new_provider: NewProvider
) -> None:
    """They knew no lowest id that is kept: a mark had three fields."""
    del told
    new_provider(alice.getKeyRing().result(PATIENCE)).getEvents().result(PATIENCE)
    age(broker, id_of(alice), "id <= 4")
    alice.getEvents().result(PATIENCE)
    store = alice._trust_store
    assert isinstance(store, MemoryTrustStore)
    marks = store.open(id_of(alice), b"")
    mark = marks.get("events", b"")
    assert mark is not None
    fields = msgspec.msgpack.decode(mark)
    assert (fields[0], fields[1], fields[3]) == (8, 8, 1)
    assert marks.swap("events", b"", mark, msgspec.msgpack.encode(fields[:3]))
    drop_old_events(broker)
    assert [event.id for event in alice.getEvents().result(PATIENCE)] == [5, 6, 7, 8]
    query(broker.database_url, "UPDATE events SET version = 99 WHERE id = 6 AND user_id = ?",
          id_of(alice).bytes)  # fmt: skip
    assert marks.swap("events", b"", marks.get("events", b""), msgspec.msgpack.encode(fields[:3]))
    with pytest.raises(BrokerError.forkError):
        alice.getEvents().result(PATIENCE)
