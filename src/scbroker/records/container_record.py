"""The grammar of container records and access lists, with the contexts and hashes that bind their parts.

`judge` decides whether a record may follow those before it. Spec: docs/spec/container.md, 1 to 6.
"""

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Self

import msgspec
from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, label, labelled_hash
from scbroker.errors import IntegrityError, InvalidArgumentError
from scbroker.records import canonical
from scbroker.records.canonical import Bin32, KeyIndex, Row, Time, decode_object, decode_value
from scbroker.vocabulary import ContainerAccessLevel

LABEL: Final = "container-record"
MAX_RECORD: Final = 2048
_PARSED: Final = 512
"""Size of the cache of parsed records: one call or request asks for fields of a record in several places."""
_PARTS: Final = (9, 10)
"""The positions of header and content in the array."""
MAX_TYPE: Final = 256
GROUP_TYPE: Final = "scbroker-group:"
"""The type of every group's container begins with it, and that of no other container (groups.md, 2)."""
OWN_TYPES: Final = "scbroker."
"""The types of a user's own documents begin with it: address book and list of links (section 5)."""
SEGMENT: Final = 1_048_576
SEALED_KEY_SIZE: Final = 112
SEALED_SEGMENT: Final = 1_049_672
MAX_HEADER: Final = 262_144
MAX_SEGMENTS: Final = 2**20
MAX_ENTRIES: Final = 1024
MAX_ENTRY: Final = 128
_WRONG_SIZE: Final = "An access list has 1 to 1,024 entries."
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
    accessVia: Bin32 | None = None
    """The name of the group for which accessAuthor acted."""


class Via(Row, frozen=True):
    """The group for which an author acts, and the governing record of it that proves the membership."""

    group: Bin32
    epoch: canonical.EntryIndex
    version: Version
    hash: Bin32


class Part(Row, frozen=True):
    """A header or content: the hash of its segments, and its sealed key."""

    partId: canonical.Bin16
    author: Bin32
    paddedLength: Annotated[int, Meta(ge=0, le=SEGMENT * MAX_SEGMENTS)]
    segments: Bin32
    sealedKey: Annotated[bytes, Meta(min_length=SEALED_KEY_SIZE, max_length=SEALED_KEY_SIZE)]


class ContainerRecord(Row, frozen=True):
    containerId: canonical.Bin16
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
    via: Via | None = None

    @property
    def changes_access(self) -> bool:
        return self.governing is not None and self.governing.accessVersion == self.version

    def part(self, role: Role) -> Part | None:
        return self.header if role is Role.Header else self.content


_EitherForm: Final = msgspec.defstruct(
    "_ContainerRecord",
    [
        (field.name, Part | Bin32 | None if field.name in ("header", "content") else field.type)
        for field in msgspec.structs.fields(ContainerRecord)[:-1]
    ]
    + [("via", Via | None, None)],
    bases=(Row,),
    frozen=True,
)
"""A record in whole or bare form: in the bare one, a hash stands in place of each part (section 2)."""


class Parsed(NamedTuple):
    """A record that is well-formed by itself, as its body gives it."""

    record: ContainerRecord
    """Without parts, if the body is in bare form."""
    bare: bytes
    """The bare form, which the hash and the signature cover (section 2)."""
    hash: bytes
    is_whole: bool


@functools.lru_cache(_PARSED)
def parse_either(body: bytes) -> Parsed:
    """Parse a record in whole or bare form; raise `IntegrityError` for any other bytes."""
    fields = list(msgspec.structs.astuple(decode_object(_EitherForm, body, MAX_RECORD)))
    bare = _bare(fields)
    is_whole = not any(isinstance(fields[position], bytes) for position in _PARTS)
    if not is_whole:
        for position in _PARTS:
            fields[position] = None
    record = ContainerRecord(*fields)
    check_form(record)
    return Parsed(record, bare, labelled_hash(LABEL, bare), is_whole)


def parse_record(body: bytes) -> ContainerRecord:
    """Parse a record in whole form; raise `IntegrityError` for any other bytes."""
    parsed = parse_either(body)
    if not parsed.is_whole:
        raise IntegrityError("The bytes of a ContainerRecord are not of its format.")
    return parsed.record


