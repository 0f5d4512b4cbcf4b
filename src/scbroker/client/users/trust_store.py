"""Store what this device has verified, so that the client can refuse an older or a different history.

A store has small values, the marks, by kind and key: fingerprints and the newest known versions. By default
they are in the device's state file: a log for each user, whose entries are each authenticated together with
all before them, under a key derived from the user's signing key 0. Any change is noticed, and a running
process also notices that the file was deleted or that an older copy was put in its place. A process that
starts later does not (docs/security.md).

The store also has each user's device pass, by which a broker counts this device's guesses apart from those of
strangers. It is not encrypted: the client needs it before a log-in, when it has no key of the user.
"""

import bisect
import os
import sqlite3
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from scbroker.client.local_state import DamagedError, LocalState, transaction
from scbroker.crypto.verify import HASH_SIZE, equal, keyed_hash, sha256
from scbroker.errors import InvalidArgumentError, TrustStoreError
from scbroker.folders import platform_folder
from scbroker.records.canonical import decoder

_COMPACT_AT: Final = 1024
"""Entries of a log after which one with all marks is appended; 1/32 of the marks if that is more."""
_COMPACT_BYTES: Final = 2**22
"""The same by the bytes of the values; those of all marks if that is more."""
_ALL: Final = "*"
"""The kind of an entry that has all marks: an entry for each would be slow to read."""
_KEPT_HASHES: Final = 131_072
"""Latest entries whose hashes are kept. A running process that has read none of these is told to restart."""
Position = tuple[int, bytes]
"""A place in the history of a store: the number of entries since it was created, and the MAC of them all."""


class Marks(Protocol):
    """The marks of one user on this device."""

    def get(self, kind: str, key: bytes) -> bytes | None: ...

    def page(self, kind: str, after: bytes, count: int) -> Sequence[tuple[bytes, bytes]]:
        """Return the first `count` marks of a kind after a key, by key: pairs of key and value."""
        ...

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        """Set a mark if it still has the expected value; return whether it had."""
        ...


def raise_to(
    marks: Marks, kind: str, key: bytes, decide: Callable[[bytes | None], bytes | None]
) -> None:
    """Replace a mark by what `decide` returns for it; decide again if another process replaced it first.

    `decide` takes the stored value, or None, and raises if the new state must not follow it. Nothing is
    written if it returns the stored value.
    """
    while True:
        stored = marks.get(kind, key)
        new = decide(stored)
        if new is None or new == stored or marks.swap(kind, key, stored, new):
            return


