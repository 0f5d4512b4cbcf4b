"""Files and folders of a device that no other user of the machine can have planted or changed.

A folder that others can write is refused: they could put links or older files into it. No link is followed
in place of a file.

The trust store's marks and the journals of transfers are append-only files of frames, each authenticated
together with all before it. A frame is the length of its entry, a MAC of the length, the entry, and a MAC of
the entry; each MAC covers the MAC of the frame before it. A change anywhere is noticed. A frame that a crash
cut off is told from a changed one by the MAC of its length.
"""

import errno
import logging
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast

import filelock
import msgspec

from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import equal, keyed_hash, label
from scbroker.errors import TrustStoreError
from scbroker.folders import make_folder
from scbroker.records.canonical import decoder

F = TypeVar("F")
S = TypeVar("S")
_MAGIC: Final = b"scbroker.journal\x01"
_CONTEXT: Final = label("journal")  # the log's MACs bind each entry to its place
_MAX: Final = 67_108_864  # bytes: enough for a content of the largest size
_KEPT_SECONDS: Final = 7 * 86_400
_log: Final = logging.getLogger("scbroker")
_LENGTH: Final = 4
_MAC: Final = 32
HEAD: Final = _LENGTH + _MAC


class DamagedLogError(Exception):
    """The file has other bytes than were written, or was written under another key."""


class SealedLog:
    """A position in a log: how much of the file was verified or written, and the last MAC."""

    def __init__(self, secret: bytes, label: str, magic: bytes) -> None:
        self._secret, self._label = secret, label
        self.magic: bytes = magic
        """The first bytes of the file."""
        self.mac: bytes = self._keyed("start", magic)
        """The MAC of everything up to this position."""
        self.size: int = 0
        """Bytes of the file up to this position."""
        self.count: int = 0
        """Entries up to this position."""

    def replay(self, data: bytes) -> Iterator[bytes]:
        """Yield the entries in `data`, which are the file's bytes from this position on.

        Stops before a frame that a crash cut off. Raises `DamagedLogError` at any other fault.
        """
        position = 0
        if self.size == 0:
            if not data.startswith(self.magic):
                raise DamagedLogError
            self.size = position = len(self.magic)
        while (end := self._frame_end(data, position)) is not None:
            entry, mac = data[position + HEAD : end - _MAC], data[end - _MAC : end]
            if not equal(self._keyed("entry", self.mac, entry), mac):
                raise DamagedLogError
            self._advance(mac, end - position)
            position = end
            yield entry

    def append(self, entry: bytes) -> bytes:
        """Return the frame of a further entry, and move behind it: the caller writes it at `size`."""
        length = len(entry).to_bytes(_LENGTH, "big")
        mac = self._keyed("entry", self.mac, entry)
        frame = length + self._keyed("length", self.mac, length) + entry + mac
        self._advance(mac, len(frame))
        return frame

    def start(self) -> bytes:
        """Return the first bytes of a new file, and move behind them."""
        self.size = len(self.magic)
        return self.magic

    @property
    def last_bytes(self) -> bytes:
        """Return the last bytes of the file up to this position, by which another file is noticed."""
        return self.mac if self.count else self.magic[: self.size]

    def _advance(self, mac: bytes, size: int) -> None:
        self.mac = mac
        self.size += size
        self.count += 1

    def _frame_end(self, data: bytes, position: int) -> int | None:
        """Return where a frame ends; None at the end of the file, or if a crash cut the frame off.

        After a power cut a file may have its new length, and zeros instead of the bytes.
        """
        if len(data) - position < HEAD:
            return None
        length = data[position : position + _LENGTH]
        mac = data[position + _LENGTH : position + HEAD]
        if not equal(self._keyed("length", self.mac, length), mac):
            if not any(data[position:]):
                return None
            raise DamagedLogError
        end = position + HEAD + int.from_bytes(length, "big") + _MAC
        return end if end <= len(data) else None

    def _keyed(self, name: str, *parts: bytes) -> bytes:
        return keyed_hash(self._secret, f"{self._label}-{name}", *parts)


