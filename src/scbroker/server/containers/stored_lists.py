"""Access lists as the broker keeps them: all hashes, and the entries by position.

The broker keeps every list of a container, since readers judge the past by them. After a deletion
only the authors' entries stay, which is what it takes to judge the tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from scbroker.crypto.verify import HASH_SIZE
from scbroker.records.access_list import AccessList, SaltedEntry, parse_entry
from scbroker.wire.containers import Disclosed, ListView


class StoredList(msgspec.Struct, array_like=True, frozen=True):
    hashes: bytes
    entries: list[tuple[int, bytes, bytes]]
    """(position, salt, entry), ascending."""

    @classmethod
    def whole(cls, salted: Sequence[SaltedEntry]) -> StoredList:
        return cls(
            b"".join(item.hash for item in salted),
            [(position, item.salt, item.entry) for position, item in enumerate(salted)],
        )

    @classmethod
    def decode(cls, data: bytes) -> StoredList:
        return msgspec.msgpack.decode(data, type=StoredList)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @property
    def access(self) -> AccessList:
        return AccessList.disclosed(
            self.hashes,
            [(position, SaltedEntry(salt, entry)) for position, salt, entry in self.entries],
        )

    @property
    def size(self) -> int:
        return len(self.hashes) // HASH_SIZE

    def only(self, fingerprints: Collection[bytes]) -> StoredList:
        """The list with the entries of these users alone."""
        return StoredList(
            self.hashes,
            [item for item in self.entries if parse_entry(item[2]).fingerprint in fingerprints],
        )

    @property
    def view(self) -> ListView:
        return ListView(
            entryHashes=self.hashes,
            disclosed=[
                Disclosed(position=position, salt=salt, entry=entry)
                for position, salt, entry in self.entries
            ],
        )
