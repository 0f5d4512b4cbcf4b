"""Parts, their segments and sealed keys: docs/spec/container.md, 3 and 6."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from tests.independent import encodings as e
from tests.independent.encodings import label, labelled_hash, need, sha256, u8, u64
from tests.independent.keys import cobblestone_open, cobblestone_seal, cobblestone_size

SEGMENT = 1_048_576
HEADER, CONTENT = 0, 1
LONGEST = {HEADER: 262_144, CONTENT: 2**20 * SEGMENT}


@dataclass(frozen=True)
class Part(e.Object):
    part_id: e.Id
    author: e.Hash
    padded_length: Annotated[int, lambda value: e.integer(value, 0, LONGEST[CONTENT])]
    segments: e.Hash
    sealed_key: Annotated[bytes, lambda value: e.octets(value, 112)]


# 6: what follows from paddedLength


def segment_count(padded_length: int) -> int:
    return max(1, -(-padded_length // SEGMENT))


def segment_size(padded_length: int, index: int) -> int:
    last = segment_count(padded_length) - 1
    return padded_length - last * SEGMENT if index == last else SEGMENT


def segments_hash(padded_length: int, hashes: bytes) -> bytes:
    return labelled_hash("segments", u64(padded_length) + hashes)


@dataclass(frozen=True)
class Place:
    """Where a part stands."""

    container_id: bytes
    part_id: bytes
    role: int
    author: bytes

    @property
    def octets(self) -> bytes:
        return self.container_id + self.part_id + u8(self.role) + self.author

    def segment_context(self, index: int, last: bool) -> bytes:
        return label("segment") + self.octets + u64(index) + u8(last)

    def key_context(self) -> bytes:
        return label("part-key") + self.octets


# 3: sealed keys


def seal_part_key(container_key: bytes, place: Place, part_key: bytes, length: int) -> bytes:
    return cobblestone_seal(container_key, place.key_context(), part_key + u64(length))


def open_part_key(
    container_key: bytes, place: Place, padded_length: int, sealed_key: bytes
) -> tuple[bytes, int]:
    opened = cobblestone_open(container_key, place.key_context(), sealed_key)
    part_key, length = opened[:32], int.from_bytes(opened[32:], "big")
    need(length <= padded_length, "a length beyond the padding")
    return part_key, length


# 6: whole parts


def open_part(
    container_id: bytes,
    role: int,
    part: Part,
    container_key: bytes,
    hashes: bytes,
    sealed: Sequence[bytes],
) -> bytes:
    place = Place(container_id, part.part_id, role, part.author)
    part_key, length = open_part_key(container_key, place, part.padded_length, part.sealed_key)
    count = segment_count(part.padded_length)
    need(segments_hash(part.padded_length, hashes) == part.segments, "another list of hashes")
    need(len(hashes) == 32 * count and len(sealed) == count, "another number of segments")
    plaintext = b""
    for index, segment in enumerate(sealed):
        size = cobblestone_size(segment_size(part.padded_length, index))
        need(len(segment) == size, "a segment of another size")
        need(sha256(segment) == hashes[32 * index : 32 * index + 32], "another segment")
        context = place.segment_context(index, index == count - 1)
        plaintext += cobblestone_open(part_key, context, segment)
    need(not any(plaintext[length:]), "padding that is not zero")
    return plaintext[:length]


@dataclass(frozen=True)
class SealedPart:
    part: Part
    part_key: bytes
    length: int
    hashes: bytes
    sealed: list[bytes]


def make_part(
    container_id: bytes,
    role: int,
    author: bytes,
    container_key: bytes,
    plaintext: bytes,
    padded_length: int,
) -> SealedPart:
    part_key = secrets.token_bytes(32)
    place = Place(container_id, secrets.token_bytes(16), role, author)
    padded = plaintext + bytes(padded_length - len(plaintext))
    count = segment_count(padded_length)
    sealed = [
        cobblestone_seal(
            part_key,
            place.segment_context(index, index == count - 1),
            padded[index * SEGMENT : (index + 1) * SEGMENT],
        )
        for index in range(count)
    ]
    hashes = b"".join(map(sha256, sealed))
    part = Part(
        place.part_id,
        author,
        padded_length,
        segments_hash(padded_length, hashes),
        seal_part_key(container_key, place, part_key, len(plaintext)),
    )
    return SealedPart(part, part_key, len(plaintext), hashes, sealed)


def sealed_again(
    container_id: bytes, role: int, carried: SealedPart, container_key: bytes
) -> SealedPart:
    """The part with its key under another container key, as a change of access carries it."""
    place = Place(container_id, carried.part.part_id, role, carried.part.author)
    sealed_key = seal_part_key(container_key, place, carried.part_key, carried.length)
    return replace(carried, part=replace(carried.part, sealed_key=sealed_key))
