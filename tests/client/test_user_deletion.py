"""The end of a user over a real broker: what goes, what others keep, and what is said afterwards."""

import uuid

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    KeyType,
    NewContainer,
    ServerProvider,
)
from tests.client.conftest import drop, id_of, refusal
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network, lost
from tests.kit.owners import change, ring_of, shared_by
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

READER = ContainerAccessLevel.DefaultUserPermissions


def left_of(broker: BrokerProcess, container: uuid.UUID) -> int:
    """Rows that the broker keeps of a container."""
    statement = "SELECT count(*) FROM records WHERE container_id = ?"
    ((count,),) = query(broker.database_url, statement, container.bytes)
    return int(count)


@pytest.mark.long
@both_engines
def test_a_deleted_users_own_containers_go_and_those_that_are_shared_can_be_changed_by_the_others(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, broker: BrokerProcess
) -> None:
    members = shared_by(alice, bob)
    own = alice.createContainer(b"own" * 30_000, {"h": 1}).result(PATIENCE).id
    once = alice.createContainer(b"once", accessLevels=members).result(PATIENCE).id
    alice.updateContainerAccessLevels(once).result(PATIENCE)
    hers = alice.createContainer(b"x" * 70_000, {"h": 1}, accessLevels=members).result(PATIENCE).id
    his = bob.createContainer(b"his", accessLevels=members).result(PATIENCE).id
    user = id_of(alice)
    alice.deleteUser().result(PATIENCE)
    for gone in (own, once):
        assert left_of(broker, gone) == 0
        refusal(bob.getContainer(gone), BrokerError.notFoundError)
    for container, content in ((hers, b"x" * 70_000), (his, b"his")):
        assert bob.getContainerContent(container).result(PATIENCE) == content
        bob.updateContainerHeader(container, {"h": 2}).result(PATIENCE)
        bob.updateContainerContent(container, b"new").result(PATIENCE)
        bob.updateContainerType(container, "t").result(PATIENCE)
        kept = [*members, AccessLevel(id_of(carol), READER)]
        bob.updateContainerAccessLevels(container, kept).result(PATIENCE)
        assert carol.getContainerContent(container).result(PATIENCE) == b"new"
        bob.updateContainerAccessLevels(container, [*members[1:], *kept[2:]]).result(PATIENCE)
        found = carol.getContainer(container).result(PATIENCE)
        assert user not in {level.userId for level in found.access or ()}
        bob.deleteContainer(container).result(PATIENCE)


needed_or_not = pytest.mark.parametrize("needed", [True, False], ids=["needed", "not needed"])


@pytest.mark.sampled
@needed_or_not
def test_nobody_can_begin_to_share_with_a_user_who_was_deleted(
    alice: ServerProvider, bob: ServerProvider, needed: bool
) -> None:
    """Said so at once, whether the broker still has their keys; nothing is sent, not even of a large one."""
    user, members = id_of(alice), shared_by(alice, bob)
    alice.createContainer(b"x", accessLevels=members if needed else []).result(PATIENCE)
    own = bob.createContainer(b"own").result(PATIENCE).id
    alice.deleteUser().result(PATIENCE)
    levels = [AccessLevel(id_of(bob)), AccessLevel(user)]
    said = f"User {user} was deleted: remove the user from accessLevels."
    with Network() as network:
        for act in (
            lambda: bob.createContainer(b"", accessLevels=levels),
            lambda: bob.createContainer(b"x" * 200_000, accessLevels=levels),
            lambda: bob.updateContainerAccessLevels(own, levels),
            lambda: bob.updateContainer(
                own, content=b"x" * 200_000, customHeaderObject=None, accessLevels=levels, type=None
            ),
        ):
            with pytest.raises(BrokerError.notFoundError) as caught:
                act().result(PATIENCE)
            assert str(caught.value) == said
        assert network.those("PUT", "/") == []
    [outcome] = bob.createContainers([NewContainer(b"x", accessLevels=levels)]).result(PATIENCE)
    assert isinstance(outcome, BrokerError.notFoundError)
    assert str(outcome) == said


