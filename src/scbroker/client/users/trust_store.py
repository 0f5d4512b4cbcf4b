"""Store what this device has verified, so that the client can refuse an older or a different history.

A store has small values, the marks, by kind and key: fingerprints and the newest known versions. By default
they are in one file for each user: a log whose entries are each authenticated together with all before them,
under a key derived from the user's signing key 0. Any change is noticed, and a running process also notices
that the file was deleted or that an older copy was put in its place. A process that starts later does not
(docs/security.md).

The store also has each user's device pass, by which a broker counts this device's guesses apart from those of
strangers. It is not encrypted: the client needs it before a log-in, when it has no key of the user.
"""

import bisect
import copy
import errno
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import filelock
import msgspec

from scbroker.client.calls.io_thread import check_process
from scbroker.client.own_files import (
    DamagedLogError,
    SealedLog,
    lock_by,
    make_own_folder,
    open_own,
    temporary_file,
)
from scbroker.errors import InvalidArgumentError, TrustStoreError
from scbroker.folders import platform_folder
from scbroker.records.canonical import decoder

_MAGIC: Final = b"scbroker.trust\x01"
_COMPACT_AT: Final = 1024
"""Entries after which a file is compacted; a thirty-second of the marks if that is more."""
_LOCK_SECONDS: Final = 10.0
_ENDS: Final = ""
"""The kind of the entry in which a compacted file names the ends of the files before it."""
_ALL: Final = "*"
"""The kind of the entry in which a compacted file has all marks: an entry for each would be slow to read."""
_KEPT_ENDS: Final = 256
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


@runtime_checkable
class LoggedMarks(Marks, Protocol):
    """Marks of which a program can tell later what has changed."""

    def set_since(
        self, kind: str, position: Position
    ) -> tuple[Position, Sequence[tuple[bytes, bytes]]]:
        """Return the present position, and key and value of the marks of a kind that were set since one.

        All marks of the kind are returned if the store does not know any more which ones were set.
        """
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
    """The marks of a store in memory, with the keys of each kind in order."""

    def __init__(self, encoded: bytes | None = None) -> None:
        self._values: dict[str, dict[bytes, bytes]] = {}
        if encoded is not None:
            self._values = decoder(dict[str, dict[bytes, bytes]]).decode(encoded)
        self._keys = {kind: list(values) for kind, values in self._values.items()}
        self._unsorted: set[str] = set()

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


class _MemoryMarks:
    def __init__(self) -> None:
        self._values = _Values()
        self._lock = threading.Lock()

    def get(self, kind: str, key: bytes) -> bytes | None:
        return self._values.get(kind, key)

    def page(self, kind: str, after: bytes, count: int) -> Sequence[tuple[bytes, bytes]]:
        with self._lock:
            return self._values.page(kind, after, count)

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self._values.get(kind, key) != expected:
                return False
            self._values.set(kind, key, value)
            return True


