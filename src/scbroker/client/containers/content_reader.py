"""A container's content as a file to read and to seek in, of which no more is fetched than is read."""

from __future__ import annotations

import io
import uuid
from typing import Any, Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.promise import Promise
from scbroker.client.containers.fetching import prove_deletion
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.errors import (
    DeletedError,
    InvalidArgumentError,
    NotAuthenticatedError,
    TooLargeError,
)
from scbroker.records.container_record import SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS

_KEPT: Final = 2


class ContentReader(io.RawIOBase):
    """A content as it was when `openContainerContent` opened it, to be read by whoever reads files.

    Reading fetches the segments of 1 MiB that it touches, and checks each against what was signed for;
    the last ones are kept, so that small reads in a row fetch none twice. `read`, `readinto` and `seek`
    wait for the network: in an event loop, await `readRange`. Errors are those of `getContainerContent`.
    Usable as `with`; `close` forgets the content's key. After `logout` nothing more is read.
    """

    def __init__(
        self, session: Session, containerId: uuid.UUID, version: int, source: Download | bytes
    ) -> None:
        self.containerId: uuid.UUID = containerId
        self.version: int = version
        """The container's version that was opened: later ones do not show here."""
        self.size: int = len(source) if isinstance(source, bytes) else source.length
        """Bytes of content."""
        self._session = session
        self._source: Download | bytes = source
        self._segments: dict[int, bytes] = {}
        self._position = 0

    def readRange(self, offset: int, length: int) -> Promise[bytes]:
        """The bytes from an offset on, fewer only at the end; independent of the position.

        Raises `invalidArgumentError` for numbers below 0."""
        self._check_open()
        for number in (offset, length):
            if not _is_size(number):
                raise InvalidArgumentError("offset and length are numbers of bytes, 0 or more.")
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
            raise InvalidArgumentError("A position is 0 or more, from start, position or end.")
        self._position = starts[whence] + offset
        return self._position

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
            raise NotAuthenticatedError("The session was logged out meanwhile.")

    async def _range(self, source: Download | bytes, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if isinstance(source, bytes) or end <= offset:
            return source[offset:end] if isinstance(source, bytes) else b""
        try:
            return await self._joined(source, offset, end)
        except MemoryError:
            raise TooLargeError("The range does not fit into memory: read less at once.") from None

    async def _joined(self, source: Download, offset: int, end: int) -> bytes:
        pieces = []
        index, last = offset // SEGMENT, (end - 1) // SEGMENT
        while index <= last:
            if (segment := self._segments.get(index)) is not None:
                found, count = segment, 1
            else:
                count = min(CHUNK_SEGMENTS, last - index + 1)
                found = await self._fetched(source, index, count)
                self._keep(index, found)
            start = index * SEGMENT
            pieces.append(found[max(0, offset - start) : end - start])
            index += count
        return b"".join(pieces)

    async def _fetched(self, source: Download, index: int, count: int) -> bytes:
        try:
            return await source.segments(index, count)
        except DeletedError:
            await prove_deletion(self._session, self.containerId)

    def _keep(self, index: int, found: bytes) -> None:
        """The last segment of what was read: the next read may begin in it."""
        if self.closed:
            return
        last = (len(found) - 1) // SEGMENT
        self._segments[index + last] = found[last * SEGMENT :]
        while len(self._segments) > _KEPT:
            del self._segments[next(iter(self._segments))]


def _is_size(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
