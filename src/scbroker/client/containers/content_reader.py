"""Read a container's content like a file: seek, and download only the segments that are read."""

import io
import uuid
from typing import Any, Final

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.operation import Promise
from scbroker.client.containers.fetching import deletion_proved
from scbroker.client.parts.downloads import Download
from scbroker.client.users.session import Session
from scbroker.records.container_record import SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS

_CACHED: Final = 2
"""Segments."""


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
        self._segments: dict[int, bytes] = {}
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
        if isinstance(source, bytes) or end <= offset:
            return source[offset:end] if isinstance(source, bytes) else b""
        try:
            return await self._joined(source, offset, end)
        except MemoryError:
            raise errors.TooLargeError(
                f"A range of {length} bytes does not fit into memory: read less at once."
            ) from None

    async def _joined(self, source: Download, offset: int, end: int) -> bytes:
        pieces = []
        index, last = offset // SEGMENT, (end - 1) // SEGMENT
        while index <= last:
            if (segment := self._segments.get(index)) is not None:
                found, count = segment, 1
            else:
                count = min(CHUNK_SEGMENTS, last - index + 1)
                async with deletion_proved(self._session, self.containerId):
                    found = await source.segments(index, count)
                self._keep(index, found)
            start = index * SEGMENT
            pieces.append(found[max(0, offset - start) : end - start])
            index += count
        return b"".join(pieces)

    def _keep(self, index: int, found: bytes) -> None:
        """Cache the last segment that was read, in which the next read may begin."""
        if self.closed:
            return
        last = (len(found) - 1) // SEGMENT
        self._segments[index + last] = found[last * SEGMENT :]
        while len(self._segments) > _CACHED:
            del self._segments[next(iter(self._segments))]
