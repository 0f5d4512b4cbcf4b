"""Read the content that a caller passes: bytes, a path, a binary file, or an iterator of bytes.

Bytes are copied before the call returns. Anything else is read while it is sent, one segment at a time, so
that a content of any size needs little memory. A `Meter` reports how much of a large one was transferred.
"""

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from scbroker.crypto.seal import Octets
from scbroker.errors import BrokerError, InvalidArgumentError
from scbroker.folders import regular
from scbroker.records.container_record import SEGMENT
from scbroker.types import ContentSource
from scbroker.wire.containers import MAX_INLINE

Progress = Callable[[int, int | None], object]
Segment = tuple[Octets, bool]
"""A piece of a content, valid until the next one is read, and whether it is the last."""
_READ: Final = 1_048_576


def no_progress(done: int, total: int | None) -> None:
    """Ignore the progress: the caller did not ask for it."""


class Content:
    """A content to be sealed, read in pieces; bytes and files can be read repeatedly."""

    def __init__(self, source: ContentSource) -> None:
        self._source: ContentSource = source
        self.total: int | None = None
        self.repeatable: bool = True
        self.identity: bytes | None = None
        """Changes whenever a file is written to; None if the content is not a file with a size."""
        self.waits: bool = False
        """Whether reading may block for long: the caller's code, or a file of the system."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._source = bytes(source)
            self.total = len(self._source)
        elif isinstance(source, os.PathLike):
            # Files of the system, as in /proc, have no size: they are read to their end.
            state = _state_of(Path(source))
            # Absolute: it is read later, and the program may change its working directory meanwhile.
            self._source = path = Path(source).absolute()
            self.total = state.st_size or None
            if state.st_size:
                self.identity = _identity(path, state)
            self.waits = not state.st_size
        else:
            self.repeatable = False
            self.waits = True

    @property
    def small(self) -> bytes | None:
        """Bytes that are small enough to be sent inside a record request; None otherwise."""
        source = self._source
        return source if isinstance(source, bytes) and len(source) <= MAX_INLINE else None

    def segments(self, first: int = 0) -> Generator[Segment, None, None]:
        """Yield pieces of one segment's size, the last one shorter; an empty content has one empty piece.

        Another `first` than 0 needs an `identity`.
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
        path, total = cast(Path, self._source), self.total or 0
        view = memoryview(bytearray(min(SEGMENT, total)))
        with open(path, "rb", buffering=0, opener=regular) as file:
            file.seek(first * SEGMENT)
            for start in range(first * SEGMENT, total, SEGMENT):
                segment = view[: min(SEGMENT, total - start)]
                filled = 0
                while filled < len(segment) and (count := file.readinto(segment[filled:])):
                    filled += count
                identity = _identity(path, os.fstat(file.fileno()))
                if filled < len(segment) or identity != self.identity:
                    raise InvalidArgumentError(
                        f"The file {path} changed while it was read: try again, or pass it opened to read "
                        "it to wherever it ends."
                    )
                yield segment, start + SEGMENT >= total

    def _pieces(self) -> Iterator[bytes]:
        source = self._source
        if isinstance(source, os.PathLike):
            with open(source, "rb", opener=regular) as file:
                yield from _read(file)
        elif hasattr(source, "read"):
            yield from _read(cast(BinaryIO, source))
        else:
            for piece in cast("Iterable[bytes]", source):
                yield _checked(piece)


def checked_content(content: Any) -> Content | None:
    """Return the argument `content` as a `Content`; raise `InvalidArgumentError` if it cannot be one."""
    if content is None:
        return None
    if isinstance(content, str):
        raise InvalidArgumentError(
            "content must be bytes, not str: encode text, or pass a pathlib.Path."
        )
    kinds = (bytes, bytearray, memoryview, os.PathLike)
    streams = isinstance(content, Iterable) and not isinstance(content, (dict, list, tuple, set))
    if not (isinstance(content, kinds) or hasattr(content, "read") or streams):
        raise InvalidArgumentError(
            "content must be bytes, a pathlib.Path, a binary file or an iterator of bytes, not "
            f"{type(content).__name__}."
        )
    return Content(content)


def _views(source: bytes) -> Iterator[Segment]:
    view = memoryview(source)
    for start in range(0, max(1, len(source)), SEGMENT):
        yield view[start : start + SEGMENT], start + SEGMENT >= len(source)


def _cut(pieces: Iterable[bytes]) -> Iterator[Segment]:
    """Cut pieces into segments; the last segment is kept back until the pieces have ended."""
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
        raise InvalidArgumentError(f"The file {path} does not exist.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the name is not valid"
        raise InvalidArgumentError(f"The file {str(path)!r} cannot be read: {why}.") from None
    if stat.S_ISDIR(state.st_mode):
        raise InvalidArgumentError(
            f"{path} is a folder: create a container for each of its files, or pass an archive of it."
        )
    if not stat.S_ISREG(state.st_mode):
        raise InvalidArgumentError(f"{path} is not a file: open it, and pass the open file.")
    return state


def _identity(path: Path, state: os.stat_result) -> bytes:
    """Return a file's absolute path, and the numbers that the system changes with every write."""
    known = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return b"\0".join([os.fsencode(path), *(str(item).encode() for item in known)])


def _read(file: BinaryIO) -> Iterator[bytes]:
    """Yield pieces until `read` returns empty bytes. None, as from a non-blocking stream, is an error."""
    while piece := _checked(file.read(_READ)):
        yield piece


def _checked(piece: object) -> bytes:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(
            f"content must yield bytes, not {type(piece).__name__}: open a file in binary and blocking mode."
        )
    return bytes(piece)


_STEPS: Final = 8
_SMALLEST_STEP: Final = 16_384
_LARGEST_STEP: Final = 1_048_576


class Meter:
    """Add up the bytes transferred of each chunk, and report steps of an eighth, 16 KiB to 1 MiB.

    The reported number never falls. The last byte of a chunk counts only when the chunk is `complete`: the
    receiver has confirmed it, or the client has verified it. So the total is reported once, at the end.
    """

    def __init__(self, progress: Progress, total: int | None, done: int) -> None:
        """Begin with `done` bytes that an earlier transfer has moved."""
        self._progress, self._total, self._done = progress, total, done
        eighth = _LARGEST_STEP if total is None else total // _STEPS
        self._step = min(max(eighth, _SMALLEST_STEP), _LARGEST_STEP)
        self._on_the_wire: dict[int, int] = {}
        self._reported = 0
        if done:
            self._report()

    def follow(self, chunk: int, length: int, size: int) -> Callable[[int], None] | None:
        """Return a function that takes the number of sealed bytes transferred; None without a progress.

        The chunk has `size` sealed bytes and `length` plaintext bytes.
        """
        if self._progress is no_progress:
            return None

        def moved(count: int) -> None:
            reached = min(length * count // size, max(length - 1, 0))
            self._on_the_wire[chunk] = reached // self._step * self._step
            self._report()

        return moved

    def complete(self, chunk: int, length: int) -> None:
        """Count a chunk as whole."""
        self._on_the_wire.pop(chunk, None)
        self._done += length
        self._report()

    def _report(self) -> None:
        now = self._done + sum(self._on_the_wire.values())
        # Report growth only: the sum falls when a chunk is sent again, and stays after mere padding.
        if now > self._reported:
            self._reported = now
            self._progress(now, self._total)
