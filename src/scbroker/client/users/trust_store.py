"""Store what this device has seen, so that the client can refuse an older or a different history.

A store has small values, the marks, by kind and key: fingerprints and the newest known versions. By default
they are in one file for each user: a log whose entries are each authenticated together with all before them,
under a key derived from the user's signing key 0. Any change is noticed, but not that the file was deleted or
that a whole older copy was put back (docs/security.md).

The store also has each user's device pass, by which a broker counts this device's guesses apart from those of
strangers. It is not encrypted: the client needs it before a log-in, when it has no key of the user.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import filelock
import msgspec

from scbroker.client.sealed_log import DamagedLogError, SealedLog
from scbroker.errors import TrustStoreError

_MAGIC: Final = b"scbroker.trust\x01"
_COMPACT_AT: Final = 4096
_LOCK_SECONDS: Final = 10.0


class Marks(Protocol):
    """The marks of one user on this device."""

    def get(self, kind: str, key: bytes) -> bytes | None: ...

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
        self._lock = threading.Lock()
        self._values: dict[tuple[str, bytes], bytes] = {}

    def get(self, kind: str, key: bytes) -> bytes | None:
        return self._values.get((kind, key))

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self._values.get((kind, key)) != expected:
                return False
            self._values[(kind, key)] = value
            return True


class FileTrustStore:
    """Marks in a folder: one file for each user, and one with the user's device pass."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory: Path = Path(directory)

    def open(self, userId: uuid.UUID, secret: bytes) -> Marks:
        with _usable(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _FileMarks(self.directory / f"{userId}.trust", secret)

    def read_pass(self, user_id: uuid.UUID) -> bytes | None:
        with _usable(self.directory), suppress(FileNotFoundError):
            return (self.directory / f"{user_id}.pass").read_bytes()
        return None

    def keep_pass(self, user_id: uuid.UUID, device_pass: bytes) -> None:
        with _usable(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self.directory / f"{user_id}.pass", device_pass)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except filelock.Timeout:
        raise TrustStoreError(
            f"Another process keeps {path} locked: end it, or try again."
        ) from None
    except OSError as error:
        raise TrustStoreError(
            f"The trust store {path} cannot be used ({error.strerror}): "
            "give this user access to it, or pass another trustStore."
        ) from None


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, readable by its owner alone: a crash leaves the old file, or none."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _Entry(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    kind: str
    key: bytes
    value: bytes


class _FileMarks:
    """Marks in a `SealedLog`, to which other processes append as well.

    Each process reads what others have appended before it gets or sets a mark. A frame that a crash cut off
    was never acknowledged: the next writer overwrites it.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret = path, secret
        self._thread_lock = threading.Lock()
        self._file_lock = filelock.FileLock(f"{path}.lock", timeout=_LOCK_SECONDS)
        self._reset()
        with _usable(path), self._file_lock:
            self._catch_up()

    def get(self, kind: str, key: bytes) -> bytes | None:
        with self._thread_lock, _usable(self._path):
            if self._state() != (self._inode, self._log.size):
                with self._file_lock:
                    self._catch_up()
            return self._values.get((kind, key))

    def swap(self, kind: str, key: bytes, expected: bytes | None, value: bytes) -> bool:
        with self._thread_lock, _usable(self._path), self._file_lock:
            self._catch_up()
            if self._values.get((kind, key)) != expected:
                return False
            if self._log.count > _COMPACT_AT and self._log.count > 2 * len(self._values):
                self._compact()
            self._append(_Entry(kind, key, value))
            return True

    def _reset(self) -> None:
        self._values: dict[tuple[str, bytes], bytes] = {}
        self._log = self._new_log()
        self._inode = 0

    def _new_log(self) -> SealedLog:
        return SealedLog(self._secret, "trust-store", _MAGIC)

    def _state(self) -> tuple[int, int]:
        """Return the file's inode and size; zeros if it does not exist."""
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return 0, 0
        return state.st_ino, state.st_size

    def _catch_up(self) -> None:
        """Read the frames that other processes appended; the whole file if it was replaced."""
        if self._state() == (0, 0):
            if self._log.size or self._values:
                raise TrustStoreError(
                    f"The trust store {self._path} was deleted while it was in use: restore it, or restart "
                    "the program, which then forgets what this device has seen."
                )
            _replace(self._path, _MAGIC)
        inode, size = self._state()
        if (inode, size) == (self._inode, self._log.size):
            return
        if inode == self._inode and size > self._log.size:
            # If this fails, the file may be another one with the same inode, after two replacements.
            with suppress(TrustStoreError):
                self._read()
                return
        self._read_again(inode)

    def _read_again(self, inode: int) -> None:
        seen = self._values
        self._reset()
        try:
            self._read()
            if any(key not in self._values for key in seen):
                raise self._damaged()
        except TrustStoreError:
            self._reset()
            self._values = seen  # so that the next read fails in the same way
            raise
        self._inode = inode

    def _read(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._log.size)
            data = file.read()
        try:
            for body in self._log.replay(data):
                entry = msgspec.msgpack.decode(body, type=_Entry)
                self._values[(entry.kind, entry.key)] = entry.value
        except DamagedLogError:
            raise self._damaged() from None

    def _append(self, entry: _Entry) -> None:
        """Append an entry. If that fails, the log is ahead of the file, which is then read again."""
        with self._path.open("r+b") as file:
            file.truncate(self._log.size)
            file.seek(self._log.size)
            file.write(self._log.append(msgspec.msgpack.encode(entry)))
        self._values[(entry.kind, entry.key)] = entry.value

    def _compact(self) -> None:
        """Replace the file by a new one with only the latest values."""
        log = self._new_log()
        entries = [_Entry(kind, key, value) for (kind, key), value in self._values.items()]
        frames = [log.start(), *(log.append(msgspec.msgpack.encode(entry)) for entry in entries)]
        _replace(self._path, b"".join(frames))
        self._catch_up()

    def _damaged(self) -> TrustStoreError:
        return TrustStoreError(
            f"The trust store {self._path} is damaged or another user's: restore it from a copy, or "
            "remove it to start again as on a fresh device, which forgets what this one has seen."
        )
