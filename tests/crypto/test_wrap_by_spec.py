"""A wrap opens by the words of docs/spec/ids.md, 2.5, and RFC 9180 alone, without the library's HPKE."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from scbroker.crypto.seal import DecryptionKey, wrap_key

_SUITE = b"HPKE" + (0x647A).to_bytes(2, "big") + (1).to_bytes(2, "big") + (2).to_bytes(2, "big")
_XWING = bytes.fromhex("5c2e2f2f5e5c")


def test_a_wrap_is_hpke_base_mode_with_the_x_wing_combiner() -> None:
    recipient, info, key = DecryptionKey.generate(), b"what it is bound to", bytes(range(32))
    wrap = wrap_key(recipient.public, info, key)

    secret = _decapsulate(recipient, wrap[:1088], wrap[1088:1120])

    context = b"\0" + _extract(b"", b"psk_id_hash", b"") + _extract(b"", b"info_hash", info)
    scheduled = _extract(secret, b"secret", b"")
    opener = AESGCM(_expand(scheduled, b"key", context, 32))
    nonce = _expand(scheduled, b"base_nonce", context, 12)
    assert opener.decrypt(nonce, wrap[1120:], b"") == key


def _decapsulate(recipient: DecryptionKey, ct_m: bytes, ct_x: bytes) -> bytes:
    ss_m = MLKEM768PrivateKey.from_seed_bytes(recipient.seeds[0]).decapsulate(ct_m)
    private = X25519PrivateKey.from_private_bytes(recipient.seeds[1])
    ss_x = private.exchange(X25519PublicKey.from_public_bytes(ct_x))
    pk_x = recipient.public[1184:]
    return hashlib.sha3_256(ss_m + ss_x + ct_x + pk_x + _XWING).digest()


def _extract(salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + _SUITE + label + material, "sha256")


def _expand(secret: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = length.to_bytes(2, "big") + b"HPKE-v1" + _SUITE + label + info
    return hmac.digest(secret, labelled + b"\1", "sha256")[:length]
