"""Know the platform's folders for this program's files, and make folders; open files of the user.

A folder is looked up only when it is needed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Literal

from scbroker import errors


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, as far as they do not exist, for this user alone.

    `Path.mkdir` would make those above it with the mode that the umask leaves.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def regular(path: str, flags: int) -> int:
    """Open a regular file, as the `opener` of `open`, and never wait at a pipe that has taken its place.

    Raises `OSError` for anything else. Others can replace a file after this program has found it.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file any more")
    return descriptor


def platform_folder(kind: Literal["config", "data", "state"], instead: str) -> Path:
    """Return the user's folder for configuration, a broker's data, or what this device has verified.

    Raises `InvalidArgumentError` if the user has no home directory, as in a container whose user id is in no
    list of users; `instead` ends the message, and says what else helps.
    """
    import platformdirs

    try:
        if kind == "config":
            return platformdirs.user_config_path("scbroker", appauthor=False)
        return Path(
            platformdirs.user_data_dir("scbroker")
            if kind == "data"
            else platformdirs.user_state_dir("scbroker")
        )
    except RuntimeError:
        raise errors.InvalidArgumentError(
            f"This user has no home directory: set HOME to a folder of the user's own{instead}."
        ) from None