def check_form(record: ContainerRecord) -> None:
    """Raise `IntegrityError` unless the fields of a record agree with each other (section 2)."""
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
    if first and (record.via or (record.governing and record.governing.accessVia)):
        raise IntegrityError("A first record is made through a group: version 1 has no via.")
    parts = {part.partId for part in (record.header, record.content) if part is not None}
    if record.header is not None and record.content is not None and len(parts) == 1:
        raise IntegrityError("Header and content of a record have the same part id.")
    if record.header is not None and record.header.paddedLength > MAX_HEADER:
        raise IntegrityError("A header is larger than 262,144 bytes.")


def bare_body(body: bytes) -> bytes:
    """Return the record's bare form, in which each part is replaced by its hash (section 2).

    The signature and the record's hash cover this form, and a broker keeps it after a deletion. `body` may
    be in either form. Raises `IntegrityError` for bytes that are not a record; its fields are not checked.
    """
    fields: list[Any] = decode_value(list, body[1:], MAX_RECORD - 1)
    if body[:1] != canonical.VERSION or len(fields) != len(ContainerRecord.__struct_fields__):
        raise IntegrityError("The bytes of a ContainerRecord are not of its format.")
    return _bare(fields)


def bare_form(record: ContainerRecord) -> bytes:
    """Return the bare form of a parsed whole record."""
    return _bare(msgspec.structs.astuple(record))


def _bare(fields: Sequence[Any]) -> bytes:
    found = list(fields)
    for position in _PARTS:
        if isinstance(found[position], Part | list):
            found[position] = labelled_hash("part", canonical.encode_value(found[position]))
    return canonical.VERSION + canonical.encode_value(found)


def record_hash(body: bytes) -> bytes:
    return labelled_hash(LABEL, bare_body(body))


def key_commitment(container_id: bytes, container_key: bytes) -> bytes:
    return labelled_hash("container-key", container_id, container_key)


def type_hash(container_id: bytes, salt: bytes, text: str | None) -> bytes:
    return labelled_hash("type", container_id, salt, canonical.encode_value(text))


def is_group_type(text: str | None) -> bool:
    return text is not None and text.startswith(GROUP_TYPE)


def check_type(text: str | None) -> None:
    """Raise `IntegrityError` for a text that is not the type of an ordinary container (section 5).

    The type of a group's container is verified by `roster.check_group_type` instead.
    """
    if text is None:
        return
    if is_group_type(text):
        raise IntegrityError(
            f"A container that is not a group's has a type that begins with {GROUP_TYPE}."
        )
    try:
        canonical.check_printable("A container's type", text)
    except InvalidArgumentError as error:
        raise IntegrityError(str(error)) from None
    if len(text.encode()) > MAX_TYPE:
        raise IntegrityError("A container's type has more than 256 bytes of UTF-8.")


def wrap_info(container_id: bytes, governing: Governing, recipient: bytes, key_index: int) -> bytes:
    """Return the info that binds a wrap of the container key to its place (section 3)."""
    return (
        label("wrap")
        + container_id
        + governing.accessVersion.to_bytes(8, "big")
        + governing.accessAuthor
        + recipient
        + key_index.to_bytes(4, "big")
    )


def part_key_context(container_id: bytes, part_id: bytes, role: Role, author: bytes) -> bytes:
    """Return the context that binds a sealed part key to its place (section 3)."""
    return label("part-key") + container_id + part_id + bytes([role]) + author


def segment_context(
    container_id: bytes, part_id: bytes, role: Role, author: bytes, index: int, last: bool
) -> bytes:
    """Return the context that binds a sealed segment to its place (section 6)."""
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


class Entry(Row, frozen=True):
    """The permissions of one user, or of one group, from one change of access to the next."""

    fingerprint: Bin32
    """The user's, or the name of the group."""
    keyIndex: canonical.EntryIndex
    """The encryption key, or the epoch, that the container key is wrapped to."""
    permissions: Annotated[int, Meta(ge=1, le=511)]
    expiresAt: Time | None
    wrapHash: Bin32 | None

    def is_expired(self, time: int) -> bool:
        return self.expiresAt is not None and self.expiresAt <= time

    def allows(self, needed: int) -> bool:
        bits = int(needed)  # the operators of a Flag are Python functions: ten times as slow
        return self.permissions & bits == bits


class SaltedEntry(NamedTuple):
    """An entry's stored bytes with the salt of its hash."""

    salt: bytes
    entry: bytes

    @property
    def hash(self) -> bytes:
        return labelled_hash("access-entry", self.salt, self.entry)


