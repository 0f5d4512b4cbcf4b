"""The end of a user over a real broker: what goes, what others keep, and what is said afterwards."""

from __future__ import annotations

import uuid

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    ServerProvider,
)
from tests.brokers import BrokerProcess, Wire
from tests.client.conftest import PASSPHRASE, drop, id_of
from tests.client.engines import both_engines
from tests.client.impatience import be_impatient
from tests.client.network import Network, lost
from tests.client.owners import (
    PATIENCE,
    change,
    ring_of,
    shared_by,
)
from tests.conftest import NewProvider
from tests.server.tables import query

READER = ContainerAccessLevel.DefaultUserPermissions


def test_after_a_rotation_another_devices_deletion_of_the_user_is_told_to_log_in_again(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    """It needs no session, and so meets the refused signature itself."""
    other = new_provider(ring_of(alice))
    change(alice, compromised=True).result(PATIENCE)
    with pytest.raises(BrokerError, match="Log in again") as caught:
        other.deleteUser().result(PATIENCE)
    assert caught.type is BrokerError.notAuthenticatedError


def left_of(broker: BrokerProcess, container: uuid.UUID) -> int:
    """Rows that the broker keeps of a container."""
    statement = "SELECT count(*) FROM records WHERE container_id = ?"
    ((count,),) = query(broker.database_url, statement, container.bytes)
    return int(count)


def test_a_user_who_was_deleted_is_logged_out_everywhere_and_never_logs_in_again(
    alice: ServerProvider, new_provider: NewProvider, broker: BrokerProcess
) -> None:
    ring = ring_of(alice)
    other = new_provider(ring)
    alice.deleteUser().result(PATIENCE)
    for provider, words in ((alice, "no authenticated session"), (other, "Log in again")):
        with pytest.raises(BrokerError.notAuthenticatedError, match=words):
            provider.getEvents().result(PATIENCE)
    assert "unauthenticated" in repr(alice)
    with pytest.raises(BrokerError.credentialsError):
        alice.logIn(ring.userId, passphrase=PASSPHRASE).result(PATIENCE)
    with pytest.raises(BrokerError.credentialsError):
        alice.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
    assert alice.getReminder(ring.userId).result(PATIENCE) == ""
    with Wire(broker) as wire:
        wire.register(ring).expect(409, "exists")


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
        with pytest.raises(BrokerError.notFoundError):
            bob.getContainer(gone).result(PATIENCE)
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


def test_nobody_can_begin_to_share_with_a_user_who_was_deleted(
    alice: ServerProvider, bob: ServerProvider
) -> None:
    user = id_of(alice)
    alice.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.notFoundError, match=str(user)):
        bob.createContainer(b"", accessLevels=[AccessLevel(user)]).result(PATIENCE)


def test_a_deletion_that_fails_leaves_the_session_as_it_was(
    fresh_broker: BrokerProcess, new_provider: NewProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    alice = new_provider(fresh_broker.new_user(), at=fresh_broker)
    ring, made = ring_of(alice), alice.createContainer(b"x").result(PATIENCE)
    fresh_broker.stop()
    with pytest.raises(BrokerError.unreachableError):
        alice.deleteUser().result(PATIENCE)
    assert ring_of(alice) is ring
    fresh_broker.start()
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"x"
    alice.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(alice.getKeyRing())


def test_a_deletion_of_a_user_whose_answer_is_lost_is_done_all_the_same(
    alice: ServerProvider, new_provider: NewProvider
) -> None:
    ring = ring_of(alice)
    with Network() as network:
        network.treat("POST", f"{ring.userId}/deletion", lost(3))
        alice.deleteUser().result(PATIENCE)
    assert len(network.those("POST", "/deletion")) == 4
    assert len({each.body for each in network.those("POST", "/deletion")}) == 1
    with pytest.raises(BrokerError.credentialsError):
        new_provider(ring)


def test_a_deletion_that_was_never_answered_is_found_done_when_it_is_asked_for_again(
    alice: ServerProvider,
) -> None:
    """The session stays where the call failed; another order for what is done changes nothing."""
    with Network() as network:
        network.treat("POST", "/deletion", lost(100))
        with pytest.raises(BrokerError.unreachableError):
            alice.deleteUser().result(PATIENCE)
    assert id_of(alice)
    alice.deleteUser().result(PATIENCE)
    with pytest.raises(BrokerError.notAuthenticatedError):
        drop(alice.getUserId())
