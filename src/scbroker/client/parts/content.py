"""What a caller gives as content: bytes, a path, a binary file, or an iterator of bytes.

Bytes-like content is copied before the call returns; a path or file is read while it is sent, one
segment at a time, so that its size does not matter.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from scbroker.crypto.seal import Octets
from scbroker.errors import BrokerError, InvalidArgumentError
from scbroker.records.container_record import SEGMENT
from scbroker.types import ContentSource
from scbroker.wire.containers import MAX_INLINE

Progress = Callable[[int, int | None], object]
Segment = tuple[Octets, bool]
"""A piece of a content, good until the next is asked for, and whether it is the last."""
_READ: Final = 1_048_576


class Content:
    """A content to be sealed: read in pieces, again from the start where it can be."""

    def __init__(self, source: ContentSource) -> None:
        self._source: ContentSource = source
        self.total: int | None = None
        self.repeatable: bool = True
        self.identity: bytes | None = None
        """What says that a file is still the same as before; None for what is no file."""
        self.waits: bool = False
        """Whether reading it is code of the caller's, which may wait for anything."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._source = bytes(source)
            self.total = len(self._source)
        elif isinstance(source, os.PathLike):
            # A file of the system's own says that it is empty, and is read to its end.
            state = _state_of(Path(source))
            self.total = state.st_size or None
            if state.st_size:
                self.identity = _identity(Path(source), state)
            self.waits = not state.st_size
        else:
            self.repeatable = False
            self.waits = True

    @property
    def small(self) -> bytes | None:
        """All of a content that is at hand and goes inside a record request; None for any other."""
        source = self._source
        return source if isinstance(source, bytes) and len(source) <= MAX_INLINE else None

    def segments(self, first: int = 0) -> Generator[Segment, None, None]:
        """Pieces of exactly one segment's size, the last one shorter; one empty piece for nothing.

        From another than the first only where there is an identity.
        """
        try:
            if self.identity is not None:
                yield from self._segments_of_file(first)
            elif isinstance(self._source, bytes):
                yield from _views(self._source)
            else:
                yield from _cut(self._pieces())
        except BrokerError:
            raise
        except Exception as error:
            raise InvalidArgumentError(
                f"The content could not be read to its end: {type(error).__name__}: {error}"
            ) from None

    def _segments_of_file(self, first: int) -> Iterator[Segment]:
        path, total = Path(cast("os.PathLike[str]", self._source)), self.total or 0
        view = memoryview(bytearray(min(SEGMENT, total)))
        with path.open("rb", buffering=0) as file:
            file.seek(first * SEGMENT)
            for start in range(first * SEGMENT, total, SEGMENT):
                segment = view[: min(SEGMENT, total - start)]
                filled = 0
                while filled < len(segment) and (count := file.readinto(segment[filled:])):
                    filled += count
                if filled < len(segment) or self._has_changed(path, file):
                    raise InvalidArgumentError(
                        f"The file {path} changed while it was read: try again, or give it opened, "
                        "and it is read to wherever it ends."
                    )
                yield segment, start + SEGMENT >= total

    def _has_changed(self, path: Path, file: Any) -> bool:
        return _identity(path, os.fstat(file.fileno())) != self.identity

    def _pieces(self) -> Iterator[bytes]:
        source = self._source
        if isinstance(source, os.PathLike):
            with Path(source).open("rb") as file:
                yield from _read(file)
        elif hasattr(source, "read"):
            yield from _read(cast(BinaryIO, source))
        else:
            for piece in cast("Iterable[bytes]", source):
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


def _views(source: bytes) -> Iterator[Segment]:
    view = memoryview(source)
    for start in range(0, max(1, len(source)), SEGMENT):
        yield view[start : start + SEGMENT], start + SEGMENT >= len(source)


def _cut(pieces: Iterable[bytes]) -> Iterator[Segment]:
    """Whatever comes, in segments: one is held back until it is clear whether another follows."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        while len(pending) > SEGMENT:
            yield bytes(pending[:SEGMENT]), False
            del pending[:SEGMENT]
    yield bytes(pending), True


def _state_of(path: Path) -> os.stat_result:
    try:
        state = path.stat()
    except FileNotFoundError:
        raise InvalidArgumentError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is none"
        raise InvalidArgumentError(f"The file {str(path)!r} cannot be read: {why}.") from None
    if not stat.S_ISREG(state.st_mode):
        raise InvalidArgumentError(f"There is no file {path}.")
    return state


def _identity(path: Path, state: os.stat_result) -> bytes:
    """Where a file is, and what the system changes with every write to it."""
    known = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return b"\0".join([os.fsencode(path.absolute()), *(str(item).encode() for item in known)])


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
