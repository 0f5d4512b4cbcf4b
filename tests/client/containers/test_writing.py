"""Writing against odds: rubbish in place of keys, stale keys, somebody who was faster, many members."""

import os
import uuid

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, ContainerAccessLevel, ServerProvider
from scbroker.client.core import sealing
from scbroker.crypto.verify import WRAP_SIZE
from scbroker.errors import ConflictError, StaleKeysError
from scbroker.wire.containers import RecordReceipt
from tests.client.conftest import id_of, refusal
from tests.kit.network import Network, lying, refused
from tests.kit.waiting import PATIENCE

OWNER = ContainerAccessLevel.DefaultOwnerPermissions


def shared(alice: ServerProvider, *others: ServerProvider) -> list[AccessLevel]:
    return [AccessLevel(id_of(user), OWNER) for user in (alice, *others)]


@pytest.fixture
def spoiled(
    alice: ServerProvider, bob: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> uuid.UUID:
    """A container of alice's, of which bob wrapped rubbish to everybody."""
    made = alice.createContainer(b"hers", {"n": 1}, accessLevels=shared(alice, bob))
    container_id = made.result(PATIENCE).id
    with monkeypatch.context() as patched:
        patched.setattr(sealing, "wrap_key", lambda *_: os.urandom(WRAP_SIZE))
        bob.updateContainerAccessLevels(container_id, shared(alice, bob)).result(PATIENCE)
    return container_id


def test_a_reader_whose_wrap_is_invalid_gets_an_untrusted_error(
    alice: ServerProvider, spoiled: uuid.UUID
) -> None:
    refusal(alice.getContainerContent(spoiled), BrokerError.untrustedError)


def test_a_writer_whose_wrap_is_invalid_cannot_carry_parts_over(
    alice: ServerProvider, spoiled: uuid.UUID
) -> None:
    with pytest.raises(BrokerError.decryptionError, match="replace it with updateContainer"):
        alice.updateContainerAccessLevels(spoiled).result(PATIENCE)
    with pytest.raises(BrokerError.decryptionError, match="nothing can be sealed"):
        alice.updateContainerContent(spoiled, b"new").result(PATIENCE)


def test_a_writer_whose_wrap_is_invalid_can_remove_its_author_and_replace_everything(
    alice: ServerProvider, bob: ServerProvider, spoiled: uuid.UUID
) -> None:
    alice.updateContainer(
        spoiled, content=b"new", customHeaderObject=None, accessLevels=None, type=None
    ).result(PATIENCE)
    assert alice.getContainerContent(spoiled).result(PATIENCE) == b"new"
    refusal(bob.getContainer(spoiled), BrokerError.notFoundError)


def test_a_creation_and_a_change_of_access_are_retried_with_newer_keys(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    for number in (1, 2):
        network.treat("PUT", f"/records/{number}", refused(StaleKeysError(), 1))
    made = alice.createContainer(b"x", accessLevels=shared(alice, bob)).result(PATIENCE)
    alice.updateContainerAccessLevels(made.id).result(PATIENCE)
    assert alice.getContainerMetadata(made.id).result(PATIENCE).version == 2
    assert len(network.those("PUT", "/records/1") + network.those("PUT", "/records/2")) == 4


def test_keys_that_are_stale_every_time_are_an_error_and_change_nothing(
    alice: ServerProvider, bob: ServerProvider, network: Network
) -> None:
    made = alice.createContainer(b"x").result(PATIENCE)
    for number in (1, 2):
        network.treat("PUT", f"/records/{number}", refused(StaleKeysError()))
    creation = alice.createContainer(b"x", accessLevels=shared(alice, bob))
    refusal(creation, BrokerError.staleKeysError)
    changed = alice.updateContainerAccessLevels(made.id, shared(alice, bob))
    refusal(changed, BrokerError.staleKeysError)
    assert alice.getContainerMetadata(made.id).result(PATIENCE).version == 1


def test_a_change_that_another_member_overtakes_each_time_is_a_conflict_after_four_attempts(
    alice: ServerProvider, network: Network
) -> None:
    made = alice.createContainer(b"x").result(PATIENCE)
    network.treat("PUT", "/records/2", refused(ConflictError()))
    refusal(alice.updateContainerContent(made.id, b"y"), BrokerError.conflictError)
    assert len(network.those("PUT", "/records/2")) == 4


def test_a_receipt_for_another_record_is_refused(alice: ServerProvider) -> None:
    with lying(lambda receipt: replace(receipt, version=2), (RecordReceipt,)):
        refusal(alice.createContainer(b"x"), BrokerError.integrityError, "receipt")
