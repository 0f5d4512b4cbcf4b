"""MessagePack by hand: a writer of every form, and with it the judge of what is canonical.

The judge shares no rule with the library that the project decodes with: bytes are canonical if they are
what this writer makes of the value, which has neither floats nor extensions.
"""

import struct
from typing import Any, Final, NamedTuple

import msgspec

from assurance.fuzz.target import BrokenError


class Raw(NamedTuple):
    """Bytes that the writer emits as they are: another form of a value, or no value at all."""

    data: bytes


def canonical(data: bytes) -> Any:
    """Return the value of bytes that were accepted; raise `BrokenError` unless they are canonical."""
    try:
        value = msgspec.msgpack.decode(data)
        if write(value) == data and not _has_float(value):
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    raise BrokenError("accepted what is not canonical")


def _has_float(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, float) or any(map(_has_float, items))


def write(value: Any) -> bytes:
    """Return the shortest form of a value."""
    match value:
        case Raw():
            return value.data
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return integer_forms(value)[0]
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            text = value.encode("utf-8", "surrogatepass")
            return head("str", len(text)) + text
        case bytes():
            return head("bin", len(value)) + value
        case list() | tuple():
            return head("array", len(value)) + b"".join(map(write, value))
        case dict():
            pairs = b"".join(write(key) + write(item) for key, item in value.items())
            return head("map", len(value)) + pairs
    raise TypeError(type(value))


# Of each kind: the largest count in the first byte alone, that byte, and those of the wider forms.
_HEADS: Final[dict[str, tuple[int, int, tuple[int | None, int, int]]]] = {
    "str": (31, 0xA0, (0xD9, 0xDA, 0xDB)),
    "bin": (-1, 0, (0xC4, 0xC5, 0xC6)),
    "array": (15, 0x90, (None, 0xDC, 0xDD)),
    "map": (15, 0x80, (None, 0xDE, 0xDF)),
}


def head(kind: str, count: int, wider: int = 0) -> bytes:
    """Return what precedes so many bytes or elements; `wider` takes a form that is so much longer."""
    most, first, forms = _HEADS[kind]
    found = [bytes([first | count])] if count <= most else []
    for size, form in enumerate(forms):
        if form is not None and count < 1 << (8 << size):
            found.append(bytes([form]) + count.to_bytes(1 << size, "big"))
    return found[min(wider, len(found) - 1)]


def integer_forms(value: int) -> list[bytes]:
    """Return all forms of an integer, the shortest first; a text for one beyond 64 bits."""
    found = [struct.pack("b", value)] if -32 <= value < 128 else []
    for code, letter in enumerate("BHIQbhiq", 0xCC):
        try:
            found.append(bytes([code]) + struct.pack(">" + letter, value))
        except struct.error:
            continue
    return sorted(found, key=len) or [b"\xa1?"]


def other_forms(value: Any) -> list[bytes]:
    """Return forms of a value that no reader may accept: longer, with another count, a doubled key."""
    if value is None or isinstance(value, (bool, Raw)):
        return [b"\xc1"]
    if isinstance(value, int):
        return [*integer_forms(value)[1:], b"\xcb" + bytes(8)]
    body = write(value)
    kinds: dict[type, str] = {str: "str", bytes: "bin", list: "array", dict: "map"}
    kind = kinds[type(value)]
    count = len(value.encode("utf-8", "surrogatepass")) if kind == "str" else len(value)
    rest = body[len(head(kind, count)) :]
    forms = [head(kind, count, 1) + rest, head(kind, count, 2) + rest]
    forms += [head(kind, said) + rest for said in (count + 1, 2**32 - 1, 0)]
    if kind == "map" and value:
        pair = write(next(iter(value))) + b"\xc0"
        forms += [head(kind, count + 1) + pair + rest, head(kind, count + 1) + rest + pair]
    return forms
