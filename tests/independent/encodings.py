"""Canonical MessagePack, labels, hashes, UUIDs: docs/spec/ids.md, 1."""

import functools
import hashlib
import re
from collections.abc import Callable
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args, get_origin, get_type_hints

Value: TypeAlias = "bool | int | str | bytes | list[Value] | None"

UINT = 2**53 - 1
TIME = 253_402_300_799_999_999
KEY_INDEX = 255
ENTRY_INDEX = 16_383

DEEPEST = 4
"""No structure of the format nests deeper: a KeyRing's seeds are at 3."""


class RefusedError(Exception):
    """What a reader refuses, with the kind of error that tests/vectors/README.md names."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"{kind}: {why}")
        self.kind, self.why = kind, why

    def of_kind(self, kind: str) -> "RefusedError":
        """The same refusal as another kind of error."""
        return type(self)(kind, self.why)


class UndecodableError(RefusedError):
    """The object cannot be read: bytes do not decode, a field has another type, or a seal does not open."""


TAKEN_OUT: set[str] = set()
"""Checks that are not made, by what they say. Only test_single_faults fills it."""


def need(condition: bool, why: str, kind: str = "integrity") -> None:
    """Check a rule. A reader that omits the check continues."""
    if not condition and why not in TAKEN_OUT:
        raise RefusedError(kind, why)


def decodes(condition: bool, why: str, kind: str = "integrity") -> None:
    """Check a form. A reader that omits the check cannot continue."""
    if not condition:
        raise UndecodableError(kind, why)


# 1.2 Canonical MessagePack


def encode(value: Value) -> bytes:
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return bytes([value]) if value < 0x80 else _head(value, 0xCC, (1, 2, 4, 8))
        case bytes():
            return _head(len(value), 0xC4, (1, 2, 4)) + value
        case str():
            octets = value.encode()
            short = bytes([0xA0 | len(octets)]) if len(octets) < 32 else None
            return (short or _head(len(octets), 0xD9, (1, 2, 4))) + octets
        case list():
            short = bytes([0x90 | len(value)]) if len(value) < 16 else None
            return (short or _head(len(value), 0xDC, (2, 4))) + b"".join(map(encode, value))


def _head(number: int, first: int, sizes: tuple[int, ...]) -> bytes:
    """The shortest of the forms whose type bytes count up from `first`."""
    size = next(size for size in sizes if number < 256**size)
    return bytes([first + sizes.index(size)]) + number.to_bytes(size, "big")


def decode(data: bytes) -> Value:
    """The one value that the bytes are, in the only encoding that it has."""
    value, _ = _decode(data, 0, DEEPEST)
    need(
        encode(value) == data, "not canonical"
    )  # also refuses trailing bytes: they are not encoded again
    return value


def _decode(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    def take(size: int) -> bytes:
        nonlocal at
        decodes(at + size <= len(data), "truncated")
        at += size
        return data[at - size : at]

    def number(size: int) -> int:
        return int.from_bytes(take(size), "big")

    def text(size: int) -> str:
        try:
            return take(size).decode()
        except UnicodeDecodeError:
            raise UndecodableError("integrity", "not UTF-8") from None

    def array(size: int) -> list[Value]:
        nonlocal at
        decodes(depth > 0, "nested too deep")
        values: list[Value] = []
        for _ in range(size):
            value, at = _decode(data, at, depth - 1)
            values.append(value)
        return values

    match number(1):
        case head if head < 0x80:
            return head, at
        case head if 0x90 <= head < 0xA0:
            return array(head & 0x0F), at
        case head if 0xA0 <= head < 0xC0:
            return text(head & 0x1F), at
        case 0xC0:
            return None, at
        case 0xC2 | 0xC3 as head:
            return head == 0xC3, at
        case 0xC4 | 0xC5 | 0xC6 as head:
            return take(number(2 ** (head - 0xC4))), at
        case 0xCC | 0xCD | 0xCE | 0xCF as head:
            return number(2 ** (head - 0xCC)), at
        case 0xD9 | 0xDA | 0xDB as head:
            return text(number(2 ** (head - 0xD9))), at
        case 0xDC | 0xDD as head:
            return array(number(2 ** (head - 0xDB))), at
        case head:
            raise UndecodableError("integrity", f"a value of no allowed type: {head:02x}")


def octets(value: Value, length: int) -> bytes:
    """binN"""
    match value:
        case bytes() if len(value) == length:
            return value
    raise UndecodableError("integrity", f"not {length} bytes")


def octets_to(value: Value, longest: int) -> bytes:
    match value:
        case bytes() if len(value) <= longest:
            return value
    raise UndecodableError("integrity", f"not at most {longest} bytes")


def octets_or_nil(value: Value, length: int) -> bytes | None:
    return None if value is None else octets(value, length)


def integer(value: Value, low: int, high: int) -> int:
    match value:
        case bool():
            pass
        case int() if low <= value <= high:
            return value
    raise UndecodableError("integrity", f"no integer from {low} to {high}")


def uint(value: Value) -> int:
    return integer(value, 0, UINT)


def time(value: Value) -> int:
    return integer(value, 0, TIME)


def key_index(value: Value) -> int:
    return integer(value, 0, KEY_INDEX)


def entry_index(value: Value) -> int:
    return integer(value, 0, ENTRY_INDEX)


def boolean(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise UndecodableError("integrity", "no bool")


def text(value: Value, shortest: int = 0) -> str:
    if isinstance(value, str) and len(value) >= shortest:
        return value
    raise UndecodableError("integrity", "no str")


def elements(value: Value) -> list[Value]:
    if isinstance(value, list):
        return value
    raise UndecodableError("integrity", "no array")


def array(value: Value, length: int) -> list[Value]:
    decodes(len(elements(value)) == length, f"no array of {length}")
    return elements(value)


def stored(data: bytes, length: int) -> list[Value]:
    """1.1: the array behind the version byte of a stored object."""
    decodes(len(data) > 1, "truncated")
    need(data[:1] == VERSION, "unknown version")
    return array(decode(data[1:]), length)


def store(fields: list[Value]) -> bytes:
    return VERSION + encode(fields)


# 1.1 Objects

VERSION = b"\x01"
Id = Annotated[bytes, lambda value: octets(value, 16)]
Hash = Annotated[bytes, lambda value: octets(value, 32)]
Nonce = Annotated[bytes, lambda value: octets(value, 48)]
UInt = Annotated[int, uint]
Version = Annotated[int, lambda value: integer(value, 1, UINT)]
Time = Annotated[int, time]
KeyIndex = Annotated[int, key_index]
EntryIndex = Annotated[int, entry_index]
Bool = Annotated[bool, boolean]
Text = Annotated[str, text]
Origin = Annotated[str, lambda value: text(value, 1)]


class Object:
    """A dataclass of an object's fields in their order. Their annotations say how they are read."""

    __match_args__: ClassVar[tuple[str, ...]]
    prefix: ClassVar[bytes] = VERSION
    """The bytes before the stored array."""

    @classmethod
    @functools.cache
    def _readers(cls) -> list[Callable[[Value], Any]]:
        hints = get_type_hints(cls, include_extras=True)
        return [_reader(hints[name]) for name in cls.__match_args__]

    @classmethod
    def read(cls, value: Value) -> Self:
        readers = cls._readers()
        pairs = zip(readers, array(value, len(readers)), strict=True)
        return cls(*(read(field) for read, field in pairs))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        return cls.read(stored(data, len(cls._readers())) if cls.prefix else decode(data))

    def value(self) -> Value:
        return [_value(found) for found in vars(self).values()]

    def stored(self) -> bytes:
        return self.prefix + encode(self.value())


