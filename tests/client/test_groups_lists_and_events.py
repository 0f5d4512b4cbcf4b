"""Lists and event logs of a user with groups."""

import uuid
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    Container,
    ContainerEvent,
    Group,
    ServerProvider,
    Stream,
)
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import OWNER, accepted, shared, team
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE


@pytest.fixture
def bob(new_provider: NewProvider) -> ServerProvider:
    """A new user, whose list and log have nothing of other tests."""
    return new_provider(True)


def listed(provider: ServerProvider, limit: int = 64, type: str | None = None) -> list[uuid.UUID]:
    """The containers of all pages, in their order."""
    found, start = list[uuid.UUID](), None
    while True:
        page = provider.listContainers(type, start, limit).result(PATIENCE)
        assert page.leftOut == []
        found += [each.id for each in page.containers if isinstance(each, Container)]
        start = page.next
        if start is None:
            return found


@pytest.mark.long
@both_engines
@pytest.mark.parametrize("limit", [3, 64])
def test_a_list_has_own_containers_and_those_of_accepted_groups_each_once_by_id(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, limit: int
) -> None:
    one, two = accepted(team(alice, bob), bob), accepted(team(carol, bob), bob)
    offered = team(alice, bob)
    own = [bob.createContainer(b"", type="own").result(PATIENCE).id for _ in range(4)]
    ones = [shared(alice, one) for _ in range(4)]
    twos = [shared(carol, two) for _ in range(4)]
    alice.grantAccess(ones[0], [AccessLevel(id_of(bob)), AccessLevel(two)]).result(PATIENCE)
    shared(alice, offered)
    assert listed(bob, limit) == sorted([*own, *ones, *twos])
    assert [each.id for each in bob.iterContainers() if isinstance(each, Container)] == sorted(
        [*own, *ones, *twos]
    )
    assert listed(bob, limit, "box") == sorted([*ones, *twos])
    accepted(offered, bob)
    assert len(listed(bob, limit)) == 13


def test_a_container_is_left_out_of_a_list_once_its_reader_is_removed_from_the_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box, own = shared(alice, group), bob.createContainer(b"").result(PATIENCE).id
    assert listed(bob) == sorted([box, own])
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    page = bob.listContainers().result(PATIENCE)
    found = [each.id for each in page.containers if isinstance(each, Container)]
    assert (found, page.leftOut) == ([own], [box])


def kinds(events: Any) -> list[tuple[str, uuid.UUID]]:
    return [(str(each.eventType), each.containerId) for each in events]


