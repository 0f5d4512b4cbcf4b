"""The canonical forms of stored objects and of ids. Spec: docs/spec/ids.md, sections 1 and 3.

A stored object is a version byte and one canonical MessagePack value. Signatures cover the stored bytes, so a
reader keeps these and verifies them, never a Struct that it encoded again. Ids are cut from hashes of keys
and nonces.
"""

import os
import re
import threading
import uuid
from collections.abc import Callable
from functools import cache, lru_cache
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
EntryIndex = Annotated[int, Meta(ge=0, le=16_383)]
"""Of an access entry: the index of a user's encryption key, or an epoch of a group."""
Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]

# These five are plain bytes at run time. Only the type checker tells them apart: it reports an id of one kind
# that is passed as an id of another kind.
Fingerprint = NewType("Fingerprint", bytes)
"""32 bytes: the hash of a user's signing key 0."""
GroupName = NewType("GroupName", bytes)
"""32 bytes: the hash of which the id of a group's container is made (docs/spec/groups.md, 1)."""
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
_USERS: Final = 2048

T = TypeVar("T")
encode_value: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Return canonical MessagePack without a version byte."""
_MAKING: Final = threading.Lock()
"""Held while a decoder is made.

msgspec shares its description of a Struct among threads before the description is complete. A thread that
makes a decoder of the same Struct at that moment gets an incomplete one, which ends the process by a
segmentation fault. A fork waits for the lock: its child would never be given it, or have the incomplete one.
"""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_MAKING.acquire, after_in_parent=_MAKING.release, after_in_child=_MAKING.release
    )


class Row(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A structure of the grammar, encoded as an array of fixed length."""


@cache
def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the MessagePack decoder of a type. Any thread may use it."""
    with _MAKING:
        return msgspec.msgpack.Decoder(kind)


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a JSON decoder of a type, which may be an application's. Any thread may use it.

    Raises what msgspec, or a look at the type's annotations, raises.
    """
    with _MAKING:
        return msgspec.json.Decoder(kind)


def decode_value(kind: type[T], data: bytes, limit: int) -> T:
    """Decode exactly one canonical value of at most `limit` bytes; raise `IntegrityError` otherwise."""
    if len(data) <= limit:
        try:
            value: T = decoder(cast(Any, kind)).decode(data)
        except (ValueError, RecursionError):
            pass
        else:
            if encode_value(value) == data:
                return value
    raise IntegrityError(f"The bytes of a {_shown(kind)} are not of its format.")


def decode_values(kind: type[T], data: list[bytes], limit: int) -> list[T]:
    """Decode several values, each as `decode_value` does; for a thousand this takes half the time."""
    array = b"\xdd" + len(data).to_bytes(4, "big") + b"".join(data)
    try:
        values: list[T] = decoder(list[kind]).decode(array)  # type: ignore[valid-type] # at run time
    except (ValueError, RecursionError):
        pass
    else:
        # Compare value by value: the joined bytes would be equal even if `data` were cut at other places.
        if [*map(encode_value, values)] == data and max(map(len, data), default=0) <= limit:
            return values
    raise IntegrityError(f"The bytes of a {_shown(kind)} are not of its format.")


def encode_object(value: Row) -> bytes:
    return VERSION + encode_value(value)


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


@lru_cache(_USERS)
def user_id_of(fingerprint: bytes) -> uuid.UUID:
    """Return the user id for a fingerprint. Cached: an operation needs each member's id several times."""
    return uuid8(fingerprint)


@lru_cache(_USERS)
def stored_user_id(fingerprint: bytes) -> UserId:
    """Return the user id for a fingerprint, as the broker's database keeps it."""
    return UserId(uuid8(fingerprint).bytes)


def group_name_of(creator: bytes, nonce: bytes) -> GroupName:
    """Return the name of the group whose container this creator creates with this nonce."""
    return GroupName(labelled_hash("container-id", creator, nonce))


def container_id_of(creator: bytes, nonce: bytes) -> uuid.UUID:
    """Return the id of the container that this creator (a fingerprint) creates with this nonce."""
    return uuid8(group_name_of(creator, nonce))


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
