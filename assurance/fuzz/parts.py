"""Sealed parts: their keys, their lists of segments, and the segments, under a known container key.

See docs/spec/container.md. An opened part is compared with the plaintext that was sealed.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from assurance.fuzz import variations as v
from assurance.fuzz.target import feed, kept
from scbroker.client.core.sealing import OpenPart
from scbroker.client.parts import open_run
from scbroker.crypto.seal import seal
from scbroker.crypto.verify import sha256
from scbroker.errors import DecryptionError, IntegrityError
from scbroker.records.container_record import (
    SEGMENT,
    Part,
    Role,
    check_segment_hashes,
    part_key_context,
    segment_context,
    segment_count,
    segments_hash,
)
from tests.vectors.cast import chosen

KEY, SEGMENTS, HASHES = 1, 2, 4
# Of each: the role, the true length, the padded one. The last has two segments.
_SHAPES: Final = (
    (0, 16, 32), (1, 0, 0), (1, 11, 11), (1, 0, 64), (1, 16_384, 16_384), (1, SEGMENT, SEGMENT + 5),
)  # fmt: skip
_CONTAINER_KEY: Final = chosen("fuzz", "container key")


def _sealed(given: v.Document, key: bytes, first: int, pieces: list[bytes]) -> list[bytes]:
    """Seal pieces as the segments from `first` on of the part that the document describes."""
    place = given["container"], given["partId"], Role(given["role"] % 2), given["author"]
    last = segment_count(given["padded"]) - 1
    return [
        seal(key, segment_context(*place, first + n, first + n == last), piece)
        for n, piece in enumerate(pieces)
    ]


@cache
def _part(base: int) -> v.Document:
    role, length, padded = _SHAPES[base % len(_SHAPES)]
    key = chosen("fuzz", base)
    plain = b"\x2a" * length + bytes(padded - length)
    found: v.Document = {
        "container": chosen("fuzz", "container", size=16),
        "role": role,
        "partId": chosen("fuzz", base, size=16),
        "author": chosen("fuzz", "author"),
        "padded": padded,
    }
    pieces = [plain[at : at + SEGMENT] for at in range(0, padded, SEGMENT)] or [b""]
    sealed = _sealed(found, key, 0, pieces)
    inner = key + length.to_bytes(8, "big")
    context = part_key_context(found["container"], found["partId"], Role(role), found["author"])
    hashes = b"".join(map(sha256, sealed))
    return found | {
        "segments": segments_hash(padded, hashes), "sealedKey": seal(_CONTAINER_KEY, context, inner),
        "hashes": hashes, "sealed": sealed, "inner": inner, "plain": pieces, "first": 0,
    }  # fmt: skip


def _octets(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


def _run(data: bytes) -> None:
    """Fixups: 1 seals the edited part key, 2 seals the edited segments, 4 lists the segments' hashes."""
    found = v.Program.parse(data)
    true = _part(found.base)
    given = found.applied(true)
    padded, sizes = given["padded"], {"container": 16, "partId": 16, "author": 32}
    if not (isinstance(given["role"], int) and isinstance(padded, int) and 0 <= padded <= 2**40):
        return
    if any(len(_octets(given[name])) != size for name, size in sizes.items()):
        return
    role = Role(given["role"] % 2)
    first = given["first"] if isinstance(given["first"], int) and 0 <= given["first"] < 2**20 else 0
    inner, plain = true["inner"], true["plain"]
    if found.fixups & KEY:
        inner = _octets(given["inner"])
        context = part_key_context(given["container"], given["partId"], role, given["author"])
        given["sealedKey"] = seal(_CONTAINER_KEY, context, inner)
    sealed = [item for item in v.list_of(given["sealed"]) if isinstance(item, bytes)]
    if found.fixups & SEGMENTS:
        plain = [item for item in v.list_of(given["plain"]) if isinstance(item, bytes)]
        if len(inner) >= 32:
            sealed = _sealed(given, inner[:32], first, plain)
    hashes = _octets(given["hashes"])
    if found.fixups & HASHES:
        hashes = bytes(32 * min(first, 64)) + b"".join(map(sha256, sealed))
        given["segments"] = segments_hash(padded, hashes)
    if (len(_octets(given["segments"])), len(_octets(given["sealedKey"]))) != (32, 112):
        return
    feed(*sealed, hashes)
    part = Part(given["partId"], given["author"], padded, given["segments"], given["sealedKey"])
    opened = OpenPart.open(given["container"], role, part, _CONTAINER_KEY)
    kept(opened.key + opened.length.to_bytes(8, "big") == inner, "another part key came out")
    kept(opened.length <= padded, "longer than its padding")
    check_segment_hashes(part, hashes)
    if sealed:
        joined = memoryview(b"".join(sealed))
        target = memoryview(bytearray(len(joined)))
        run = bytes(target[: open_run(opened, first, joined, hashes, target)])
        whole = b"".join(plain)
        kept(run == whole[: max(0, opened.length - first * SEGMENT)], "another content came out")
        kept(not any(whole[len(run) :]), "padding that is not zero")


def _programs() -> list[bytes]:
    part = _part(2)
    return [
        *(v.program(base) for base in range(len(_SHAPES))),
        *(v.program(base, KEY | SEGMENTS | HASHES) for base in range(len(_SHAPES))),
        v.program(2, 0, (v.FLIP, v.path_to(part, "sealed", 0), 1)),
        v.program(2, HASHES, (v.FLIP, v.path_to(part, "sealed", 0), 1)),
        v.program(2, 7, (v.ADD, v.path_to(part, "padded"), 1)),
        v.program(3, 7, (v.FLIP, v.path_to(part, "plain", 0), 1)),
        v.program(2, 7, (v.DOUBLE, v.path_to(part, "sealed", 0), None)),
    ]


def _bombs() -> Iterator[bytes]:
    for padded in (2**40, 2**40 - 1, SEGMENT * 2**19, SEGMENT):
        for fixups in (KEY | SEGMENTS | HASHES, 0):
            yield v.program(2, fixups, (v.SET, v.path_to(_part(2), "padded"), padded))


_REFUSALS: Final = (IntegrityError, DecryptionError)
TARGETS: Final = (
    v.program_target("part", _run, _REFUSALS, _programs, (_part, len(_SHAPES), 3), _bombs),
)