class FileTrustStore:
    """Marks in a folder: one file for each user, and one with the user's device pass."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory: Path = Path(directory)

    def open(self, userId: uuid.UUID, secret: bytes) -> Marks:
        with _usable(self.directory):
            make_own_folder(self.directory)
        return _FileMarks(self.directory / f"{userId}.trust", secret)

    def read_pass(self, user_id: uuid.UUID) -> bytes | None:
        with _usable(self.directory), suppress(FileNotFoundError):
            self.directory.stat()
            make_own_folder(self.directory)
            with os.fdopen(open_own(self._pass(user_id)), "rb") as file:
                return file.read()
        return None

    def keep_pass(self, user_id: uuid.UUID, device_pass: bytes) -> None:
        with _usable(self.directory):
            make_own_folder(self.directory)
            path = self._pass(user_id)
            with temporary_file(path, device_pass) as temporary:
                temporary.replace(path)

    def _pass(self, user_id: uuid.UUID) -> Path:
        return self.directory / f"{user_id}.pass"


def checked_trust_store(trustStore: object) -> TrustStore:
    """Return the trust store that an argument is, one in the folder that it names, or the default one."""
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


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrustStoreError(
            f"The trust store {path} cannot be used ({error.strerror}): "
            "make it accessible to this user alone, or pass another trustStore."
        ) from None


def _lock(descriptor: int, path: Path, deadline: float) -> None:
    if not lock_by(descriptor, deadline):
        raise TrustStoreError(f"Another process keeps {path} locked: end it, or try again.")


class _Entry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    kind: str
    key: bytes
    value: bytes


class _Log:
    """An open file of marks: its lock, how far it was read, and the values up to there.

    As long as it is open, no other file can have its inode.
    """

    def __init__(self, path: Path, secret: bytes, found_at: Path | None = None) -> None:
        self._path = path
        self.values = _Values()
        self._start = self.log = SealedLog(secret, "trust-store", _MAGIC)
        self._set: list[tuple[str, bytes]] = []
        """Kind and key of the marks in the order in which they were set, since the file was compacted."""
        self._passed: dict[Position, int] = {}
        """The number of these that are set at each position."""
        self._ends: list[Position] = []
        """Where the files ended that were compacted into this one, the latest last."""
        self._keep(open_own(found_at or path))

    def _keep(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._inode = _inode(os.fstat(descriptor))
        self.close = weakref.finalize(self, os.close, descriptor)

    @property
    def position(self) -> Position:
        return self._position_of(self.log)

    def _position_of(self, log: SealedLog) -> Position:
        return (self._ends[-1][0] if self._ends else 0) + log.count, log.mac

    def lock(self, deadline: float) -> None:
        _lock(self._descriptor, self._path, deadline)

    def unlock(self) -> None:
        filelock.unlock_descriptor(self._descriptor)

    def is_at(self, state: os.stat_result) -> bool:
        """Return whether this file is the one with the state that was found at the path."""
        return _inode(state) == self._inode

    def is_read(self, state: os.stat_result) -> bool:
        """Return whether this file is the one at the path, was read, and ends there."""
        return self.is_at(state) and 0 < self.log.size == state.st_size and self._is_same()

    def _is_same(self) -> bool:
        last = self.log.last_bytes
        return os.pread(self._descriptor, len(last), self.log.size - len(last)) == last

    def read(self, through: Position | None = None) -> None:
        """Read the entries that were appended; the log must lead through a position, if one is given."""
        if not self._is_same():
            raise self._replaced()
        log, passed = copy.copy(self.log), [self.position]
        rest = os.fstat(self._descriptor).st_size - log.size
        try:
            for body in log.replay(os.pread(self._descriptor, rest, log.size)):
                entry: _Entry = decoder(_Entry).decode(body)
                if entry.kind == _ENDS:
                    self._ends = decoder(list[Position]).decode(entry.value)
                    passed += self._ends
                    self._passed[self._ends[-1]] = 0
                elif entry.kind == _ALL:
                    self.values = _Values(entry.value)
                else:
                    self.values.set(entry.kind, entry.key, entry.value)
                    self._set.append((entry.kind, entry.key))
                passed.append(self._position_of(log))
                self._passed[passed[-1]] = len(self._set)
        except DamagedLogError:
            raise TrustStoreError(
                f"The trust store {self._path} is damaged or another user's: restore it from a copy, or "
                "remove it to start again as on a fresh device, which forgets what this one has verified."
            ) from None
        if through is not None and through not in passed:
            raise self._replaced()
        self.log = log

    def append(self, entry: _Entry) -> None:
        log = copy.copy(self.log)
        frame = log.append(msgspec.msgpack.encode(entry))
        if os.fstat(self._descriptor).st_size > self.log.size:  # a frame that a crash cut off
            os.ftruncate(self._descriptor, self.log.size)
        if os.pwrite(self._descriptor, frame, self.log.size) < len(frame):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.values.set(entry.kind, entry.key, entry.value)
        self.log = log
        self._set.append((entry.kind, entry.key))
        self._passed[self.position] = len(self._set)

    def set_since(self, position: Position) -> list[tuple[str, bytes]] | None:
        """Return kind and key of the marks that were set since; None if this file does not tell."""
        at = self._passed.get(position)
        return None if at is None else self._set[at:]

    @property
    def has_many_entries(self) -> bool:
        return self.log.count > max(_COMPACT_AT, len(self.values) // 32)

    def compacted(self) -> bytes:
        """Return a file with only the latest values, in one entry.

        It begins with where the files before it ended. A process that knows one of these ends, or any later
        place, can tell that this file continues what it has read.
        """
        log = copy.copy(self._start)
        ends = msgspec.msgpack.encode([*self._ends, self.position][-_KEPT_ENDS:])
        entries = _Entry(_ENDS, b"", ends), _Entry(_ALL, b"", self.values.encode())
        return b"".join([log.start(), *map(log.append, map(msgspec.msgpack.encode, entries))])

    def _replaced(self) -> TrustStoreError:
        return TrustStoreError(
            f"The trust store {self._path} was replaced by an older copy or another file while it was in "
            "use: put the newer file back, or restart the program, which then knows only what the present "
            "file has."
        )


def _inode(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


class _FileMarks:
    """Marks in a `SealedLog`, to which other processes append as well.

    Each process reads what others have appended before it gets or sets a mark. A frame that a crash cut off
    was never acknowledged: the next writer overwrites it. If another file has the path, it is the log that
    another process compacted, or it is refused.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret = path, secret
        self._lock = threading.Lock()
        self._process = os.getpid()
        with _usable(path):
            try:
                self._log = _Log(path, secret)
            except FileNotFoundError:
                self._create()
                self._log = _Log(path, secret)
            with self._up_to_date():
                pass

    def get(self, kind: str, key: bytes) -> bytes | None:
        with self._read() as values:
            return values.get(kind, key)

    def page(self, kind: str, after: bytes, count: int) -> Sequence[tuple[bytes, bytes]]:
        with self._read() as values:
            return values.page(kind, after, count)

    def set_since(
        self, kind: str, position: Position
    ) -> tuple[Position, Sequence[tuple[bytes, bytes]]]:
        with self._read() as values:
            found = self._log.set_since(position)
            if found is None:
                return self._log.position, values.page(kind, b"", sys.maxsize)
            keys = {key for each, key in found if each == kind}
            return self._log.position, [(key, values.get(kind, key) or b"") for key in keys]

    @contextmanager
    def _read(self) -> Iterator[_Values]:
        """Return the marks with what other processes have written."""
        check_process(self._process)
        with self._lock, _usable(self._path):
            if not self._log.is_read(self._state()):
                with self._up_to_date():
                    pass
            yield self._log.values

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        check_process(self._process)
        with self._lock, _usable(self._path), self._up_to_date():
            if self._log.values.get(kind, key) != expected:
                return False
            if self._log.has_many_entries:
                self._compact()
            self._log.append(_Entry(kind, key, value))
            return True

    def _create(self) -> None:
        """Create the file whole. The lock keeps two processes from replacing each other's file."""
        descriptor = open_own(self._path.with_suffix(".lock"), os.O_CREAT)
        try:
            _lock(descriptor, self._path, time.monotonic() + _LOCK_SECONDS)
            if not self._path.exists():
                with temporary_file(self._path, _MAGIC) as temporary:
                    temporary.replace(self._path)
        finally:
            os.close(descriptor)

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """Lock the file at the path, once everything was read that other processes wrote."""
        deadline = time.monotonic() + _LOCK_SECONDS
        self._log.lock(deadline)
        try:
            while not self._log.is_at(state := self._state()):
                before = self._log
                before.read()
                self._log = self._following(self._path, before.position, deadline)
                before.close()
            if not self._log.is_read(state):
                self._log.read()
            yield
        finally:
            self._log.unlock()

    def _following(self, path: Path, position: Position, deadline: float) -> _Log:
        """Return the log in another file, locked and read, if it continues this one."""
        log = _Log(self._path, self._secret, path)
        try:
            log.lock(deadline)
            log.read(position)
        except BaseException:
            log.close()
            raise
        return log

    def _compact(self) -> None:
        """Replace the file by one with only the latest values; it is locked before others can find it."""
        before = self._log
        with temporary_file(self._path, before.compacted()) as temporary:
            log = self._following(temporary, before.position, time.monotonic())
            temporary.replace(self._path)
        self._log = log
        before.close()

    def _state(self) -> os.stat_result:
        try:
            return self._path.lstat()
        except FileNotFoundError:
            raise TrustStoreError(
                f"The trust store {self._path} was deleted while it was in use: restore it, or restart "
                "the program, which then forgets what this device has verified."
            ) from None
