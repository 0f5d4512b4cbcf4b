"""Attacks by members, former members and strangers of a group, at an honest broker and with its help.

Attacks 140 to 148 of attacks.toml. The broker compares each request with the group as it is at that moment.
What it hides of owed keys and of removals, a device finds out from what members signed.
"""

import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ContainerEventType, GroupRole, MemberRole, Promise
from scbroker import Group as PublicGroup
from scbroker.client.core.group_records import Basis
from scbroker.errors import ConflictError
from scbroker.records import roster as grammar
from scbroker.records.container_record import parse_record, wrap_info
from scbroker.records.roster import Member
from scbroker.wire.containers import ListRequest, RecordRequest
from scbroker.wire.groups import MAX_LISTED, GroupList, GroupViews, ListedGroup
from scbroker.wire.rosters import GroupState
from scbroker.wire.users import KeyChainState
from tests.hostile_broker.accomplices import Mallory, fresh_and_marked
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import DECRYPTION, GROUP_LIST, GROUPS, KEYS, RECORD, VIEW, VIEWS
from tests.hostile_broker.served import (
    content_of,
    entries_of,
    governing_of,
    instead,
    opened,
    same,
    wrap_of,
    wrapped_key,
)
from tests.hostile_broker.teams import everything, team_of
from tests.kit.groups import MANAGER, READER, SHARER, WRITER, Epoch, Group, groups_of
from tests.kit.limits import lower
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, Grant, Grants, Story, User, delete_user, rotate
from tests.kit.writers import READER as READS_ALONE


def sent_rosters(mallory: Mallory, team: Group, count: int) -> list[RecordRequest]:
    """The records of a group that clients have sent after the first `count` requests."""
    heard = mallory.heard[count:]
    return [e.message for e in heard if e.name == RECORD and team.group_id in e.path]


# What a member signs, and may do


