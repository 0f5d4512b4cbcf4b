"""Access lists: entries, their salted hashes, what a reader without ViewAccess gets to see.

Spec: docs/spec/container.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, labelled_hash
from scbroker.errors import IntegrityError
from scbroker.records.canonical import Bin32, KeyIndex, Row, Time, decode_value, encode_value
from scbroker.vocabulary import ContainerAccessLevel

MAX_ENTRIES: Final = 1024
MAX_ENTRY: Final = 128


class Entry(Row, frozen=True):
    """What one user may do with one container, from one change of access to the next."""

    fingerprint: Bin32
    keyIndex: KeyIndex
    permissions: Annotated[int, Meta(ge=1, le=511)]
    expiresAt: Time | None
    wrapHash: Bin32 | None

    def is_expired(self, time: int) -> bool:
        return self.expiresAt is not None and self.expiresAt <= time

    def allows(self, needed: int) -> bool:
        return self.permissions & needed == needed


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
    """The hash that a record names; `entry_hashes` are all of the list's, concatenated."""
    return labelled_hash(
        "access-list", container_id, access_version.to_bytes(8, "big"), entry_hashes
    )


@dataclass(frozen=True, slots=True)
class AccessList:
    """A list as far as it was disclosed: entries by fingerprint, in order.

    `complete` is true when every entry was disclosed; else an absent user may be a hidden one.
    """

    entries: Mapping[bytes, Entry]
    entryHashes: bytes
    complete: bool

    @classmethod
    def whole(cls, salted: Sequence[SaltedEntry]) -> AccessList:
        """A list of which everything is known."""
        hashes = b"".join(item.hash for item in salted)
        return cls.disclosed(hashes, list(enumerate(salted)))

    @classmethod
    def disclosed(cls, entry_hashes: bytes, shown: Sequence[tuple[int, SaltedEntry]]) -> AccessList:
        """A list known by all its entries' hashes and some of the entries, by position."""
        count, rest = divmod(len(entry_hashes), HASH_SIZE)
        if rest or not 1 <= count <= MAX_ENTRIES:
            raise IntegrityError("An access list has 1 to 1,024 entries.")
        entries: dict[bytes, Entry] = {}
        last_position, last_fingerprint = -1, b""
        for position, salted in shown:
            if not last_position < position < count or len(salted.salt) != HASH_SIZE:
                raise IntegrityError("An access list's entries are out of order.")
            if salted.hash != entry_hashes[position * HASH_SIZE : (position + 1) * HASH_SIZE]:
                raise IntegrityError("An access list's entry is not the one that was signed.")
            entry = parse_entry(salted.entry)
            if entry.fingerprint <= last_fingerprint:
                raise IntegrityError("An access list is not in strictly ascending order.")
            entries[entry.fingerprint] = entry
            last_position, last_fingerprint = position, entry.fingerprint
        return cls(MappingProxyType(entries), entry_hashes, complete=len(entries) == count)

    def unexpired(self, time: int) -> dict[bytes, Entry]:
        return {name: entry for name, entry in self.entries.items() if not entry.is_expired(time)}

    def has_expired(self, time: int) -> bool:
        return any(entry.is_expired(time) for entry in self.entries.values())

    def entry_of(self, fingerprint: bytes, time: int) -> Entry | None:
        """The user's entry, unless there is none, it was not disclosed, or it is expired."""
        entry = self.entries.get(fingerprint)
        return None if entry is None or entry.is_expired(time) else entry


def encode_entry(entry: Entry) -> bytes:
    return encode_value(entry)


def parse_entry(data: bytes) -> Entry:
    """An entry that is well-formed and whose combination of permissions is allowed."""
    entry = decode_value(Entry, data, MAX_ENTRY)
    permissions = ContainerAccessLevel(entry.permissions)
    if permissions.missing():
        raise IntegrityError("An access list's entry has a combination that is not allowed.")
    if entry.wrapHash is not None and not permissions & ContainerAccessLevel.Decrypt:
        raise IntegrityError("A wrap goes only to those who may decrypt.")
    return entry
