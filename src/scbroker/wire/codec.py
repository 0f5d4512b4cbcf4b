"""Encode and strictly decode messages. Spec: docs/spec/protocol.md, section 1.

`decode` also refuses what msgspec accepts: doubled fields, integers in a longer form than needed, and bytes
after the end.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import SIGNATURE_SIZE, WRAP_SIZE
from scbroker.errors import InvalidArgumentError, TooLargeError
from scbroker.records.canonical import MAX_TIME
from scbroker.records.ids import UUID_PATTERN
from scbroker.records.key_record import Signed

PROTOCOL: Final = "1"
PROTOCOL_HEADER: Final = "Scbroker-Protocol"
API_KEY_HEADER: Final = "Scbroker-Api-Key"
APPLICATION_HEADER: Final = "Scbroker-Application"
MESSAGE: Final = "application/vnd.msgpack"
OCTETS: Final = "application/octet-stream"
PROBLEM: Final = "application/problem+json"
MAX_MESSAGE: Final = 4 * 1_048_576
MAX_SMALL_MESSAGE: Final = 131_072
MAX_APPLICATION: Final = 256

Id = Annotated[str, Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Uint = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Time = Annotated[int, Meta(ge=0, le=MAX_TIME)]
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""Text without NUL, which PostgreSQL cannot store."""
Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
Wrap = Annotated[bytes, Meta(min_length=WRAP_SIZE, max_length=WRAP_SIZE)]

# Controls (C0, DEL, C1), Unicode's Bidi_Control, line and paragraph separators, halves of surrogate pairs:
# in a log or a terminal they could forge lines and reverse text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

T = TypeVar("T")
_encoder: Final = msgspec.msgpack.Encoder()
_any: Final = msgspec.msgpack.Decoder()


class Message(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A message: a map from field names to values. Fields with a default may be left out."""


class SignedObject(Message, frozen=True, kw_only=True):
    """A stored object with its signature."""

    body: Annotated[bytes, Meta(max_length=4096)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]

    @classmethod
    def of(cls, signed: Signed) -> SignedObject:
        return cls(body=signed.body, signature=signed.signature)

    @property
    def signed(self) -> Signed:
        return Signed(self.body, self.signature)


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def check_application(name: str) -> None:
    """Raise `InvalidArgumentError` for an application's name that is blank or not printable."""
    if not name.strip():
        raise InvalidArgumentError("applicationName must name the application: it is blank.")
    if found := _UNPRINTABLE.search(name):
        raise InvalidArgumentError(
            f"applicationName must be printable: character {found.start()} is U+{ord(found[0]):04X}, "
            "a control character, a line separator, a mark of direction or half a surrogate pair."
        )


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(kind: type[T], body: bytes, limit: int = MAX_MESSAGE) -> T:
    """Decode exactly one message; raise `InvalidArgumentError` or `TooLargeError` for any other bytes."""
    if len(body) > limit:
        raise TooLargeError(f"The message has {len(body)} bytes: at most {limit} are allowed.")
    try:
        message: T = _decoder(cast(Any, kind)).decode(body)
        same = _encoder.encode(_any.decode(body)) == body
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"Malformed message: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidArgumentError("The message is not MessagePack.") from None
    if not same:
        raise InvalidArgumentError("The message has doubled fields or is not in shortest form.")
    return message
