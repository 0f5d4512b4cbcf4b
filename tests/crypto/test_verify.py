"""Hashes, labels, signatures: docs/spec/ids.md, 1.4, 2.1, 2.2."""

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from scbroker.crypto import verify
from scbroker.crypto.verify import VerifyingKey, check_encryption_key
from scbroker.errors import IntegrityError
from tests.vectors.cast import decryption_key, signing_key

ALICE = signing_key("alice")
KEY = VerifyingKey(ALICE.public)
MESSAGE = b"what was signed"
SIGNATURE = ALICE.sign("key-record", MESSAGE)


def refused(signature: bytes, message: bytes = MESSAGE, name: str = "key-record") -> str:
    with pytest.raises(IntegrityError) as caught:
        KEY.verify(name, message, signature)
    assert caught.type is IntegrityError
    return str(caught.value)


def test_both_halves_have_to_hold_and_every_failure_reads_alike() -> None:
    other = signing_key("bob").sign("key-record", MESSAGE)
    answers = {
        refused(other[:64] + SIGNATURE[64:]), refused(SIGNATURE[:64] + other[64:]), refused(other),
        refused(b""), refused(SIGNATURE[:64]), refused(SIGNATURE[64:]), refused(SIGNATURE + b"\0"),
        refused(bytes(3373)),
    }  # fmt: skip
    assert len(answers) == 1


class _Missing:
    """A library that was built without an algorithm."""

    @staticmethod
    def from_public_bytes(raw: bytes) -> None:
        raise UnsupportedAlgorithm(f"{len(raw)} bytes")


def test_a_library_without_algorithms_refuses_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MLDSA65PublicKey", _Missing)
    monkeypatch.setattr(verify, "MLKEM768PublicKey", _Missing)
    with pytest.raises(IntegrityError):
        VerifyingKey(ALICE.public)
    with pytest.raises(IntegrityError):
        check_encryption_key(decryption_key("alice").public)