def wrap_hash(wrap: bytes) -> bytes:
    return labelled_hash("wrap-hash", wrap)


def list_hash(container_id: bytes, access_version: int, entry_hashes: bytes) -> bytes:
    """Return the hash that a record names; `entry_hashes` are those of all entries, concatenated."""
    return labelled_hash(
        "access-list", container_id, access_version.to_bytes(8, "big"), entry_hashes
    )


@dataclass(frozen=True, slots=True)
class AccessList:
    """A verified list: the disclosed entries by fingerprint, in order.

    `complete` is true if every entry is disclosed; else an absent user may have a hidden entry.
    """

    entries: Mapping[bytes, Entry]
    entryHashes: bytes
    complete: bool

    @classmethod
    def whole(cls, salted: Sequence[SaltedEntry]) -> Self:
        """Return a list of which every entry is known; its hashes are computed from the entries."""
        if not 1 <= len(salted) <= MAX_ENTRIES:
            raise IntegrityError(_WRONG_SIZE)
        return cls(_entries(salted), b"".join(item.hash for item in salted), complete=True)

    @classmethod
    def made(cls, entries: Sequence[Entry], hashes: Sequence[bytes]) -> Self:
        """Return a list that this device makes, of entries in the order of their fingerprints."""
        if not 1 <= len(entries) <= MAX_ENTRIES:
            raise IntegrityError(_WRONG_SIZE)
        for entry in entries:
            check_entry(entry)
        found = {entry.fingerprint: entry for entry in entries}
        return cls(MappingProxyType(found), b"".join(hashes), complete=True)

    @classmethod
    def disclosed(cls, entry_hashes: bytes, shown: Sequence[tuple[int, SaltedEntry]]) -> Self:
        """Return a list known by the hashes of all entries, and by some entries with their positions.

        Raises `IntegrityError` unless each entry has the hash of its position.
        """
        count, rest = divmod(len(entry_hashes), HASH_SIZE)
        if rest or not 1 <= count <= MAX_ENTRIES:
            raise IntegrityError(_WRONG_SIZE)
        last = -1
        for position, salted in shown:
            if not last < position < count:
                raise IntegrityError("An access list's entries are out of order.")
            if salted.hash != entry_hashes[position * HASH_SIZE : (position + 1) * HASH_SIZE]:
                raise IntegrityError("An access list's entry is not the one that was signed.")
            last = position
        entries = _entries([salted for _, salted in shown])
        return cls(entries, entry_hashes, complete=len(entries) == count)

    def unexpired(self, time: int) -> dict[bytes, Entry]:
        return {name: entry for name, entry in self.entries.items() if not entry.is_expired(time)}

    def has_expired(self, time: int) -> bool:
        return any(entry.is_expired(time) for entry in self.entries.values())

    def entry_of(self, fingerprint: bytes, time: int) -> Entry | None:
        """Return the user's entry; None if it does not exist, is not disclosed, or has expired."""
        entry = self.entries.get(fingerprint)
        return None if entry is None or entry.is_expired(time) else entry


def _entries(salted: Sequence[SaltedEntry]) -> Mapping[bytes, Entry]:
    """Parse entries, which must be in strictly ascending order of their fingerprints."""
    entries: dict[bytes, Entry] = {}
    last = b""
    for item in salted:
        if len(item.salt) != HASH_SIZE:
            raise IntegrityError("An access list's entry has a salt of a wrong size.")
        entry = parse_entry(item.entry)
        if entry.fingerprint <= last:
            raise IntegrityError("An access list is not in strictly ascending order.")
        entries[entry.fingerprint] = entry
        last = entry.fingerprint
    return MappingProxyType(entries)


def check_entry(entry: Entry) -> None:
    """Raise `IntegrityError` unless an entry's combination of permissions is allowed."""
    if not _is_allowed(entry.permissions):
        raise IntegrityError("An access list's entry has a combination that is not allowed.")
    if entry.wrapHash is not None and not entry.allows(ContainerAccessLevel.Decrypt):
        raise IntegrityError("A wrap goes only to those who may decrypt.")


@functools.cache
def _is_allowed(permissions: int) -> bool:
    return not ContainerAccessLevel(permissions).missing()


def parse_entry(data: bytes) -> Entry:
    """Parse an entry; raise `IntegrityError` unless its combination of permissions is allowed."""
    entry = decode_value(Entry, data, MAX_ENTRY)
    check_entry(entry)
    return entry
