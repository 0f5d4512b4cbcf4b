"""Records of groups on their way to the broker: several managers at once, lost answers, refusals."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import (
    BrokerError,
    Group,
    GroupManager,
    GroupRole,
    MemberRole,
    MemoryTrustStore,
    SentChange,
    ServerProvider,
    WriteOutcome,
)
from scbroker.records.container_record import record_hash
from scbroker.records.roster import LAST_EPOCH
from scbroker.wire.codec import decode, encode
from scbroker.wire.containers import ContainerView, RecordReceipt, RecordRequest
from scbroker.wire.rosters import GroupState
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import (
    READER,
    SHARER,
    accepted,
    managers,
    roles,
    seen,
    shared,
    team,
)
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, Octets, after, lost, lying, refused
from tests.kit.waiting import PATIENCE


@pytest.fixture
def fellow(alice: ServerProvider, new_provider: NewProvider) -> ServerProvider:
    """Another device of alice's, with marks of its own."""
    return new_provider(alice.getKeyRing().result(PATIENCE))


def records(network: Network) -> list[RecordRequest]:
    """The records that were sent."""
    return [
        decode(RecordRequest, each.body or b"")
        for each in network.sent
        if each.method == "PUT" and "/records/" in each.path
    ]


def managed(alice: ServerProvider, *others: ServerProvider, **options: Any) -> Group:
    """A group that alice owns and that the others manage."""
    return accepted(
        team(alice, *others, managers=[id_of(other) for other in others], **options), *others
    )


def role(level: GroupRole) -> Any:
    return lambda device, group, ids: device.setGroupRoles(group, MemberRole(ids[2], level))


def remove(user: int) -> Any:
    return lambda device, group, ids: device.removeGroupMembers(group, ids[user])


def texts(*texts: str | None) -> Any:
    return lambda device, group, _: device.renameGroup(group, *texts)


def owners(*users: int) -> Any:
    return lambda device, group, ids: device.setGroupManagers(
        group, [GroupManager(ids[user], owner=True) for user in users]
    )


CONFLICT = BrokerError.conflictError
# Alice and bob own the group, carol is a member: what bob changes just before alice's change arrives, what
# alice changes, and the version that she gets, or her error.
MEANWHILE: dict[str, tuple[Any, Any, int | type[BrokerError]]] = {
    "something else": (texts("Theirs"), remove(2), 3),
    "the same role": (role(SHARER), role(SHARER), 2),
    "the same removal": (remove(2), remove(2), 2),
    "the same name": (texts("Same"), texts("Same"), 2),
    "another role": (role(READER), role(SHARER), CONFLICT),
    "the role of a removed member": (role(READER), remove(2), CONFLICT),
    "a removed member": (remove(2), role(SHARER), CONFLICT),
    "another name": (texts("Theirs"), texts("Mine"), CONFLICT),
    "another description": (texts(None, "Theirs"), texts(None, "Mine"), CONFLICT),
    "the same owners": (owners(0, 2), owners(0, 2), 2),
    "other owners": (owners(0, 1, 2), owners(0, 2), CONFLICT),
    "her rights": (owners(1), role(READER), BrokerError.permissionDeniedError),
    "her membership": (remove(0), role(READER), BrokerError.notFoundError),
}


