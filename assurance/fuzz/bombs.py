"""Inputs that promise more than they hold, or are of one thing only, over and over."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from assurance.fuzz.messagepack import Raw, head, write
from assurance.fuzz.mutation import places_in, put, unpacked, value_at

MANY: Final = 100_000
_HUGE: Final = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "bin": b"\xc6\xff\xff\xff\xff",
    "str": b"\xdb\xff\xff\xff\xff",
    "extension": b"\xc9\xff\xff\xff\xff\x01",
    "arrays in arrays": b"\x91" * MANY,
    "maps in maps": b"\x81\xa1n" * MANY,
    "maps as keys": b"\x81" * MANY,
}
_LONG: Final[dict[str, Any]] = {
    "nothing": [None] * MANY,
    "empty lists": [[]] * MANY,
    "empty maps": [{}] * MANY,
    "keys": {f"{n:x}": 0 for n in range(MANY)},
    "numbers as keys": dict.fromkeys(range(MANY), 0),
    "bytes": bytes(1 << 20),
    "text": "\u20ac" * (1 << 18),
    "the largest number": 2**64 - 1,
}
_FILLERS: Final = [
    *map(Raw, _HUGE.values()),
    *(Raw(write(value)) for value in _LONG.values()),
    Raw(head("map", MANY) + write({"n": 0})[1:] * MANY),
]


def in_messagepack(seed: bytes, places: int = 12, which: slice = slice(None)) -> Iterator[bytes]:
    """The seed with each of these in so many of its places, and each of them alone."""
    fillers = _FILLERS[which]
    for filler in fillers:
        yield filler.data
        yield seed[:1] + filler.data
    found = unpacked(seed)
    if found is None:
        return
    prefix, value = found
    count = len(list(places_in([value])))
    for number in range(0, count, max(1, count // places)):
        holder = [copy.deepcopy(value)]
        place = list(places_in(holder))[number]
        old = value_at(place)
        much: list[Any] = [old * (MANY // 100)] if isinstance(old, list) else []
        for filler in (*fillers, *much):
            put(place, filler)
            yield prefix + write(holder[0])


def in_json() -> Iterator[bytes]:
    for opening, closing in ((b"[", b"]"), (b'{"name":', b"}"), (b"[{", b"}]")):
        yield opening * MANY
        yield opening * 500 + b"1" + closing * 500
    for element in (b"[]", b"{}", b"0", b'""', b"1.5", b"null", b'{"name":{}}', b"1e308", b"[[]]"):
        yield b"[" + b",".join([element] * (MANY // 4)) + b"]"
        yield b'{"name":[' + b",".join([element] * (MANY // 4)) + b"]}"
    yield b"{" + b",".join(b'"name":"x"' for _ in range(MANY // 5)) + b"}"
    yield b"{" + b",".join(b'"%x":0' % n for n in range(MANY // 5)) + b"}"
    for number in (
        b"1" * MANY,
        b"-" + b"9" * MANY,
        b"0." + b"1" * MANY,
        b"1e" + b"9" * 20,
        b"1" * 4301,
    ):
        yield number
        yield b'{"name":"x","count":' + number + b"}"
        yield b'"' + number + b'"'
    for text in (b"x", b"\\u0000", b"\\ud83d\\ude00", "\u20ac".encode(), b"\\n"):
        yield b'"' + text * (MANY // 4) + b'"'
    yield b" " * MANY
    yield b'"' + b"\\" * MANY


def in_words(many: int = MANY // 5) -> Iterator[bytes]:
    for word in (
        b"a",
        b"0",
        b"9",
        b".",
        b"a.",
        b"1.",
        b":",
        b"/",
        b"%",
        b"\xff",
        "\u20ac".encode(),
        b"&",
        b"=",
        b"a=1&",
    ):
        yield word * many
        for scheme in (b"https://", b"http://"):
            yield scheme + word * many
    for text in (
        "\uff11",
        "\u00ad",
        "xn--",
        "xn--\u00e9",
        "\u0130",
        "\ufdfa",
        "0x",
        "[",
        "[:",
        "@",
    ):
        yield b"https://" + text.encode() * (many // 10)
    yield b"https://" + b"a" * 63 + (b"." + b"a" * 63) * 1000
    yield b"https://a:" + b"9" * many
