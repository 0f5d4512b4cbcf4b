"""What users do with groups: create, offer, add, remove, change roles and managers, leave, delete."""

from typing import Any

import pytest

from scbroker import AccessLevel, BrokerError, Group, GroupManager, MemberRole, ServerProvider
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import (
    READER,
    SHARER,
    WRITER,
    accepted,
    managers,
    roles,
    seen,
    shared,
    team,
)
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE


def accepted_groups(provider: ServerProvider) -> list[Group]:
    found = provider.getGroups(offered=False).result(PATIENCE)
    return [each for each in found if isinstance(each, Group)]


@both_engines
def test_a_group_is_made_offered_and_accepted(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    made = alice.createGroup(
        "Team Blau",
        [MemberRole(id_of(bob)), MemberRole(id_of(carol), READER)],
        "Wer hier schreibt\nund liest",
        managers=[id_of(carol)],
    ).result(PATIENCE)
    assert (made.name, made.description) == ("Team Blau", "Wer hier schreibt\nund liest")
    assert (made.isOwner, made.accepted, made.memberCount, made.epoch) == (True, True, 3, 0)
    assert made.role is SHARER
    assert made.createdBy == made.modifiedBy == id_of(alice)
    assert roles(alice, made) == {id_of(alice): SHARER, id_of(bob): WRITER, id_of(carol): READER}
    assert managers(bob, made) == {id_of(alice): True, id_of(carol): False}
    members = bob.getGroupMembers(made).result(PATIENCE)
    keys = [bob.getPublicKeys(id_of(user)).result(PATIENCE)[0] for user in (alice, bob, carol)]
    assert [each.fingerprint for each in members] == sorted(key.fingerprint for key in keys)
    assert {each.since for each in members} == {made.createdAt}
    offered = seen(bob, made)
    assert offered is not None
    assert (offered.name, offered.accepted, offered.role) == ("Team Blau", False, WRITER)
    assert made.id not in {each.id for each in accepted_groups(bob)}
    joined = [bob.acceptGroup(each).result(PATIENCE) for each in (made.id, made)]
    after = seen(bob, made)
    assert after is not None
    assert after.accepted
    assert joined == [after, after]
    assert after in accepted_groups(bob)
    assert seen(alice, made) == made


@both_engines
def test_members_are_added_and_removed_and_the_key_is_replaced_at_a_removal(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob)
    added = alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    assert (added.epoch, added.memberCount, added.version) == (0, 3, 2)
    assert added == seen(alice, group)
    assert alice.addGroupMembers(group, [id_of(carol)]).result(PATIENCE).version == 2
    removed = alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    assert (removed.epoch, removed.memberCount, removed.version) == (1, 2, 3)
    assert removed == seen(alice, group)
    assert seen(bob, group) is None
    refusal(bob.getGroupMembers(group), BrokerError.notFoundError)
    assert alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE).version == 3
    assert roles(carol, group) == {id_of(alice): SHARER, id_of(carol): WRITER}
    again = alice.addGroupMembers(group, MemberRole(id_of(bob), SHARER)).result(PATIENCE)
    assert (again.epoch, again.version) == (1, 4)
    assert roles(bob, group)[id_of(bob)] is SHARER


@both_engines
def test_a_member_reads_through_the_group_and_a_removed_one_does_not(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group)
    assert bob.getContainerContent(made).result(PATIENCE) == b"content"
    alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    refusal(bob.getContainerContent(made), BrokerError.notFoundError)
    carol.updateContainerContent(made, b"theirs").result(PATIENCE)
    assert alice.getContainerContent(made).result(PATIENCE) == b"theirs"
    refusal(bob.getContainerContent(made), BrokerError.notFoundError)


@both_engines
def test_roles_rise_within_an_epoch_and_fall_with_another(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob, carol)
    risen = alice.setGroupRoles(group, MemberRole(id_of(bob), SHARER)).result(PATIENCE)
    assert risen.epoch == 0
    assert risen == seen(alice, group)
    fallen = alice.setGroupRoles(
        group, [MemberRole(id_of(bob), "Reader"), MemberRole(id_of(carol), READER)]
    ).result(PATIENCE)
    assert fallen.epoch == 1
    assert roles(bob, group) == {id_of(alice): SHARER, id_of(bob): READER, id_of(carol): READER}
    assert alice.setGroupRoles(group, MemberRole(id_of(bob), READER)).result(PATIENCE).version == 3


