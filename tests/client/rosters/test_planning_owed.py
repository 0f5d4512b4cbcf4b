"""Epochs that a group owes, raised by a manager who writes a container of the group."""

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, ServerProvider
from scbroker.wire.containers import ContainerView
from scbroker.wire.rosters import GroupState
from tests.client.conftest import id_of
from tests.client.rosters.conftest import accepted, seen, team
from tests.client.rosters.test_writing import records
from tests.client.test_lying_broker import lying
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE


def box(owner: ServerProvider, group: Any) -> uuid.UUID:
    levels = [AccessLevel(id_of(owner), 511), AccessLevel(group, 511)]
    return owner.createContainer(b"old", None, levels).result(PATIENCE).id


def epoch(provider: ServerProvider, group: Any) -> int:
    found = seen(provider, group)
    assert found is not None
    return found.epoch


@pytest.mark.long
@both_engines
def test_a_manager_raises_an_owed_epoch_before_they_seal_anything_new(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = [box(alice, group) for _ in range(2)]
    bob.leaveGroup(group).result(PATIENCE)
    alice.updateContainerContent(made[0], b"new").result(PATIENCE)
    assert epoch(alice, group) == 1
    entries = alice._session().groups.verified[bytes.fromhex(group.fingerprint)]
    assert entries.roster.count == 2
    assert carol.getContainerContent(made[0]).result(PATIENCE) == b"new"
    alice.updateContainerContent(made[1], b"new").result(PATIENCE)
    assert epoch(alice, group) == 1


@pytest.mark.long
def test_a_member_who_is_not_a_manager_can_still_write(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = box(alice, group)
    bob.leaveGroup(group).result(PATIENCE)
    carol.updateContainerContent(made, b"new").result(PATIENCE)
    assert epoch(carol, group) == 0


@pytest.mark.long
def test_a_broker_that_claims_an_owed_epoch_makes_nobody_raise_it(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = accepted(team(alice, bob), bob)
    made = box(alice, group)
    alice.getContainer(made).result(PATIENCE)

    def owe(view: ContainerView) -> ContainerView:
        state = GroupState(groupId=str(group.id), version=1, epoch=0, owed=True)
        return replace(view, groupRecipients=[state])

    with lying(owe), Network() as network:
        alice.updateContainerContent(made, b"new").result(PATIENCE)
        assert [each.roster for each in records(network)] == [None]
    assert epoch(alice, group) == 0


def test_a_member_with_a_newer_key_makes_the_next_write_of_a_manager_raise_the_epoch(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    bob = new_provider(True)
    group = accepted(team(alice, bob), bob)
    made = box(alice, group)
    bob.changeCredentials("another Pass 1", "another Phrase 2", compromised=True).result(PATIENCE)
    alice.updateContainerContent(made, b"new").result(PATIENCE)
    assert epoch(bob, group) == 1
    assert bob.getContainerContent(made).result(PATIENCE) == b"new"


def test_a_manager_who_has_met_a_newer_key_raises_the_epoch_although_the_broker_is_silent(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    """The write before has found that nothing was owed."""
    bob = new_provider(True)
    group = accepted(team(alice, bob), bob)
    made = box(alice, group)
    with lying(lambda view: replace(view, groupRecipients=[], recipients=[])):
        alice.updateContainerContent(made, b"one").result(PATIENCE)
        bob.changeCredentials("another Pass 1", "another Phrase 2", compromised=True).result(
            PATIENCE
        )
        alice.getPublicKeys(id_of(bob)).result(PATIENCE)
        alice.updateContainerContent(made, b"two").result(PATIENCE)
    assert epoch(bob, group) == 1
    assert bob.getContainerContent(made).result(PATIENCE) == b"two"
