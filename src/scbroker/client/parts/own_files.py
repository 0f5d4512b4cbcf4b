"""Opening files that are this user's alone, in folders where somebody else may have put others."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

# A link is not followed, and a pipe keeps nobody waiting.
_FLAGS: Final = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_own(path: Path, flags: int = 0) -> int:
    """Opens or creates a file that this user alone can read, and gives its descriptor.

    `OSError` for a link, for what is no file or has another name as well, and for what is somebody else's
    or open to others.
    """
    descriptor = os.open(path, _FLAGS | flags, 0o600)
    if not _is_own(os.fstat(descriptor)):
        os.close(descriptor)
        raise OSError(errno.EPERM, "It is not a file of this user's alone", str(path))
    return descriptor


def _is_own(state: os.stat_result) -> bool:
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        return False
    if not hasattr(os, "geteuid"):  # Windows: the folder's own rules say who may
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & 0o077
