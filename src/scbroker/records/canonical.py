"""Encode and decode stored objects: a version byte and one canonical MessagePack value.

Signatures cover the stored bytes, so a reader keeps these and never encodes the Structs again.
Spec: docs/spec/ids.md, 1.1 and 1.2.
"""

from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta

from scbroker.errors import IntegrityError

VERSION: Final = b"\x01"
MAX_TIME: Final = 253_402_300_799_999_999

Bin16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Bin32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Uint = Annotated[int, Meta(ge=0, le=2**53 - 1)]
KeyIndex = Annotated[int, Meta(ge=0, le=255)]
Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode


class Row(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A structure of the grammar, encoded as an array of fixed length."""


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def encode_value(value: Any) -> bytes:
    """Return canonical MessagePack without a version byte."""
    return _encode(value)


def decode_value(kind: type[T], data: bytes, limit: int) -> T:
    """Decode exactly one canonical value of at most `limit` bytes; raise `IntegrityError` otherwise."""
    if len(data) <= limit:
        try:
            value: T = _decoder(cast(Any, kind)).decode(data)
        except (ValueError, RecursionError):
            pass
        else:
            if _encode(value) == data:
                return value
    raise IntegrityError(f"The bytes of a {_shown(kind)} are not of its format.")


def encode_object(value: Row) -> bytes:
    """Return a stored object: version byte and value."""
    return VERSION + _encode(value)


def _shown(kind: type[object]) -> str:
    return kind.__name__.strip("_").removesuffix("Bytes")


def decode_object(kind: type[T], data: bytes, limit: int) -> T:
    """Decode exactly one stored object of format version 1; raise `IntegrityError` otherwise."""
    if data[:1] != VERSION:
        raise IntegrityError(f"A {_shown(kind)} of an unknown version: update scbroker.")
    return decode_value(kind, data[1:], limit - 1)
