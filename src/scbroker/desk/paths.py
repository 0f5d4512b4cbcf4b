"""Make safe paths of the names of containers, for the disk and for a filesystem of containers.

Names come from other users: none may lead out of a folder, deceive a reader, or mean something else on
another system.
"""

from __future__ import annotations

import os
import re
import unicodedata
import uuid
from pathlib import PurePath, PurePosixPath
from typing import Final

from scbroker import errors
from scbroker.spelling import is_invisible, without_invisible

ID: Final = "id:"
"""The beginning of a path in a filesystem that names a container by its id."""
_PATTERN: Final = re.compile(r"[*?\[]")
"""The characters that make a path a glob pattern for fsspec."""
_MOST_PARTS: Final = 64
"""Maximum parts of a path: each is a folder to make and to sync, and other users choose the names."""
OWN: Final = ".scbroker"
"""The beginning of names that no container's file gets: those of the program's own files."""
_LONGEST_PART: Final = 255
_LONGEST_PATH: Final = 1024
"""Maximum bytes of a path, in UTF-8."""
_WRITTEN: Final = frozenset("\u061c\u200c\u200d\u200e\u200f\ufe0f")
"""Invisible characters that people's own files have in their names: marks of direction, joiners, emoji."""
_CONTROLS: Final = ("Cc", "Cs", "Zl", "Zp")
_SEPARATORS: Final = "\\:" + ('<>"|?*' if os.name == "nt" else "")
_DEVICE: Final = re.compile(
    r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|COM[0-9\u00b9\u00b2\u00b3]|LPT[0-9\u00b9\u00b2\u00b3]) *(\..*)?",
    re.IGNORECASE | re.DOTALL,
)
_SHOWN: Final = 80


def relative_path(name: str, longest: int = _LONGEST_PATH) -> PurePosixPath:
    """Return the relative path that a container's name means on every system, of at most so many bytes.

    Raises `InvalidArgumentError` with the reason for a name that no file gets: it would lead out of the
    folder, deceive a person who reads it, or have another meaning on another system.
    """
    # Normalizing takes time quadratic in the length: skip it for a name that is refused as too long.
    found = unicodedata.normalize("NFC", name) if len(name) <= 4 * _LONGEST_PATH else name
    try:
        parts = found.split("/")
        if len(found.encode("utf-8", "surrogatepass")) > longest:
            raise _UnsafeError(f"is longer than {longest} bytes")
        if found.startswith("/"):
            raise _UnsafeError("is an absolute path")
        if len(parts) > _MOST_PARTS:
            raise _UnsafeError(f"has more than {_MOST_PARTS} parts")
        for part in parts:
            _check_part(part)
    except _UnsafeError as error:
        shown = repr(found if len(found) <= _SHOWN else found[:_SHOWN] + "…")
        raise errors.InvalidArgumentError(
            f"The name {shown} cannot be used for a file, because it {error}: choose another name."
        ) from None
    return PurePosixPath(*parts)


class _UnsafeError(Exception):
    """The reason why a name is refused."""


def _check_part(part: str) -> None:
    seen = without_invisible(part)  # some file systems ignore invisible characters
    if not seen:
        raise _UnsafeError("has an empty part")
    if seen in (".", ".."):
        raise _UnsafeError(f"has the part {part!r}")
    is_plain = part.isascii() and part.isprintable()
    if not is_plain and any(unicodedata.category(each) in _CONTROLS for each in part):
        raise _UnsafeError("has a control character")
    if seen != part and (
        hidden := next((e for e in part if is_invisible(e) and e not in _WRITTEN), None)
    ):
        raise _UnsafeError(
            f"has the character U+{ord(hidden):04X}, which nobody sees or which reverses text"
        )
    if found := next((each for each in part if each in _SEPARATORS), None):
        raise _UnsafeError(f"has the character {found!r}")
    if seen[-1] in ". ":
        raise _UnsafeError("has a part that ends with a dot or a space")
    if _DEVICE.fullmatch(seen):
        raise _UnsafeError(f"has the part {part!r}, which is a device on Windows")
    # SCBROK~1 is the short name that Windows gives to .scbroker-mirror.
    if collision_key(part).startswith((collision_key(OWN), "scbrok~")):
        raise _UnsafeError(
            f"has the part {part!r}: names that begin with {OWN} are the program's own"
        )
    if len(part.encode()) > _LONGEST_PART:
        raise _UnsafeError(f"has a part of more than {_LONGEST_PART} bytes")


def is_hidden(path: PurePosixPath) -> bool:
    """Return whether a path is that of a hidden file, or of a file in a hidden folder."""
    return any(without_invisible(part).startswith(".") for part in path.parts)


def without_marks(name: str) -> str:
    """Return a name with escapes in place of characters that nobody sees, for another user's container."""
    return "".join(f"(U+{ord(each):04X})" if is_invisible(each) else each for each in name)


def filesystem_path(name: str) -> str:
    """Return the path of a container in a filesystem of containers, in NFC.

    Raises `InvalidArgumentError` for a name that no file gets, or that is a pattern of fsspec.
    """
    path = relative_path(name)
    if _PATTERN.search(name):
        raise errors.InvalidArgumentError(
            f"The name {name[:_SHOWN]!r} cannot be a path, because it has a character of [*?: choose another "
            "name."
        )
    return str(path)


def id_of(path: str) -> uuid.UUID | None:
    """Return the id that a path such as `id:47c5156a-…` has; None for a name."""
    if not path.startswith(ID):
        return None
    try:
        return uuid.UUID(path.removeprefix(ID))
    except ValueError:
        raise errors.InvalidArgumentError(
            f"The path {path[:_SHOWN]!r} has no id: write it as scbroker://id:UUID."
        ) from None


def container_name(path: PurePath) -> str:
    """Return the container's name for a relative path of this machine: in Unicode's NFC, with slashes.

    Raises `InvalidArgumentError` for a path whose name other machines could not use for a file.
    """
    return str(relative_path(path.as_posix()))


def collision_key(text: str) -> str:
    """Return a text that is equal for names that any file system takes for the same.

    macOS and Windows ignore case and kinds of composition; some systems ignore invisible characters.
    """
    if text.isascii():
        return text.lower()
    seen = "".join(e for e in without_invisible(text) if unicodedata.category(e) != "Cf")
    folded = unicodedata.normalize("NFD", seen).casefold()
    return unicodedata.normalize("NFC", folded)
