"""The canonical forms of stored objects and of ids. Spec: docs/spec/ids.md, sections 1 and 3.

A stored object is a version byte and one canonical MessagePack value. Signatures cover the stored bytes, so a
reader keeps these and never encodes the Structs again. Ids are derived from what they identify.
"""

import re
import uuid
from functools import cache
from typing import Annotated, Any, Final, NewType, TypeVar, cast

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import labelled_hash
from scbroker.errors import IntegrityError, InvalidArgumentError

VERSION: Final = b"\x01"
MAX_TIME: Final = 253_402_300_799_999_999

Bin16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Bin32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
MAX_UINT: Final = 2**53 - 1
Uint = Annotated[int, Meta(ge=0, le=MAX_UINT)]
KeyIndex = Annotated[int, Meta(ge=0, le=255)]
Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]

# These four are all bytes at run time. They differ for the type checker alone, so that one id passed in the
# place of another is an error there.
Fingerprint = NewType("Fingerprint", bytes)
"""32 bytes: the hash of a user's signing key 0."""
UserId = NewType("UserId", bytes)
"""16 bytes: a user id as the broker's database keeps it."""
ContainerId = NewType("ContainerId", bytes)
"""16 bytes."""
PartId = NewType("PartId", bytes)
"""16 bytes."""
UUID_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# Controls (C0, DEL, C1), Unicode's Bidi_Control, line and paragraph separators: in a log or a terminal they
# could forge lines and reverse text.
_UNPRINTABLE: Final = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
PRINTABLE_PATTERN: Final = rf"^[^{_UNPRINTABLE}]*$(?!\n)"
_FIRST_UNPRINTABLE: Final = re.compile(rf"[{_UNPRINTABLE}\ud800-\udfff]")
_CANONICAL: Final = re.compile(UUID_PATTERN.replace("$", r"\Z"))
_LOW_62: Final = 2**62 - 1

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode


class Row(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A structure of the grammar, encoded as an array of fixed length."""


@cache
def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def encode_value(value: Any) -> bytes:
    """Return canonical MessagePack without a version byte."""
    return _encode(value)


def decode_value(kind: type[T], data: bytes, limit: int) -> T:
    """Decode exactly one canonical value of at most `limit` bytes; raise `IntegrityError` otherwise."""
    if len(data) <= limit:
        try:
            value: T = decoder(cast(Any, kind)).decode(data)
        except (ValueError, RecursionError):
            pass
        else:
            if _encode(value) == data:
                return value
    raise IntegrityError(f"The bytes of a {_shown(kind)} are not of its format.")


def encode_object(value: Row) -> bytes:
    return VERSION + _encode(value)


def _shown(kind: type[object]) -> str:
    return kind.__name__.strip("_").removesuffix("Bytes")


def decode_object(kind: type[T], data: bytes, limit: int) -> T:
    """Decode exactly one stored object of format version 1; raise `IntegrityError` otherwise."""
    if data[:1] != VERSION:
        raise IntegrityError(f"A {_shown(kind)} of an unknown version: update scbroker.")
    return decode_value(kind, data[1:], limit - 1)


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


def check_printable(name: str, text: str) -> None:
    """Raise `InvalidArgumentError` for a text that other users' programs could not show on one line."""
    if found := _FIRST_UNPRINTABLE.search(text):
        raise InvalidArgumentError(
            f"{name} must be printable: character {found.start()} is U+{ord(found[0]):04X}, "
            "a control character, a line separator, a mark of direction or half a surrogate pair."
        )


def parse_fingerprint(text: object) -> bytes:
    """Parse a fingerprint as a person typed it: 64 hexadecimal digits, in groups of any size."""
    digits = re.sub(r"[\s:.-]", "", text).lower() if isinstance(text, str) else ""
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise InvalidArgumentError("A fingerprint has 64 hexadecimal digits; compare all of them.")
    return bytes.fromhex(digits)


def show_fingerprint(fingerprint: bytes) -> str:
    """Return a fingerprint for people to compare: 16 groups of 4 hexadecimal digits."""
    return fingerprint.hex(" ", 2)
