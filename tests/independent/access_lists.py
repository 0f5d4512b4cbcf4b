"""Access lists, whole and partly disclosed: docs/spec/container.md, 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tests.independent import encodings as e
from tests.independent.encodings import labelled_hash, need, u64

DOWNLOAD, DECRYPT, UPLOAD, VIEW_ACCESS, MODIFY_ACCESS = 1, 2, 4, 8, 16
MODIFY_TYPE, VIEW_TYPE, RECEIVE_ACCESS_EVENTS, DELETE = 32, 64, 128, 256
EVERYTHING = 511

NEEDS = {UPLOAD: DECRYPT | VIEW_ACCESS, MODIFY_TYPE: UPLOAD, MODIFY_ACCESS: UPLOAD}


@dataclass(frozen=True)
class Entry(e.Object):
    prefix = b""
    fingerprint: e.Hash
    """Of a user, or the name of a group."""
    key_index: e.EntryIndex
    """Of a group it is the epoch."""
    permissions: Annotated[int, lambda value: e.integer(value, 1, EVERYTHING)]
    expires_at: e.Time | None
    wrap_hash: e.Hash | None

    def is_expired_at(self, time: int) -> bool:
        return self.expires_at is not None and self.expires_at <= time


def parse_entry(data: bytes) -> Entry:
    entry = Entry.parse(data)
    need(bool(entry.permissions & DECRYPT) or entry.wrap_hash is None, "a wrap without Decrypt")
    for permission, needed in NEEDS.items():
        allowed = not entry.permissions & permission or entry.permissions & needed == needed
        need(allowed, "permissions that cannot be combined")
    return entry


class Salted(NamedTuple):
    """An entry as it is stored, with its salt."""

    salt: bytes
    entry: bytes

    @property
    def hash(self) -> bytes:
        return labelled_hash("access-entry", self.salt + self.entry)


@dataclass(frozen=True)
class AccessList:
    entries: dict[bytes, Entry]
    """Those that are disclosed, by fingerprint."""
    entry_hashes: bytes
    hash: bytes

    @property
    def complete(self) -> bool:
        return 32 * len(self.entries) == len(self.entry_hashes)


def whole(container_id: bytes, version: int, entries: Sequence[Salted]) -> AccessList:
    hashes = b"".join(salted.hash for salted in entries)
    return disclosed(container_id, version, hashes, list(enumerate(entries)))


def disclosed(
    container_id: bytes, version: int, entry_hashes: bytes, seen: Sequence[tuple[int, Salted]]
) -> AccessList:
    """A list of which some entries are seen, each with its position."""
    count, rest = divmod(len(entry_hashes), 32)
    need(rest == 0 and 1 <= count <= 1024, "a list has 1 to 1,024 entries")
    positions = [position for position, _ in seen]
    need(positions == sorted(set(positions)), "positions do not ascend")
    entries: dict[bytes, Entry] = {}
    for position, salted in sorted(dict(seen).items()):  # in the order of the list
        need(len(salted.salt) == 32, "no salt of 32 bytes")
        expected = entry_hashes[32 * position : 32 * position + 32]
        need(salted.hash == expected, "not the entry at this position")
        entry = parse_entry(salted.entry)
        need(all(entry.fingerprint > earlier for earlier in entries), "users do not ascend")
        entries[entry.fingerprint] = entry
    digest = labelled_hash("access-list", container_id + u64(version) + entry_hashes)
    return AccessList(entries, entry_hashes, digest)
