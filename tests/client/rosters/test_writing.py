"""Records of groups on their way to the broker: several managers at once, lost answers, refusals."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    Group,
    GroupManager,
    KeyRing,
    MemberRole,
    MemoryTrustStore,
    SentChange,
    ServerProvider,
    WriteOutcome,
)
from scbroker.crypto.seal import Octets
from scbroker.records.container_record import record_hash
from scbroker.records.roster import LAST_EPOCH, parse_roster
from scbroker.wire.codec import decode, encode
from scbroker.wire.containers import RecordReceipt, RecordRequest
from tests.client.conftest import id_of, refusal
from tests.client.rosters.conftest import (
    READER,
    SHARER,
    WRITER,
    accepted,
    managers,
    roles,
    seen,
    team,
)
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, Treatment, lost, refused
from tests.kit.waiting import PATIENCE

Users = Callable[[int], list[KeyRing]]
EVERYTHING = ContainerAccessLevel.DefaultOwnerPermissions


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


def epochs(network: Network) -> list[tuple[int, bytes]]:
    """Epoch and commitment of each roster that was sent."""
    rosters = [each.roster for each in records(network) if each.roster is not None]
    found = [parse_roster(each.roster) for each in rosters]
    return [(each.epoch, each.commitment) for each in found]


def after(change: Callable[[], object]) -> Treatment:
    """The first request arrives when somebody else has made this change."""
    left = [change]

    async def treat(go: Go) -> Octets:
        if left:
            await asyncio.get_running_loop().run_in_executor(None, left.pop())
        return await go()

    return treat


def managed(alice: ServerProvider, *others: ServerProvider, **options: Any) -> Group:
    """A group that alice owns and that the others manage."""
    return accepted(
        team(alice, *others, managers=[id_of(other) for other in others], **options), *others
    )


@both_engines
def test_the_second_of_two_managers_applies_its_change_to_the_new_roster(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    dave = new_provider(True)
    group = managed(alice, bob)
    with Network() as network:
        other = after(lambda: bob.addGroupMembers(group, id_of(carol)).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        found = alice.addGroupMembers(group, MemberRole(id_of(dave), READER)).result(PATIENCE)
    assert found.version == 3
    assert roles(bob, group) == {
        id_of(alice): SHARER,
        id_of(bob): WRITER,
        id_of(carol): WRITER,
        id_of(dave): READER,
    }


@both_engines
def test_each_attempt_that_raises_the_epoch_has_a_fresh_secret(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob)
    alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    with Network() as network:
        other = after(lambda: bob.renameGroup(group, "Other").result(PATIENCE))
        network.treat("PUT", "/records/3", other)
        found = alice.removeGroupMembers(group, id_of(carol)).result(PATIENCE)
        (first, one), _, (second, other_one) = epochs(network)
    assert (first, second, found.epoch) == (1, 1, 1)
    assert one != other_one
    assert found.name == "Other"


CONFLICTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "role": (
        lambda p, g, user: p.setGroupRoles(g, MemberRole(user, READER)),
        lambda p, g, user: p.setGroupRoles(g, MemberRole(user, SHARER)),
    ),
    "removal of a changed member": (
        lambda p, g, user: p.setGroupRoles(g, MemberRole(user, READER)),
        lambda p, g, user: p.removeGroupMembers(g, user),
    ),
    "role of a removed member": (
        lambda p, g, user: p.removeGroupMembers(g, user),
        lambda p, g, user: p.setGroupRoles(g, MemberRole(user, SHARER)),
    ),
    "name": (lambda p, g, _: p.renameGroup(g, "Theirs"), lambda p, g, _: p.renameGroup(g, "Mine")),
    "description": (
        lambda p, g, _: p.renameGroup(g, description="Theirs"),
        lambda p, g, _: p.renameGroup(g, description="Mine"),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", CONFLICTS)
def test_of_two_managers_who_change_the_same_the_second_gets_a_conflict(
    what: str, alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob)
    alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    theirs, mine = CONFLICTS[what]
    with Network() as network:
        other = after(lambda: theirs(bob, group, id_of(carol)).result(PATIENCE))
        network.treat("PUT", "/records/3", other)
        with pytest.raises(BrokerError.conflictError, match="Another manager") as raised:
            mine(alice, group, id_of(carol)).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.NotStored
    found = seen(alice, group)
    assert found is not None
    assert found.version == 3


FULFILLED: dict[str, Callable[..., Any]] = {
    "addition": lambda p, g, user: p.addGroupMembers(g, user),
    "role": lambda p, g, user: p.setGroupRoles(g, MemberRole(user, SHARER)),
    "removal": lambda p, g, user: p.removeGroupMembers(g, user),
    "name": lambda p, g, _: p.renameGroup(g, "Same"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", FULFILLED)
def test_a_change_that_another_manager_made_just_so_needs_no_record(
    what: str, alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob)
    if what != "addition":
        alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    version = 2 if what == "addition" else 3
    same = FULFILLED[what]
    with Network() as network:
        other = after(lambda: same(bob, group, id_of(carol)).result(PATIENCE))
        network.treat("PUT", f"/records/{version}", other)
        assert same(alice, group, id_of(carol)).result(PATIENCE).version == version
        assert len(records(network)) == 2


def test_of_two_owners_who_set_the_managers_the_second_gets_a_conflict(
    alice: ServerProvider, fellow: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob, carol)
    own = GroupManager(id_of(alice), owner=True)
    theirs = [own, GroupManager(id_of(bob))]
    with Network() as network:
        other = after(lambda: fellow.setGroupManagers(group, theirs).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        changed = alice.setGroupManagers(group, [own, GroupManager(id_of(carol))])
        refusal(changed, BrokerError.conflictError, "Another owner")
        assert alice.setGroupManagers(group, theirs).result(PATIENCE).version == 2
    assert managers(alice, group) == {id_of(alice): True, id_of(bob): False}


@both_engines
def test_a_manager_who_is_removed_meanwhile_gets_not_found(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob)
    with Network() as network:
        other = after(lambda: alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        changed = bob.addGroupMembers(group, id_of(carol))
        error = refusal(changed, BrokerError.notFoundError, "not a member of this group")
    assert error.outcome is WriteOutcome.NotStored


def test_a_manager_who_loses_the_right_meanwhile_is_told_so(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob)
    own = [GroupManager(id_of(alice), owner=True)]
    with Network() as network:
        other = after(lambda: alice.setGroupManagers(group, own).result(PATIENCE))
        network.treat("PUT", "/records/2", other)
        changed = bob.addGroupMembers(group, id_of(carol))
        error = refusal(changed, BrokerError.permissionDeniedError, "not a manager")
    assert error.outcome is WriteOutcome.NotStored


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


@both_engines
def test_a_change_whose_answer_is_lost_is_sent_again_unchanged(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = team(alice, bob, carol)
    with Network() as network:
        network.treat("PUT", "/records/2", lost(1))
        removed = alice.removeGroupMembers(group, id_of(bob)).result(PATIENCE)
        first, second = records(network)
        assert first == second
    assert (removed.version, removed.epoch) == (2, 1)


@both_engines
def test_a_change_without_any_answer_is_uncertain_until_the_group_is_read(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, caplog: Any
) -> None:
    group = team(alice, bob)
    with Network() as network:
        network.treat("PUT", "/records/2", lost(100))
        with pytest.raises(BrokerError.unreachableError) as raised:
            alice.addGroupMembers(group, id_of(carol)).result(PATIENCE)
    assert raised.value.outcome is WriteOutcome.Uncertain
    assert raised.value.containerId == group.id
    with caplog.at_level(logging.WARNING, "scbroker"):
        changes = alice.getSentChanges(group.id).result(PATIENCE)
    assert changes == [SentChange(2, WriteOutcome.Stored)]
    assert "took effect" in caplog.text
    assert id_of(carol) in roles(alice, group)


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


def test_a_conflict_that_the_broker_invents_about_a_record_that_it_stored_is_a_success(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = team(alice, bob)

    async def store_and_deny(go: Go) -> Octets:
        await go()
        raise BrokerError.conflictError("Another record was first.")

    with Network() as network:
        network.treat("PUT", "/records/2", store_and_deny)
        renamed = alice.renameGroup(group, "New").result(PATIENCE)
        assert len(records(network)) == 1
    assert (renamed.name, renamed.version) == ("New", 2)


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
def test_a_deleted_member_is_dropped_by_the_next_change_and_reported(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    gone = new_provider(True)
    group = team(alice, bob, gone)
    gone_id = id_of(gone)
    gone.deleteUser().result(PATIENCE)
    renamed = alice.renameGroup(group, "New").result(PATIENCE)
    assert (renamed.epoch, renamed.memberCount, renamed.dropped) == (1, 2, (gone_id,))
    assert gone_id not in roles(bob, group)


@both_engines
def test_a_manager_who_has_left_keeps_a_leaf_until_an_owner_drops_both(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider
) -> None:
    group = managed(alice, bob, carol)
    bob.leaveGroup(group).result(PATIENCE)
    by_manager = carol.renameGroup(group, "New").result(PATIENCE)
    assert (by_manager.epoch, by_manager.memberCount) == (1, 2)
    assert carol.renameGroup(group, "Newer").result(PATIENCE).epoch == 1
    session = carol._session()
    chain = session.groups.verified[bytes.fromhex(group.fingerprint)]
    assert len(chain.managers) == 3
    by_owner = alice.renameGroup(group, "Newest").result(PATIENCE)
    assert (by_owner.epoch, by_owner.memberCount) == (2, 2)
    assert managers(carol, group) == {id_of(alice): True, id_of(carol): False}


def test_a_manager_who_left_comes_back_with_a_new_leaf(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    group = managed(alice, bob)
    bob.leaveGroup(group).result(PATIENCE)
    own = GroupManager(id_of(alice), owner=True)
    again = alice.setGroupManagers(group, [own, GroupManager(id_of(bob))]).result(PATIENCE)
    assert (again.epoch, again.memberCount) == (1, 2)
    accepted(group, bob)
    assert bob.renameGroup(group, "New").result(PATIENCE).version == 3


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
    levels = [AccessLevel(id_of(alice), EVERYTHING), AccessLevel(group, EVERYTHING)]
    alice.createContainer(b"ours", accessLevels=levels).result(PATIENCE)
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
