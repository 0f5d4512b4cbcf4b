"""Files and folders of a device that no other user of the machine can have planted or changed.

A folder that others can write is refused: they could put links or older files into it. No link is followed
in place of a file.
"""

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import filelock

from scbroker.folders import make_folder

_FIRST_PAUSE: Final = 0.0005
"""Seconds before the second attempt to lock a file; each further pause doubles."""
_LONGEST_PAUSE: Final = 0.05
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
