"""The SQLite file in which a device keeps what it must know after a restart: `state.db`.

The file is in the folder of a trust store. No row is trusted: the module that keeps its rows in a table
authenticates them when it reads them.

The file is in WAL mode: a commit is one write without a sync, a kill leaves all or nothing of it, and after a
power cut the last commits may be missing. Its file system must let programs share memory, as local disks do.
Programs of one machine can share the file, those of several machines cannot.

A folder that others can write is refused, here and wherever the client keeps files: others could put links or
older files into it. No link is followed in place of a file.
"""

import errno
import functools
import os
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from scbroker.client.calls.tasks import check_process
from scbroker.errors import TrustStoreError
from scbroker.folders import make_folder

# Follow no link, and do not block on opening a pipe.
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


_TABLES: Final = (
    # Users with their device passes, and the logs of their marks (scbroker.client.users.trust_store).
    "CREATE TABLE user (slot INTEGER PRIMARY KEY, id BLOB UNIQUE, pass BLOB)",
    "CREATE TABLE entry (id INTEGER PRIMARY KEY, mac BLOB, hash BLOB, body BLOB)",
    # Unfinished transfers (scbroker.client.parts).
    "CREATE TABLE journal (name BLOB, number INTEGER, time INTEGER, sealed BLOB, "
    "PRIMARY KEY (name, number)) WITHOUT ROWID",
    # The index of names (scbroker.client.cache.index).
    "CREATE TABLE names (part BLOB PRIMARY KEY, sealed BLOB) WITHOUT ROWID",
)
_SHARED: Final = ("", "-wal", "-shm")
_SUFFIXES: Final = (*_SHARED, "-journal")
"""Suffixes of the names of the files that SQLite opens: those that stay open, and one for a commit."""
Files = list[tuple[int, int] | None]
"""Device and inode of each file that stays open; None for one that does not exist."""
LOCK_SECONDS: float = 10.0
"""Seconds that a process waits for another one's transaction."""
_PAUSE: Final = 0.005
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""The second one: the file that programs share as memory cannot grow."""
_lock: Final = threading.Lock()
"""Locked while a connection is used, and during a fork.

