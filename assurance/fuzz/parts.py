"""Sealed parts: their keys, their lists of segments, and the segments, under a known container key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from assurance.fuzz import programs
from assurance.fuzz.engine import Target, feed, kept
from assurance.fuzz.programs import Document, Program, path_to, program
from scbroker.client.core.sealing import OpenPart
from scbroker.client.parts.downloads import open_run
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
_LARGE: Final = 1 << 16
_CONTAINER_KEY: Final = chosen("fuzz", "container key")


@cache
def _part(base: int) -> Document:
    role, length, padded = _SHAPES[base % len(_SHAPES)]
    ident, author, key = (
        chosen("fuzz", base, size=16),
        chosen("fuzz", "author"),
        chosen("fuzz", base),
    )
    plain = b"\x2a" * length + bytes(padded - length)
    pieces = [plain[at : at + SEGMENT] for at in range(0, padded, SEGMENT)] or [b""]
    container = chosen("fuzz", "container", size=16)
    sealed = [
        seal(
            key,
            segment_context(container, ident, Role(role), author, n, n == len(pieces) - 1),
            piece,
        )
        for n, piece in enumerate(pieces)
    ]
    inner = key + length.to_bytes(8, "big")
    context = part_key_context(container, ident, Role(role), author)
    hashes = b"".join(map(sha256, sealed))
    return {
        "container": container, "role": role, "partId": ident, "author": author, "padded": padded,
        "segments": segments_hash(padded, hashes), "sealedKey": seal(_CONTAINER_KEY, context, inner),
        "hashes": hashes, "sealed": sealed, "inner": inner, "plain": pieces, "first": 0,
    }  # fmt: skip


def _shown(base: int) -> Document:
    """What a mutator looks at: the same without a mebibyte in it."""
    found = _part(base)
    return {
        name: value[:_LARGE] if isinstance(value, bytes) else value for name, value in found.items()
    }


def _is_bytes(size: int, *values: Any) -> bool:
    return all(isinstance(value, bytes) and len(value) == size for value in values)


def _run(data: bytes) -> None:
    """Fixups: 1 seals what is inside of the part key, 2 the segments, 4 names the segments' hashes."""
    found = Program.parse(data)
    given = found.applied(_part(found.base))
    number, padded = given["role"], given["padded"]
    if not (isinstance(number, int) and isinstance(padded, int) and 0 <= padded <= 2**40):
        return
    if not (_is_bytes(16, given["container"], given["partId"]) and _is_bytes(32, given["author"])):
        return
    role = Role(number % 2)
    first = given["first"] if isinstance(given["first"], int) and 0 <= given["first"] < 2**20 else 0
    plain = (
        [item for item in given["plain"] if isinstance(item, bytes)]
        if isinstance(given["plain"], list)
        else []
    )
    inner = given["inner"] if isinstance(given["inner"], bytes) else b""
    true = _part(found.base)
    if not found.fixups & SEGMENTS:
        plain = true["plain"]
    if not found.fixups & KEY:
        inner = true["inner"]
    else:
        context = part_key_context(given["container"], given["partId"], role, given["author"])
        given["sealedKey"] = seal(_CONTAINER_KEY, context, inner)
    sealed = (
        [item for item in given["sealed"] if isinstance(item, bytes)]
        if isinstance(given["sealed"], list)
        else []
    )
    if found.fixups & SEGMENTS and len(inner) >= 32:
        count = segment_count(padded)
        contexts = [
            segment_context(given["container"], given["partId"], role, given["author"], first + n,
                            first + n == count - 1)
            for n in range(len(plain))
        ]  # fmt: skip
        sealed = [
            seal(inner[:32], context, piece) for context, piece in zip(contexts, plain, strict=True)
        ]
    hashes = given["hashes"] if isinstance(given["hashes"], bytes) else b""
    if found.fixups & HASHES:
        hashes = bytes(32 * min(first, 64)) + b"".join(map(sha256, sealed))
        given["segments"] = segments_hash(padded, hashes)
    if not (_is_bytes(32, given["segments"]) and _is_bytes(112, given["sealedKey"])):
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
        kept(not any(whole[len(run) :]), "what is behind the length is not zero")


def _programs() -> list[bytes]:
    first = _part(2)
    return [
        *(program(base) for base in range(len(_SHAPES))),
        *(program(base, KEY | SEGMENTS | HASHES) for base in range(len(_SHAPES))),
        program(2, 0, (programs.FLIP, path_to(first, "sealed", 0), 1)),
        program(2, HASHES, (programs.FLIP, path_to(first, "sealed", 0), 1)),
        program(2, 7, (programs.ADD, path_to(first, "padded"), 1)),
        program(3, 7, (programs.FLIP, path_to(first, "plain", 0), 1)),
        program(2, 7, (programs.DOUBLE, path_to(first, "sealed", 0), None)),
    ]


def _bombs() -> Iterator[bytes]:
    first = _part(2)
    names = (
        ("plain",),
        ("plain", 0),
        ("sealed",),
        ("sealed", 0),
        ("hashes",),
        ("inner",),
        ("sealedKey",),
    )
    for fixups in (KEY | SEGMENTS | HASHES, HASHES):
        yield from programs.bombs(first, fixups, *names)
    for padded in (2**40, 2**40 - 1, SEGMENT * 2**19, SEGMENT):
        for fixups in (KEY | SEGMENTS | HASHES, 0):
            yield program(2, fixups, (programs.SET, path_to(first, "padded"), padded))


TARGETS: Final = (
    Target(
        "part",
        _run,
        (IntegrityError, DecryptionError),
        _programs,
        programs.mutator(_shown, len(_SHAPES), 3),
        _bombs,
        seconds=2.0,
        spare=8 << 20,
    ),
)
