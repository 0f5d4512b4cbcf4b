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
from scbroker.client.calls.tasks import Shared, all_or_first_error
from scbroker.client.core.sealing import OpenPart
from scbroker.client.http.buffers import Taken
from scbroker.client.http.transport import Moved, Query
from scbroker.client.parts.content import Progress
from scbroker.client.parts.meter import Meter
from scbroker.client.parts.presigned import PresignedUrls
from scbroker.client.users.session import Session
from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import IntegrityError, TooLargeError
from scbroker.records import container_record as records
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT
from scbroker.wire.parts import CHUNK_SEGMENTS

Sink = Callable[[int, memoryview], None]
"""Takes the number of a run and its plaintext, whose buffer is reused after the call."""
RUN: Final = CHUNK_SEGMENTS * SEGMENT


class Download:
    """A large content, each of whose segments is checked against the hashes that its record signs.

    `query` names the group through which the user reads, if any.
    """

    def __init__(self, session: Session, opened: OpenPart, query: Query) -> None:
        self._session, self._query = session, query
        self.opened: OpenPart = opened
        self._count = records.segment_count(opened.part.paddedLength)
        self._runs = -(-self._count // CHUNK_SEGMENTS)
        self._path = path_of(opened.container_id, opened.part.partId)
        self._urls = PresignedUrls(session, self._path, query, self._runs)
        self._verified: bytes | None = None
        self._asking: Shared | None = None
        self._spare: memoryview | None = None
        """A buffer for sealed segments that no call of `segments` uses."""

    async def hashes(self) -> bytes:
        """Return the segments' hashes, verified against the record. Concurrent callers share one request."""
        while self._verified is None:
            if self._asking is None or self._asking.is_over:
                self._asking = Shared(self._fetch_hashes())
            await self._asking.wait()
        return self._verified

    async def _fetch_hashes(self) -> None:
        path, limit = f"{self._path}/hashes", HASH_SIZE * self._count
        hashes = bytes(await self._session.send("GET", path, query=self._query, limit=limit))
        await io_thread.in_pool(records.check_segment_hashes, self.opened.part, hashes)
        if self._session.keeper is not None:
            await self._session.keeper.keep_hashes(self._path, hashes)
        self._verified = hashes

    @property
    def length(self) -> int:
        return self.opened.length

    async def run(self, sink: Sink, progress: Progress, skip: Collection[int] = ()) -> None:
        """Pass all runs but those in `skip` to `sink`, in any order."""
        transport = self._session.transport
        with transport.sealed.transfer() as sealed, transport.plain.transfer() as plain:
            await self._run(sink, progress, skip, sealed, plain)

    async def _run(
        self, sink: Sink, progress: Progress, skip: Collection[int], sealed: Taken, plain: Taken
    ) -> None:
        meter = Meter(progress, self.length, sum(self._length_of(number) for number in skip))

        async def one(number: int, buffer: memoryview) -> None:
            first = number * CHUNK_SEGMENTS
            count, length = min(CHUNK_SEGMENTS, self._count - first), self._length_of(number)
            padded = self.opened.part.paddedLength - number * RUN
            size = min(count * SEGMENT, padded) + count * (SEALED_SEGMENT - SEGMENT)
            moved = meter.follow(number, length, size)
            received, hashes = await self._fetch(first, count, buffer, moved)
            target = await plain.take()

            def pass_on() -> None:
                opened = open_run(self.opened, first, received, hashes, target)
                sink(number, target[:opened])

            await io_thread.in_pool(pass_on)
            plain.give_back(target)
            await self._keep(first, received)
            # Not after an error: the thread may still use the buffers.
            sealed.give_back(buffer)
            meter.complete(number, length)

        async with all_or_first_error() as fetching:
            for number in range(self._runs):
                if number not in skip:
                    fetching.create_task(one(number, await sealed.take()))

    async def segments(self, first: int, count: int) -> list[memoryview]:
        """Return the plaintexts of some segments, at most as many as a run has."""
        # Concurrent calls have a buffer each. After an error a thread may still read from it.
        buffer, self._spare = self._spare, None
        if buffer is None or len(buffer) < count * SEALED_SEGMENT:
            buffer = memoryview(bytearray(count * SEALED_SEGMENT))
        received, hashes = await self._fetch(first, count, buffer)

        def opened(number: int) -> memoryview:
            sealed = received[number * SEALED_SEGMENT : (number + 1) * SEALED_SEGMENT]
            target = memoryview(bytearray(SEGMENT))
            return target[: open_run(self.opened, first + number, sealed, hashes, target)]

        # A thread for each: hashing takes longer than what the broker does.
        plain = await asyncio.gather(*(io_thread.in_pool(opened, n) for n in range(count)))
        await self._keep(first, received)
        self._spare = buffer
        return plain

    async def _keep(self, first: int, verified: memoryview) -> None:
        if self._session.keeper is not None:
            await self._session.keeper.keep_part(self._path, first, verified)

    async def _fetch(
        self, first: int, count: int, buffer: memoryview, moved: Moved | None = None
    ) -> tuple[memoryview, bytes]:
        """Return sealed segments and the hashes of all, which are fetched at the same time if unknown."""
        if self._verified is not None:
            return await self._fetch_segments(first, count, buffer, moved), self._verified
        async with all_or_first_error() as tasks:
            hashes = tasks.create_task(self.hashes())
            received = tasks.create_task(self._fetch_segments(first, count, buffer, moved))
        return received.result(), hashes.result()

    async def _fetch_segments(
        self, first: int, count: int, buffer: memoryview, moved: Moved | None
    ) -> memoryview:
        query = {**self._query, "first": str(first), "count": str(count)}
        target = buffer[: count * SEALED_SEGMENT]
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


async def whole(download: Download, progress: Progress) -> bytes:
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
