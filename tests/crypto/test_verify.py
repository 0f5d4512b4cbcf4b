"""Hashes, labels, signatures: docs/spec/ids.md, 1.4, 2.1, 2.2."""

import hashlib
import hmac
import itertools
import re
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from hypothesis import given, settings
from hypothesis import strategies as st

from scbroker.crypto import verify
from scbroker.crypto.seal import SigningKey
from scbroker.crypto.verify import (
    VerifyingKey,
    check_encryption_key,
    equal,
    keyed_hash,
    label,
    labelled_hash,
    sha256,
)
from scbroker.errors import IntegrityError
from tests.vectors.cast import decryption_key, signing_key

ROOT = Path(__file__).parents[2]
ALICE = signing_key("alice")
KEY = VerifyingKey(ALICE.public)
MESSAGE = b"what was signed"
SIGNATURE = ALICE.sign("key-record", MESSAGE)


@given(st.lists(st.binary(max_size=40)))
def test_a_labelled_hash_is_sha256_of_label_and_parts(parts: list[bytes]) -> None:
    expected = hashlib.sha256(b"scbroker/1/type\0" + b"".join(parts)).digest()
    assert labelled_hash("type", *parts) == expected
    assert labelled_hash("type", memoryview(b"".join(parts))) == expected


@given(st.binary(), st.binary())
def test_a_keyed_hash_is_hmac_of_label_and_parts(key: bytes, message: bytes) -> None:
    expected = hmac.new(key, b"scbroker/1/nonce\0" + message, hashlib.sha256).digest()
    assert keyed_hash(key, "nonce", message[:3], message[3:]) == expected


@given(st.binary(), st.binary())
def test_equal_is_equality(left: bytes, right: bytes) -> None:
    assert equal(left, right) == (left == right)
    assert equal(left, bytes(left))


def test_sha256_is_the_plain_one() -> None:
    assert sha256(b"abc").hex() == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_no_label_of_the_specification_or_the_code_is_a_prefix_of_another() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs/spec").glob("*.md"))
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r'(?:[LH]|HMAC)\("([a-z-]+)"', text))
    names |= set(re.findall(r'label(?:led_hash)?\(\s*"([a-z-]+)"', code))
    labels = sorted(label(name) for name in names)
    assert len(labels) > 20
    assert not any(two.startswith(one) for one, two in itertools.pairwise(labels))


def test_a_label_has_to_be_ascii() -> None:
    with pytest.raises(UnicodeEncodeError):
        label("schlüssel")


def refused(signature: bytes, message: bytes = MESSAGE, name: str = "key-record") -> str:
    with pytest.raises(IntegrityError) as caught:
        KEY.verify(name, message, signature)
    assert caught.type is IntegrityError
    return str(caught.value)


def test_a_signature_holds_for_its_label_message_and_key_alone() -> None:
    KEY.verify("key-record", MESSAGE, SIGNATURE)
    refused(SIGNATURE, name="session")
    refused(SIGNATURE, MESSAGE + b"\0")
    refused(SIGNATURE, MESSAGE[:-1])
    with pytest.raises(IntegrityError):
        VerifyingKey(signing_key("bob").public).verify("key-record", MESSAGE, SIGNATURE)


def test_both_halves_have_to_hold_and_every_failure_reads_alike() -> None:
    other = signing_key("bob").sign("key-record", MESSAGE)
    answers = {
        refused(other[:64] + SIGNATURE[64:]), refused(SIGNATURE[:64] + other[64:]), refused(other),
        refused(b""), refused(SIGNATURE[:64]), refused(SIGNATURE[64:]), refused(SIGNATURE + b"\0"),
        refused(bytes(3373)),
    }  # fmt: skip
    assert len(answers) == 1


def test_a_signature_with_s_beyond_the_group_order_is_refused() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(SIGNATURE[32:64], "little") + order
    refused(SIGNATURE[:32] + s.to_bytes(32, "little") + SIGNATURE[64:])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3400))
def test_any_bytes_as_a_signature_raise_nothing_else(signature: bytes) -> None:
    refused(signature)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.binary(min_size=1984, max_size=1984),
                 st.binary(min_size=32, max_size=32).map(lambda half: half + ALICE.public[32:])))  # fmt: skip
def test_any_bytes_as_a_signing_key_load_or_raise_nothing_else(raw: bytes) -> None:
    try:
        key = VerifyingKey(raw)
    except IntegrityError:
        return
    assert key.raw == raw
    with pytest.raises(IntegrityError):
        key.verify("key-record", MESSAGE, SIGNATURE)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.binary(min_size=1216, max_size=1216)))
def test_any_bytes_as_an_encryption_key_raise_nothing_else(raw: bytes) -> None:
    try:
        check_encryption_key(raw)
    except IntegrityError:
        return
    assert len(raw) == 1216


def test_an_ed25519_key_off_the_curve_verifies_nothing() -> None:
    """y = 2 is no point: whether the library loads it or not, nothing verifies."""
    raw = (2).to_bytes(32, "little") + ALICE.public[32:]
    with pytest.raises(IntegrityError):
        VerifyingKey(raw).verify("key-record", MESSAGE, SIGNATURE)


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


@settings(max_examples=20, deadline=None)
@given(st.binary(), st.binary())
def test_what_was_signed_verifies(one: bytes, two: bytes) -> None:
    key = SigningKey(sha256(one), sha256(two))
    VerifyingKey(key.public).verify("session", one, key.sign("session", one))