@both_engines
def test_an_owner_changes_the_managers_and_a_manager_the_members(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob)
    refusal(bob.addGroupMembers(group, id_of(carol)), BrokerError.permissionDeniedError, "manager")
    own = GroupManager(id_of(alice), owner=True)
    changed = alice.setGroupManagers(group, [own, GroupManager(id_of(carol))]).result(PATIENCE)
    assert (changed.memberCount, changed.epoch) == (3, 0)
    assert changed == seen(alice, group)
    assert roles(carol, group)[id_of(carol)] is WRITER
    carol.addGroupMembers(group, MemberRole(id_of(bob), WRITER)).result(PATIENCE)
    refusal(carol.setGroupManagers(group, [own]), BrokerError.permissionDeniedError, "owner")
    refusal(carol.deleteGroup(group), BrokerError.permissionDeniedError, "owner")
    refusal(
        carol.removeGroupMembers(group, id_of(alice)), BrokerError.permissionDeniedError, "owner"
    )
    both = [own, GroupManager(id_of(carol), owner=True)]
    assert alice.setGroupManagers(group, both).result(PATIENCE).version == 3
    assert managers(bob, group) == {id_of(alice): True, id_of(carol): True}
    removed = carol.removeGroupMembers(group, id_of(alice)).result(PATIENCE)
    assert removed.epoch == 1
    assert managers(bob, group) == {id_of(carol): True}
    assert seen(alice, group) is None


@both_engines
def test_name_and_description_change_and_the_broker_sees_neither(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice, bob, description="first")
    renamed = alice.renameGroup(group, "Blue").result(PATIENCE)
    assert (renamed.name, renamed.description, renamed.epoch) == ("Blue", "first", 0)
    assert renamed == seen(alice, group)
    described = alice.renameGroup(group, description="second").result(PATIENCE)
    assert (described.name, described.description) == ("Blue", "second")
    assert alice.renameGroup(group, "Blue", "second").result(PATIENCE).version == 3
    found = seen(bob, group)
    assert found is not None
    assert (found.name, found.description) == ("Blue", "second")


