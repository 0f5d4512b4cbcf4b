"""Download large contents in runs of segments. Spec: docs/spec/container.md, section 6.

Each segment is checked against the signed hashes before any of its bytes is used. Several runs are on the
wire while others are checked and opened in the thread pool.
"""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Callable, Collection
from typing import Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.calls.tasks import all_or_first_error
from scbroker.client.core.sealing import OpenPart
from scbroker.client.http.transport import Moved
from scbroker.client.parts.content import Progress
from scbroker.client.parts.meter import Meter
from scbroker.client.parts.presigned import PresignedUrls
from scbroker.client.users.session import Session
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import IntegrityError, TooLargeError
from scbroker.records import container_record as records
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK

Sink = Callable[[int, memoryview], None]
"""Takes the number of a run and its plaintext, whose buffer is reused after the call."""
RUN: Final = CHUNK_SEGMENTS * SEGMENT
AT_ONCE: Final = 3


class Buffers:
    """At most `count` buffers of `size` bytes; `take` waits while all are in use.

    They are reused: allocating memory for every chunk would cost more than sealing and hashing it.
    """

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._free: list[memoryview] = []
        self._available = asyncio.Semaphore(count)

    async def take(self) -> memoryview:
        await self._available.acquire()
        return self._free.pop() if self._free else memoryview(bytearray(self._size))

    def give_back(self, buffer: memoryview | None) -> None:
        """Return a buffer; None in place of one that must not be used again."""
        if buffer is not None:
            self._free.append(buffer)
        self._available.release()


class Download:
    """A large content whose segments' hashes were verified against its signed record."""

    def __init__(self, session: Session, opened: OpenPart, hashes: bytes) -> None:
        self._session, self._opened, self._hashes = session, opened, hashes
        self._count = records.segment_count(opened.part.paddedLength)
        self._runs = -(-self._count // CHUNK_SEGMENTS)
        self._path = path_of(opened.container_id, opened.part.partId)
        self._urls = PresignedUrls(session, self._path, self._runs)

    @classmethod
    async def start(cls, session: Session, opened: OpenPart) -> Download:
        """Fetch and verify the segments' hashes of a content."""
        path = f"{path_of(opened.container_id, opened.part.partId)}/hashes"
        limit = HASH_SIZE * records.segment_count(opened.part.paddedLength)
        hashes = bytes(await session.send("GET", path, limit=limit))
        await io_thread.in_pool(records.check_segment_hashes, opened.part, hashes)
        download = cls(session, opened, hashes)
        if session.keeper is not None:
            await session.keeper.keep_hashes(download._path, hashes)
        return download

    @property
    def length(self) -> int:
        return self._opened.length

    async def run(self, sink: Sink, progress: Progress, skip: Collection[int] = ()) -> None:
        """Pass all runs but those in `skip` to `sink`, in any order."""
        size = min(RUN, self._opened.part.paddedLength)
        sealed = Buffers(AT_ONCE + 1, min(MAX_CHUNK, self._count * SEALED_SEGMENT))
        plain = Buffers(AT_ONCE + 1, size)
        meter = Meter(progress, self.length, sum(self._length_of(number) for number in skip))

        async def one(number: int, buffer: memoryview) -> None:
            first = number * CHUNK_SEGMENTS
            count, length = min(CHUNK_SEGMENTS, self._count - first), self._length_of(number)
            padded = self._opened.part.paddedLength - number * RUN
            size = min(count * SEGMENT, padded) + count * (SEALED_SEGMENT - SEGMENT)
            moved = meter.follow(number, length, size)
            try:
                received = await self._fetch(first, count, buffer, moved)
                target = await plain.take()

                def pass_on() -> None:
                    opened = open_run(self._opened, first, received, self._hashes, target)
                    sink(number, target[:opened])

                try:
                    await io_thread.in_pool(pass_on)
                finally:
                    plain.give_back(target)
                await self._keep(first, received)
            finally:
                sealed.give_back(buffer)
            meter.complete(number, length)

        async with all_or_first_error() as fetching:
            for number in range(self._runs):
                if number not in skip:
                    fetching.create_task(one(number, await sealed.take()))

    async def segments(self, first: int, count: int) -> bytes:
        """Return the plaintext of some segments, at most as many as a run has."""
        buffer = memoryview(bytearray(count * SEALED_SEGMENT))
        received = await self._fetch(first, count, buffer)
        target = memoryview(bytearray(count * SEGMENT))
        size = await io_thread.in_pool(
            open_run, self._opened, first, received, self._hashes, target
        )
        await self._keep(first, received)
        return bytes(target[:size])

    async def _keep(self, first: int, verified: memoryview) -> None:
        if self._session.keeper is not None:
            await self._session.keeper.keep_part(self._path, first, verified)

    async def _fetch(
        self, first: int, count: int, buffer: memoryview, moved: Moved | None = None
    ) -> memoryview:
        query, target = {"first": str(first), "count": str(count)}, buffer[: count * SEALED_SEGMENT]
        try:
            size = await self._urls.get(first, count, target, moved)
            if size is None:
                path = f"{self._path}/segments"
                answer = self._session.send("GET", path, query=query, target=target, moved=moved)
                size = len(await answer)
        except TooLargeError:
            raise IntegrityError("The broker returned more segments than were signed.") from None
        if size <= (count - 1) * SEALED_SEGMENT:
            raise IntegrityError("The broker returned fewer segments than were signed.")
        return buffer[:size]

    def _length_of(self, number: int) -> int:
        return max(0, min(RUN, self.length - number * RUN))


def open_run(
    opened: OpenPart, first: int, sealed: memoryview, hashes: bytes, target: memoryview
) -> int:
    """Open consecutive segments into `target`; return the size of their plaintext. Runs in the pool."""
    size = 0
    for offset, start in enumerate(range(0, len(sealed), SEALED_SEGMENT)):
        at = (first + offset) * HASH_SIZE
        size += opened.open_segment_into(
            target[offset * SEGMENT :],
            first + offset,
            sealed[start : start + SEALED_SEGMENT],
            hashes[at : at + HASH_SIZE],
        )
    return size


def path_of(container_id: bytes, part_id: bytes) -> str:
    return f"/v1/containers/{uuid.UUID(bytes=container_id)}/parts/{uuid.UUID(bytes=part_id)}"


async def whole(session: Session, opened: OpenPart, progress: Progress) -> bytes:
    download = await Download.start(session, opened)
    try:
        # `getvalue` returns these bytes without a copy.
        content = io.BytesIO(bytes(download.length))
    except MemoryError:
        raise TooLargeError("The content does not fit into memory: save it to a file.") from None
    with content.getbuffer() as view:

        def keep(number: int, plaintext: memoryview) -> None:
            view[number * RUN : number * RUN + len(plaintext)] = plaintext

        await download.run(keep, progress)
    return content.getvalue()
