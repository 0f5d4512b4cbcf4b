"""One signature for many records: what a broker, a member or an author makes of it.

Attacks 123 and 124 of attacks.toml. The tree is hashed here by labels that stand here, so that a change of
the program's own does not go unnoticed.
"""

from typing import Final

import pytest

from scbroker import BrokerError, Container, NewContainer, SecuredContainer
from scbroker.crypto.seal import SigningKey
from scbroker.crypto.verify import labelled_hash
from scbroker.errors import IntegrityError
from scbroker.records import batch
from scbroker.records.batch import BatchSignature
from scbroker.records.canonical import VERSION, decode_object, encode_object, encode_value
from scbroker.records.container_record import LABEL, record_hash
from scbroker.records.departure import LABEL as DEPARTURE
from scbroker.wire.containers import RecordRequest, RecordsAnswer, RecordsRequest
from tests.hostile_broker.accomplices import Mallory
from tests.kit.waiting import PATIENCE
from tests.kit.writers import Story, User, signed_together, with_signature

KEY: Final = SigningKey.generate()


def leaf(salt: bytes, digest: bytes) -> bytes:
    return labelled_hash("batch-leaf", salt, digest)


def node(left: bytes, right: bytes) -> bytes:
    return labelled_hash("batch-node", left, right)


def signature_of(size: int, root: bytes, label: str = "batch") -> bytes:
    return KEY.sign(label, VERSION + encode_value([size, root]))


def read(signature: bytes) -> BatchSignature:
    return decode_object(BatchSignature, signature, batch.MAX_SIGNATURE)


def rest(proof: BatchSignature) -> tuple[bytes, int, int, bytes]:
    """Everything but the signature itself."""
    return proof.salt, proof.size, proof.index, proof.path


def refused(digest: bytes, proof: BatchSignature) -> None:
    with pytest.raises(IntegrityError):
        batch.verify(KEY.public, digest, encode_object(proof))


def some(count: int) -> tuple[list[bytes], list[BatchSignature]]:
    """Hashes of records, and their signatures as one batch of an honest author."""
    digests = [bytes([n]) * 32 for n in range(count)]
    salts = [bytes([128 + n]) * 32 for n in range(count)]
    signed = batch.sign_each(KEY.sign, digests, salts)
    for digest, each in zip(digests, signed, strict=True):
        batch.verify(KEY.public, digest, each)
    return digests, [decode_object(BatchSignature, each, batch.MAX_SIGNATURE) for each in signed]


def begun(alice: User) -> tuple[list[Story], list[RecordRequest]]:
    stories = [Story(alice) for _ in range(3)]
    return stories, signed_together(alice, [story.begin(content=b"it") for story in stories])


def test_a_broker_stores_no_record_by_the_signature_of_another_one_of_its_batch(
    mallory: Mallory, alice: User
) -> None:
    stories, requests = begun(alice)
    one, two, three = (request.record.signature for request in requests)
    moved = [with_signature(requests[0], two), with_signature(requests[1], one)]
    assert _codes(alice, [*moved, with_signature(requests[2], three)]) == [
        "rejected",
        "rejected",
        None,
    ]
    assert _codes(alice, requests) == [None] * 3
    found = mallory.device_of(alice).getContainers([each.uuid for each in stories]).result(PATIENCE)
    assert all(isinstance(each, Container) for each in found)


def test_an_inner_node_of_the_tree_is_not_taken_for_a_record() -> None:
    """Two leaves of four are a salt and the hash of a record, in a batch of two."""
    _, proofs = some(4)
    first, second = proofs[1].path[:32], proofs[0].path[:32]
    refused(second, BatchSignature(proofs[0].signature, first, 2, 0, proofs[0].path[32:]))


def test_a_record_has_one_position_in_its_batch() -> None:
    digests, proofs = some(8)
    for index in {*range(9), 2**53 - 1} - {2}:
        refused(
            digests[2],
            BatchSignature(proofs[2].signature, proofs[2].salt, 8, index, proofs[2].path),
        )