SQLite forbids to carry a connection through a fork: the child would believe that it has its parent's locks.
So a fork waits for transactions, and closes all connections before. They are opened again when needed.
"""
_states: weakref.WeakSet["LocalState"] = weakref.WeakSet()


class DamagedError(Exception):
    """The file has other contents than this program wrote."""


class LocalState:
    """A connection to the state file of a folder, which is opened when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.path: Path = folder / "state.db"
        self._name = str(self.path)
        self._connection: sqlite3.Connection | None = None
        self._files: Files = [None]
        """The files that were opened last."""
        self._process = os.getpid()

    def __enter__(self) -> sqlite3.Connection:
        """Use the connection, alone in this process; `__exit__` turns errors into `TrustStoreError`."""
        _lock.acquire()
        try:
            return self._current()
        except BaseException as error:
            self.__exit__(None, error, None)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _lock.release()
        if isinstance(error, OSError | sqlite3.Error | DamagedError | UnicodeDecodeError):
            raise self._error(error) from None

    def close(self) -> None:
        with _lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _current(self) -> sqlite3.Connection:
        """Return a connection to the file that is at the path now, which somebody may have replaced.

        A deleted file is an error: if it were created again, the program would forget what this device has
        verified.
        """
        files = self._found()
        if self._connection is not None and files == self._files:
            return self._connection
        if self._connection is not None and files[0] == self._files[0]:
            # SQLite would go on in the removed file, and other programs in another one. While the connection
            # is open, these do not begin (`_wait_until_free`).
            raise TrustStoreError(
                f"A file beside the trust store {self.path} was removed while it was in use: end all "
                "programs that use it, and start them again."
            )
        self._close()
        if files[0] is None and self._files[0] is not None:
            raise TrustStoreError(
                f"The trust store {self.path} was deleted while it was in use: restore it, or restart the "
                "program, which then forgets what this device has verified."
            )
        return self._connect()

    def _found(self) -> Files:
        found: Files = []
        for suffix in _SHARED:
            try:
                state = os.lstat(self._name + suffix)
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((state.st_dev, state.st_ino))
        return found

    def _connect(self) -> sqlite3.Connection:
        # The child of a fork comes here first: the fork has closed the connection.
        check_process(self._process)
        _close_at_forks()
        make_own_folder(self.path.parent)
        # SQLite would create the file with the mode that the umask leaves, and gives the file's mode to those
        # beside it. An existing file is not opened here: closing it would release SQLite's locks of this
        # process.
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                if not is_own_file(os.lstat(self._name + suffix)):
                    why = f"{self.path.name}{suffix} is not a regular file that this user alone can access"
                    raise OSError(errno.EPERM, why)
        [file, *beside] = self._found()
        if None in beside:
            self._wait_until_free()
        connection = sqlite3.connect(
            self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _set_up(connection)
        except BaseException:
            connection.close()
            raise
        # Not at exit: another thread may still use the connection then.
        weakref.finalize(self, connection.close).atexit = False
        self._connection, self._files = connection, [file, *self._found()[1:]]
        _states.add(self)
        return connection

    def _wait_until_free(self) -> None:
        """Raise SQLite's error if a program has the file open, although a file beside it was removed.

        That program still writes to the removed file. If this one made a new file, either would lose what the
        other one writes. So wait until no program has the file open, or all files exist.
        """
        deadline = time.monotonic() + LOCK_SECONDS
        while None in self._found():
            with closing(sqlite3.connect(self.path, timeout=0)) as connection:
                try:
                    # The next statement locks the file for this connection alone.
                    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                    connection.execute("PRAGMA schema_version").fetchone()
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                else:
                    return
            time.sleep(_PAUSE)

    def _error(self, error: Exception) -> TrustStoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return TrustStoreError(
                f"Another process keeps {self.path} locked: end it, or try again."
            )
        if isinstance(error, DamagedError | UnicodeDecodeError) or code in _DAMAGED:
            return TrustStoreError(
                f"The trust store {self.path} is damaged, another user's, or older than what this program "
                "has read of it: put the right file back, or restart the program. If that does not help, "
                "remove the file to start again as a fresh device, which forgets what this one has verified."
            )
        name, number = getattr(error, "sqlite_errorname", ""), getattr(error, "errno", None)
        if number == errno.ENOSPC or name in _FULL:
            return TrustStoreError(
                f"No room is left for the trust store {self.path}: free some, and try again."
            )
        if name.startswith("SQLITE_IOERR_SHM"):
            return TrustStoreError(
                f"The trust store {self.path} is on a file system where programs cannot share memory: pass a "
                "folder on a local disk as trustStore."
            )
        why = getattr(error, "strerror", None) or error
        return TrustStoreError(
            f"The trust store {self.path} cannot be used ({why}): make it accessible to this user alone, or "
            "pass another trustStore."
        )


@contextmanager
def transaction(connection: sqlite3.Connection, *, durable: bool = False) -> Iterator[None]:
    """Commit what the block writes, or roll it back."""
    if durable:
        connection.execute("PRAGMA synchronous=FULL")
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if durable:
            connection.execute("PRAGMA synchronous=NORMAL")


def _set_up(connection: sqlite3.Connection) -> None:
    connection.text_factory = bytes  # a damaged text is not always UTF-8
    # https://sqlite.org/security.html: for files that others may have written.
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute("PRAGMA synchronous=NORMAL")
    _use_wal(connection)
    if _missing(connection):
        with transaction(connection):
            for table in _missing(connection):  # check again: another process may have created them
                connection.execute(table)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode, once for a new file; retry while it is locked: SQLite's timeout does not cover this."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _missing(connection: sqlite3.Connection) -> list[str]:
    """Return the tables to create; raise `DamagedError` if the file has others, or triggers."""
    found = {
        sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    }
    expected = {table.encode(): table for table in _TABLES}
    if not found <= expected.keys():
        raise DamagedError
    return [expected[sql] for sql in expected.keys() - found]


@functools.cache
def _close_at_forks() -> None:
    if hasattr(os, "register_at_fork"):
        release = _lock.release
        os.register_at_fork(before=_close_all, after_in_parent=release, after_in_child=release)


def _close_all() -> None:
    _lock.acquire()
    for state in list(_states):
        state._close()
