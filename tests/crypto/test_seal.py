"""Sealing, wrapping, deriving: what opens, and that nothing else does."""

import copy
import hmac
import os
import pickle
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scbroker.crypto import seal as module
from scbroker.crypto.seal import (
    MAX_SECRET_SIZE,
    DecryptionKey,
    SigningKey,
    pad_secret,
    seal,
    stretch,
    unpad_secret,
    unseal,
    wrap_key,
)
from scbroker.errors import DecryptionError, IntegrityError
from tests.vectors.cast import chosen, decryption_key, signing_key

KEY, CONTEXT = chosen("seal key"), b"context"
INFO = b"what a wrap is bound to"


def not_opened(key: bytes, context: bytes, sealed: bytes) -> None:
    with pytest.raises(DecryptionError) as caught:
        unseal(key, context, sealed)
    assert caught.type is DecryptionError


@pytest.mark.parametrize("plaintext", [b"", b"short", bytes(20_000)], ids=len)
def test_a_message_with_any_byte_changed_missing_or_added_does_not_open(plaintext: bytes) -> None:
    sealed = seal(KEY, CONTEXT, plaintext)
    step = max(1, len(sealed) // 3000)
    for n in [*range(0, len(sealed), step), *range(len(sealed) - 40, len(sealed))]:
        not_opened(KEY, CONTEXT, sealed[:n] + bytes([sealed[n] ^ 1 << n % 8]) + sealed[n + 1 :])
        not_opened(KEY, CONTEXT, sealed[:n])
    for n in range(256):
        not_opened(KEY, CONTEXT, sealed + bytes([n]))


def test_chunks_of_a_message_cannot_be_exchanged_dropped_or_repeated() -> None:
    plaintext = bytes(16_384) + b"\1" * 16_384 + b"end"
    sealed = seal(KEY, CONTEXT, plaintext)
    size = 16_384 + 16
    head, chunks = sealed[:56], [sealed[56:][n * size : (n + 1) * size] for n in range(3)]
    assert head + b"".join(chunks) == sealed
    for order in ([1, 0, 2], [0, 2], [1, 2], [0, 1], [0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2], [2]):
        not_opened(KEY, CONTEXT, head + b"".join(chunks[n] for n in order))
    other = seal(KEY, CONTEXT, plaintext)
    not_opened(KEY, CONTEXT, other[:56] + sealed[56:])
    not_opened(KEY, CONTEXT, sealed[: 56 + size] + other[56 + size :])


WRAPPED_KEY = chosen("wrapped")
WRAP = wrap_key(decryption_key("alice").public, INFO, WRAPPED_KEY)


def not_unwrapped(wrap: bytes, info: bytes = INFO, name: str = "alice") -> None:
    with pytest.raises(DecryptionError) as caught:
        decryption_key(name).unwrap(wrap, info)
    assert caught.type is DecryptionError


def test_a_wrap_with_any_byte_changed_missing_or_added_does_not_open() -> None:
    for n in range(len(WRAP)):
        not_unwrapped(WRAP[:n] + bytes([WRAP[n] ^ 1 << n % 8]) + WRAP[n + 1 :])
        not_unwrapped(WRAP[:n])
    for n in range(256):
        not_unwrapped(WRAP + bytes([n]))


@pytest.mark.parametrize(
    "public",
    [
        b"",
        decryption_key("alice").public[:-1],
        decryption_key("alice").public + b"\0",
        decryption_key("alice").public[:1184] + bytes(32),
        decryption_key("alice").public[:1184] + b"\xff" * 32,
        b"\xff" * 1184 + decryption_key("alice").public[1184:],
    ],
    ids=["empty", "short", "long", "small order", "not canonical", "ML-KEM"],
)
def test_nothing_is_wrapped_to_a_key_that_one_may_not_trust(public: bytes) -> None:
    with pytest.raises(IntegrityError):
        wrap_key(public, INFO, WRAPPED_KEY)


class _Refusing:
    """A library that refuses what our checks let pass."""

    def encrypt(self, *args: object, **more: object) -> bytes:
        raise ValueError(f"{len(args)} {len(more)}")


def test_a_key_that_the_library_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SUITE", _Refusing())
    with pytest.raises(IntegrityError):
        wrap_key(decryption_key("alice").public, INFO, WRAPPED_KEY)


def test_private_keys_are_neither_shown_nor_pickled_nor_copied() -> None:
    for key in (signing_key("alice"), decryption_key("alice")):
        shown = repr(key) + str(key)
        for seed in key.seeds:
            assert seed.hex() not in shown
            assert repr(seed) not in shown
        with pytest.raises(TypeError):
            pickle.dumps(key)
        with pytest.raises(TypeError):
            copy.deepcopy(key)


@pytest.mark.parametrize("kind", [SigningKey, DecryptionKey])
def test_seeds_of_a_wrong_size_make_no_private_key(
    kind: type[SigningKey] | type[DecryptionKey],
) -> None:
    with pytest.raises(ValueError, match=r"seed|32 bytes"):
        kind(bytes(31), bytes(32))


def test_a_signing_key_derives_one_secret_a_purpose() -> None:
    key = signing_key("alice")
    extracted = hmac.digest(bytes(32), b"".join(key.seeds), "sha256")
    assert key.derive("trust-store") == hmac.digest(
        extracted, b"scbroker/1/trust-store\0\1", "sha256"
    )
    assert key.derive("trust-store") != key.derive("resume")
    assert key.derive("trust-store") != signing_key("bob").derive("trust-store")


@given(st.binary(min_size=1, max_size=MAX_SECRET_SIZE))
@example(b"\x80")
@example(b"\0")
@example(b"\x80\0")
@example(b"x" * 127)
@example(b"x" * 128)
@example(b"x" * MAX_SECRET_SIZE)
def test_a_padded_secret_hides_its_length_and_comes_back(secret: bytes) -> None:
    padded = pad_secret(secret)
    assert len(padded) % 128 == 0
    assert len(secret) < len(padded) <= len(secret) + 128
    assert unpad_secret(padded) == secret


@given(st.binary(max_size=300) | st.binary(max_size=260).map(lambda data: data + bytes(128)))
@example(bytes(128))
@example(b"\x80" + bytes(127))
@example(b"x" * 1024 + b"\x80" + bytes(127))
def test_padding_of_any_other_form_is_refused(padded: bytes) -> None:
    try:
        secret = unpad_secret(padded)
    except DecryptionError:
        return
    assert 1 <= len(secret) <= MAX_SECRET_SIZE
    assert padded == secret + b"\x80" + bytes(127 - len(secret) % 128)


def test_a_child_that_was_forked_amid_a_stretching_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that holds the lock exists in the parent alone."""
    with module._stretching.setdefault(os.getpid(), threading.Lock()):
        monkeypatch.setattr(os, "getpid", lambda: 1)
        assert len(stretch(b"secret", bytes(32))) == 32