def test_a_record_has_no_position_beyond_its_batch() -> None:
    """Only the lower bits of an index say on which side the hashes stand."""
    digests, [_, last] = some(2)
    for index in (2, 3, 5, 7, 2**52 + 1):
        refused(digests[1], BatchSignature(last.signature, last.salt, 2, index, last.path))


def test_a_batch_has_one_size() -> None:
    """Paths of the same form: of the third record of seven and of eight."""
    digests, proofs = some(7)
    proof = proofs[2]
    for size in {2, 5, 6, 8, 64}:
        refused(digests[2], BatchSignature(proof.signature, proof.salt, size, 2, proof.path))


def test_an_author_cannot_sign_a_path_that_is_too_short() -> None:
    """Otherwise one reader could accept what another one refuses."""
    salt, other, digest = bytes(32), bytes([1]) * 32, bytes([2]) * 32
    signed = signature_of(4, node(leaf(salt, digest), other))
    refused(digest, BatchSignature(signed, salt, 4, 0, other))


def test_an_author_cannot_sign_a_path_that_is_too_long() -> None:
    salt, other, digest = bytes(32), bytes([1]) * 32, bytes([2]) * 32
    signed = signature_of(2, node(other, node(leaf(salt, digest), other)))
    refused(digest, BatchSignature(signed, salt, 2, 0, other * 2))


@pytest.mark.parametrize("label", [LABEL, DEPARTURE, "order", "session"])
def test_nothing_that_is_signed_for_another_use_is_a_batch(label: str) -> None:
    salt, other, digest = bytes(32), bytes([1]) * 32, bytes([2]) * 32
    root = node(leaf(salt, digest), other)
    refused(digest, BatchSignature(signature_of(2, root, label), salt, 2, 0, other))


def test_a_batch_that_verified_lets_no_other_signature_of_it_through(
    mallory: Mallory, alice: User
) -> None:
    """A record that a broker stored with it could be read by nobody who did not see the others first."""
    stories, requests = begun(alice)
    proof = read(requests[1].record.signature)
    spoilt = BatchSignature(bytes(len(proof.signature)), *rest(proof))
    forged = with_signature(requests[1], encode_object(spoilt))
    assert _codes(alice, [requests[0], forged, requests[2]]) == [None, "rejected", None]
    mallory.plant(stories[1], forged)
    device = mallory.device_of(alice)
    found = device.getContainers([each.uuid for each in stories]).result(PATIENCE)
    assert [isinstance(each, Container) for each in found] == [True, False, True]
    assert isinstance(found[1], BrokerError.integrityError)


def test_a_batch_that_verified_for_one_key_does_not_verify_for_another(
    alice: User, bob: User
) -> None:
    requests = signed_together(alice, [Story(alice).begin(), Story(alice).begin()])
    body, signature = requests[0].record.body, requests[0].record.signature
    batch.verify(alice.ring.signing[0].public, record_hash(body), signature)
    with pytest.raises(IntegrityError):
        batch.verify(bob.ring.signing[0].public, record_hash(body), signature)


def test_a_path_tells_nothing_about_a_record_that_a_reader_can_guess(
    mallory: Mallory, alice: User
) -> None:
    """The hash in the path is not that of the guess, under any salt that the reader has."""
    device = mallory.device_of(alice)
    made = device.createContainers([NewContainer(b"1"), NewContainer(b"2")]).result(PATIENCE)
    first, second = (each for each in made if isinstance(each, SecuredContainer))
    guess, proof = record_hash(second.record), read(first.signature)
    assert proof.path == leaf(read(second.signature).salt, guess)
    guesses = [guess, *(leaf(salt, guess) for salt in (b"", bytes(32), proof.salt))]
    assert proof.path not in guesses


def _codes(user: User, requests: list[RecordRequest]) -> list[str | None]:
    answer = user.wire.call("POST", "/v1/batches/records", RecordsRequest(records=requests))
    outcomes = answer.expect(200).message(RecordsAnswer).records
    return [item.problem.code if item.problem else None for item in outcomes]
