"""Attacks on containers that are read and written through groups (groups.md, 6, 7 and 12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ContainerEvent, Head, ServerProvider, Stream
from scbroker.errors import NotFoundError
from scbroker.records.container_record import parse_either, parse_record
from scbroker.wire.containers import ContainerView, GoverningPage, RecordRequest
from scbroker.wire.events import Events
from scbroker.wire.groups import GroupList, GroupOutcome, GroupViews
from scbroker.wire.problems import item_problem_of
from scbroker.wire.rosters import GroupState, Membership
from tests.hostile_broker.accomplices import OPERATIONS, Mallory, level
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import (
    EVENTS,
    FORK,
    GOVERNING,
    GROUP_LIST,
    GROUPS,
    INTEGRITY,
    RECORD,
    ROLLBACK,
    VIEW,
)
from tests.hostile_broker.served import instead
from tests.hostile_broker.teams import proof_of, team_of
from tests.kit.groups import SHARER, WRITER
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Grant, Grants, Story, User
from tests.kit.writers import WRITER as WRITES_ALONE

UNSETTLED = BrokerError.unsettledAccessError


def met(mallory: Mallory, user: User, story: Story, *known: User) -> ServerProvider:
    """A device of a user that has read this container, and met these users."""
    device = mallory.device_of(user, *story.grants, *known)
    device.getContainer(story.uuid).result(PATIENCE)
    return device


# Who may act through a group


@pytest.mark.sampled
@pytest.mark.parametrize("whose", ["nobody's", "another member's", "spoilt"])
def test_a_head_that_was_made_through_a_group_needs_the_proof_of_its_author(
    mallory: Mallory, whose: str, alice: User, bob: User, carol: User
) -> None:
    team = team_of(bob, {carol: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = met(mallory, alice, story)
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    bobs = proof_of(team, 1, bob)
    assert bobs is not None
    proofs: dict[str, Membership | None] = {
        "nobody's": None,
        "another member's": proof_of(team, 1, carol),
        "spoilt": replace(bobs, salt=bytes(32)),
    }
    lie = instead(headMembership=proofs[whose])
    mallory.check_lie_refused(device, story, lie, INTEGRITY)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"Bob's"


@pytest.mark.sampled
@pytest.mark.parametrize("role, entry", [(WRITER, OWNER), (SHARER, WRITES_ALONE)])
def test_a_member_does_no_more_than_role_and_entry_allow_with_the_brokers_help(
    mallory: Mallory, role: int, entry: int, alice: User, bob: User, carol: User
) -> None:
    team = team_of(carol, {bob: role})
    story = Story(alice).created({alice: OWNER, team: entry})
    device = met(mallory, alice, story, bob)
    request = story.follow(bob, grants={alice: OWNER, team: READER}, via=team)
    mallory.force(story, bob, request, 422)
    mallory.check_refused(device, story, INTEGRITY)


# Which chain of the group


def shorter(to: int) -> Callable[[GroupViews], GroupViews]:
    """A lie: groups end with this version."""

    def lie(answer: GroupViews) -> GroupViews:
        found = []
        for outcome in answer.groups:
            assert outcome.view is not None
            records = [
                r for r in outcome.view.records if parse_either(r.record.body).record.version <= to
            ]
            view = replace(outcome.view, records=records, last=to, membership=None)
            found.append(GroupOutcome(view=view, problem=None))
        return GroupViews(groups=found)

    return lie


def test_a_group_that_ends_below_the_version_in_which_an_author_acted_is_a_rollback(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(bob, {})
    team.tell(bob, team.follow(bob, name="Renamed"))
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device = mallory.device_of(alice, bob)
    with mallory.lying(GROUPS, shorter(1)), pytest.raises(ROLLBACK):
        device.getContainer(story.uuid).result(PATIENCE)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"Bob's"


def test_a_group_that_the_broker_names_at_a_lower_version_than_it_served_is_a_rollback(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(bob, {})
    team.tell(bob, team.follow(bob, name="Renamed"))
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device = met(mallory, alice, story)
    older = GroupState(groupId=team.group_id, version=1, epoch=0, owed=False)
    mallory.check_lie_refused(device, story, instead(groupChains=[older]), ROLLBACK)
    fresh = mallory.device_of(alice, bob)
    with mallory.lying(VIEW, instead(groupChains=[older])), pytest.raises(ROLLBACK):
        fresh.getContainer(story.uuid).result(PATIENCE)


def test_a_record_through_a_group_that_the_broker_does_not_serve_is_refused(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(bob, {})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device = mallory.device_of(alice, bob)

    def deny(answer: GroupViews) -> GroupViews:
        problem = item_problem_of(NotFoundError("No such group."))
        return GroupViews(groups=[GroupOutcome(view=None, problem=problem) for _ in answer.groups])

    with mallory.lying(GROUPS, deny):
        mallory.check_refused(device, story, INTEGRITY)


# By whose entry a container is read


@pytest.mark.sampled
@pytest.mark.parametrize("lie", ["another wrap", "no wrap", "no entry"])
def test_a_member_opens_nothing_but_what_was_wrapped_for_the_group(
    mallory: Mallory, lie: str, alice: User, bob: User
) -> None:
    team = team_of(bob, {})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = met(mallory, bob, story)
    wraps = [item.wrap for item in story.requests[0].accessList or ()]
    names = sorted([alice.name, team.name])
    own = wraps[names.index(alice.name)]

    def without(view: ContainerView) -> ContainerView:
        [only] = view.governing
        assert only.accessList is not None
        shown = [item for item in only.accessList.disclosed if team.name not in item.entry]
        access = replace(only.accessList, disclosed=shown)
        return replace(view, governing=[replace(only, accessList=access)])

    lies = {"another wrap": instead(wrap=own), "no wrap": instead(wrap=None), "no entry": without}
    mallory.check_lie_refused(device, story, lies[lie], INTEGRITY, "getContainer")


def test_a_view_through_another_group_than_the_requested_one_is_refused(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team, other = team_of(bob, {}), team_of(bob, {})
    story = Story(alice).created({alice: OWNER, bob: READER, team: OWNER, other: READER})
    device = met(mallory, bob, story)
    for group in (other.group_id, None):
        with mallory.lying(VIEW, through(group)), pytest.raises(BrokerError) as caught:
            device.updateContainerContent(story.uuid, b"new").result(PATIENCE)
        assert type(caught.value) is INTEGRITY
    assert RECORD not in [each.name for each in mallory.heard if story.path in each.path]
    device.updateContainerContent(story.uuid, b"new").result(PATIENCE)


def through(group: str | None) -> Callable[[ContainerView], ContainerView]:
    """A lie about each view that was requested through a group."""
    return lambda view: view if view.via is None else replace(view, via=group)


def test_a_name_that_the_broker_calls_a_group_is_used_as_one_only_if_its_chain_proves_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = team_of(bob, {})
    story = Story(alice).created({alice: OWNER, team: OWNER, carol: READER})
    device = mallory.device_of(alice, carol)
    with mallory.lying(VIEW, instead(groups=[carol.id])):
        shown = device.getContainer(story.uuid).result(PATIENCE).access
        assert shown is not None
        assert not any(each.isGroup for each in shown)
        count = len(mallory.heard)
        [refused] = device.grantAccess(story.uuid, level(bob)).result(PATIENCE)
        assert isinstance(refused, BrokerError)
        assert not [name for name in mallory.since(count) if name == RECORD]
    [granted] = device.grantAccess(story.uuid, level(bob)).result(PATIENCE)
    assert not isinstance(granted, BrokerError)


def test_nothing_is_written_through_a_group_that_the_user_has_not_accepted(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(alice, {bob: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(bob, alice)

    def offered(answer: GroupViews) -> GroupViews:
        found = []
        for outcome in answer.groups:
            view = outcome.view
            if view is not None and view.membership is not None:
                view = replace(view, membership=replace(view.membership, accepted=False))
            found.append(replace(outcome, view=view))
        return GroupViews(groups=found)

    with mallory.lying(GROUPS, offered):
        device.getContainer(story.uuid).result(PATIENCE)
        with pytest.raises(BrokerError.permissionDeniedError, match="acceptGroup"):
            device.updateContainerContent(story.uuid, b"new").result(PATIENCE)
    device.updateContainerContent(story.uuid, b"new").result(PATIENCE)


def test_a_part_that_was_sent_in_an_epoch_that_had_ended_is_sealed_anew_under_another_key(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob is removed while Carol's record is on its way: he has the container key, the broker the bytes."""
    team = team_of(alice, {bob: WRITER, carol: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = met(mallory, carol, story)
    sent: list[RecordRequest] = []

    def remove(exchange: Exchange) -> None:
        if story.path in exchange.path:
            sent.append(exchange.message)
            if len(sent) == 1:
                team.tell(alice, team.follow(alice, remove=[bob]))

    with mallory.meddling(RECORD, before=remove):
        device.updateContainerContent(story.uuid, b"not for Bob").result(PATIENCE)
    first, second = (parse_record(request.record.body) for request in sent)
    assert first.via is not None
    assert second.via is not None
    assert (first.via.epoch, second.via.epoch) == (0, 1)
    assert first.governing is None
    assert second.governing is not None
    assert first.content is not None
    assert second.content is not None
    assert first.content.partId != second.content.partId
    assert sent[0].content != sent[1].content
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"not for Bob"


# The log of a group


def read_on(device: ServerProvider, stream: Stream[ContainerEvent]) -> None:
    """Read from a stream that should end. Each time its user has an event, so that it does not wait."""
    for _ in range(100):
        device.createContainer(b"").result(PATIENCE)
        next(stream)


def test_a_stream_ends_if_the_broker_denies_a_group_from_which_nobody_was_removed(
    mallory: Mallory, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, follow_floor=0.05)
    team = team_of(alice, {bob: SHARER})
    device = mallory.device_of(bob, alice)
    assert device.getGroups().result(PATIENCE)

    def deny(exchange: Exchange) -> None:
        if "via=" in exchange.query:
            exchange.fail(NotFoundError("You are no member."))

    def without(answer: GroupList) -> GroupList:
        return replace(answer, groups=[])

    with device.followEvents() as stream:
        own = device.createContainer(b"waits until the stream has begun").result(PATIENCE).id
        assert next(stream).containerId == own
        story = Story(alice).created({alice: OWNER, team: OWNER})
        assert next(stream).containerId == story.uuid
        with mallory.meddling(EVENTS, before=deny), mallory.lying(GROUP_LIST, without):
            story.tell(alice, story.follow(alice, content=b"ends the wait"))
            with pytest.raises(INTEGRITY):
                read_on(device, stream)


def test_the_log_of_a_group_has_a_mark_of_its_own(mallory: Mallory, alice: User, bob: User) -> None:
    team = team_of(alice, {bob: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(bob, alice)
    story.tell(alice, story.follow(alice, content=b"new"))
    assert device.getEvents(groupId=team.uuid).result(PATIENCE)

    def shorter(page: Events) -> Events:
        return replace(page, events=page.events[:-1], lastId=page.lastId - 1)

    with mallory.lying(EVENTS, shorter), pytest.raises(ROLLBACK):
        device.getEvents(groupId=team.uuid).result(PATIENCE)
    device.getEvents().result(PATIENCE)
    device.getEvents(groupId=team.uuid).result(PATIENCE)


# Unsettled access


@dataclasses.dataclass
class Removal:
    """Bob was removed from a group, and then the broker stored his change of access."""

    story: Story
    device: ServerProvider
    forged: Head


def removal(mallory: Mallory, alice: User, bob: User, eve: User, **again: Any) -> Removal:
    """Alice's device has seen the container before, and knows that Bob was removed.

    `again` is what was done with the group after the removal.
    """
    team = team_of(alice, {bob: SHARER})
    old = team.via
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(alice, store=mallory.new_store())
    device.getContainer(story.uuid).result(PATIENCE)
    team.tell(alice, team.follow(alice, remove=[bob]))
    if again:
        team.tell(alice, team.follow(alice, **again))
    grants: Grants = {alice: OWNER, team: Grant(OWNER, key_index=0), eve: OWNER}
    request = story.follow(bob, grants=grants, via=old)
    mallory.force(story, bob, request, 404 if not again else 409)
    return Removal(story, device, Head(2, story.hash(story.head)))


def test_nothing_is_sealed_after_a_change_by_a_former_member_until_the_caller_confirms_it(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    case = removal(mallory, alice, bob, eve)
    story, device = case.story, case.device
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    for _ in range(2):
        with mallory.refused(device, UNSETTLED) as attempt:
            for name in ("updateContainerContent", "updateContainerHeader"):
                error = attempt(OPERATIONS[name](device, story.uuid))
                assert isinstance(error, UNSETTLED)
                assert Head(error.version, error.hash) == case.forged
                assert error.containerId == story.uuid
        [granted] = device.grantAccess(story.uuid, level(bob)).result(PATIENCE)
        assert isinstance(granted, UNSETTLED)
        device = mallory.restarted(device)
    found = device.confirmAccess(story.uuid).result(PATIENCE)
    assert found is not None
    assert (found.head, found.changedBy) == (case.forged, bob.ring.userId)
    assert found.changedAt.timestamp() * 1_000_000 == pytest.approx(case.story.head.time, abs=1)
    assert found.before is not None
    assert found.after is not None
    added = {each.userId for each in found.after} - {each.userId for each in found.before}
    assert added == {eve.ring.userId}
    assert {each.userId for each in found.after if each.isGroup} == {found.changedVia}
    with pytest.raises(BrokerError.conflictError):
        device.confirmAccess(story.uuid, Head(2, bytes(32))).result(PATIENCE)
    device.confirmAccess(story.uuid, accept=found.head).result(PATIENCE)
    assert device.confirmAccess(story.uuid).result(PATIENCE) is None
    device.updateContainerContent(story.uuid, b"sealed for Eve as well").result(PATIENCE)


def test_what_is_shown_of_a_change_to_confirm_is_what_was_signed(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    case = removal(mallory, alice, bob, eve)
    device, box = case.device, case.story.uuid
    device.getContainer(box).result(PATIENCE)

    def without_eve(page: GoverningPage) -> GoverningPage:
        first = page.governing[0]
        assert first.accessList is not None
        shown = [each for each in first.accessList.disclosed if eve.name not in each.entry]
        access = replace(first.accessList, disclosed=shown)
        return replace(page, governing=[replace(first, accessList=access)])

    with mallory.lying(GOVERNING, without_eve):
        found = device.confirmAccess(box).result(PATIENCE)
        assert found is not None
        assert found.after is None  # it is not all of the list
    for lie in (
        lambda page: replace(page, governing=[]),
        lambda page: replace(page, governing=[page.governing[-1]]),
    ):
        with mallory.lying(GOVERNING, lie), pytest.raises(FORK):
            device.confirmAccess(box, case.forged).result(PATIENCE)
    with pytest.raises(UNSETTLED):
        device.updateContainerContent(box, b"new").result(PATIENCE)


def test_a_caller_who_names_the_whole_list_settles_it(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    case = removal(mallory, alice, bob, eve)
    device, box = case.device, case.story.uuid
    device.updateContainerType(box, "seals nothing").result(PATIENCE)
    with pytest.raises(UNSETTLED):
        device.updateContainerContent(box, b"new").result(PATIENCE)
    device.updateContainerAccessLevels(box, [level(alice)]).result(PATIENCE)
    device.updateContainerContent(box, b"new").result(PATIENCE)
    access = device.getContainer(box).result(PATIENCE).access
    assert access == (level(alice),)


@pytest.mark.sampled
@pytest.mark.parametrize("role, settled", [(SHARER, True), (WRITER, False)])
def test_a_change_by_a_user_who_is_a_member_again_is_settled_unless_the_role_is_lower(
    mallory: Mallory, role: int, settled: bool, alice: User, bob: User, eve: User
) -> None:
    case = removal(mallory, alice, bob, eve, add={bob: role})
    update = case.device.updateContainerContent(case.story.uuid, b"new")
    if settled:
        update.result(PATIENCE)
    else:
        with pytest.raises(UNSETTLED):
            update.result(PATIENCE)


# Limits


def test_a_device_that_had_not_seen_the_container_cannot_tell(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    """The limit that the specification states: only a mark shows what came after it."""
    case = removal(mallory, alice, bob, eve)
    fresh = mallory.device_of(alice)
    fresh.updateContainerContent(case.story.uuid, b"new").result(PATIENCE)