@pytest.mark.sampled
@both_engines
@pytest.mark.parametrize("what", MEANWHILE)
def test_a_change_applies_to_what_another_owner_changed_meanwhile_unless_that_is_the_same(
    what: str, alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    theirs, mine, end = MEANWHILE[what]
    ids = [id_of(each) for each in (alice, bob, carol)]
    group = accepted(team(alice, carol, managers=[GroupManager(ids[1], owner=True)]), bob)
    with Network() as network:
        other = after(lambda: theirs(bob, group, ids).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        if isinstance(end, int):
            assert mine(alice, group, ids).result(PATIENCE).version == end
            assert len(records(network)) == end, (
                "one of each, and one more of hers to apply it again"
            )
        else:
            assert refusal(mine(alice, group, ids), end).outcome is WriteOutcome.NotStored
    found = seen(bob, group)
    assert found is not None
    assert found.version == (end if isinstance(end, int) else 2)
    assert what != "something else" or (found.name, found.memberCount) == ("Theirs", 2)


def test_a_change_that_the_broker_claims_not_to_find_a_group_for_ends_with_its_refusal(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    """It serves the group in which the user still is a manager: the client does not try again."""
    group = managed(alice, bob)
    with Network() as network:
        network.treat("PUT", "/records/2", refused(BrokerError.notFoundError("Nothing is here.")))
        error = refusal(bob.renameGroup(group, "New"), BrokerError.notFoundError)
        assert len(records(network)) == 1
    assert error.outcome is WriteOutcome.Uncertain


@both_engines
def test_a_creation_whose_answer_is_lost_makes_one_group(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    with Network() as network:
        network.treat("PUT", "/records/1", lost(2))
        group = team(alice, bob)
        assert len(records(network)) == 3
        assert len({each.record.body for each in records(network)}) == 1
    assert alice.getGroups().result(PATIENCE) == [group]


def test_a_change_that_never_arrived_is_not_stored_once_another_took_its_version(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice, bob)
    down = BrokerError.unreachableError("Down.")
    with Network() as network:
        network.treat("PUT", "/records/2", refused(down))
        with pytest.raises(BrokerError.unreachableError) as raised:
            alice.renameGroup(group, "Lost").result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.Uncertain
    assert alice.getSentChanges(group.id).result(PATIENCE) == [
        SentChange(2, WriteOutcome.Uncertain)
    ]
    assert alice.renameGroup(group, "Kept").result(PATIENCE).version == 2
    assert alice.getSentChanges(group.id).result(PATIENCE) == [
        SentChange(2, WriteOutcome.NotStored)
    ]


def test_a_record_stored_without_an_answer_before_a_removal_counts_as_stored(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    """The chain shows it to the former manager as to everybody."""
    group, user = managed(alice, bob), id_of(bob)

    async def store_and_remove(go: Go) -> Octets:
        await go()
        removal = alice.removeGroupMembers(group, user)
        await asyncio.get_running_loop().run_in_executor(None, removal.result, PATIENCE)
        raise BrokerError.staleKeysError("Read again.")

    with Network() as network:
        network.treat("PUT", "/records/2", store_and_remove)
        found = bob.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    assert found.version == 2
    assert id_of(carol) in roles(alice, group)


def test_two_programs_with_the_same_marks_both_change_a_group(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    ring, store = alice.getKeyRing().result(PATIENCE), MemoryTrustStore()
    one, other = (new_provider(ring, trustStore=store) for _ in range(2))
    group = team(one, bob)

    async def other_reads_on(go: Go) -> Octets:
        answer = await go()
        renaming = other.renameGroup(group, description="Further")
        await asyncio.get_running_loop().run_in_executor(None, renaming.result, PATIENCE)
        return answer

    with Network() as network:
        network.treat("PUT", "/records/2", other_reads_on)
        assert one.renameGroup(group, "New").result(PATIENCE).version == 2
    assert one.renameGroup(group, "Newer").result(PATIENCE).version == 4


@pytest.mark.long
@both_engines
def test_a_member_with_a_newer_key_gets_another_epoch_at_the_next_change(
    alice: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    bob = new_provider(True)
    group = accepted(team(alice, bob), bob)
    bob.changeCredentials("another Pass 1", "another Phrase 2", compromised=True).result(PATIENCE)
    added = alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    assert (added.epoch, added.memberCount, added.dropped) == (1, 3, ())
    assert roles(bob, group).keys() == roles(carol, group).keys()
    assert alice.renameGroup(group, "New").result(PATIENCE).epoch == 1


@both_engines
def test_a_manager_who_has_left_keeps_a_leaf_until_an_owner_drops_both(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob, carol)
    bob.leaveGroup(group).result(PATIENCE)
    by_manager = carol.renameGroup(group, "New").result(PATIENCE)
    assert (by_manager.epoch, by_manager.memberCount) == (1, 2)
    assert carol.renameGroup(group, "Newer").result(PATIENCE).epoch == 1
    by_owner = alice.renameGroup(group, "Newest").result(PATIENCE)
    assert (by_owner.epoch, by_owner.memberCount) == (2, 2)
    assert managers(carol, group) == {id_of(alice): True, id_of(carol): False}


def test_in_the_last_epoch_nobody_can_be_removed(
    alice: ServerProvider, bob: ServerProvider, monkeypatch: Any
) -> None:
    group = team(alice, bob)
    assert LAST_EPOCH == 16_383
    monkeypatch.setattr("scbroker.records.roster.LAST_EPOCH", 0)
    removal = alice.removeGroupMembers(group, id_of(bob))
    refusal(removal, BrokerError.tooLargeError, "replaceGroup")
    assert alice.renameGroup(group, "New").result(PATIENCE).version == 2


def test_a_tombstone_is_not_appended_after_a_member_was_added_meanwhile(
    alice: ServerProvider, fellow: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice)
    with Network() as network:
        other = after(lambda: fellow.addGroupMembers(group, id_of(bob)).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        refusal(alice.deleteGroup(group), BrokerError.conflictError, "added a member")
    alice.deleteGroup(group).result(PATIENCE)
    refusal(bob.getGroupMembers(group), BrokerError.notFoundError)


@both_engines
def test_a_deletion_that_was_stopped_half_way_is_completed_by_a_repeated_call(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice, bob)
    down = BrokerError.unreachableError("Down.", sent=False)
    with Network() as network:
        network.treat("PUT", "/records/3", refused(down))
        refusal(alice.deleteGroup(group), BrokerError.unreachableError)
    assert roles(alice, group) == {id_of(alice): SHARER}
    with Network() as network:
        network.treat("PUT", "/records/3", lost(1))
        alice.deleteGroup(group).result(PATIENCE)
        assert len(records(network)) == 2
    refusal(alice.deleteGroup(group), BrokerError.deletedError)


@both_engines
def test_a_group_that_another_device_deletes_at_the_same_time_is_deleted_once(
    alice: ServerProvider, fellow: ServerProvider
) -> None:
    """A container names the group, so that the broker keeps the other tombstone."""
    group = team(alice)
    shared(alice, group)
    with Network() as network:
        network.treat(
            "PUT", "/records/2", after(lambda: fellow.deleteGroup(group).result(PATIENCE))
        )
        alice.deleteGroup(group).result(PATIENCE)
    for device in (alice, fellow):
        refusal(device.getGroupMembers(group), BrokerError.deletedError)


def test_no_group_counts_as_deleted_that_the_broker_goes_on_serving(alice: ServerProvider) -> None:
    group = team(alice)
    with Network() as network:
        network.treat("PUT", "/records/2", refused(BrokerError.deletedError()))
        refusal(alice.deleteGroup(group), BrokerError.integrityError, "without the tombstone")
    assert roles(alice, group) == {id_of(alice): SHARER}


def test_a_record_that_the_broker_shows_to_others_as_another_is_a_fork(
    alice: ServerProvider, fellow: ServerProvider, bob: ServerProvider
) -> None:
    """The broker confirms a record, and has served another one of the same version to the same device."""
    group = team(alice, bob)
    fellow.getGroups().result(PATIENCE)

    left = [True]

    async def other_and_confirm(go: Go) -> Octets:
        if not left:
            return await go()
        left.clear()
        renaming = fellow.renameGroup(group, "Other")
        await asyncio.get_running_loop().run_in_executor(None, renaming.result, PATIENCE)
        reading = alice.getGroupMembers(group)
        await asyncio.get_running_loop().run_in_executor(None, reading.result, PATIENCE)
        mine = records(network)[0].record.body
        return encode(RecordReceipt(version=2, hash=record_hash(mine)))

    with Network() as network:
        network.treat("PUT", "/records/2", other_and_confirm)
        refusal(alice.renameGroup(group, "New"), BrokerError.forkError)


def test_a_manager_is_warned_before_the_epochs_are_used_up(
    alice: ServerProvider, bob: ServerProvider, monkeypatch: Any, caplog: Any
) -> None:
    group = team(alice, bob)
    monkeypatch.setattr("scbroker.client.rosters.writing._LATE_EPOCH", 0)
    with caplog.at_level(logging.WARNING, "scbroker"):
        alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
    assert "replaceGroup" in caplog.text


def test_a_writer_raises_an_epoch_that_the_broker_calls_owed_only_if_it_is(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    bob = new_provider(True)
    group = accepted(team(alice, bob), bob)
    made = shared(alice, group)
    alice.getContainer(made).result(PATIENCE)

    def owe(view: ContainerView) -> ContainerView:
        state = GroupState(groupId=str(group.id), version=1, epoch=0, owed=True)
        return replace(view, groupRecipients=[state])

    with lying(owe), Network() as network:
        alice.updateContainerContent(made, b"new").result(PATIENCE)
        assert [each.roster for each in records(network)] == [None]
    bob.changeCredentials("another Pass 1", "another Phrase 2", compromised=True).result(PATIENCE)
    alice.updateContainerContent(made, b"newer").result(PATIENCE)
    found = seen(bob, group)
    assert found is not None
    assert found.epoch == 1
    assert bob.getContainerContent(made).result(PATIENCE) == b"newer"


@pytest.mark.long
def test_a_member_who_is_not_a_manager_writes_although_an_epoch_is_owed(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = accepted(team(alice, bob, carol), bob, carol)
    made = shared(alice, group)
    bob.leaveGroup(group).result(PATIENCE)
    carol.updateContainerContent(made, b"new").result(PATIENCE)
    found = seen(carol, group)
    assert found is not None
    assert found.epoch == 0
