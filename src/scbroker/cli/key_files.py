"""Read and write KeyFiles on this device's disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import scbroker
from scbroker import errors
from scbroker.cli.paths import new_file

_LARGEST: Final = 65_536


def read(file: Path) -> scbroker.KeyFile:
    """Return the KeyFile in a file. Raises `InvalidArgumentError` for a file that has none."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        why = error.strerror if isinstance(error, OSError) else error
        raise errors.InvalidArgumentError(f"{file} cannot be read: {why}.") from None
    try:
        return scbroker.KeyFile(data)
    except errors.IntegrityError:
        raise errors.InvalidArgumentError(
            f"{file} is not a KeyFile: `scbroker key-file export` saves one."
        ) from None


def check_new(file: Path) -> None:
    """Raise `InvalidArgumentError` if a file cannot be made at a path."""
    if os.path.lexists(file):
        raise errors.InvalidArgumentError(f"{file} exists already: name a new file.")
    if not file.parent.is_dir():
        raise errors.InvalidArgumentError(f"{file.parent} is not a folder: make it first.")


def write(file: Path, data: bytes) -> None:
    """Write a new file that only this user can read; leave nothing behind if it fails."""
    with new_file(file) as opened:
        opened.write(data)
