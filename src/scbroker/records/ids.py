"""Names that prove themselves: fingerprints, user ids, container ids. Spec: docs/spec/ids.md, 1.5, 3."""

from __future__ import annotations

import re
import uuid
from typing import Final

from scbroker.crypto.verify import labelled_hash
from scbroker.errors import InvalidArgumentError

UUID_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_CANONICAL: Final = re.compile(UUID_PATTERN.replace("$", r"\Z"))
_LOW_62: Final = 2**62 - 1


def uuid8(digest: bytes) -> uuid.UUID:
    """A UUID version 8 of the first 122 bits of a hash (RFC 9562, 5.8)."""
    bits = int.from_bytes(digest[:16], "big") >> 6
    return uuid.UUID(
        int=(bits >> 74) << 80 | 8 << 76 | (bits >> 62 & 0xFFF) << 64 | 2 << 62 | bits & _LOW_62
    )


def fingerprint_of(signing_key_0: bytes) -> bytes:
    """The fingerprint of the user whose public signing key 0 this is: 32 bytes."""
    return labelled_hash("fingerprint", signing_key_0)


def user_id_of(fingerprint: bytes) -> uuid.UUID:
    return uuid8(fingerprint)


def container_id_of(creator: bytes, nonce: bytes) -> uuid.UUID:
    """The id of the container that this creator (fingerprint) begins with this nonce."""
    return uuid8(labelled_hash("container-id", creator, nonce))


def parse_uuid(text: str) -> uuid.UUID:
    """A UUID in its one canonical spelling; `InvalidArgumentError` for any other."""
    if not _CANONICAL.match(text):
        raise InvalidArgumentError(
            "A UUID is 36 characters, lower-case hexadecimal with hyphens (8-4-4-4-12)."
        )
    return uuid.UUID(text)


def parse_fingerprint(text: object) -> bytes:
    """A fingerprint as somebody read it out or typed it: 64 hexadecimal digits, however grouped."""
    digits = re.sub(r"[\s:.-]", "", text).lower() if isinstance(text, str) else ""
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise InvalidArgumentError("A fingerprint has 64 hexadecimal digits; compare all of them.")
    return bytes.fromhex(digits)


def show_fingerprint(fingerprint: bytes) -> str:
    """A fingerprint for people to compare: 16 groups of 4 hexadecimal digits."""
    return fingerprint.hex(" ", 2)
