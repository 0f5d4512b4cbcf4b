"""Journals of large transfers on the device, so that a transfer that was cut off can be resumed.

Each transfer has one file in the trust store's folder: a `SealedLog` of entries that are also encrypted, as
they hold keys. Whatever follows a frame that was cut off or changed counts as never written. A journal is
only an aid: without it a transfer starts again.
"""

import logging
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast

import filelock
import msgspec

from scbroker.client.own_files import open_own
from scbroker.client.sealed_log import DamagedLogError, SealedLog
from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import keyed_hash, label
from scbroker.errors import TrustStoreError
from scbroker.records.canonical import decoder

F = TypeVar("F")
S = TypeVar("S")
_MAGIC: Final = b"scbroker.journal\x01"
_CONTEXT: Final = label("journal")  # the log's MACs bind each entry to its place
_LENGTH: Final = 4
_MAX: Final = 67_108_864  # bytes: enough for a content of the largest size
_KEPT_SECONDS: Final = 7 * 86_400
_log: Final = logging.getLogger("scbroker")


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
            folder.mkdir(parents=True, exist_ok=True)
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