@pytest.mark.long
@both_engines
def test_a_member_leaves_and_the_next_change_of_a_manager_replaces_the_key(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    bob.leaveGroup(group).result(PATIENCE)
    assert seen(bob, group) is None
    refusal(bob.leaveGroup(group), BrokerError.notFoundError)
    assert set(roles(carol, group)) == {id_of(alice), id_of(carol)}
    renamed = alice.renameGroup(group, "Blue").result(PATIENCE)
    assert (renamed.epoch, renamed.memberCount) == (1, 2)
    carol.leaveGroup(group).result(PATIENCE)
    again = alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    assert (again.epoch, again.memberCount) == (2, 2)
    offered = seen(carol, group)
    assert offered is not None


def test_an_offer_is_declined_and_can_be_made_again(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice, bob)
    bob.declineGroup(group).result(PATIENCE)
    assert seen(bob, group) is None
    alice.addGroupMembers(group, id_of(bob)).result(PATIENCE)
    offered = seen(bob, group)
    assert offered is not None
    assert not offered.accepted
    accepted(group, bob)
    refusal(bob.declineGroup(group), BrokerError.invalidArgumentError, "leaveGroup")


def test_the_last_member_and_the_only_owner_read_what_to_do_instead_of_leaving(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    alone = team(alice)
    refusal(alice.leaveGroup(alone), BrokerError.invalidArgumentError, "deleteGroup")
    group = accepted(team(alice, bob), bob)
    refusal(alice.leaveGroup(group), BrokerError.invalidArgumentError, "abandon")
    alice.leaveGroup(group, abandon=True).result(PATIENCE)
    assert set(roles(bob, group)) == {id_of(bob)}


def test_an_owner_beside_whom_the_other_owner_was_deleted_is_the_only_one(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    other = new_provider(True)
    group = accepted(team(alice, bob, other), bob, other)
    owners = [GroupManager(id_of(each), owner=True) for each in (alice, other)]
    alice.setGroupManagers(group, owners).result(PATIENCE)
    other.deleteUser().result(PATIENCE)
    refusal(alice.leaveGroup(group), BrokerError.invalidArgumentError, "the only owner")
    alice.leaveGroup(group, abandon=True).result(PATIENCE)


@pytest.mark.long
@both_engines
def test_a_deleted_group_is_gone_for_all_and_its_containers_with_it(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    alice.deleteGroup(group).result(PATIENCE)
    assert seen(alice, group) is None
    assert seen(bob, group) is None
    refusal(alice.deleteGroup(group), BrokerError.deletedError)
    refusal(bob.getGroupMembers(group), BrokerError.notFoundError)
    refusal(alice.addGroupMembers(group, id_of(bob)), BrokerError.deletedError)


@pytest.mark.long
def test_giving_up_a_group_has_no_result(alice: ServerProvider, bob: ServerProvider) -> None:
    offered, group = team(alice, bob), accepted(team(alice, bob), bob)
    given: list[Any] = [bob.declineGroup(offered).result(PATIENCE)]
    given.append(bob.leaveGroup(group).result(PATIENCE))
    given.append(alice.deleteGroup(group).result(PATIENCE))
    assert given == [None, None, None]
    assert seen(alice, offered) is not None
    assert [seen(bob, each) for each in (offered, group)] == [None, None]


@both_engines
def test_a_deleted_group_that_a_container_names_is_proved_to_be_deleted(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    levels = [AccessLevel(id_of(alice), 511), AccessLevel(group, "Download|Decrypt")]
    made = alice.createContainer(b"ours", None, levels).result(PATIENCE).id
    assert bob.getContainerContent(made).result(PATIENCE) == b"ours"
    alice.deleteGroup(group).result(PATIENCE)
    refusal(bob.getGroupMembers(group), BrokerError.deletedError)
    refusal(bob.getContainerContent(made), BrokerError.notFoundError)
    assert seen(bob, group) is None
    assert alice.getContainerContent(made).result(PATIENCE) == b"ours"


@both_engines
def test_renewing_gives_every_container_of_the_group_another_key(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = [shared(alice, group, content=b"%d" % n) for n in range(3)]
    done: list[int] = []
    removed = alice.removeGroupMembers(
        group, id_of(bob), renew=True, progress=lambda n, _: done.append(n)
    ).result(PATIENCE)
    assert removed.renewal is not None
    assert (removed.renewal.renewed, removed.renewal.failed, done) == (3, [], [3])
    again = carol.renewGroup(group).result(PATIENCE)
    assert (again.renewed, again.failed) == (0, [])
    for number, each in enumerate(made):
        found = carol.getContainer(each).result(PATIENCE)
        assert (found.content, found.version) == (b"%d" % number, 2)
    renewed = alice.renewGroup(group, newKey=True).result(PATIENCE)
    assert renewed.renewed == 3


@both_engines
def test_a_group_takes_the_place_of_another(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    old = accepted(team(alice, MemberRole(id_of(bob), SHARER)), bob)
    new = accepted(team(bob, carol), carol)
    made = shared(alice, old, content=b"ours")
    replaced = bob.replaceGroup(old, new).result(PATIENCE)
    assert (replaced.renewed, replaced.failed) == (1, [])
    assert bob.replaceGroup(old, new).result(PATIENCE).renewed == 0
    assert carol.getContainerContent(made).result(PATIENCE) == b"ours"
    found = alice.getContainerMetadata(made).result(PATIENCE)
    assert {level.userId for level in found.access or ()} == {id_of(alice), new.id}


@both_engines
def test_the_other_devices_of_a_user_who_has_left_read_the_departure(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    """Without it, they would take the broker for a liar: nobody was removed from the group."""
    group, mine = accepted(team(alice, bob), bob), team(bob)
    other = new_provider(bob.getKeyRing().result(PATIENCE))
    assert len(other.getGroups().result(PATIENCE)) >= 2
    bob.leaveGroup(group).result(PATIENCE)
    ids = {each.id for each in other.getGroups().result(PATIENCE) if isinstance(each, Group)}
    assert (group.id in ids, mine.id in ids) == (False, True)
    refusal(other.getGroupMembers(group), BrokerError.notFoundError)