@pytest.mark.long
@fresh_and_marked
def test_a_record_through_a_group_is_signed_by_the_member_whom_it_names(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """Bob and Carol have the same secret. It signs nothing."""
    team = team_of(alice, {bob: SHARER, carol: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(alice, bob, carol)
    if marked:
        device.getContainer(story.uuid).result(PATIENCE)
    for act in ({"content": b"forged"}, {"tombstone": True}, {"grants": {bob: OWNER}}):
        forged = story.altered(bob, story.follow(carol, via=team, **act))
        story.send(bob, forged).expect(403, "permission")
        mallory.plant(story.twin(), forged)
        with pytest.raises(BrokerError) as caught:
            device.getContainer(story.uuid).result(PATIENCE)
        assert isinstance(caught.value, BrokerError.untrustedError)
        mallory.rewind(story, 1)


def test_a_reader_sees_which_member_acted_and_for_which_group(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(alice, {bob: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    shown = mallory.device_of(alice, bob).getContainer(story.uuid).result(PATIENCE)
    assert (shown.modifiedBy, shown.modifiedVia) == (bob.ring.userId, team.uuid)


def test_direct_access_that_a_sharer_gave_before_the_removal_is_the_limit(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    """It stays, and the access lists of the group's containers show it."""
    team = team_of(alice, {bob: SHARER})
    story = Story(alice).created({team: OWNER})
    story.tell(bob, story.follow(bob, grants={team: OWNER, bob: OWNER, eve: OWNER}, via=team))
    device = mallory.device_of(alice, bob)
    device.removeGroupMembers(team.uuid, bob.ring.userId, renew=True).result(PATIENCE)
    for user in (bob, eve):
        theirs = mallory.device_of(user, alice, bob)
        assert theirs.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    shown = device.getContainer(story.uuid).result(PATIENCE).access or ()
    assert {each.userId for each in shown} == {team.uuid, bob.ring.userId, eve.ring.userId}


def test_a_new_member_opens_everything_that_the_group_ever_could_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(alice, bob, carol)
    device.removeGroupMembers(team.uuid, bob.ring.userId).result(PATIENCE)
    device.addGroupMembers(team.uuid, carol.ring.userId).result(PATIENCE)
    hers = mallory.device_of(carol, alice)
    hers.acceptGroup(team.uuid).result(PATIENCE)
    assert hers.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def test_a_thief_of_a_members_key_opens_with_the_broker_all_that_the_group_ever_could_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The broker gives the thief wrap and info. The epoch after the member's next key shuts the thief out."""
    team = team_of(alice, {bob: WRITER, carol: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    team.tell(alice, team.follow(alice, remove=[carol]))
    served = team.read(bob).membership
    assert served is not None
    assert served.wrap is not None
    stolen = Epoch.of(team.name, 0, team.opened(bob, served.wrap, served.info).secrets[0] or b"")
    [made] = story.requests
    info = wrap_info(story.id, governing_of(made), team.name, 0)
    assert opened(made, stolen.key.unwrap(wrap_of(made, team), info)) == b"content"
    renewed = rotate(mallory.behind.database_url, bob, encryption=1)
    team.tell(alice, team.follow(alice, keys={bob: renewed}))
    later = team.read(renewed).membership
    assert later is not None
    assert later.wrap is not None
    info = grammar.wrap_info(team.name, 2, team.state.roster.commitment, bob.name, 1)
    assert renewed.ring.encryption[1].unwrap(later.wrap, info) == team.state.epochs[2].secret
    with pytest.raises(DECRYPTION):
        bob.ring.encryption[0].unwrap(later.wrap, info)


def test_a_manager_gets_by_themselves_every_role_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(alice, {bob: READER}, managers={alice: OWNER, bob: MANAGER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(bob, alice)
    with pytest.raises(BrokerError.permissionDeniedError):
        device.deleteContainer(story.uuid).result(PATIENCE)
    role = MemberRole(bob.ring.userId, GroupRole.Sharer)
    device.setGroupRoles(team.uuid, role).result(PATIENCE)
    device.deleteContainer(story.uuid).result(PATIENCE)


def test_what_a_member_had_read_before_the_removal_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """A renewal makes a new container key. The content stays under the part key that Bob may have kept."""
    team = team_of(alice, {bob: WRITER})
    device = mallory.device_of(alice, bob)
    made = device.createContainer(b"before", None, [everything(team)]).result(PATIENCE)
    first = mallory.sent_record()
    device.removeGroupMembers(team.uuid, bob.ring.userId).result(PATIENCE)
    device.updateContainerHeader(made.id, {"renewed": True}).result(PATIENCE)
    renewal = mallory.sent_record()
    assert governing_of(renewal).keyCommitment != governing_of(first).keyCommitment
    assert content_of(renewal).segments == content_of(first).segments
    assert opened(first, wrapped_key(first, team)) == b"before"


def test_what_a_stranger_sees_of_a_group_is_the_limit(
    alice: User, bob: User, carol: User, eve: User
) -> None:
    """Its managers, also former ones, the number of its members, and when it changed; no member, no name."""
    team = team_of(alice, {bob: WRITER, carol: READER}, managers={alice: OWNER, bob: MANAGER})
    team.tell(alice, team.follow(alice, remove=[bob], managers={alice: OWNER}))
    answer = team.ask(eve).expect(200)
    [outcome] = answer.message(GroupViews).groups
    assert outcome.view is not None
    managers, counts = list[set[bytes]](), list[int]()
    for record in outcome.view.records:
        assert record.accessList is not None
        managers.append({entry.fingerprint for entry in entries_of(record.accessList)})
        counts.append(grammar.parse_roster(record.roster or b"").count)
    assert (managers, counts) == ([{alice.name, bob.name}, {alice.name}], [3, 2])
    times = [parse_record(record.record.body).time for record in outcome.view.records]
    assert times == [record.time for record in team.records]
    assert outcome.view.membership is None
    assert carol.name not in answer.body
    assert b"Team" not in answer.body


def test_what_the_broker_sees_of_a_group_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """It sees members, roles, managers, and who reads and writes through the group; of a name its length."""
    team, other = (team_of(alice, {bob: WRITER}, name=name) for name in ("A name", "A longer name"))
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    members = "SELECT user_id, role, permissions FROM group_members WHERE group_id = ?"
    assert set(mallory.query(members, team.id)) == {
        (alice.ring.userId.bytes, SHARER, OWNER),
        (bob.ring.userId.bytes, WRITER, 0),
    }
    authors = "SELECT group_id, user_id FROM group_authors WHERE container_id = ?"
    assert mallory.query(authors, story.id) == [(team.id, bob.ring.userId.bytes)]
    mallory.device_of(bob, alice).getContainerContent(story.uuid).result(PATIENCE)
    device, accessed = mallory.device_of(alice, bob), ContainerEventType.Accessed

    def readers() -> list[uuid.UUID | None]:
        found = device.getEvents(accessed, groupId=team.uuid).result(PATIENCE)
        return [event.relatedUserId for event in found]

    wait_until(lambda: readers() == [bob.ring.userId])
    sealed = "SELECT info FROM group_infos WHERE group_id = ?"
    [[short]], [[long]] = mallory.query(sealed, team.id), mallory.query(sealed, other.id)
    assert len(long) - len(short) == len("A longer name") - len("A name")
    assert b"A name" not in short


def test_a_reader_of_a_container_judges_the_chain_of_each_of_its_groups_once(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """The limit: somebody who gives access to a container with a long history of a group causes it."""
    team = team_of(bob, {})
    for number in range(20):
        team.tell(bob, team.follow(bob, name=f"Team {number}"))
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device, served = mallory.device_of(alice, bob), list[int]()

    def count(answer: GroupViews) -> GroupViews:
        served.extend(len(each.view.records) for each in answer.groups if each.view)
        return answer

    with mallory.lying(GROUPS, count):
        for _ in range(3):
            device.getContainer(story.uuid).result(PATIENCE)
    assert served == [21]


# Managing and deleting


def test_a_former_manager_changes_nothing_of_the_group(alice: User, bob: User, eve: User) -> None:
    team = team_of(alice, {bob: SHARER}, managers={alice: OWNER, bob: OWNER})
    team.tell(alice, team.follow(alice, remove=[bob], managers={alice: OWNER}))
    acts: list[dict[str, Any]] = [
        {"add": {eve: SHARER}}, {"add": {bob: SHARER}, "managers": {bob: OWNER}}, {"tombstone": True}
    ]  # fmt: skip
    for act in acts:
        team.send(bob, team.follow(bob, **act)).expect(404, "not-found")


def test_a_manager_who_is_not_an_owner_neither_changes_the_managers_nor_deletes_the_group(
    alice: User, bob: User
) -> None:
    team = team_of(alice, {bob: SHARER}, managers={alice: OWNER, bob: MANAGER})
    acts: list[dict[str, Any]] = [{"managers": {bob: OWNER}}, {"tombstone": True}]
    for act in acts:
        team.send(bob, team.follow(bob, **act)).expect(403, "permission")


def test_no_group_is_deleted_with_containers_that_it_alone_can_reach(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team = team_of(alice, {bob: SHARER})
    story = Story(bob).created({team: OWNER})
    device = mallory.device_of(alice, bob)
    with pytest.raises(BrokerError.rejectedError) as caught:
        device.deleteGroup(team.uuid).result(PATIENCE)
    assert str(story.uuid) in str(caught.value)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


# Removal, at once


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["removed", "left"])
def test_a_former_member_gets_nothing_through_the_group_in_an_older_session(
    mallory: Mallory, end: str, alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    his, via = mallory.device_of(bob, alice, carol), team.via
    assert his.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    if end == "removed":
        team.tell(alice, team.follow(alice, remove=[bob]))
    else:
        his.leaveGroup(team.uuid).result(PATIENCE)
    call, path, group = bob.wire.call, story.path, f"via={team.group_id}"
    part = uuid.UUID(bytes=story.head.content.partId) if story.head.content else None
    for target in (
        path,
        f"{path}?{group}",
        f"{path}/governing?from=1&to=1&{group}",
        f"{path}/records?from=1&count=1&{group}",
        f"{path}/parts/{part}/hashes?{group}",
        f"/v1/events?{group}",
    ):
        call("GET", target).expect(404, "not-found")
    asked = ListRequest(via=team.group_id)
    call("POST", "/v1/containers/list", asked).expect(404, "not-found")
    story.send(bob, story.follow(bob, content=b"late", via=via)).expect(404, "not-found")
    assert team.read(bob).membership is None
    for attempt in (
        his.getContainerContent(story.uuid),
        his.updateContainerContent(story.uuid, b"late"),
        his.getGroupMembers(team.uuid),
    ):
        with pytest.raises(BrokerError.notFoundError):
            attempt.result(PATIENCE)


def test_nobody_writes_through_an_epoch_that_a_removal_has_ended_or_wraps_to_it(
    alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: SHARER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    via = team.via
    team.tell(alice, team.follow(alice, remove=[bob]))
    old: Grants = {alice: OWNER, team: Grant(OWNER, key_index=0)}
    for author, request, code in (
        (carol, story.follow(carol, type="late", via=via), "stale-keys"),
        (carol, story.follow(carol, content=b"late", via=via), "stale-keys"),
        (carol, story.follow(carol, content=b"under the old key", via=team), "stale-keys"),
        (carol, story.follow(carol, grants=old, via=team), "rejected"),
        (alice, story.follow(alice, grants=old), "stale-keys"),
    ):
        assert story.send(author, request).code == code
    story.tell(carol, story.follow(carol, grants={alice: OWNER, team: OWNER}, via=team))


# Several managers, and answers that are lost


@pytest.mark.sampled
@pytest.mark.parametrize("why", ["another manager was first", "the broker says so"])
def test_no_secret_of_a_refused_change_is_used_again(
    mallory: Mallory, why: str, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The broker keeps the refused record, which has a wrap for every member whom it names."""
    team = team_of(
        alice, {bob: SHARER, carol: WRITER, eve: READER}, managers={alice: OWNER, bob: MANAGER}
    )
    device, count = mallory.device_of(alice, bob, carol, eve), len(mallory.heard)
    refused: list[RecordRequest] = []

    def refuse(exchange: Exchange) -> None:
        if team.group_id not in exchange.path or refused:
            return
        refused.append(exchange.message)
        if why == "the broker says so":
            exchange.fail(ConflictError("Another record was first."))
        else:
            team.tell(bob, team.follow(bob, remove=[eve]))

    with mallory.meddling(RECORD, before=refuse):
        device.removeGroupMembers(team.uuid, carol.ring.userId).result(PATIENCE)
    first, second = sent_rosters(mallory, team, count)
    assert first.roster is not None
    assert second.roster is not None
    before, after = (
        grammar.parse_roster(each.roster.roster) for each in (first, second) if each.roster
    )
    assert before.commitment != after.commitment
    assert before.publicKey != after.publicKey
    assert not {item.wrap for item in first.roster.wraps} & {
        item.wrap for item in second.roster.wraps
    }
    left = {member.userId for member in device.getGroupMembers(team.uuid).result(PATIENCE)}
    assert carol.ring.userId not in left
    assert (eve.ring.userId in left) == (why == "the broker says so")


def test_two_managers_who_change_the_same_member_are_not_merged(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: WRITER}, managers={alice: OWNER, bob: MANAGER})
    device, told = mallory.device_of(alice, bob, carol), list[bool]()

    def lower(exchange: Exchange) -> None:
        if team.group_id in exchange.path and not told:
            told.append(True)
            team.tell(bob, team.follow(bob, roles={carol: READER}))

    with mallory.meddling(RECORD, before=lower), pytest.raises(BrokerError) as caught:
        device.setGroupRoles(team.uuid, MemberRole(carol.ring.userId, GroupRole.Sharer)).result(
            PATIENCE
        )
    assert type(caught.value) is BrokerError.conflictError


@pytest.mark.long
def test_nobody_uses_up_the_epochs_of_a_group_in_a_day(tmp_path: Path) -> None:
    """The owner removes the manager who tries to, and cannot be kept from it."""
    with Mallory(tmp_path, max_new_epochs=4) as mallory, mallory.scene():
        alice, bob = mallory.people(2)
        team = team_of(alice, {bob: SHARER}, managers={alice: OWNER, bob: MANAGER})
        for _ in range(2):
            team.tell(bob, team.follow(bob, raises=True))
        team.send(bob, team.follow(bob, raises=True)).expect(429, "throttled")
        team.tell(bob, team.follow(bob, name="Renamed"))
        team.tell(alice, team.follow(alice, remove=[bob], managers={alice: OWNER}))
        team.tell(alice, team.follow(alice, raises=True))
        team.send(alice, team.follow(alice, raises=True)).expect(429, "throttled")


@pytest.mark.long
def test_however_often_a_member_replaces_their_key_a_manager_begins_one_epoch_at_a_time_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Each costs one change of access of a container, at its next write. A removal ends that."""
    team, replaced = team_of(alice, {bob: WRITER}), bob
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(alice, bob)
    governing = "SELECT count(*) FROM records WHERE container_id = ? AND governing"
    for epoch in (1, 2):
        for _ in range(3):
            replaced = rotate(mallory.behind.database_url, replaced, encryption=1)
        for _ in range(2):
            device.updateContainerContent(story.uuid, b"new").result(PATIENCE)
        [read] = device.getGroups().result(PATIENCE)
        assert not isinstance(read, BrokerError)
        assert read.epoch == epoch
        assert mallory.query(governing, story.id) == [(1 + epoch,)]
    device.removeGroupMembers(team.uuid, bob.ring.userId).result(PATIENCE)
    rotate(mallory.behind.database_url, replaced, encryption=1)
    device.updateContainerContent(story.uuid, b"new").result(PATIENCE)
    changed = device.renameGroup(team.uuid, "Renamed").result(PATIENCE)
    assert (changed.epoch, mallory.query(governing, story.id)) == (3, [(4,)])


# Offers


def test_a_group_that_nobody_asked_for_shows_and_writes_nothing_until_it_is_accepted(
    mallory: Mallory, alice: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    team = Group(eve).created({eve: SHARER, alice: SHARER}, name="Bad name")
    story = Story(eve).created({eve: OWNER, team: OWNER})
    [offer] = device.getGroups().result(PATIENCE)
    assert not isinstance(offer, BrokerError)
    assert (offer.name, offer.accepted) == ("Bad name", False)
    assert device.listContainers().result(PATIENCE).containers == []
    shown = {event.containerId for event in device.getEvents().result(PATIENCE)}
    assert shown == {team.uuid}
    with pytest.raises(BrokerError.notFoundError):
        device.getContainer(story.uuid).result(PATIENCE)
    device.declineGroup(team.uuid).result(PATIENCE)
    assert device.getGroups().result(PATIENCE) == []


def test_a_manager_cannot_add_a_user_who_has_blocked_them(
    mallory: Mallory, alice: User, eve: User
) -> None:
    mallory.device_of(alice).blockUser(eve.ring.userId).result(PATIENCE)
    team = Group(eve)
    team.send(eve, team.begin({eve: SHARER, alice: WRITER})).expect(403, "blocked")
    team.created()
    team.send(eve, team.follow(eve, add={alice: WRITER})).expect(403, "blocked")


def test_a_user_whom_a_manager_has_blocked_cannot_share_with_the_group(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    """Every other user can, until a manager blocks them: the broker asks nobody before it gives access."""
    team = team_of(alice, {bob: WRITER})
    story = Story(eve).created({eve: OWNER, team: READS_ALONE})
    mallory.device_of(alice).blockUser(eve.ring.userId).result(PATIENCE)
    other = Story(eve)
    other.send(eve, other.begin({eve: OWNER, team: OWNER})).expect(403, "blocked")
    other.created({eve: OWNER})
    late = other.follow(eve, grants={eve: OWNER, team: OWNER})
    other.send(eve, late).expect(403, "blocked")
    listed = mallory.device_of(bob, alice, eve).listContainers().result(PATIENCE)
    assert [each.id for each in listed.containers if not isinstance(each, BrokerError)] == [
        story.uuid
    ]


# Owed epochs


def stored(change: Promise[PublicGroup]) -> PublicGroup:
    """The group after a change that the broker did not refuse."""
    try:
        found = change.result(PATIENCE)
    except BrokerError as error:
        raise AssertionError("the change was refused") from error
    return found


def leave(user: User, team: Group) -> None:
    team.leave(user).expect(204)


def delete(user: User, team: Group) -> None:
    del team
    delete_user(user).expect(204)


@pytest.mark.sampled
@pytest.mark.parametrize("end", [leave, delete])
def test_the_next_change_by_a_manager_replaces_a_key_that_a_former_member_knows(
    mallory: Mallory, end: Any, alice: User, bob: User, carol: User, eve: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    device, count = mallory.device_of(alice, bob, carol, eve), len(mallory.heard)
    end(bob, team)
    changed = stored(device.addGroupMembers(team.uuid, eve.ring.userId))
    assert (changed.epoch, changed.memberCount) == (1, 3)
    [sent] = sent_rosters(mallory, team, count)
    assert sent.roster is not None
    assert bob.name not in {item.fingerprint for item in sent.roster.wraps}


def test_a_broker_that_names_nobody_hides_no_departure_from_a_manager_to_whom_it_serves_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    device = mallory.device_of(alice, bob, carol)
    leave(bob, team)
    with mallory.lying(GROUPS, owing_nothing()):
        changed = stored(device.renameGroup(team.uuid, "Renamed"))
    assert changed.epoch == 1


def owing_nothing(**membership: Any) -> Any:
    """Serve a membership in which an epoch is owed for nobody."""

    def lie(answer: GroupViews) -> GroupViews:
        [outcome] = answer.groups
        assert outcome.view is not None
        if outcome.view.membership is None:
            return answer
        made = replace(outcome.view.membership, owed=[], **membership)
        return GroupViews(groups=[replace(outcome, view=replace(outcome.view, membership=made))])

    return lie


def test_a_manager_who_knows_a_members_new_key_replaces_the_groups_without_the_brokers_word(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Carol's key was stolen, and she has replaced it."""
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    device = mallory.device_of(alice, bob)
    rotate(mallory.behind.database_url, carol, encryption=1)
    device.getPublicKeys(carol.ring.userId).result(PATIENCE)
    with mallory.lying(GROUPS, owing_nothing()):
        changed = stored(device.renameGroup(team.uuid, "Renamed"))
    assert changed.epoch == 1


@pytest.mark.sampled
@pytest.mark.parametrize("hint", [True, False], ids=["named", "not named"])
def test_a_manager_replaces_an_owed_key_before_they_seal_anything_new(
    mallory: Mallory, hint: bool, alice: User, bob: User, carol: User
) -> None:
    """Bob has left, and the broker does not name the group beside the container, or does."""
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device = mallory.device_of(alice, bob, carol)
    leave(bob, team)
    device.getGroupMembers(team.uuid).result(PATIENCE)
    with mallory.lying(VIEW, same if hint else instead(groupRecipients=[])):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    [read] = device.getGroups().result(PATIENCE)
    assert not isinstance(read, BrokerError)
    assert read.epoch == 1
    with pytest.raises(DECRYPTION):
        opened(mallory.sent_record(), story.key)


@pytest.mark.long
def test_a_departure_that_the_broker_hides_from_every_manager_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """An honest broker serves Bob nothing; with this one he still opens what the members seal."""
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    device, key = mallory.device_of(alice, bob, carol), team.state.epochs[0].key
    leave(bob, team)
    with mallory.lying(GROUPS, owing_nothing(departures=[])):
        with pytest.raises(BrokerError):  # the honest broker behind wants the epoch to rise
            device.renameGroup(team.uuid, "Renamed").result(PATIENCE)
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert key == team.encryption[0]
    assert opened(mallory.sent_record(), story.key) == b"secret"


def test_a_member_whom_the_broker_alone_calls_deleted_is_dropped_and_reported_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    team = team_of(alice, {bob: SHARER, carol: WRITER})
    device = mallory.device_of(alice, bob, carol)
    mallory.query("UPDATE users SET deleted = ? WHERE id = ?", True, bob.ring.userId.bytes)
    changed = device.renameGroup(team.uuid, "Renamed").result(PATIENCE)
    assert changed.dropped == (bob.ring.userId,)
    assert changed.epoch == 1
    mallory.query("UPDATE users SET deleted = ? WHERE id = ?", False, bob.ring.userId.bytes)
    again = mallory.device_of(alice, bob).addGroupMembers(team.uuid, bob.ring.userId)
    assert again.result(PATIENCE).memberCount == 3


# Groups in groups


def test_no_group_is_a_member_or_a_manager_of_a_group(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team, other = team_of(alice, {bob: SHARER}), team_of(alice, {})
    nested: Any = other
    device = mallory.device_of(alice, bob)
    device.getGroups().result(PATIENCE)
    with pytest.raises(BrokerError):
        device.addGroupMembers(team.uuid, other.uuid).result(PATIENCE)
    with pytest.raises(BrokerError):
        device.setGroupManagers(team.uuid, [alice.ring.userId, other.uuid]).result(PATIENCE)

    def join(members: dict[User, Member]) -> None:
        members[nested] = Member(other.name, 0, READER, 2)

    listed = {alice: OWNER, nested: MANAGER}
    for request in (
        team.follow(alice, raises=True),
        team.follow(alice, raises=True, managers=listed),
    ):
        team.send(alice, team.with_leaves(alice, request, join)).expect(404, "not-found")


# Groups and users that a broker names


def test_a_client_reads_no_group_that_neither_a_record_nor_a_list_names(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Each of them may have a history of 192 MiB, and none of it is verified at that moment."""
    team, others = team_of(bob, {}), [team_of(bob, {}) for _ in range(3)]
    story = Story(alice).created({alice: OWNER, team: OWNER})
    story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device, count = mallory.device_of(alice, bob), len(mallory.heard)
    ids = sorted([team.group_id, *(other.group_id for other in others)])
    stated = [GroupState(groupId=each, version=1, epoch=0, owed=False) for each in ids]
    with mallory.lying(VIEW, instead(groupChains=stated, groups=ids, groupRecipients=stated)):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"Bob's"
        device.updateContainerHeader(story.uuid, "new").result(PATIENCE)
    asked = [e.message.groups for e in mallory.heard[count:] if e.name == GROUPS]
    assert {each.groupId for some in asked for each in some} == {team.group_id}


def test_a_writer_looks_up_those_recipients_alone_whose_keys_are_said_to_have_moved(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    """Each recipient has a chain of up to 1,024 key records, and a list has up to 1,024 recipients."""
    team = team_of(alice, {bob: WRITER})
    story = Story(alice).created({alice: OWNER, bob: READS_ALONE, carol: READS_ALONE, team: OWNER})
    device, count = mallory.device_of(alice), len(mallory.heard)
    device.updateContainerContent(story.uuid, b"new").result(PATIENCE)
    assert KEYS not in mallory.since(count)
    ids = sorted([carol.id, eve.id])
    moved = [KeyChainState(userId=each, sequence=1) for each in ids]
    with mallory.lying(VIEW, instead(recipients=moved)):
        device.updateContainerContent(story.uuid, b"newer").result(PATIENCE)
    asked = [e.message.users for e in mallory.heard[count:] if e.name == KEYS]
    assert {each.userId for some in asked for each in some} == {carol.id}


def test_a_client_that_reads_several_containers_reads_no_other_group_either(
    mallory: Mallory, alice: User, bob: User
) -> None:
    team, other = team_of(bob, {}), team_of(bob, {})
    stories = [Story(alice).created({alice: OWNER, team: OWNER}) for _ in range(2)]
    for story in stories:
        story.tell(bob, story.follow(bob, content=b"Bob's", via=team))
    device, count = mallory.device_of(alice, bob), len(mallory.heard)
    stated = [
        GroupState(groupId=each, version=1, epoch=0, owed=False)
        for each in sorted([team.group_id, other.group_id])
    ]

    def name_both(answer: Any) -> Any:
        views = [
            replace(each, view=replace(each.view, groupChains=stated)) for each in answer.views
        ]
        return replace(answer, views=views)

    with mallory.lying(VIEWS, name_both):
        found = device.getContainers([story.uuid for story in stories]).result(PATIENCE)
    assert [getattr(each, "content", each) for each in found] == [b"Bob's"] * 2
    asked = [e.message.groups for e in mallory.heard[count:] if e.name == GROUPS]
    assert {each.groupId for some in asked for each in some} == {team.group_id}


def test_of_a_long_group_that_a_list_only_names_the_first_record_is_verified(
    mallory: Mallory, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are verified when a container key is wrapped to the group."""
    lower(monkeypatch, group_records_judged=3)
    teams = [team_of(bob, {}) for _ in range(2)]
    for team in teams:
        for name in ("a", "b", "c"):
            team.tell(bob, team.follow(bob, name=name, raises=True))
    story = Story(bob).created({alice: OWNER, bob: OWNER, **dict.fromkeys(teams, OWNER)})
    device, judged, judge = mallory.device_of(alice, bob), list[int](), Basis.judge

    def counted(basis: Basis, records: Any, *rest: Any) -> Any:
        judged.append(len(records))
        return judge(basis, records, *rest)

    monkeypatch.setattr(Basis, "judge", counted)
    for _ in range(2):
        shown = device.getContainer(story.uuid).result(PATIENCE).access or ()
        assert {each.userId for each in shown if each.isGroup} == {team.uuid for team in teams}
    assert judged == [1, 1]
    device.revokeAccess(story.uuid, [bob.ring.userId]).result(PATIENCE)
    assert judged == [1, 1, 4, 4]


def test_no_more_of_a_group_is_read_than_an_honest_broker_keeps(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """The broker's own users could otherwise sign records as long as the client asks for more."""
    team = team_of(bob, {alice: READER})
    device, count = mallory.device_of(alice, bob), len(mallory.heard)

    def endless(answer: Any) -> Any:
        [outcome] = answer.groups
        view = replace(outcome.view, last=100_000, membership=None)
        return GroupViews(groups=[replace(outcome, view=view)])

    with mallory.lying(GROUPS, endless):
        [found] = device.getGroups().result(PATIENCE)
    assert isinstance(found, BrokerError.tooLargeError)
    assert mallory.since(count).count(GROUPS) == 1
    assert [each.groupId for each in groups_of(alice).groups] == [team.group_id]


def test_a_list_of_groups_that_never_ends_is_given_up(
    mallory: Mallory, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some more pages there is no more, so that no test is endless."""
    device, count, most = mallory.device_of(alice), len(mallory.heard), 5
    lower(monkeypatch, groups_listed=(most - 1) * MAX_LISTED)
    ids = iter(range(1, 2 * most * MAX_LISTED))

    def go_on(exchange: Exchange) -> None:
        some = [str(uuid.UUID(int=number)) for number in itertools.islice(ids, MAX_LISTED)]
        listed = [ListedGroup(groupId=each, version=1, accepted=True) for each in some]
        following = some[-1] if len(some) == MAX_LISTED else None
        exchange.invent(GroupList(groups=listed, next=following))

    with mallory.meddling(GROUP_LIST, before=go_on), pytest.raises(BrokerError) as caught:
        device.getGroups().result(PATIENCE)
    assert type(caught.value) is BrokerError.tooLargeError
    assert mallory.since(count).count(GROUP_LIST) <= most
