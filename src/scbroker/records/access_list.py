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
_WRONG_SIZE: Final = "An access list has 1 to 1,024 entries."


class Entry(Row, frozen=True):
    """One user's permissions for one container, from one change of access to the next."""

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
    def whole(cls, salted: Sequence[SaltedEntry]) -> AccessList:
        """Return a list of which every entry is known; its hashes are computed from the entries."""
        if not 1 <= len(salted) <= MAX_ENTRIES:
            raise IntegrityError(_WRONG_SIZE)
        return cls(_entries(salted), b"".join(item.hash for item in salted), complete=True)

    @classmethod
    def disclosed(cls, entry_hashes: bytes, shown: Sequence[tuple[int, SaltedEntry]]) -> AccessList:
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


def encode_entry(entry: Entry) -> bytes:
    return encode_value(entry)


def parse_entry(data: bytes) -> Entry:
    """Parse an entry; raise `IntegrityError` unless its combination of permissions is allowed."""
    entry = decode_value(Entry, data, MAX_ENTRY)
    permissions = ContainerAccessLevel(entry.permissions)
    if permissions.missing():
        raise IntegrityError("An access list's entry has a combination that is not allowed.")
    if entry.wrapHash is not None and not permissions & ContainerAccessLevel.Decrypt:
        raise IntegrityError("A wrap goes only to those who may decrypt.")
    return entry