@both_engines
def test_a_group_has_a_log_that_its_members_read(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    box = shared(alice, group)
    bob.updateContainerContent(box, b"new").result(PATIENCE)
    found = bob.getEvents(["Added", "Updated"], groupId=group).result(PATIENCE)
    assert kinds(found) == [("Added", box), ("Updated", box)]
    assert {each.groupId for each in found} == {group.id}
    assert [each.relatedUserId for each in found] == [id_of(alice), id_of(bob)]
    own = bob.getEvents().result(PATIENCE)
    assert [(each.isOfGroup, each.containerId, each.groupId) for each in own] == [
        (True, group.id, None)
    ]
    alice.renameGroup(group, "Renamed").result(PATIENCE)
    log = bob.getEvents(groupId=group.id).result(PATIENCE)
    [last] = [each for each in log if each.isOfGroup]
    assert (last.isOfGroup, last.containerId, str(last.eventType)) == (True, group.id, "Updated")
    refusal(carol.getEvents(groupId=group), BrokerError.notFoundError)
    heads = bob.resetEventMark(groupId=group).result(PATIENCE)
    assert heads.stored is not None
    assert heads.stored.version == log[-1].id


def take(stream: Stream[ContainerEvent], count: int) -> list[ContainerEvent]:
    return [next(stream) for _ in range(count)]


@pytest.mark.long
@both_engines
def test_a_stream_has_the_logs_of_accepted_groups_from_acceptance_to_the_end_of_the_membership(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    later = team(alice, bob)
    with bob.followEvents(eventType=["Added", "Deleted"]) as stream:
        own = bob.createContainer(b"").result(PATIENCE).id
        assert kinds(take(stream, 1)) == [("Added", own)]
        box = shared(alice, group)
        [event] = take(stream, 1)
        assert (event.containerId, event.groupId) == (box, group.id)
        shared(alice, later)  # of an offered group nothing is shown
        accepted(later, bob)
        bob.getGroups().result(PATIENCE)
        seen = list[uuid.UUID]()
        while len(seen) < 2:  # the stream begins to follow the group soon after the acceptance
            seen = [shared(alice, later), *seen]
        [event] = take(stream, 1)
        assert (event.containerId in seen, event.groupId) == (True, later.id)
        alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
        events = take(stream, 2)
        assert ("Deleted", group.id) in kinds(events)
        shared(alice, group)
        last = bob.createContainer(b"").result(PATIENCE).id
        assert last in [event.containerId for event in take(stream, 1)]


def test_a_stream_follows_the_log_of_a_group_that_its_provider_creates_from_the_beginning(
    alice: ServerProvider,
) -> None:
    with alice.followEvents(eventType="Added") as stream:
        group = team(alice)
        box = shared(alice, group)
        found = take(stream, 3)
        assert {(each.containerId, each.groupId) for each in found} == {
            (group.id, None),
            (box, None),
            (box, group.id),
        }


def test_a_stream_continues_in_each_log_after_the_events_that_were_delivered(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    boxes = [shared(alice, group) for _ in range(4)]
    mine = [bob.createContainer(b"").result(PATIENCE).id for _ in range(3)]
    in_group = bob.getEvents("Added", groupId=group).result(PATIENCE)
    in_own = bob.getEvents("Added").result(PATIENCE)
    other = new_provider(bob.getKeyRing().result(PATIENCE))
    starts = {group.id: in_group[2].id}
    with other.followEvents(in_own[-1].id, "Added", groupStartIds=starts) as stream:
        found = take(stream, 3)
    assert {(each.containerId, each.groupId) for each in found} == {
        (mine[-1], None), (boxes[2], group.id), (boxes[3], group.id),
    }  # fmt: skip


@pytest.mark.parametrize("count, at_once", [(3, 1), pytest.param(34, None, marks=pytest.mark.long)])
def test_a_user_in_more_groups_than_requests_may_wait_gets_the_events_of_all(
    alice: ServerProvider,
    bob: ServerProvider,
    count: int,
    at_once: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker lets 32 requests of a user wait in a process, for their own log and those of groups."""
    lower(monkeypatch, follow_turn=1)
    if at_once is not None:
        lower(monkeypatch, groups_followed=at_once)
    groups = [accepted(team(alice, bob), bob) for _ in range(count)]
    starts = {group.id: 1 for group in groups}
    with (
        caplog.at_level("WARNING", "scbroker"),
        bob.followEvents(eventType="Added", groupStartIds=starts) as stream,
    ):
        boxes = {shared(alice, group) for group in groups}
        assert {each.containerId for each in take(stream, count)} == boxes
    assert "waits for the broker" not in caplog.text


@pytest.mark.parametrize("given", [3, {"x": 1}, {uuid.UUID(int=0): "1"}, {uuid.UUID(int=0): -1}])
def test_wrong_places_in_the_logs_of_groups_are_refused(alice: ServerProvider, given: Any) -> None:
    with pytest.raises(BrokerError.invalidArgumentError):
        alice.followEvents(groupStartIds=given)


def test_a_container_that_a_user_reaches_only_through_a_group_has_no_events_in_the_users_own_log(
    alice: ServerProvider,
) -> None:
    group: Group = team(alice)
    box = alice.createContainer(b"", None, [AccessLevel(group, OWNER)]).result(PATIENCE).id
    assert alice.getContainer(box).result(PATIENCE).via == group.id
    own = alice.getEvents("Added").result(PATIENCE)
    assert [each.containerId for each in own] == [group.id]
