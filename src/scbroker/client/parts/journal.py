"""What a device remembers of large contents on their way, so that what was cut off goes on where it was.

One file for each transfer, in the trust store's folder: entries one after the other, each sealed under
a key of the user's own and bound to its place. What a crash cut off, or anybody changed, counts as never
written, and so does all that follows it. It is an aid and no more: without it a transfer begins anew.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

import filelock

from scbroker.client.parts.own_files import open_own
from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import keyed_hash, label
from scbroker.errors import DecryptionError, TrustStoreError

_LENGTH: Final = 4
_MAX: Final = 67_108_864  # a content of the largest size, and some
_KEPT_SECONDS: Final = 7 * 86_400
_log: Final = logging.getLogger("scbroker")


class Journal:
    """The entries of one transfer, while it has them for itself."""

    def __init__(self, path: Path, secret: bytes, lock: filelock.BaseFileLock) -> None:
        self.name: str = path.stem
        self._path, self._secret, self._lock = path, secret, lock
        self._file: BinaryIO | None = None
        self.entries: list[bytes] = self._read()
        """What was there when it was opened."""
        self._count = len(self.entries)

    @classmethod
    def open(cls, folder: Path | None, secret: bytes, *names: bytes) -> Self | None:
        """The journal of what bears these names.

        None where there is no folder, it cannot be used, or another transfer of these names is under way.
        """
        if folder is None:
            return None
        # Nobody learns from a file's name what is sent or saved.
        sizes = b"".join(len(name).to_bytes(_LENGTH, "big") for name in names)
        name = keyed_hash(secret, "journal-name", sizes, *names)
        path = folder / f"{name.hex()}.journal"
        # Whatever thread of the pool begins a transfer, another may end it.
        lock = filelock.FileLock(path.with_suffix(".lock"), timeout=0, thread_local=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            _forget_old(folder)
            lock.acquire()
            return cls(path, secret, lock)
        except filelock.Timeout:
            return None
        except OSError as error:
            lock.release()
            _log.warning("A transfer cannot be resumed later: %s cannot be used: %s", folder, error)
            return None

    def append(self, entry: bytes) -> None:
        """Remembers one more; where that fails, what follows is not remembered."""
        if self._file is None:
            return
        sealed = seal(self._secret, self._context(self._count), entry)
        try:
            self._file.write(len(sealed).to_bytes(_LENGTH, "big") + sealed)
        except OSError as error:
            _log.warning("A transfer cannot be resumed from here: %s", error)
            self._file.close()
            self._file = None
        self._count += 1

    def restart(self) -> None:
        """Forgets the entries."""
        self.entries.clear()
        self._count = 0
        if self._file is not None:
            self._file.truncate(0)
            self._file.seek(0)

    def close(self) -> None:
        """Keeps the entries for another time."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def end(self) -> None:
        """Forgets the entries for good, also after a power cut: it has ended, or must not go on.

        `TrustStoreError` where that cannot be done.
        """
        try:
            self._forget()
        except OSError as error:
            raise TrustStoreError(
                f"The journal {self._path} of a transfer cannot be emptied: {error.strerror}."
            ) from None
        finally:
            self.close()

    def _forget(self) -> None:
        file, self._file = self._file, None
        if file is None:  # it could not be written to
            self._path.unlink(missing_ok=True)
        else:
            with file:
                file.truncate(0)
                os.fsync(file.fileno())
        with suppress(OSError):  # what is empty is only in the way
            self._path.unlink()
            Path(self._lock.lock_file).unlink()

    def _read(self) -> list[bytes]:
        """All entries that are whole; what follows them is cut off, and the file is left open there."""
        file = os.fdopen(open_own(self._path), "r+b", buffering=0)
        data = file.read(_MAX)
        entries: list[bytes] = []
        at = 0
        with suppress(DecryptionError):
            while at < len(data):
                size = int.from_bytes(data[at : at + _LENGTH], "big")
                sealed = data[at + _LENGTH : at + _LENGTH + size]
                entries.append(unseal(self._secret, self._context(len(entries)), sealed))
                at += _LENGTH + size
        file.truncate(at)
        file.seek(at)
        self._file = file
        return entries

    def _context(self, number: int) -> bytes:
        return label("journal") + self._path.name.encode() + number.to_bytes(_LENGTH, "big")


def _forget_old(folder: Path) -> None:
    """Removes what nobody went on with; a broker has dropped its side of it by then."""
    before = time.time() - _KEPT_SECONDS
    for path in folder.glob("*.journal"):
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
                path.with_suffix(".lock").unlink()
