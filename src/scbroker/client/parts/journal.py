"""Record in the state file what was transferred of a large content, so that the transfer can be resumed.

Entries are sealed under a key of the user; each opens only at its own position in its own transfer. Those
after a damaged entry count as missing: the transfer repeats some of its work.
"""

import logging
import os
import sqlite3
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

import filelock
import msgspec

from scbroker.client.local_state import LocalState, transaction
from scbroker.crypto.seal import seal, unseal
from scbroker.crypto.verify import keyed_hash, label, sha256
from scbroker.errors import DecryptionError, TrustStoreError
from scbroker.records.canonical import decoder

F = TypeVar("F")
S = TypeVar("S")
_KEPT_SECONDS: Final = 7 * 86_400
"""Seconds after which an unused journal is deleted: by then the broker has dropped its side of the upload."""
_log: Final = logging.getLogger("scbroker")


class Journal:
    """The entries of one transfer, while this object has its lock. Without a state file it keeps none."""

    def __init__(
        self,
        state: LocalState | None = None,
        secret: bytes = b"",
        name: bytes = b"",
        lock: filelock.BaseFileLock | None = None,
    ) -> None:
        self.name: str = name.hex() or uuid.uuid4().hex
        self._state, self._name, self._lock = state, name, lock
        self._secret = keyed_hash(secret, "journal", name)
        self._has_failed = False
        self._first = b""
        """The hash of the sealed first entry: with another one, later entries do not open."""
        self._count = 0
        self.entries: list[bytes] = []
        """The entries that it had when it was opened."""

    @classmethod
    def open(cls, state: LocalState | None, secret: bytes, *names: bytes) -> Self:
        """Open the journal of the transfer that these names identify.

        It keeps nothing without a state file that can be used, or if another transfer has it open.
        """
        if state is None:
            return cls()
        # Programs with another trust store have other locks, so their partial files need other names.
        names = os.fsencode(state.path), *names
        # A keyed hash: the name does not disclose what is transferred.
        sizes = b"".join(len(name).to_bytes(4, "big") for name in names)
        name = keyed_hash(secret, "journal-name", sizes, *names)
        lock = _lock_of(state, name)
        try:
            with state as connection:  # also makes the folder of the lock
                before = int(time.time()) - _KEPT_SECONDS
                for (old,) in connection.execute(_OLD, (before,)).fetchall():
                    # Only under its lock, or its transfer goes on without one after a week's pause, as of
                    # a suspended machine: the next transfer of this name would truncate its partial
                    # file. The statement checks the age again, as the transfer may just have resumed.
                    # A lock that another transfer has raises `filelock.Timeout`, an OSError.
                    with suppress(OSError), _lock_of(state, old) as other:
                        connection.execute(_DELETE_OLD, (old, before))
                        _unlink(other)
            lock.acquire()
            journal = cls(state, secret, name, lock)
            with state as connection:
                journal._read(connection)
        except filelock.Timeout:
            return cls()
        except (OSError, TrustStoreError) as error:
            lock.release()
            _log.warning("A transfer cannot be resumed later: %s", error)
            return cls()
        return journal

    def _read(self, connection: sqlite3.Connection) -> None:
        with suppress(DecryptionError, TypeError):  # a damaged row may have a value of any type
            for number, sealed in connection.execute(_ENTRIES, (self._name,)):
                if number != len(self.entries):
                    break
                self.entries.append(unseal(self._secret, self._context(number), sealed))
                self._first = self._first or sha256(sealed)
        self._count = len(self.entries)

    def _context(self, number: int) -> bytes:
        return label("journal") + self._first + b"%d" % number

    @property
    def is_kept(self) -> bool:
        """Return whether the transfer can be resumed by this journal."""
        return self._state is not None

    def append(self, entry: bytes) -> None:
        """Append an entry. After a failed write nothing more is written."""
        if self._state is None or self._has_failed:
            return
        sealed = seal(self._secret, self._context(self._count), entry)
        try:
            with self._state as connection:
                row = self._name, self._count, int(time.time()), sealed
                connection.execute("REPLACE INTO journal VALUES (?, ?, ?, ?)", row)
        except TrustStoreError as error:
            _log.warning("A transfer cannot be resumed from here: %s", error)
            self._has_failed = True
        self._first = self._first or sha256(sealed)
        self._count += 1

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

    def restart(self, item: msgspec.Struct) -> None:
        """Remove all entries, and start with this item."""
        self.entries.clear()
        self._first, self._count = b"", 0
        self.append_item(item)

    def close(self) -> None:
        """Keep the entries, so that the transfer can be resumed."""
        if self._lock is not None:
            _unlink(self._lock)
            self._lock.release()
            self._lock = None

    def end(self, *, durably: bool = True) -> None:
        """Remove the journal: the transfer is complete, or must not be resumed.

        Without `durably`, a journal that a power cut brings back must do no harm.
        Raises `TrustStoreError` if that fails.
        """
        try:
            if self._state is not None and self._lock is not None:
                with self._state as connection, transaction(connection, durable=durably):
                    connection.execute("DELETE FROM journal WHERE name = ?", (self._name,))
        finally:
            self.close()


def _lock_of(state: LocalState, name: bytes) -> filelock.BaseFileLock:
    """Return a journal's lock. A crash releases it.

    It is not bound to a thread: one thread of the pool may open the journal and another close it.
    """
    path = state.path.with_name(f"{name.hex()}.lock")
    return filelock.FileLock(path, timeout=0, thread_local=False)


def _unlink(lock: filelock.BaseFileLock) -> None:
    """Remove the file of a lock that the caller has acquired and not yet released.

    A process that has opened the file before does not get this lock any more: filelock checks whether a
    locked file was removed.
    """
    with suppress(OSError):  # Windows does not remove an open file
        Path(lock.lock_file).unlink()


_ENTRIES: Final = "SELECT number, sealed FROM journal WHERE name = ? ORDER BY number"
_OLD: Final = """
    SELECT name FROM journal GROUP BY name HAVING max(time) < ? AND typeof(name) = 'blob'
"""
_DELETE_OLD: Final = """
    DELETE FROM journal WHERE name = ?1 AND (SELECT max(time) FROM journal WHERE name = ?1) < ?2
"""
