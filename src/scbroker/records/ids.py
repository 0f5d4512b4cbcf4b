"""Derive ids from what they identify: fingerprints, user ids, container ids. Spec: docs/spec/ids.md, 1.5, 3.

The types below are all bytes at run time. They differ for the type checker alone, so that one id passed
in the place of another is an error there.
"""

import re
import uuid
from typing import Final, NewType

from scbroker.crypto.verify import labelled_hash
from scbroker.errors import InvalidArgumentError

Fingerprint = NewType("Fingerprint", bytes)
"""32 bytes: the hash of a user's signing key 0."""
UserId = NewType("UserId", bytes)
"""16 bytes: a user id as the broker's database keeps it."""
ContainerId = NewType("ContainerId", bytes)
"""16 bytes."""
PartId = NewType("PartId", bytes)
"""16 bytes."""
UUID_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_CANONICAL: Final = re.compile(UUID_PATTERN.replace("$", r"\Z"))
_LOW_62: Final = 2**62 - 1


def uuid8(digest: bytes) -> uuid.UUID:
    """Return a UUID version 8 of the first 122 bits of a hash (RFC 9562, 5.8)."""
    bits = int.from_bytes(digest[:16], "big") >> 6
    return uuid.UUID(
        int=(bits >> 74) << 80 | 8 << 76 | (bits >> 62 & 0xFFF) << 64 | 2 << 62 | bits & _LOW_62
    )


def fingerprint_of(signing_key_0: bytes) -> Fingerprint:
    """Return the fingerprint of the user with this public signing key 0."""
    return Fingerprint(labelled_hash("fingerprint", signing_key_0))


def user_id_of(fingerprint: bytes) -> uuid.UUID:
    """Return the user id for a fingerprint."""
    return uuid8(fingerprint)


def stored_user_id(fingerprint: bytes) -> UserId:
    """Return the user id for a fingerprint, as the broker's database keeps it."""
    return UserId(uuid8(fingerprint).bytes)


def container_id_of(creator: bytes, nonce: bytes) -> uuid.UUID:
    """Return the id of the container that this creator (a fingerprint) creates with this nonce."""
    return uuid8(labelled_hash("container-id", creator, nonce))


def parse_uuid(text: str) -> uuid.UUID:
    """Parse a UUID in its canonical spelling; raise `InvalidArgumentError` for any other."""
    if not _CANONICAL.match(text):
        raise InvalidArgumentError(
            "A UUID is 36 characters, lower-case hexadecimal with hyphens (8-4-4-4-12)."
        )
    return uuid.UUID(text)


def parse_fingerprint(text: object) -> bytes:
    """Parse a fingerprint as a person typed it: 64 hexadecimal digits, in groups of any size."""
    digits = re.sub(r"[\s:.-]", "", text).lower() if isinstance(text, str) else ""
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise InvalidArgumentError("A fingerprint has 64 hexadecimal digits; compare all of them.")
    return bytes.fromhex(digits)


def show_fingerprint(fingerprint: bytes) -> str:
    """Return a fingerprint for people to compare: 16 groups of 4 hexadecimal digits."""
    return fingerprint.hex(" ", 2)