_FIRST_PAUSE: Final = 0.0005
"""Seconds. Most locks are released sooner."""
_LONGEST_PAUSE: Final = 0.05
# Do not follow a link, and do not wait at a pipe.
_OPEN_FLAGS: Final = (
    os.O_RDWR
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_own(path: Path, flags: int = 0) -> int:
    """Open a file that only this user can access; return its descriptor. `O_CREAT` creates it as 0600.

    Raises `OSError` for a link, for anything but a regular file with a single name, and for a file that
    belongs to another user or that others can access.
    """
    descriptor = os.open(path, _OPEN_FLAGS | flags, 0o600)
    if not is_own_file(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(
            errno.EPERM, "it is not a regular file that this user alone can access", str(path)
        )
    return descriptor


def is_own_file(state: os.stat_result) -> bool:
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        return False
    return _is_own(state) and not state.st_mode & 0o077


def _is_own(state: os.stat_result) -> bool:
    # Windows: the folder's access rules decide.
    return not hasattr(os, "geteuid") or state.st_uid == os.geteuid()


def make_own_folder(folder: Path) -> None:
    """Create a folder as 0700, or check that only this user can write an existing one.

    Raises `OSError` for a folder, or a link to one, that belongs to another user, and for a folder that
    others can write.
    """
    try:
        make_folder(folder)
    except FileExistsError as error:
        raise OSError(errno.ENOTDIR, f"{error.filename} is not a folder", str(folder)) from None
    state = folder.stat()
    if not (_is_own(state) and _is_own(folder.lstat())):
        raise OSError(errno.EPERM, "it belongs to another user", str(folder))
    if os.name == "posix" and state.st_mode & 0o022:
        raise OSError(errno.EPERM, f"other users can write it: run chmod go-w {folder}")


def lock_by(descriptor: int, deadline: float) -> bool:
    """Lock an open file; return False if another process keeps it locked until the deadline."""
    pause = _FIRST_PAUSE
    while not filelock.lock_descriptor(descriptor, blocking=False):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


@contextmanager
def temporary_file(path: Path, data: bytes, *, durable: bool = True) -> Iterator[Path]:
    """Write a file beside `path` durably, as 0600; remove it at the end unless it was renamed.

    A file that is renamed into place is whole after a crash, or the one before it is. Without `durable` that
    holds for a crash of the process alone: after a power cut the file may be damaged.
    """
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


class Journal:
    """The entries of one transfer, while this object has the journal's lock. Without a path it keeps none."""

    def __init__(
        self,
        secret: bytes = b"",
        path: Path | None = None,
        lock: filelock.BaseFileLock | None = None,
    ) -> None:
        self.name: str = uuid.uuid4().hex if path is None else path.stem
        # A key of its own: another journal's file under this name does not replay.
        self._secret = keyed_hash(secret, "journal-log", self.name.encode())
        self._path, self._lock = path, lock
        self._file: BinaryIO | None = None
        self._frames = SealedLog(self._secret, "journal", _MAGIC)
        self.entries: list[bytes] = []
        """The entries that the file had when it was opened."""
        if path is not None:
            self._file = os.fdopen(open_own(path, os.O_CREAT), "r+b", buffering=0)
            self._replay(self._file)

    @classmethod
    def open(cls, folder: Path | None, secret: bytes, *names: bytes) -> Self:
        """Open the journal of the transfer that these names identify.

        It keeps nothing if `folder` is None or cannot be used, or another transfer has the journal open.
        """
        if folder is None:
            return cls()
        # A keyed hash: the file's name does not disclose what is transferred.
        sizes = b"".join(len(name).to_bytes(_LENGTH, "big") for name in names)
        name = keyed_hash(secret, "journal-name", sizes, *names)
        path = folder / f"{name.hex()}.journal"
        # One thread of the pool may open the journal and another close it.
        lock = filelock.FileLock(path.with_suffix(".lock"), timeout=0, thread_local=False)
        try:
            make_folder(folder)
            folder.chmod(0o700)
            _remove_old(folder)
            lock.acquire()
            return cls(secret, path, lock)
        except filelock.Timeout:
            return cls()
        except OSError as error:
            lock.release()
            _log.warning("A transfer cannot be resumed later: %s cannot be used: %s", folder, error)
            return cls()

    @property
    def is_kept(self) -> bool:
        """Return whether the transfer can be resumed by this journal."""
        return self._path is not None

    def append(self, entry: bytes) -> None:
        """Append an entry. After a failed write nothing more is written."""
        if self._file is None:
            return
        try:
            self._file.write(self._frames.append(seal(self._secret, _CONTEXT, entry)))
        except OSError as error:
            _log.warning("A transfer cannot be resumed from here: %s", error)
            self._file.close()
            self._file = None

    def append_item(self, item: msgspec.Struct) -> None:
        self.append(msgspec.msgpack.encode(item))

    def items(self, first: type[F], others: type[S]) -> tuple[F, list[S]] | None:
        """Return the first entry and the others; None without entries, or if another version wrote them."""
        try:
            head, *rest = self.entries
            decode, decode_other = (decoder(cast(Any, kind)).decode for kind in (first, others))
            return decode(head), [decode_other(entry) for entry in rest]
        except ValueError:  # no entries, or `msgspec.DecodeError`
            return None

    def restart(self, item: msgspec.Struct | None = None) -> None:
        """Remove all entries; start with this item, if any."""
        self.entries.clear()
        self._frames = SealedLog(self._secret, "journal", _MAGIC)
        if self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)
            self._file.write(self._frames.start())
        if item is not None:
            self.append_item(item)

    def close(self) -> None:
        """Keep the entries, so that the transfer can be resumed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()

    def end(self, *, durably: bool = True) -> None:
        """Remove the journal: the transfer is complete, or must not be resumed.

        Without `durably`, a journal that a power cut brings back must do no harm.
        Raises `TrustStoreError` if that fails.
        """
        try:
            if self._path is not None:
                self._remove(self._path, durably)
        except OSError as error:
            raise TrustStoreError(
                f"The journal {self._path} of a transfer cannot be emptied: {error.strerror}."
            ) from None
        finally:
            self.close()

    def _remove(self, path: Path, durably: bool) -> None:
        file, self._file = self._file, None
        if file is None:  # an earlier write failed
            path.unlink(missing_ok=True)
        else:
            with file:
                file.truncate(0)
                if durably:
                    os.fsync(file.fileno())
        with suppress(OSError):  # an empty file does no harm
            path.unlink()
            path.with_suffix(".lock").unlink()

    def _replay(self, file: BinaryIO) -> None:
        """Read all entries up to a fault, and cut off what follows."""
        with suppress(DamagedLogError):
            for sealed in self._frames.replay(file.read(_MAX)):
                self.entries.append(unseal(self._secret, _CONTEXT, sealed))
        if self._frames.size == 0:
            self.restart()
        file.truncate(self._frames.size)
        file.seek(self._frames.size)


def _remove_old(folder: Path) -> None:
    """Remove journals that were not used for a week: the broker has dropped its side by then."""
    before = time.time() - _KEPT_SECONDS
    for path in folder.glob("*.journal"):
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
                path.with_suffix(".lock").unlink()
