"""What is composed here by hand is what the library composes: docs/spec/ids.md, 2."""

import secrets

import pytest
from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.independent.encodings import RefusedError
from tests.independent.keys import (
    CHUNK,
    TAG,
    DecryptionKey,
    SigningKey,
    check_encryption_key,
    check_signature,
    check_signing_key,
    cobblestone_open,
    cobblestone_seal,
    cobblestone_size,
    hkdf,
    hpke_open,
    hpke_seal,
)

KEY = secrets.token_bytes(32)
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK + 7]
SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@pytest.mark.parametrize("size", SIZES)
def test_cobblestone_of_the_specification_and_of_the_library_open_each_other(size: int) -> None:
    """HKDF-Expand with SHA-512, then AES-256-GCM by chunks, is the library's Cobblestone-256."""
    plaintext = secrets.token_bytes(size)
    sealed = cobblestone_seal(KEY, b"context", plaintext)
    decryptor = Cobblestone256Decryptor(KEY, b"context")
    assert decryptor.update(sealed) + decryptor.finalize() == plaintext
    encryptor = Cobblestone256Encryptor(KEY, b"context")
    theirs = encryptor.update(plaintext) + encryptor.finalize()
    assert cobblestone_open(KEY, b"context", theirs) == plaintext
    assert len(sealed) == len(theirs) == cobblestone_size(size)


@pytest.mark.parametrize("kept", [0, 55, 56, 71, 56 + CHUNK + TAG, 56 + 2 * (CHUNK + TAG)])
def test_cobblestone_without_its_end_is_refused(kept: int) -> None:
    """Whole chunks alone are no message: the last chunk is a short one."""
    sealed = cobblestone_seal(KEY, b"", bytes(2 * CHUNK))
    with pytest.raises(RefusedError):
        cobblestone_open(KEY, b"", sealed[:kept])


def test_hpke_of_the_specification_and_of_the_library_open_each_other() -> None:
    """RFC 9180's key schedule over X-Wing's combiner is the library's MLKEM768-X25519."""
    key = DecryptionKey.fresh()
    private = MLKEM768X25519PrivateKey(
        MLKEM768PrivateKey.from_seed_bytes(key.ml_kem),
        X25519PrivateKey.from_private_bytes(key.x25519),
    )
    public = MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(key.public[:1184]),
        X25519PublicKey.from_public_bytes(key.public[1184:]),
    )
    assert SUITE.decrypt(hpke_seal(key.public, b"info", KEY), private, b"info") == KEY
    assert hpke_open(key, b"info", SUITE.encrypt(KEY, public, b"info")) == KEY


def test_hkdf_of_the_specification_is_the_librarys() -> None:
    """RFC 5869 with SHA-256 and an empty salt."""
    assert hkdf(KEY, b"info") == HKDF(hashes.SHA256(), 32, None, b"info").derive(KEY)


def test_fresh_keys_pass_the_checks_of_public_keys() -> None:
    """The arithmetic refuses no honest key."""
    for _ in range(10):
        check_signing_key(SigningKey.fresh().public)
        check_encryption_key(DecryptionKey.fresh().public)


@pytest.mark.parametrize("position", [0, 1, 1151])
def test_the_input_check_of_ml_kem_is_the_librarys(position: int) -> None:
    """Where FIPS 203, 7.2 by hand refuses a key, so does the library, and the other way round."""
    for octet in range(256):
        public = bytearray(DecryptionKey(bytes(64), bytes(32)).public)
        public[position] = octet
        assert _passes(bytes(public)) == _loads(bytes(public[:1184]))


def test_a_signature_holds_for_its_label_and_object_alone() -> None:
    """Neither another label nor another object will do."""
    key = SigningKey.fresh()
    signature = key.sign("order", b"object")
    check_signature(key.public, "order", b"object", signature)
    for name, signed in (("session", b"object"), ("order", b"objecu")):
        with pytest.raises(RefusedError):
            check_signature(key.public, name, signed, signature)


def _passes(public: bytes) -> bool:
    try:
        check_encryption_key(public)
    except RefusedError:
        return False
    return True


def _loads(ml_kem: bytes) -> bool:
    try:
        MLKEM768PublicKey.from_public_bytes(ml_kem)
    except ValueError:
        return False
    return True
