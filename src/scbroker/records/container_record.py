"""The grammar of container records, with the contexts and hashes that bind their parts.

`judge` decides whether a record is valid after others. Spec: docs/spec/container.md, 1 to 6.
"""

import enum
import functools
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from scbroker.crypto.verify import HASH_SIZE, label, labelled_hash
from scbroker.errors import IntegrityError
from scbroker.records.canonical import (
    VERSION,
    Bin16,
    Bin32,
    KeyIndex,
    Row,
    Time,
    decode_object,
    decode_value,
    encode_value,
)

LABEL: Final = "container-record"
MAX_RECORD: Final = 2048
_PARSED: Final = 512
"""Records in each cache: an operation reads the same record several times."""
_PARTS: Final = (9, 10)
"""The positions of header and content in the array."""
MAX_TYPE: Final = 256
SEGMENT: Final = 1_048_576
SEALED_KEY_SIZE: Final = 112
SEALED_SEGMENT: Final = 1_049_672
MAX_HEADER: Final = 262_144
MAX_SEGMENTS: Final = 2**20
Version = Annotated[int, Meta(ge=1, le=2**53 - 1)]


class Role(enum.IntEnum):
    """One of a container's two parts."""

    Header = 0
    Content = 1


class Link(Row, frozen=True):
    """A reference to the last governing record before this one."""

    version: Version
    hash: Bin32


class Governing(Row, frozen=True):
    """The access list in force from this record on, and the commitment to the container key."""

    accessVersion: Version
    accessAuthor: Bin32
    accessList: Bin32
    keyCommitment: Bin32
    type: Bin32


class Part(Row, frozen=True):
    """A header or content: the hash of its segments, and its sealed key."""

    partId: Bin16
    author: Bin32
    paddedLength: Annotated[int, Meta(ge=0, le=SEGMENT * MAX_SEGMENTS)]
    segments: Bin32
    sealedKey: Annotated[bytes, Meta(min_length=SEALED_KEY_SIZE, max_length=SEALED_KEY_SIZE)]


class ContainerRecord(Row, frozen=True):
    containerId: Bin16
    nonce: Bin32 | None
    version: Version
    parent: Bin32 | None
    author: Bin32
    keyIndex: KeyIndex
    time: Time
    link: Link | None
    governing: Governing | None
    header: Part | None
    content: Part | None
    tombstone: bool

    @property
    def changes_access(self) -> bool:
        return self.governing is not None and self.governing.accessVersion == self.version

    def part(self, role: Role) -> Part | None:
        return self.header if role is Role.Header else self.content


@functools.lru_cache(_PARSED)
def parse_record(body: bytes) -> ContainerRecord:
    """Parse a record that is well-formed by itself; raise `IntegrityError` for any other."""
    record = decode_object(ContainerRecord, body, MAX_RECORD)
    first = record.version == 1
    if any((field is None) != first for field in (record.parent, record.link)):
        raise IntegrityError(
            f"A record of version {record.version} has a wrong parent or link: version 1 has neither, "
            "any other both."
        )
    if (record.nonce is not None) != first:
        raise IntegrityError(
            f"A record of version {record.version} has a wrong nonce: version 1 alone has one."
        )
    parts = {part.partId for part in (record.header, record.content) if part is not None}
    if record.header is not None and record.content is not None and len(parts) == 1:
        raise IntegrityError("Header and content of a record have the same part id.")
    if record.header is not None and record.header.paddedLength > MAX_HEADER:
        raise IntegrityError("A header is larger than 262,144 bytes.")
    return record


@functools.lru_cache(_PARSED)
def bare_body(body: bytes) -> bytes:
    """Return the record's bare form, in which each part is replaced by its hash (section 2).

    The signature and the record's hash cover this form, and a broker keeps it after a deletion. `body` may
    be in either form. Raises `IntegrityError` for bytes that are not a record.
    """
    fields = _fields(body)
    for position in _PARTS:
        if isinstance(fields[position], list):
            fields[position] = labelled_hash("part", encode_value(fields[position]))
    return VERSION + encode_value(fields)


@functools.lru_cache(_PARSED)
def parse_bare(body: bytes) -> ContainerRecord:
    """Parse a record without its parts, from a body in either form: its header and content are None."""
    fields = _fields(body)
    for position in _PARTS:
        if isinstance(fields[position], bytes) and len(fields[position]) == HASH_SIZE:
            fields[position] = None
    whole = parse_record(VERSION + encode_value(fields))
    return replace(whole, header=None, content=None)


def _fields(body: bytes) -> list[Any]:
    fields: list[Any] = decode_value(list, body[1:], MAX_RECORD - 1)
    if body[:1] != VERSION or len(fields) != len(ContainerRecord.__struct_fields__):
        raise IntegrityError("The bytes of a ContainerRecord are not of its format.")
    return fields


def record_hash(body: bytes) -> bytes:
    return labelled_hash(LABEL, bare_body(body))


def key_commitment(container_id: bytes, container_key: bytes) -> bytes:
    return labelled_hash("container-key", container_id, container_key)


def type_hash(container_id: bytes, salt: bytes, text: str | None) -> bytes:
    return labelled_hash("type", container_id, salt, encode_value(text))


def wrap_info(container_id: bytes, governing: Governing, recipient: bytes, key_index: int) -> bytes:
    """Return what a wrap of the container key is bound to (section 3)."""
    return (
        label("wrap")
        + container_id
        + governing.accessVersion.to_bytes(8, "big")
        + governing.accessAuthor
        + recipient
        + key_index.to_bytes(4, "big")
    )


def part_key_context(container_id: bytes, part_id: bytes, role: Role, author: bytes) -> bytes:
    """Return what a sealed part key is bound to (section 3)."""
    return label("part-key") + container_id + part_id + bytes([role]) + author


def segment_context(
    container_id: bytes, part_id: bytes, role: Role, author: bytes, index: int, last: bool
) -> bytes:
    """Return what a sealed segment is bound to (section 6)."""
    return (
        label("segment")
        + container_id
        + part_id
        + bytes([role])
        + author
        + index.to_bytes(8, "big")
        + bytes([last])
    )


def segments_hash(padded_length: int, hashes: bytes) -> bytes:
    """Return the hash that a part names; `hashes` are those of all sealed segments, concatenated."""
    return labelled_hash("segments", padded_length.to_bytes(8, "big"), hashes)


def sealed_size(plaintext: int) -> int:
    """Return the sealed size of so many bytes (docs/spec/ids.md, section 2)."""
    return plaintext + 56 + 16 * (plaintext // 16_384 + 1)


def segment_count(padded_length: int) -> int:
    return max(1, -(-padded_length // SEGMENT))


def check_segment_hashes(part: Part, hashes: bytes) -> None:
    """Raise `IntegrityError` unless these are the hashes that the part's author signed."""
    if (
        len(hashes) != HASH_SIZE * segment_count(part.paddedLength)
        or segments_hash(part.paddedLength, hashes) != part.segments
    ):
        raise IntegrityError("The list of segment hashes is not the one that was signed.")
