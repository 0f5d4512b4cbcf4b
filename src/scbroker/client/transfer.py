"""Large contents on their way: sealed and sent in chunks, fetched and opened in runs of segments.

Sealing and hashing run beside the loop while other chunks are on the wire. Spec:
docs/spec/container.md, section 6; docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from scbroker.client.io_thread import io_thread
from scbroker.client.sealing import NewPart, OpenPart
from scbroker.client.session import Session
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import IntegrityError
from scbroker.records.container_record import SEALED_SEGMENT, check_segment_hashes, segment_count
from scbroker.wire.containers import CHUNK_SEGMENTS, MAX_CHUNK

Progress = Callable[[int, int | None], object]
_AT_ONCE: Final = 3


@contextlib.asynccontextmanager
async def all_or_first_error() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that fails with the first error itself instead of a group of one."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


class Sealer:
    """Cuts a content into sealed chunks, and keeps their hashes."""

    def __init__(self, part: NewPart, segments: Iterator[bytes]) -> None:
        self._part, self._segments = part, segments
        self._ahead = next(segments, None)
        self._index = 0
        self.length: int = 0
        self.hashes: bytearray = bytearray()

    def next_chunk(self) -> bytes | None:
        """Up to eight sealed segments, or None at the end. Runs in the pool."""
        sealed: list[bytes] = []
        while self._ahead is not None and len(sealed) < CHUNK_SEGMENTS:
            plaintext, self._ahead = self._ahead, next(self._segments, None)
            segment = self._part.seal_segment(self._index, self._ahead is None, plaintext)
            self.hashes += sha256(segment)
            self.length += len(plaintext)
            self._index += 1
            sealed.append(segment)
        return b"".join(sealed) if sealed else None


async def upload(
    session: Session,
    part: NewPart,
    segments: Iterator[bytes],
    total: int | None,
    progress: Progress,
) -> tuple[int, bytes]:
    """Seals and sends a content; gives its length and its segments' hashes."""
    sealer = await io_thread.in_pool(Sealer, part, segments)
    path = (
        f"/v1/containers/{uuid.UUID(bytes=part.container_id)}/parts/{uuid.UUID(bytes=part.part_id)}"
    )
    room = asyncio.Semaphore(_AT_ONCE)
    number = 0

    done = 0

    async def send(number: int, chunk: bytes, size: int) -> None:
        nonlocal done
        try:
            await session.send("PUT", f"{path}/chunks/{number}", octets=chunk)
        finally:
            room.release()
        done += size
        progress(done, total)

    async with all_or_first_error() as sending:
        while True:
            await room.acquire()
            before = sealer.length
            chunk = await io_thread.in_pool(sealer.next_chunk)
            if chunk is None:
                break
            sending.create_task(send(number, chunk, sealer.length - before))
            number += 1
    return sealer.length, bytes(sealer.hashes)


async def download(session: Session, opened: OpenPart, progress: Progress) -> bytes:
    """Fetches and opens a whole content, each segment checked against the signed hashes."""
    container, part = uuid.UUID(bytes=opened.container_id), uuid.UUID(bytes=opened.part.partId)
    path = f"/v1/containers/{container}/parts/{part}"
    count = segment_count(opened.part.paddedLength)
    hashes = await session.send("GET", f"{path}/hashes", limit=HASH_SIZE * count)
    check_segment_hashes(opened.part, hashes)
    room = asyncio.Semaphore(_AT_ONCE)
    done = 0

    async def fetch(first: int) -> bytes:
        nonlocal done
        run = min(CHUNK_SEGMENTS, count - first)
        async with room:
            query = {"first": str(first), "count": str(run)}
            sealed = await session.send("GET", f"{path}/segments", query=query, limit=MAX_CHUNK)
            plaintext = await io_thread.in_pool(_open_run, opened, first, run, sealed, hashes)
        done += len(plaintext)
        progress(done, opened.length)
        return plaintext

    async with all_or_first_error() as fetching:
        runs = [fetching.create_task(fetch(first)) for first in range(0, count, CHUNK_SEGMENTS)]
    return b"".join(run.result() for run in runs)


def _open_run(opened: OpenPart, first: int, run: int, sealed: bytes, hashes: bytes) -> bytes:
    view = memoryview(sealed)
    if not (run - 1) * SEALED_SEGMENT < len(sealed) <= run * SEALED_SEGMENT:
        raise IntegrityError("Segments were cut off, or added to those that were signed.")
    return b"".join(
        opened.open_segment(
            first + offset,
            view[offset * SEALED_SEGMENT : (offset + 1) * SEALED_SEGMENT],
            hashes[(first + offset) * HASH_SIZE : (first + offset + 1) * HASH_SIZE],
        )
        for offset in range(run)
    )
