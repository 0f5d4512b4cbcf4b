"""The logs of groups, and the events of groups in the logs of users (groups.md, 13)."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker.records.container_record import GROUP_TYPE
from scbroker.wire.events import Event
from tests.kit.brokers import BrokerProcess
from tests.kit.groups import MANAGER, READER, SHARER, WRITER, Group
from tests.kit.waiting import wait_until
from tests.kit.writers import OWNER, Grant, Story, User
from tests.kit.writers import READER as MAY_READ
from tests.server.conftest import NewUser
from tests.server.events.test_following import Reader, head_of, rest_of


def log_of(user: User, group: Group, **query: Any) -> list[Event]:
    return user.events(via=group.group_id, **query)


def shown(events: list[Event]) -> list[tuple[str, str, list[str]]]:
    return [(event.containerId, event.eventType, list(event.changes)) for event in events]


@pytest.mark.long
def test_members_and_the_group_get_an_event_of_each_record_of_the_group(new_user: NewUser) -> None:
    alice, bob, carol = new_user(), new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    own = group.group_id
    assert shown(alice.events()) == [(own, "Added", [])]
    group.tell(alice, group.follow(alice, add={carol: READER}))
    group.tell(alice, group.follow(alice, managers={alice: OWNER, bob: MANAGER}))
    group.tell(bob, group.follow(bob, remove=[carol]))
    assert shown(bob.events()) == [(own, "Added", [])]
    assert shown(carol.events()) == [(own, "Added", []), (own, "Deleted", [])]
    assert shown(log_of(bob, group)) == [
        (own, "Updated", ["type"]), (own, "Updated", ["access"]), (own, "Updated", ["type"]),
    ]  # fmt: skip
    last = carol.events()[-1]
    assert (last.containerType, last.relatedUserId, last.version) == (GROUP_TYPE, bob.id, 4)
    assert last.previousContainerType is None
    carol.wire.call("GET", f"/v1/events?via={own}").expect(404, "not-found")


def test_a_user_who_leaves_or_deletes_a_group_gets_an_event(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    group.leave(bob).expect(204)
    assert [event.eventType for event in bob.events()] == ["Added", "Deleted"]
    group.tell(alice, replace(group.follow(alice, remove=[bob]), departures=1))
    assert [event.eventType for event in bob.events()] == ["Added", "Deleted"]
    group.tell(alice, group.follow(alice, tombstone=True))
    assert [event.eventType for event in alice.events()] == ["Added", "Deleted"]
    # The details of the earlier event went with the group.
    assert [event.version for event in alice.events()] == [0, 3]


@pytest.mark.long
def test_the_expiry_of_a_groups_entry_is_in_its_log(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    ends = time.time_ns() // 1000 + 1_500_000
    Story(alice).created({alice: OWNER, group: Grant(MAY_READ, ends)})
    assert [event.eventType for event in log_of(bob, group)] == ["Added"]
    wait_until(lambda: len(log_of(bob, group)) == 2)
    assert log_of(bob, group)[-1].eventType == "Deleted"


@pytest.fixture
def reader(broker: BrokerProcess) -> Iterator[Reader]:
    """Bob, who waits for events on connections of his own."""
    found = Reader(broker)
    with found.wire:
        yield found


def _waiting(reader: Reader, group: Group, start: int) -> Any:
    connection = reader.ask(f"startId={start}&wait=600&via={group.group_id}")
    assert b"200" in head_of(connection)
    return connection


@pytest.mark.process
def test_a_request_waits_for_an_event_of_a_group(reader: Reader, new_user: NewUser) -> None:
    alice = new_user()
    bob = User(reader.ring, reader.wire)
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    with closing(_waiting(reader, group, 1)) as connection:
        Story(alice).created({alice: OWNER, group: OWNER})
        assert rest_of(connection).lstrip(b"\xc0")


@pytest.mark.process
@pytest.mark.sampled
@pytest.mark.parametrize("how", ["removed", "left", "deleted"])
def test_a_request_that_waits_for_events_of_a_group_ends_with_the_membership(
    how: str, reader: Reader, new_user: NewUser
) -> None:
    alice = new_user()
    bob = User(reader.ring, reader.wire)
    group = Group(alice).created({alice: SHARER, bob: WRITER})
    with closing(_waiting(reader, group, 1)) as connection:
        if how == "left":
            group.leave(bob).expect(204)
        else:
            group.tell(alice, group.follow(alice, remove=[bob]))
        if how == "deleted":
            group.tell(alice, group.follow(alice, tombstone=True))
        assert not rest_of(connection).strip(b"\xc0")
