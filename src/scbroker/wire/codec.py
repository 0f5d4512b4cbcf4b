"""Encode and strictly decode messages, numbers in paths, and query strings.

`decode` also refuses what msgspec accepts: doubled fields, integers in a longer form than needed, and bytes
after the end. Spec: docs/spec/protocol.md, sections 1 and 5.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import SIGNATURE_SIZE, WRAP_SIZE
from scbroker.errors import InvalidArgumentError, TooLargeError
from scbroker.records.canonical import (
    PRINTABLE_PATTERN,
    UUID_PATTERN,
    Bin32,
    check_printable,
    decoder,
)
from scbroker.records.key_record import Signed

PROTOCOL: Final = "1"
PROTOCOL_HEADER: Final = "Scbroker-Protocol"
API_KEY_HEADER: Final = "Scbroker-Api-Key"
APPLICATION_HEADER: Final = "Scbroker-Application"
REQUEST_ID_HEADER: Final = "X-Request-Id"
MESSAGE: Final = "application/vnd.msgpack"
OCTETS: Final = "application/octet-stream"
PROBLEM: Final = "application/problem+json"
MAX_MESSAGE: Final = 4 * 1_048_576
MAX_SMALL_MESSAGE: Final = 131_072
MAX_APPLICATION: Final = 256

Id = Annotated[str, Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Text = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
"""Text without NUL, which PostgreSQL cannot store."""
Printable = Annotated[str, Meta(pattern=PRINTABLE_PATTERN)]
"""Text of one line, without control characters and marks of direction."""
Hash = Bin32
Wrap = Annotated[bytes, Meta(min_length=WRAP_SIZE, max_length=WRAP_SIZE)]

_DECIMAL: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z", re.ASCII)
_REQUEST_ID: Final = re.compile(r"[0-9A-Za-z-]{8,64}\Z", re.ASCII)

T = TypeVar("T")
_encoder: Final = msgspec.msgpack.Encoder()
_any: Final = msgspec.msgpack.Decoder()


class Message(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A message: a map from field names to values. Fields with a default may be left out."""

    is_act: ClassVar[bool] = False
    """Whether the message carries a signature by which it may take effect, whatever the answer is."""


M = TypeVar("M", bound=Message)


class NoQuery(Message, frozen=True, kw_only=True):
    """A query without parameters."""


class SignedObject(Message, frozen=True, kw_only=True):
    """A stored object with its signature."""

    body: Annotated[bytes, Meta(max_length=4096)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]

    @classmethod
    def of(cls, signed: Signed) -> Self:
        return cls(body=signed.body, signature=signed.signature)

    @property
    def signed(self) -> Signed:
        return Signed(self.body, self.signature)


def check_application(name: str) -> None:
    """Raise `InvalidArgumentError` for an application's name that is blank or not printable."""
    if not name.strip():
        raise InvalidArgumentError("applicationName must name the application: it is blank.")
    check_printable("applicationName", name)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(kind: type[T], body: bytes, limit: int = MAX_MESSAGE) -> T:
    """Decode exactly one message; raise `InvalidArgumentError` or `TooLargeError` for any other bytes."""
    if len(body) > limit:
        raise TooLargeError(f"The message has {len(body)} bytes: at most {limit} are allowed.")
    try:
        message: T = decoder(cast(Any, kind)).decode(body)
        # The body must be canonical: equal to the re-encoded message, or, if it leaves out fields that have a
        # default, to the re-encoded map.
        same = _encoder.encode(message) == body or _encoder.encode(_any.decode(body)) == body
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"Malformed message: {error}") from None
    except (ValueError, RecursionError):
        raise InvalidArgumentError("The message is not MessagePack.") from None
    if not same:
        raise InvalidArgumentError("The message has doubled fields or is not in shortest form.")
    return message


def is_request_id(text: str) -> bool:
    """Return whether a text may be the id of a request: 8 to 64 letters, digits and hyphens of ASCII."""
    return _REQUEST_ID.match(text) is not None


def parse_number(text: str) -> int:
    """Parse a decimal number without sign, leading zeros or other spellings."""
    if not _DECIMAL.match(text):
        raise InvalidArgumentError(
            f"{text[:40]!r} is not a decimal number of up to 16 digits without leading zeros."
        )
    return int(text)


def parse_query(kind: type[M], items: Iterable[tuple[str, str]]) -> M:
    """Return query parameters as a message; refuse unknown ones, and repeated ones that are not lists."""
    kinds, values = _kinds(kind), dict[str, Any]()
    for name, text in items:
        if name not in kinds:
            raise InvalidArgumentError(f"{name[:40]!r} is not a query parameter of this operation.")
        if kinds[name] is list:
            values.setdefault(name, []).append(text)
        elif name in values:
            raise InvalidArgumentError(f"The query parameter {name} is given twice: give it once.")
        else:
            values[name] = parse_number(text) if kinds[name] is int else text
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(f"A query parameter is wrong: {error}") from None


@cache
def _kinds(kind: type[Message]) -> dict[str, type]:
    """Return the kind of each parameter: list, int or str."""
    return {
        field.encode_name: next((each for each in (list, int) if _holds(field.type, each)), str)
        for field in msgspec.structs.fields(kind)
    }


def _holds(annotation: Any, kind: type) -> bool:
    """Return whether a field's type is this one, also inside Annotated or an optional."""
    if annotation is kind or get_origin(annotation) is kind:
        return True
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return any(_holds(part, kind) for part in inner)