def _reader(hint: Any) -> Callable[[Value], Any]:
    inner = get_args(hint)
    if get_origin(hint) is Annotated:
        read: Callable[[Value], Any] = inner[1]
        return read
    if NoneType in inner:
        [some] = (_reader(one) for one in inner if one is not NoneType)
        return lambda value: None if value is None else some(value)
    if get_origin(hint) is list:
        [item] = map(_reader, inner)
        return lambda value: [item(one) for one in elements(value)]
    found: Callable[[Value], Any] = hint.read
    return found


def _value(field: Any) -> Value:
    if isinstance(field, Object):
        return field.value()
    return [_value(item) for item in field] if isinstance(field, (list, tuple)) else field


# 1.3 Fixed-width integers


def u8(n: int) -> bytes:
    return n.to_bytes(1, "big")


def u32(n: int) -> bytes:
    return n.to_bytes(4, "big")


def u64(n: int) -> bytes:
    return n.to_bytes(8, "big")


# 1.4 Labels


def label(name: str) -> bytes:
    """L(name)"""
    return b"scbroker/1/" + name.encode("ascii") + b"\0"


def sha256(message: bytes) -> bytes:
    return hashlib.sha256(message).digest()


def labelled_hash(name: str, message: bytes) -> bytes:
    """H(name, m)"""
    return sha256(label(name) + message)


# 1.5 UUIDs, as their 16 bytes


def uuid8(digest: bytes) -> bytes:
    bits = int.from_bytes(digest, "big") >> (8 * len(digest) - 122)
    custom_a, custom_b, custom_c = bits >> 74, bits >> 62 & 0xFFF, bits & 2**62 - 1
    return (custom_a << 80 | 8 << 76 | custom_b << 64 | 0b10 << 62 | custom_c).to_bytes(16, "big")


def uuid_text(uuid: bytes) -> str:
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uuid_of_text(spelled: str) -> bytes:
    digits = re.sub(r"urn:uuid:|[-{}\s]", "", spelled)
    decodes(re.fullmatch("[0-9A-Fa-f]{32}", digits) is not None, "no UUID", "invalid")
    form = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    need(re.fullmatch(form, spelled) is not None, "no canonical UUID", "invalid")
    return bytes.fromhex(digits)
