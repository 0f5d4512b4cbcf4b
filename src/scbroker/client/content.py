"""What a caller gives as content: bytes, a path, a binary file, or an iterator of bytes.

Bytes-like content is copied before the call returns; a path or file is read while it is sent, one
segment at a time, so that its size does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from scbroker.errors import BrokerError, InvalidArgumentError
from scbroker.records.container_record import SEGMENT
from scbroker.types import ContentSource
from scbroker.wire.containers import MAX_INLINE

_READ: Final = 1_048_576


class Content:
    """A content to be sealed: read in pieces, again from the start where it can be."""

    def __init__(self, source: ContentSource) -> None:
        self._source: ContentSource = source
        self.total: int | None = None
        self.repeatable: bool = True
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._source = bytes(source)
            self.total = len(self._source)
        elif isinstance(source, os.PathLike):
            self.total = _size_of(Path(source))
        else:
            self.repeatable = False

    @property
    def small(self) -> bytes | None:
        """All of a content that is at hand and goes inside a record request; None for any other."""
        source = self._source
        return source if isinstance(source, bytes) and len(source) <= MAX_INLINE else None

    def segments(self) -> Iterator[bytes]:
        """Pieces of exactly one segment's size, the last one shorter; one empty piece for nothing."""
        try:
            yield from _cut(self._pieces())
        except BrokerError:
            raise
        except Exception as error:
            raise InvalidArgumentError(
                f"The content could not be read to its end: {type(error).__name__}: {error}"
            ) from None

    def _pieces(self) -> Iterator[bytes]:
        source = self._source
        if isinstance(source, bytes):
            view = memoryview(source)
            for start in range(0, len(source), _READ):
                yield bytes(view[start : start + _READ])
        elif isinstance(source, os.PathLike):
            with Path(source).open("rb") as file:
                yield from _read(file)
        elif hasattr(source, "read"):
            yield from _read(cast(BinaryIO, source))
        else:
            for piece in source:
                yield _checked(piece)


def checked_content(content: Any) -> Content | None:
    """The content of an argument; `InvalidArgumentError` for what is none."""
    if content is None:
        return None
    if isinstance(content, str):
        raise InvalidArgumentError(
            "content is bytes: encode text first, and give a file's name as pathlib.Path."
        )
    kinds = (bytes, bytearray, memoryview, os.PathLike)
    streams = isinstance(content, Iterable) and not isinstance(content, (dict, list, tuple, set))
    if not (isinstance(content, kinds) or hasattr(content, "read") or streams):
        raise InvalidArgumentError(
            "content is bytes, a pathlib.Path, a binary file or an iterator of bytes."
        )
    return Content(content)


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    pending, empty = bytearray(), True
    for piece in pieces:
        pending += piece
        while len(pending) > SEGMENT:
            yield bytes(pending[:SEGMENT])
            empty = False
            del pending[:SEGMENT]
    if pending or empty:
        yield bytes(pending)


def _size_of(path: Path) -> int:
    try:
        if not path.is_file():
            raise InvalidArgumentError(f"There is no file {path}.")
        return path.stat().st_size
    except OSError as error:
        raise InvalidArgumentError(f"The file {path} cannot be read: {error.strerror}.") from None


def _read(file: BinaryIO) -> Iterator[bytes]:
    """To the end, which only empty bytes say: a stream that has nothing yet gives None."""
    while piece := _checked(file.read(_READ)):
        yield piece


def _checked(piece: object) -> bytes:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(
            "A content yields bytes: open a file in binary mode, and so that reading it waits."
        )
    return bytes(piece)