def each_mark(
    marks: Marks, kind: str, after: bytes = b"", *, size: int = 1000
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the marks of a kind after a key, by key: pairs of key and value, read `size` at a time.

    Raises `TrustStoreError` if keys do not rise: a page of an application's own store would never end.
    """
    while some := marks.page(kind, after, size):
        for key, value in some:
            if key <= after:
                raise TrustStoreError("The trust store returned marks that are not in order.")
            after = key
            yield key, value


@runtime_checkable
class TrustStore(Protocol):
    """Where marks and device passes are kept."""

    def open(self, userId: uuid.UUID, secret: bytes) -> Marks:
        """Return the marks of a user, which `secret` authenticates; `TrustStoreError` if they are damaged."""
        ...

    def read_pass(self, user_id: uuid.UUID) -> bytes | None:
        """Return the device pass that was kept for a user last, or None. Called before a log-in."""
        ...

    def keep_pass(self, user_id: uuid.UUID, device_pass: bytes) -> None:
        """Keep a user's device pass in place of the one before, also after the log-out.

        Only the owner of the device should be able to read it: it allows ten guesses at the passphrase.
        """
        ...


class _Values:
    """The marks of a store in memory, with the keys of each kind, put in order when they are read."""

    def __init__(self, encoded: bytes | None = None) -> None:
        self._values: dict[str, dict[bytes, bytes]] = {}
        if encoded is not None:
            self._values = decoder(dict[str, dict[bytes, bytes]]).decode(encoded)
        self._keys = {kind: list(values) for kind, values in self._values.items()}
        self.size: int = sum(
            len(each) for values in self._values.values() for each in values.values()
        )
        """Bytes of all values."""
        self._unsorted = set(self._keys)
        """The kinds whose keys are not in order."""

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self._values)

    def get(self, kind: str, key: bytes) -> bytes | None:
        return self._values.get(kind, {}).get(key)

    def set(self, kind: str, key: bytes, value: bytes) -> None:
        values = self._values.setdefault(kind, {})
        if key not in values:
            self._keys.setdefault(kind, []).append(key)
            self._unsorted.add(kind)
        self.size += len(value) - len(values.get(key, b""))
        values[key] = value

    def page(self, kind: str, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        keys, values = self._keys.get(kind, []), self._values.get(kind, {})
        if kind in self._unsorted:
            # Sorted only when read: inserting each mark in order would move half of the keys each time.
            keys.sort()
            self._unsorted.remove(kind)
        first = bisect.bisect_right(keys, after)
        return [(key, values[key]) for key in keys[first : first + count]]


class MemoryTrustStore:
    """Marks in memory: another process starts without any, like a new device."""

    def __init__(self) -> None:
        self._users: dict[uuid.UUID, _MemoryMarks] = {}
        self._passes: dict[uuid.UUID, bytes] = {}

    def open(self, userId: uuid.UUID, secret: bytes) -> Marks:
        del secret
        return self._users.setdefault(userId, _MemoryMarks())

    def read_pass(self, user_id: uuid.UUID) -> bytes | None:
        return self._passes.get(user_id)

    def keep_pass(self, user_id: uuid.UUID, device_pass: bytes) -> None:
        self._passes[user_id] = device_pass


class _MemoryMarks(_Values):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def page(self, kind: str, after: bytes, count: int) -> list[tuple[bytes, bytes]]:
        with self._lock:
            return super().page(kind, after, count)

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self.get(kind, key) != expected:
                return False
            self.set(kind, key, value)
            return True


class FileTrustStore:
    """Marks and device passes in a folder, in the file `state.db`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        # Absolute, as in each class that keeps a path: the program may change its working directory.
        self.directory: Path = Path(directory).absolute()

    def open(self, userId: uuid.UUID, secret: bytes) -> Marks:
        return FileMarks(LocalState(self.directory), userId, secret)

    def read_pass(self, user_id: uuid.UUID) -> bytes | None:
        if not self.directory.is_dir():
            return None
        with closing(LocalState(self.directory)) as state, state as connection:
            found = connection.execute("SELECT pass FROM user WHERE id = ?", (user_id.bytes,))
            return next((value for (value,) in found if isinstance(value, bytes)), None)

    def keep_pass(self, user_id: uuid.UUID, device_pass: bytes) -> None:
        with closing(LocalState(self.directory)) as state, state as connection:
            connection.execute(_KEEP, (user_id.bytes, device_pass))


def checked_trust_store(trustStore: object) -> TrustStore:
    """Return the argument as a trust store: itself, a folder's, or the default store for None."""
    if trustStore is None:
        return FileTrustStore(platform_folder("state", ", or pass another trustStore"))
    if isinstance(trustStore, str | os.PathLike) and trustStore != "":
        return FileTrustStore(trustStore)
    if isinstance(trustStore, TrustStore):
        return trustStore
    given = "an empty path" if trustStore == "" else type(trustStore).__name__
    raise InvalidArgumentError(
        "trustStore must be the path of a folder, a FileTrustStore, a MemoryTrustStore, or an object with "
        f"the methods of TrustStore, not {given}"
    )


class _Entry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    kind: str
    key: bytes
    value: bytes


class FileMarks:
    """The marks of a user in memory, and the log of them in the state file, to which other processes append.

    Each entry has a MAC over itself and the MAC of the entry before. Each process reads what others have
    appended before it gets or sets a mark. If that does not continue what the process has read, an older copy
    or another file has taken the place of the file.

    A compaction appends an entry with all marks. It keeps the hashes of the entries before it, together in
    the row of the last one, and drops their bodies: by the hashes, a process that has read less still
    verifies that the log continues what it has read.
    """

    def __init__(self, state: LocalState, user_id: uuid.UUID, secret: bytes) -> None:
        self._state = state
        self._chained = partial(keyed_hash, secret, "trust-store-entry")
        """Return the MAC of an entry, from that of the one before, its number and the hash of its body."""
        self._values = _Values()
        self._entries: list[tuple[bytes, str, bytes]] = []
        """MAC, kind and key of each entry in memory, from the last one that has all marks on."""
        self._bytes = 0
        """Bytes of the values of the entries after that one."""
        self._user = (user_id.bytes,)
        self._version: tuple[sqlite3.Connection, tuple[int]] | None = None
        """The connection, and its number of the version of the file that it has read."""
        with state as connection:
            connection.execute("INSERT OR IGNORE INTO user (id) VALUES (?)", self._user)
            self._slot: tuple[int] | None = connection.execute(_SLOT, self._user).fetchone()
            (slot,) = self._slot or (0,)
            if not 0 < slot < _MOST_USERS:
                raise DamagedError
            self._ids = slot * _EACH, (slot + 1) * _EACH - 1
            """The ids of this user's entries in the table: from the first to the last one. An id is the first
            plus a number."""
            found = connection.execute(_LAST_HASH, self._ids).fetchone()
            self._position: Position = found or (0, b"")
            self._read_new(connection, is_whole=found is None)

    def get(self, kind: str, key: bytes) -> bytes | None:
        with self._state as connection:
            self._read(connection)
            return self._values.get(kind, key)

    def page(self, kind: str, after: bytes, count: int) -> Sequence[tuple[bytes, bytes]]:
        with self._state as connection:
            self._read(connection)
            return self._values.page(kind, after, count)

    def set_since(
        self, kind: str, position: Position
    ) -> tuple[Position, Sequence[tuple[bytes, bytes]]]:
        """Return the present position, and key and value of the marks of a kind that were set since one.

        All marks of the kind are returned if the store does not know any more which ones were set.
        """
        with self._state as connection:
            self._read(connection)
            at = position[0] - self._position[0] + len(self._entries)
            if not 0 < at <= len(self._entries) or self._entries[at - 1][0] != position[1]:
                return self._position, self._values.page(kind, b"", sys.maxsize)
            keys = {key for _, each, key in self._entries[at:] if each == kind}
            return self._position, [(key, self._values.get(kind, key) or b"") for key in keys]

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        entry = _Entry(kind, key, value)
        with self._state as connection:
            with transaction(connection):  # no other process appends an entry meanwhile
                self._read(connection)
                if self._values.get(kind, key) != expected:
                    return False
                position = self._append(connection, entry)
            self._add(position, entry)
            entries = max(_COMPACT_AT, len(self._values) // 32)
            if len(self._entries) > entries or self._bytes > max(_COMPACT_BYTES, self._values.size):
                with suppress(sqlite3.Error):  # the mark is stored: the next `swap` compacts again
                    self._compact(connection)
            return True

    def _read(self, connection: sqlite3.Connection) -> None:
        """Read the entries that other connections have appended, if any."""
        version = connection, connection.execute(_VERSION).fetchone()
        if version != self._version:
            self._read_new(connection)
            self._version = version

    def _read_new(self, connection: sqlite3.Connection, *, is_whole: bool = True) -> None:
        """Read new entries, which must continue those that were read before.

        Unless `is_whole`, memory lacks marks: then the log must have an entry with all of them.
        """
        if connection.execute(_SLOT, self._user).fetchone() != self._slot:
            raise DamagedError
        last = connection.execute(_LAST, self._ids).fetchone()
        if is_whole and (last or (0, b"")) == self._position:
            return
        after, mac = self._position
        new: list[tuple[Position, _Entry]] = []
        try:
            for number, stored, hashes, body in connection.execute(_SINCE, (*self._ids, after)):
                first = number + 1 - len(hashes) // HASH_SIZE
                for each in range(max(first, after + 1), number + 1):
                    at = (each - first) * HASH_SIZE
                    mac = self._chained(mac, b"%d" % each, hashes[at : at + HASH_SIZE])
                if not equal(mac, stored) or not (body is None or equal(sha256(body), hashes)):
                    raise DamagedError
                if body is None:
                    is_whole = False
                else:
                    entry: _Entry = decoder(_Entry).decode(body)
                    is_whole = is_whole or entry.kind == _ALL
                    new.append(((number, mac), entry))
        except (TypeError, ValueError):  # a damaged row may have values of any type
            raise DamagedError from None
        if not is_whole or not new:
            raise DamagedError
        for position, entry in new:
            self._add(position, entry)

    def _append(self, connection: sqlite3.Connection, entry: _Entry) -> Position:
        """Write an entry after the last one, which was read in this transaction; return its position."""
        body = msgspec.msgpack.encode(entry)
        (number, mac), digest = self._position, sha256(body)
        new = number + 1, self._chained(mac, b"%d" % (number + 1), digest)
        connection.execute(_APPEND, (self._ids[0] + new[0], new[1], digest, body))
        return new

    def _add(self, position: Position, entry: _Entry) -> None:
        if entry.kind == _ALL:
            self._values = _Values(entry.value)
            self._entries.clear()
            self._bytes = 0
        else:
            self._values.set(entry.kind, entry.key, entry.value)
            self._bytes += len(entry.value)
        self._entries.append((position[1], entry.kind, entry.key))
        self._position = position

    def _compact(self, connection: sqlite3.Connection) -> None:
        """Append an entry that has all marks; drop the bodies of those before it, and the oldest hashes."""
        with transaction(connection):
            self._read(connection)
            last = self._ids[0] + self._position[0]
            first = last - len(self._entries) + 1
            position = self._append(connection, _Entry(_ALL, b"", self._values.encode()))
            hashes = connection.execute(_HASHES, (first, last)).fetchall()
            connection.execute(_DROP, (first, last - 1))
            connection.execute(_PACK, (b"".join(each for (each,) in hashes), last))
            connection.execute(_DROP, (self._ids[0], last - _KEPT_HASHES))
        self._position, self._entries, self._bytes = position, [(position[1], _ALL, b"")], 0


# The number changes when another connection has committed.
_VERSION: Final = "PRAGMA data_version"
_EACH: Final = 2**40
_MOST_USERS: Final = 2**20
_SLOT: Final = "SELECT slot FROM user WHERE id = ?"
_KEEP: Final = """
    INSERT INTO user (id, pass) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET pass = excluded.pass
"""
# Appended to the end of the table, a row costs a write of one page. In a table WITHOUT ROWID it would be two.
_LAST: Final = "SELECT id - ?1, mac FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC LIMIT 1"
_LAST_HASH: Final = _LAST.replace("ORDER", "AND body IS NULL ORDER")
_APPEND: Final = "INSERT INTO entry VALUES (?, ?, ?, ?)"
_SINCE: Final = """
    SELECT id - ?1, mac, hash, body FROM entry WHERE id BETWEEN ?1 + ?3 + 1 AND ?2 ORDER BY id
"""
_HASHES: Final = "SELECT hash FROM entry WHERE id BETWEEN ? AND ? ORDER BY id"
_PACK: Final = "UPDATE entry SET hash = ?, body = NULL WHERE id = ?"
_DROP: Final = "DELETE FROM entry WHERE id BETWEEN ? AND ?"