@pytest.mark.sampled
@needed_or_not
@pytest.mark.parametrize("rotated", [False, True], ids=["", "rotated"])
def test_a_deleted_user_has_no_active_key_for_devices_that_know_them_and_for_fresh_ones(
    alice: ServerProvider,
    bob: ServerProvider,
    new_provider: NewProvider,
    needed: bool,
    rotated: bool,
) -> None:
    """Keys that are still needed are shown as retired; where none is, there are none to be had."""
    if rotated:
        change(alice, compromised=True).result(PATIENCE)
    user, members = id_of(alice), shared_by(alice, bob)
    alice.createContainer(b"x", accessLevels=members if needed else []).result(PATIENCE)
    before = bob.getPublicKeys(user).result(PATIENCE)
    alice.deleteUser().result(PATIENCE)
    for device in (bob, new_provider(ring_of(bob)), new_provider()):
        if "unauthenticated" in repr(device):
            device.register("a Password 1", "a Passphrase 1").result(PATIENCE)
        found = device.getPublicKeys(user).result(PATIENCE)
        assert [key.key for key in found] == ([key.key for key in before] if needed else [])
        assert not any(key.active for key in found)
        assert all(key.retiredAt is not None for key in found)
        for kind in KeyType:
            assert device.getLatestActiveSigningKey(user, kind).result(PATIENCE) is None
            assert len(device.getPublicKeys(user, kind).result(PATIENCE)) == len(found) // 2


@pytest.mark.long
@both_engines
def test_what_a_deleted_user_wrote_in_the_containers_of_others_is_read_and_verified(
    alice: ServerProvider, bob: ServerProvider, carol: ServerProvider, new_provider: NewProvider
) -> None:
    members = [*shared_by(alice, bob), AccessLevel(id_of(carol), READER)]
    begun = alice.createContainer(b"1", {"h": 1}, accessLevels=members).result(PATIENCE).id
    joined = bob.createContainer(b"1", accessLevels=members).result(PATIENCE).id
    bob.getContainer(begun).result(PATIENCE)
    change(alice, compromised=True).result(PATIENCE)
    for container in (begun, joined):
        alice.updateContainerContent(container, b"x" * 70_000).result(PATIENCE)
    user, fresh = id_of(alice), new_provider(ring_of(bob))
    alice.deleteUser().result(PATIENCE)
    for device in (bob, fresh, carol, new_provider(ring_of(carol))):
        for container in (begun, joined):
            found = device.getContainer(container).result(PATIENCE)
            assert (found.content, found.modifiedBy) == (b"x" * 70_000, user)
            assert device.getSecuredContainer(container).result(PATIENCE).modifiedBy == user
        for each in device.getContainers([begun, joined]).result(PATIENCE):
            assert not isinstance(each, BrokerError)
            assert each.content == b"x" * 70_000


@pytest.mark.sampled
@needed_or_not
def test_members_keep_or_drop_the_entry_of_a_deleted_user_and_it_gets_no_wrap(
    alice: ServerProvider,
    bob: ServerProvider,
    carol: ServerProvider,
    new_provider: NewProvider,
    broker: BrokerProcess,
    needed: bool,
) -> None:
    """Also where the broker has neither keys nor fingerprint of theirs: both stand in the signed list."""
    members = shared_by(alice, bob)
    creator = alice if needed else bob
    made = creator.createContainer(b"1", accessLevels=members).result(PATIENCE).id
    user = id_of(alice)
    alice.deleteUser().result(PATIENCE)
    rows = query(broker.database_url, "SELECT fingerprint FROM users WHERE id = ?", user.bytes)
    assert (rows != [(None,)]) == needed
    device = new_provider(ring_of(bob))
    kept = [*members, AccessLevel(id_of(carol), READER)]
    for writer, levels in ((bob, kept), (device, members), (bob, kept)):
        writer.updateContainerAccessLevels(made, levels).result(PATIENCE)
        found = writer.getContainerMetadata(made).result(PATIENCE)
        assert {level.userId for level in found.access or ()} == {lv.userId for lv in levels}
    bob.updateContainer(
        made, content=b"x" * 70_000, customHeaderObject=None, accessLevels=kept, type="t"
    ).result(PATIENCE)
    assert carol.getContainerContent(made).result(PATIENCE) == b"x" * 70_000
    device.updateContainerAccessLevels(made, [members[1], kept[2]]).result(PATIENCE)
    found = new_provider(ring_of(carol)).getContainer(made).result(PATIENCE)
    assert found.content == b"x" * 70_000
    refusal(bob.updateContainerAccessLevels(made, kept), BrokerError.notFoundError, "was deleted")


def test_a_deletion_that_was_never_answered_is_found_done_when_it_is_asked_for_again(
    alice: ServerProvider,
) -> None:
    """The session stays where the call failed; another order for what is done changes nothing."""
    with Network() as network:
        network.treat("POST", "/deletion", lost(100))
        refusal(alice.deleteUser(), BrokerError.unreachableError)
    assert id_of(alice)
    alice.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(alice.getUserId())
