"""Calls about groups that are refused, by the client before anything is sent or by the broker."""

import uuid
from collections.abc import Callable

import pytest

from scbroker import (
    BrokerError,
    ContactCard,
    GroupManager,
    GroupRole,
    KeyRing,
    MemberRole,
    ServerProvider,
    WriteOutcome,
)
from scbroker.records.canonical import uuid8
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import READER, accepted, seen, team
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, after, lost, refused
from tests.kit.waiting import PATIENCE

Users = Callable[[int], list[KeyRing]]
SOMEBODY = uuid.uuid4()


def test_a_member_with_another_role_and_a_role_of_a_stranger_name_the_right_operation(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob)
    added = alice.addGroupMembers(group, MemberRole(id_of(bob), READER))
    refusal(added, BrokerError.invalidArgumentError, "setGroupRoles")
    changed = alice.setGroupRoles(group, MemberRole(id_of(carol), READER))
    refusal(changed, BrokerError.notFoundError, "addGroupMembers")


def test_unknown_and_deleted_users_cannot_be_added(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    gone = new_provider(True)
    gone_id = id_of(gone)
    gone.deleteUser().result(PATIENCE)
    refusal(alice.createGroup("Team", SOMEBODY), BrokerError.notFoundError)
    refusal(alice.createGroup("Team", gone_id), BrokerError.notFoundError, "deleted")
    group = team(alice)
    refusal(alice.addGroupMembers(group, gone_id), BrokerError.notFoundError, "deleted")
    own = GroupManager(id_of(alice), owner=True)
    managers = alice.setGroupManagers(group, [own, GroupManager(gone_id)])
    refusal(managers, BrokerError.notFoundError, "deleted")


def test_a_card_whose_fingerprint_is_not_the_users_gives_nobody_the_key(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """The broker answers for bob with the keys of carol, whose user id somebody took for bob's."""
    card = bob.getContactCard("Bob").result(PATIENCE)
    group = team(alice)
    assert alice.addGroupMembers(group, card).result(PATIENCE).memberCount == 2
    forged = ContactCard(carol.getKeyRing().result(PATIENCE).fingerprint, card.serverUrl, "Bob")
    wrong = MemberRole(forged)
    object.__setattr__(wrong, "fingerprint", card.fingerprint)
    for changed in (alice.addGroupMembers(group, wrong), alice.createGroup("Other", wrong)):
        refusal(changed, BrokerError.keySubstitutionError, "compare")
    assert seen(carol, group) is None


def test_more_members_and_managers_than_a_group_takes_are_refused(
    alice: ServerProvider, user_pool: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [ring.userId for ring in user_pool(5)]
    monkeypatch.setattr("scbroker.records.roster.MAX_MEMBERS", 3)
    unknown = [uuid8(bytes([number]) * 32) for number in range(5)]  # whose keys are not asked for
    refusal(alice.createGroup("Team", unknown), BrokerError.tooLargeError, "members")
    group = team(alice)
    refusal(alice.addGroupMembers(group, users), BrokerError.tooLargeError, "members")
    monkeypatch.setattr("scbroker.records.roster.MAX_MEMBERS", 1024)
    monkeypatch.setattr("scbroker.records.roster.MAX_MANAGERS", 2)
    refusal(alice.createGroup("Team", managers=users), BrokerError.tooLargeError, "managers")


def test_a_departure_whose_answer_is_lost_is_stored_and_an_unsent_one_is_not(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    unsent = BrokerError.unreachableError("Down.", sent=False)
    with Network() as network:
        network.treat("POST", "/departure", refused(unsent))
        with pytest.raises(BrokerError.unreachableError) as raised:
            bob.leaveGroup(group).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.NotStored
    with Network() as network:
        network.treat("POST", "/departure", lost(100))
        with pytest.raises(BrokerError.unreachableError) as raised:
            bob.leaveGroup(group).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.Uncertain
    assert raised.value.containerId == group.id
    refusal(bob.leaveGroup(group), BrokerError.notFoundError)


@pytest.mark.long
def test_a_departure_is_signed_again_for_a_changed_membership(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    role = MemberRole(id_of(bob), GroupRole.Reader)
    with Network() as network:
        change = after(lambda: alice.setGroupRoles(group, role).result(PATIENCE))
        network.treat("POST", "/departure", change)
        bob.leaveGroup(group).result(PATIENCE)
        assert len(network.those("POST", "/departure")) == 2
    assert seen(bob, group) is None


def test_an_owner_does_not_leave_if_the_only_other_owner_steps_down_meanwhile(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    owners = [GroupManager(id_of(each), owner=True) for each in (alice, bob)]
    alice.setGroupManagers(group, owners).result(PATIENCE)
    with Network() as network:
        step_down = after(lambda: alice.setGroupManagers(group, owners[1:]).result(PATIENCE))
        network.treat("POST", "/departure", step_down)
        refusal(bob.leaveGroup(group), BrokerError.invalidArgumentError, "the only owner")
        assert len(network.those("POST", "/departure")) == 1
