"""Hashes, seals and keys for tests that sign records by hand, which need no module of `crypto` then."""

from scbroker.crypto.at_rest import open_stored, seal_stored
from scbroker.crypto.seal import (
    DecryptionKey,
    Octets,
    SigningKey,
    derive_key,
    pad_secret,
    random_bytes,
    seal,
    stretch,
    unseal,
    wrap_key,
)
from scbroker.crypto.verify import (
    ED25519_SIGNATURE_SIZE,
    HASH_SIZE,
    MLKEM_KEY_SIZE,
    SIGNATURE_SIZE,
    WRAP_SIZE,
    VerifyingKey,
    keyed_hash,
    label,
    labelled_hash,
    sha256,
)

__all__ = [
    "ED25519_SIGNATURE_SIZE",
    "HASH_SIZE",
    "MLKEM_KEY_SIZE",
    "SIGNATURE_SIZE",
    "WRAP_SIZE",
    "DecryptionKey",
    "Octets",
    "SigningKey",
    "VerifyingKey",
    "derive_key",
    "keyed_hash",
    "label",
    "labelled_hash",
    "open_stored",
    "pad_secret",
    "random_bytes",
    "seal",
    "seal_stored",
    "sha256",
    "stretch",
    "unseal",
    "wrap_key",
]
