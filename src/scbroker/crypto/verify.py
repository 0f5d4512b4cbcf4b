"""Hash, verify signatures and check public keys: everything that needs no private key.

Broker and client use this module. It does no I/O and reads no clock.
Spec: docs/spec/ids.md, sections 1 and 2.
"""

import functools
import hashlib
import hmac
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

from scbroker.errors import IntegrityError

HASH_SIZE: Final = 32
ED25519_KEY_SIZE: Final = 32
ED25519_SIGNATURE_SIZE: Final = 64
SIGNING_KEY_SIZE: Final = 32 + 1952
SIGNATURE_SIZE: Final = 64 + 3309
MLKEM_KEY_SIZE: Final = 1184
ENCRYPTION_KEY_SIZE: Final = 1184 + 32
WRAP_SIZE: Final = 1120 + 32 + 16

_P: Final = 2**255 - 19
# y-coordinates of the points of order 1, 2, 4 and 8 of edwards25519 (both signs of x).
_ED25519_SMALL_ORDER_Y: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        int("7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7", 16),
        int("05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826", 16),
    }
)
# u-coordinates of the points of order 1, 2, 4 and 8 of curve25519 and of its twist.
_X25519_SMALL_ORDER_U: Final = frozenset(
    {
        0,
        1,
        _P - 1,
        int("00b8495f16056286fdb1329ceb8d09da6ac49ff1fae35616aeb8413b7c7aebe0", 16),
        int("57119fd0dd4e22d8868e1c58c45c44045bef839c55b1d0b1248c50a3bc959c5f", 16),
    }
)


@functools.cache
def label(name: str) -> bytes:
    """Return L(name), with which every hash, signature and context starts (ids.md, 1.4)."""
    return b"scbroker/1/" + name.encode("ascii") + b"\0"


def labelled_hash(name: str, *parts: bytes | memoryview) -> bytes:
    """Return H(name, the parts concatenated): 32 bytes (ids.md, 1.4)."""
    state = hashlib.sha256(label(name))
    for part in parts:
        state.update(part)
    return state.digest()


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the plain SHA-256 of sealed segments and stored files."""
    return hashlib.sha256(data).digest()


def equal(left: bytes, right: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(left, right)


def keyed_hash(key: bytes, name: str, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 of L(name) and the parts under a key: 32 bytes."""
    return hmac.digest(key, label(name) + b"".join(parts), "sha256")


class VerifyingKey:
    """A public signing key: Ed25519 and ML-DSA-65, both of which must verify (ids.md, 2.1, 2.2)."""

    __slots__ = ("_ed25519", "_mldsa", "raw")

    def __init__(self, raw: bytes) -> None:
        """Load 1,984 bytes; raise `IntegrityError` for a weak or malformed key in either half."""
        if len(raw) != SIGNING_KEY_SIZE:
            raise IntegrityError(
                f"A public signing key must have {SIGNING_KEY_SIZE} bytes, not {len(raw)}."
            )
        y = int.from_bytes(raw[:ED25519_KEY_SIZE], "little") & (2**255 - 1)
        if y >= _P or y in _ED25519_SMALL_ORDER_Y:
            raise IntegrityError("A public signing key is of small order or not canonical.")
        try:
            self._ed25519 = Ed25519PublicKey.from_public_bytes(raw[:ED25519_KEY_SIZE])
            self._mldsa = MLDSA65PublicKey.from_public_bytes(raw[ED25519_KEY_SIZE:])
        except (ValueError, UnsupportedAlgorithm) as error:
            raise IntegrityError("A public signing key cannot be loaded.") from error
        self.raw: bytes = raw

    def verify(self, name: str, signed: bytes, signature: bytes) -> None:
        """Raise `IntegrityError` unless both halves of the signature verify for L(name) || signed."""
        if len(signature) == SIGNATURE_SIZE:
            message = label(name) + signed
            try:
                self._ed25519.verify(signature[:ED25519_SIGNATURE_SIZE], message)
                self._mldsa.verify(signature[ED25519_SIGNATURE_SIZE:], message)
            except InvalidSignature:
                pass
            else:
                return
        raise IntegrityError("A signature does not verify.")


def check_encryption_key(raw: bytes) -> None:
    """Raise `IntegrityError` for a weak or malformed public encryption key (ids.md, 2.4)."""
    if len(raw) != ENCRYPTION_KEY_SIZE:
        raise IntegrityError(
            f"A public encryption key must have {ENCRYPTION_KEY_SIZE} bytes, not {len(raw)}."
        )
    u = int.from_bytes(raw[MLKEM_KEY_SIZE:], "little")
    if u >= _P or u in _X25519_SMALL_ORDER_U:
        raise IntegrityError("A public encryption key is of small order or not canonical.")
    try:
        MLKEM768PublicKey.from_public_bytes(raw[:MLKEM_KEY_SIZE])
    except (ValueError, UnsupportedAlgorithm) as error:
        raise IntegrityError("A public encryption key cannot be loaded.") from error
