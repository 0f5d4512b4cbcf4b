"""Tell which names of containers are paths, and which paths are ids.

The name of a container is the `name` of its header, as for the command line. Other users choose names too: a
name that could lead out of a folder, deceive a reader or act as a pattern is not a path.
"""

from __future__ import annotations

import mimetypes
import re
import unicodedata
import uuid
from collections.abc import Mapping
from typing import Any, Final

import scbroker
from scbroker import errors

ID: Final = "id:"
"""The beginning of a path that names a container by its id."""
_LONGEST: Final = 1024
"""Characters. The time to normalize grows with the square of the length."""
_MOST_PARTS: Final = 64
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CONTROLS: Final = ("Cc", "Cs", "Zl", "Zp")
_REFUSED: Final = re.compile(r"[\\:*?\[]")
"""Separators of other systems, and the characters with which fsspec begins a pattern."""


def normalized(path: str) -> str:
    """Return a path in Unicode's NFC; one that is too long for any container stays as it is."""
    return path if len(path) > _LONGEST else unicodedata.normalize("NFC", path)


def path_of(container: scbroker.Container[Any]) -> str | None:
    """Return a container's name if it is a path; None without a header, a name or a safe name."""
    header = container.header and container.header.customHeaderObject
    name = header.get("name") if isinstance(header, dict) else None
    if not isinstance(name, str):
        return None
    name = normalized(name)
    return None if _fault_of(name) else name


def check_name(path: str) -> None:
    """Raise `InvalidArgumentError` for a path that no container can have as its name."""
    if fault := _fault_of(path):
        raise errors.InvalidArgumentError(
            f"The path {path[:80]!r} cannot be the name of a container, because it {fault}."
        )


def _fault_of(name: str) -> str | None:
    """Return why a name is not a path; None if it is one."""
    if len(name) > _LONGEST:
        return f"is longer than {_LONGEST} characters"
    parts = name.split("/")
    if len(parts) > _MOST_PARTS:
        return f"has more than {_MOST_PARTS} parts"
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty part, or one that is a dot or two dots"
    if any(each in _BIDI or unicodedata.category(each) in _CONTROLS for each in name):
        return "has a control character, or one that reverses the direction of text"
    if refused := _REFUSED.search(name):
        return f"has the character {refused[0]!r}"
    return None


def id_of(path: str) -> uuid.UUID | None:
    """Return the id that a path such as `id:47c5156a-…` has; None for a name."""
    if not path.startswith(ID):
        return None
    try:
        return uuid.UUID(path.removeprefix(ID))
    except ValueError:
        raise errors.InvalidArgumentError(
            f"The path {path[:80]!r} has no id: write it as scbroker://id:UUID."
        ) from None


def header_with(name: str, header: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a header with this name and its media type; the other fields stay."""
    new = {**(header or {}), "name": name}
    new.pop("mediaType", None)
    media_type, _ = mimetypes.guess_type(name)
    return new if media_type is None else {**new, "mediaType": media_type}
