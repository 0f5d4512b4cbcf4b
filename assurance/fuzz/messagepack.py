"""MessagePack by hand: a reader that knows the one canonical form alone, and a writer of all forms.

The reader shares nothing with the library that the project decodes with: it is the judge of what that
one lets pass.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 60


class NotCanonicalError(ValueError):
    """Not one value in its shortest form, without floats, extensions and doubled keys."""


class Raw:
    """Bytes that the writer puts out as they are: any other form of a value, or none at all."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Pairs:
    """A map as it stands on the wire: in any order, with any keys, doubled ones too."""

    def __init__(self, items: list[tuple[Any, Any]]) -> None:
        self.items = items


def read(data: bytes) -> Any:
    """The value of canonical bytes: None, bool, int, str, bytes, list, Pairs."""
    value, end = _read(data, 0, 0)
    if end != len(data):
        raise NotCanonicalError("bytes behind the value")
    return value


def write(value: Any) -> bytes:
    """The shortest form of a value; whatever stands in `Raw` goes out as it is."""
    try:
        return msgspec.msgpack.encode(value)  # for its speed: the reader is what judges
    except (TypeError, ValueError, OverflowError):
        return _write(value)


def _write(value: Any) -> bytes:
    match value:
        case Raw():
            return value.data
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _integer(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            text = value.encode("utf-8", "surrogatepass")
            return head("str", len(text)) + text
        case bytes():
            return head("bin", len(value)) + value
        case list() | tuple():
            return head("array", len(value)) + b"".join(map(_write, value))
        case dict():
            return _write(Pairs(list(value.items())))
        case Pairs():
            pairs = b"".join(_write(key) + _write(item) for key, item in value.items)
            return head("map", len(value.items)) + pairs
    raise TypeError(type(value))


# Of each kind: the largest count in the first byte alone, that byte, and the wider forms.
_HEADS: Final[dict[str, tuple[int, int, tuple[int | None, int, int]]]] = {
    "str": (31, 0xA0, (0xD9, 0xDA, 0xDB)),
    "bin": (-1, 0, (0xC4, 0xC5, 0xC6)),
    "array": (15, 0x90, (None, 0xDC, 0xDD)),
    "map": (15, 0x80, (None, 0xDE, 0xDF)),
}


def head(kind: str, count: int, wider: int = 0) -> bytes:
    """What stands before so many bytes or elements; `wider` takes a form that is so much longer."""
    most, first, forms = _HEADS[kind]
    found = [bytes([first | count])] if count <= most else []
    for size, form in enumerate(forms):
        if form is not None and count < 1 << (8 << size):
            found.append(bytes([form]) + count.to_bytes(1 << size, "big"))
    return found[min(wider, len(found) - 1)]


def integer_forms(value: int) -> list[bytes]:
    """All forms of an integer, the shortest first."""
    found = []
    if -32 <= value < 128:
        found.append(struct.pack("b", value))
    for size, letter in enumerate("BHIQ"):
        if 0 <= value < 1 << (8 << size):
            found.append(bytes([0xCC + size]) + struct.pack(">" + letter, value))
    for size, letter in enumerate("bhiq"):
        if -(1 << ((8 << size) - 1)) <= value < 1 << ((8 << size) - 1):
            found.append(bytes([0xD0 + size]) + struct.pack(">" + letter, value))
    return sorted(found, key=len)


def _integer(value: int) -> bytes:
    if not -(2**63) <= value < 2**64:
        return head("str", 1) + b"?"  # what does not fit is no number at all
    return integer_forms(value)[0]


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(data) or depth > MAX_DEPTH:
        raise NotCanonicalError("cut off, or too deep")
    first = data[at]
    if first < 0x80:
        return first, at + 1
    if first in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at + 1
    if 0xCC <= first <= 0xD3 or first >= 0xE0:
        return _read_integer(data, at)
    kind, count, start = _read_head(data, at)
    if kind in ("str", "bin"):
        end = start + count
        if end > len(data):
            raise NotCanonicalError("cut off")
        found = data[start:end]
        return (found if kind == "bin" else _text(found)), end
    return _read_items(data, kind, count, start, depth)


def _read_items(data: bytes, kind: str, count: int, at: int, depth: int) -> tuple[Any, int]:
    items: list[Any] = []
    for _ in range(count * (2 if kind == "map" else 1)):
        item, at = _read(data, at, depth + 1)
        items.append(item)
    if kind == "array":
        return items, at
    keys = items[::2]
    if len({write(key) for key in keys}) != count:
        raise NotCanonicalError("a doubled key")
    return Pairs(list(zip(keys, items[1::2], strict=True))), at


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first >= 0xE0:
        return first - 256, at + 1
    size = 1 << ((first - 0xCC) % 4)
    digits = data[at + 1 : at + 1 + size]
    value = int.from_bytes(digits, "big", signed=first >= 0xD0)
    if len(digits) < size or (value >= 0) != (first < 0xD0):
        raise NotCanonicalError("an integer that is cut off, or signed without need")
    narrower = (-32, 128) if size == 1 else (-(1 << (4 * size - 1)), 1 << (4 * size))
    if value in range(*narrower):
        raise NotCanonicalError("an integer in a longer form")
    return value, at + 1 + size


def _read_head(data: bytes, at: int) -> tuple[str, int, int]:
    first = data[at]
    for kind, (most, short, forms) in _HEADS.items():
        if short <= first <= short + most:
            return kind, first - short, at + 1
        if first in forms:
            size = 1 << forms.index(first)
            digits = data[at + 1 : at + 1 + size]
            count = int.from_bytes(digits, "big")
            if len(digits) < size or len(head(kind, count)) != size + 1:
                raise NotCanonicalError("a length that is cut off, or in a longer form")
            return kind, count, at + 1 + size
    raise NotCanonicalError("a float, an extension or no value")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotCanonicalError("text that is no UTF-8") from None
