"""Compare an invalid vector with a valid one: do they differ in one spot?

A spot is one field of a vector, one value or element of its MessagePack, one token of its JSON text, or one
field of a sealed message. A truncated end or appended bytes are one spot too. Values that depend on the spot
are not compared: signatures, hashes of entries, and the links of later key records.
"""

import base64
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.vectors.files import Vector

MANY: Final = 2
"""Any number of spots above one."""

_ABOUT: Final = {"id", "comment", "result", "error", "rule", "beside", "signature"}
_HASHES: Final = {"entryHashes", "hash"}
_PREFIXES: Final = {
    "body": 1, "order": 1, "statement": 1, "keyRing": 1, "keyFile": 17, "entry": 0, "message": 0, "view": 0,
    "batchSignature": 1, "roster": 1, "member": 0, "opened": 1,
}  # fmt: skip
"""The fields that contain MessagePack, with the number of bytes before it."""
_LAYOUTS: Final = {"wrap": (1088, 32, 32, 16), "sealed": (24, 32), "sealedKey": (24, 32, 40, 16)}
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\w.+-]+|\s+|.', re.DOTALL)


def spots(content: dict[str, Any], valid: Vector, invalid: Vector) -> int:
    """Return in how many spots two vectors of a file differ: 0, 1 or `MANY`."""
    kind = invalid.get("kind")
    if valid.get("kind") != kind:
        return MANY
    given = {
        name
        for one in content["vectors"]
        if one["result"] == "invalid" and one.get("kind") == kind
        for name in one
    }
    names = (given & valid.keys() | invalid.keys()) - _ABOUT
    if "entries" in names:
        names -= _HASHES
    if "roster" in names:
        names -= {"type"}
    # A KeyRing inside of a KeyFile is sealed anew.
    names -= {"keyFile"} if "keyRing" in invalid else {"keyRing"}
    if "opened" in names:
        # An info is sealed anew, and its hash is that of the sealed bytes.
        names -= {"info", "sealed"} if valid.get("opened") != invalid["opened"] else {"info"}
    records = content.get("given", {}).get("records")
    found = 0
    for name in names:
        one, other = valid.get(name), invalid.get(name)
        if name == "records":
            found += _in_chains([records[n] for n in one or ()], [records[n] for n in other or ()])
        else:
            found += _in_values(name, one, other)
    return min(found, MANY)


def _in_chains(valid: list[dict[str, Any]], invalid: list[dict[str, Any]]) -> int:
    """Compare records with their lists. A key record after the spot has another hash in its last field."""
    if len(valid) != len(invalid):
        return _in_lists("", valid, invalid)
    found = 0
    for one, other in zip(valid, invalid, strict=True):
        if one.get("accessList") != other.get("accessList"):
            return MANY
        for name in ("roster", "type", "membership"):
            found += _in_values(name, one.get(name), other.get(name))
        cut = -64 if found else None
        found += _in_values("body", one["body"][:cut], other["body"][:cut])
    return found


def _in_values(name: str, valid: Any, invalid: Any) -> int:
    if valid == invalid:
        return 0
    if isinstance(valid, dict) and isinstance(invalid, dict):
        names = valid.keys() | invalid.keys()
        return sum(_in_values(each, valid.get(each), invalid.get(each)) for each in names)
    if isinstance(valid, list) and isinstance(invalid, list):
        return _in_lists(name, valid, invalid)
    if (
        isinstance(valid, str)
        and isinstance(invalid, str)
        and name in {*_PREFIXES, *_LAYOUTS, "header"}
    ):
        return _in_bytes(name, bytes.fromhex(valid), bytes.fromhex(invalid))
    if name == "card" and not _is_one_edit(valid, invalid):
        return _in_cards(valid, invalid)
    if name in ("text", "card"):
        return 1 if _is_one_edit(valid, invalid) else MANY
    return 1


def _in_cards(valid: str, invalid: str) -> int:
    """Compare the MessagePack of contact cards; the checksum before the end is computed again."""
    try:
        values = [msgspec.msgpack.decode(_card(text)) for text in (valid, invalid)]
    except (msgspec.DecodeError, ValueError):
        return MANY
    return _in_values("", *values)


def _card(text: str) -> bytes:
    digits = text.partition(":")[2].upper()
    return base64.b32decode(digits + "=" * (-len(digits) % 8))[1:-5]


def _in_lists(name: str, valid: list[Any], invalid: list[Any]) -> int:
    if len(valid) == len(invalid):
        return sum(_in_values(name, *pair) for pair in zip(valid, invalid, strict=True))
    longer, shorter = sorted((valid, invalid), key=len, reverse=True)
    one_more = any(longer[:n] + longer[n + 1 :] == shorter for n in range(len(longer)))
    return 1 if one_more or longer[: len(shorter)] == shorter else MANY


def _in_bytes(name: str, valid: bytes, invalid: bytes) -> int:
    if valid.startswith(invalid) or invalid.startswith(valid):
        return 1
    start, end = _range(valid, invalid)
    if any(first <= start and end <= last for first, last in _fields(name, valid)):
        return 1
    if name not in _PREFIXES:
        return MANY
    before = _PREFIXES[name]
    try:
        values = [msgspec.msgpack.decode(data[before:]) for data in (valid, invalid)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return MANY
    return _in_values("", *values) if valid[:before] == invalid[:before] else MANY


def _range(valid: bytes | str, invalid: bytes | str) -> tuple[int, int]:
    """Return the range of the valid one in which the two differ."""
    shorter = min(len(valid), len(invalid))
    start = same = 0
    while start < shorter and valid[start] == invalid[start]:
        start += 1
    while same < shorter - start and valid[~same] == invalid[~same]:
        same += 1
    return start, len(valid) - same


def _is_one_edit(valid: str, invalid: str) -> bool:
    """Return whether one character was replaced, removed or added, or the end was truncated."""
    start, end = _range(valid, invalid)
    grown = len(invalid) - len(valid)
    return valid.startswith(invalid) or (end - start <= 1 and end - start + grown <= 1)


def _fields(name: str, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the fields of an object."""
    if name == "header":
        yield from (token.span() for token in _TOKEN.finditer(data))
    elif name in _LAYOUTS:
        at = 0
        for size in _LAYOUTS[name]:
            yield at, at + size
            at += size
        yield at, len(data)
    else:
        before = _PREFIXES[name]
        yield 0, before
        yield from _leaves(data, before)


def _leaves(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the values of a valid MessagePack, and of the heads of its arrays and maps."""
    while at < len(data):
        end = at + _size(data, at)
        yield at, end
        at = end


def _size(data: bytes, at: int) -> int:
    """Return the size of the value at a position, or of its head if it is an array or a map."""
    head = data[at]
    if head in range(0xA0, 0xC0):
        return 1 + (head & 0x1F)
    for first in (0xC4, 0xD9):  # bin and str: a length of 1, 2 or 4 bytes
        if head in range(first, first + 3):
            size = 1 << head - first
            return 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "big")
    if head in range(0xCC, 0xD0):
        return 1 + (1 << head - 0xCC)
    return {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}.get(head, 1)
