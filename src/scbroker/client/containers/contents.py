"""Hand out containers and their contents: whole, saved to a file, or as a file-like reader.

A small content came with the view; a large one is downloaded by its segments.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from scbroker import errors
from scbroker.client.calls import tasks
from scbroker.client.calls.io_thread import Promise, io_thread
from scbroker.client.containers import fetching, opening
from scbroker.client.containers.fetching import deletion_proved
from scbroker.client.containers.opening import Fetched, Opened
from scbroker.client.parts import downloads
from scbroker.client.parts.content import Progress, no_progress
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError
from scbroker.records.container_record import SEGMENT, Role
from scbroker.types import Container, Header
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_BATCH, MAX_INLINE
from scbroker.wire.parts import CHUNK_SEGMENTS

OpenHeader = Callable[[bytes | None], Header[Any] | None]
_CACHED: Final = 2
"""Segments that a reader keeps in memory: small reads in a row then download none twice."""


async def get_each(
    session: Session, ids: Sequence[uuid.UUID], open_header: OpenHeader, asked: Collection[Role]
) -> list[Container[Any] | BrokerError]:
    """Return each container with the parts in `asked`, or its error, in the order of the ids."""
    with_header, with_content = Role.Header in asked, Role.Content in asked
    found: dict[uuid.UUID, Container[Any] | BrokerError] = {}

    def open_one(fetched: Fetched | BrokerError) -> tuple[Opened, Container[Any]]:
        if isinstance(fetched, BrokerError):
            raise fetched
        opened = opening.open_fetched(session, fetched)
        header = content = None
        if with_header:
            header = open_header(opening.read_part(opened, Role.Header))
        if with_content:
            content = opening.read_part(opened, Role.Content)
        return opened, opening.container(session, opened, content, header, asked=asked)

    async def get_some(some: Sequence[uuid.UUID]) -> None:
        fetched = await fetching.fetch_many(session, some, header=with_header, content=with_content)
        outcomes = await tasks.each_in_pool(open_one, fetched)
        for container_id, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                found[container_id] = outcome
                continue
            opened, small = outcome
            with tasks.alone(partial(found.__setitem__, container_id)):
                if small.content is None and with_content:  # absent, or too large for a view
                    content = await read(session, opened, no_progress)
                    if content is not None:
                        small = opening.container(
                            session, opened, content, small.header, asked=asked
                        )
                found[container_id] = small

    once = list(dict.fromkeys(ids))
    size = tasks.group_size(len(once), MAX_BATCH)
    groups = (once[at : at + size] for at in range(0, len(once), size))
    await tasks.a_few_at_once(get_some(group) for group in groups)
    return [tasks.shown(found[container_id]) for container_id in ids]


async def read(session: Session, opened: Opened, progress: Progress) -> bytes | None:
    """Return the whole content; None if it is absent or this reader may not read it."""
    found = _find(session, opened)
    if isinstance(found, Download):
        async with deletion_proved(session, opened.container_id):
            return await downloads.whole(found, progress)
    if found is not None:
        progress(len(found), len(found))
    return found


async def save(session: Session, opened: Opened, target: Path, progress: Progress) -> int | None:
    """Write the content to a file; return its length in bytes, or None if nothing is written."""
    found = _find(session, opened)
    if found is None:
        return None
    if isinstance(found, Download):
        async with deletion_proved(session, opened.container_id):
            return await downloads.save_large(session, found, target, progress)
    length = await downloads.save_small(target, found)
    progress(length, length)
    return length


async def reader(session: Session, opened: Opened) -> ContentReader | None:
    """Return the content as a file-like reader, or None as `read` does."""
    found = _find(session, opened)
    if found is None:
        return None
    container_id, version = opened.container_id, opened.state.record.version
    if isinstance(found, Download) and session.is_offline:
        # Fail now if the cache lacks the content; online, the first read requests it.
        await found.hashes()
    return ContentReader(session, container_id, version, found)


def _find(session: Session, opened: Opened) -> bytes | Download | None:
    """Return the content of the view, or the download of a large content."""
    part = opened.part(Role.Content)
    if part is None:
        return None
    if part.part.paddedLength > MAX_INLINE:
        may_download = opened.state.may(ContainerAccessLevel.Download)
        return Download(session, part, opened.query) if may_download else None
    return opening.read_part(opened, Role.Content)


class ContentReader(io.RawIOBase):
    """A content as it was when `openContainerContent` opened it, as a seekable binary file.

    Reading downloads the segments of 1 MiB that it touches, and verifies each against the signed hashes. The
    last two are cached, so that small reads in a row download none twice. `read` and `readinto` block on the
    network: in an event loop, await `readRange`. Errors are those of `getContainerContent`.
    Usable with `with`; `close` forgets the content's key. After `logout` nothing more can be read.
    """

    def __init__(
        self, session: Session, containerId: uuid.UUID, version: int, source: Download | bytes
    ) -> None:
        self.containerId: uuid.UUID = containerId
        self.version: int = version
        """The container's version that was opened; later changes are not visible here."""
        self.size: int = len(source) if isinstance(source, bytes) else source.length
        """The content's length in bytes."""
        self._session = session
        self._source: Download | bytes = source
        self._segments: dict[int, memoryview] = {}
        self._position = 0

    def readRange(self, offset: int, length: int) -> Promise[bytes]:
        """Return `length` bytes from `offset` on, fewer only at the content's end.

        The position stays as it is. Raises `invalidArgumentError` for numbers below 0.
        """
        self._check_open()
        numbers: dict[str, object] = {"offset": offset, "length": length}
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise errors.InvalidArgumentError(
                    f"{name} must be an int of 0 or more, not {number!r:.40}"
                )
        work = self._session.hold(self._range(self._source, offset, length))
        return Promise("readRange", io_thread.submit("readRange", work, self))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check_open()
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in starts or starts[whence] + offset < 0:
            raise errors.InvalidArgumentError(
                f"seek({offset}, {whence}) does not lead to a position of 0 or more: whence must be "
                "SEEK_SET, SEEK_CUR or SEEK_END"
            )
        self._position = starts[whence] + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        # Override: the base class would read into a buffer of its own and copy that.
        if size is None or size < 0:
            return self.readall()
        found = self.readRange(self._position, size).result()
        self._position += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        found = self.readRange(self._position, len(target)).result()
        target[: len(found)] = found
        self._position += len(found)
        return len(found)

    def readall(self) -> bytes:
        found = self.readRange(self._position, max(0, self.size - self._position)).result()
        self._position += len(found)
        return found

    def close(self) -> None:
        self._source = b""
        self._segments.clear()
        super().close()

    def __repr__(self) -> str:
        return f"<ContentReader of container {self.containerId}, {self.size} bytes>"

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("The reader was closed.")
        if self._session.keys.is_forgotten:
            raise errors.NotAuthenticatedError("The session was logged out meanwhile.")

    async def _range(self, source: Download | bytes, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if isinstance(source, bytes):
            return source[offset:end]
        pieces = []
        index, last = offset // SEGMENT, (end - 1) // SEGMENT
        try:
            while index <= last and offset < end:
                if (segment := self._segments.get(index)) is not None:
                    found = [segment]
                else:
                    count = min(CHUNK_SEGMENTS, last - index + 1)
                    async with deletion_proved(self._session, self.containerId):
                        found = await source.segments(index, count)
                    self._keep(index + count - 1, found[-1])
                for number, segment in enumerate(found, index):
                    start = number * SEGMENT
                    pieces.append(segment[max(0, offset - start) : end - start])
                index += len(found)
            return b"".join(pieces)
        except MemoryError:
            raise errors.TooLargeError(
                f"A range of {length} bytes does not fit into memory: read less at once."
            ) from None

    def _keep(self, index: int, segment: memoryview) -> None:
        """Cache the last segment that was read, in which the next read may begin."""
        if self.closed:
            return
        self._segments[index] = segment
        while len(self._segments) > _CACHED:
            del self._segments[next(iter(self._segments))]
