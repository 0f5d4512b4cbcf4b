"""One signature for many records: docs/spec/ids.md, section 2.7. The vectors have what is refused."""

import hashlib

import pytest

from scbroker.errors import IntegrityError
from scbroker.records import batch
from scbroker.records.batch import BatchSignature
from scbroker.records.canonical import decode_object, encode_object
from tests.independent import batches as other
from tests.kit.cases import in_one_case
from tests.kit.crypto import SIGNATURE_SIZE, SigningKey, VerifyingKey, random_bytes

KEY = SigningKey.generate()


def together(count: int) -> tuple[list[bytes], list[bytes]]:
    """Hashes of records, and the signature of each."""
    digests = [hashlib.sha256(bytes([n])).digest() for n in range(count)]
    return digests, batch.sign_each(KEY.sign, digests, [random_bytes(32) for _ in digests])


@pytest.mark.sampled
@in_one_case("count", [*range(2, 19), 31, 32, 33, 63, 64])
def test_each_record_of_a_batch_verifies_alone_and_by_the_second_implementation(count: int) -> None:
    digests, signatures = together(count)
    for digest, signature in zip(digests, signatures, strict=True):
        batch.verify(KEY.public, digest, signature)
        other.check(KEY.public, digest, signature)


@pytest.mark.parametrize("count", [0, 1, 65])
def test_no_batch_of_another_size_is_signed(count: int) -> None:
    with pytest.raises(ValueError, match="2 to 64 records"):
        together(count)


def test_a_batch_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = list[str]()
    honest = VerifyingKey.verify

    def verify(self: VerifyingKey, name: str, signed: bytes, signature: bytes) -> None:
        verified.append(name)
        honest(self, name, signed, signature)

    monkeypatch.setattr(VerifyingKey, "verify", verify)
    digests, signatures = together(64)
    for digest, signature in zip(digests, signatures, strict=True):
        batch.verify(KEY.public, digest, signature)
    assert verified == ["batch"]


def test_a_batch_that_was_refused_is_verified_again() -> None:
    digests, signatures = together(2)
    made = decode_object(BatchSignature, signatures[0], batch.MAX_SIGNATURE)
    spoilt = bytes(SIGNATURE_SIZE)
    forged = BatchSignature(spoilt, made.salt, made.size, made.index, made.path)
    for _ in range(2):
        with pytest.raises(IntegrityError):
            batch.verify(KEY.public, digests[0], encode_object(forged))
    batch.verify(KEY.public, digests[0], signatures[0])
