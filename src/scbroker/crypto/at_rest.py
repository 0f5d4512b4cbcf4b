"""Seal stored data under the broker's own key. A broker can decrypt nothing else.

The server must not import `crypto.seal`, which opens what users seal. Each key of this module is derived from
the broker's key, for one kind of data of one user. A thief who has a copy of the database, but not the
broker's key, cannot use the sealed data.
Spec: docs/spec/keyfile.md, section 3.
"""

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scbroker.crypto.verify import HASH_SIZE, label
from scbroker.errors import IntegrityError

_NONCE: Final = 12


def seal_stored(broker_key: bytes, name: str, user_id: bytes, data: bytes) -> bytes:
    """Return data sealed with AES-256-GCM: a random nonce of 12 bytes, then the ciphertext with its tag."""
    nonce = os.urandom(_NONCE)
    return nonce + _cipher(broker_key, name, user_id).encrypt(nonce, data, user_id)


def open_stored(broker_key: bytes, name: str, user_id: bytes, sealed: bytes) -> bytes:
    """Unseal data; raise `IntegrityError` for damaged data, another key, name or user."""
    try:
        return _cipher(broker_key, name, user_id).decrypt(sealed[:_NONCE], sealed[_NONCE:], user_id)
    except (InvalidTag, ValueError):  # ValueError: shorter than a nonce
        raise IntegrityError(
            "Stored data does not open under the broker's key: it is damaged."
        ) from None


def _cipher(broker_key: bytes, name: str, user_id: bytes) -> AESGCM:
    info = label(name) + user_id
    return AESGCM(HKDF(hashes.SHA256(), HASH_SIZE, salt=None, info=info).derive(broker_key))
