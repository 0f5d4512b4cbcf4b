"""Seal and upload large contents in chunks, before the record that names them is sent.

One chunk is read, sealed and hashed in the thread pool while others are on the wire. For a file, a journal
records which chunks have arrived, until the record is sent. It is only an aid: without it a transfer starts
again.
Spec: docs/spec/container.md, section 6; docs/spec/protocol.md, section 5.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from scbroker.client.arguments import Content, Progress, Segment
from scbroker.client.calls.tasks import all_or_first_error, io_thread
from scbroker.client.core.sealing import NewPart
from scbroker.client.http.requests import CHUNKS_AT_ONCE, Buffers, Query, Taken
from scbroker.client.parts.downloads import RUN, path_of
from scbroker.client.parts.transfers import Journal, Meter, PresignedUrls
from scbroker.client.users import accounts
from scbroker.client.users.session import Session
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import BrokerError, BrokerUnavailableError
from scbroker.records.canonical import container_id_of
from scbroker.records.container_record import Role
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK, MAX_LISTED, Chunks

_DROP_SECONDS: Final = 5.0


class _Start(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The first entry of an upload's journal."""

    nonce: bytes
    container_id: bytes
    part_id: bytes
    key: bytes


class _Sent(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The entry of a chunk that the broker has."""

    chunk: int
    hashes: bytes


@dataclass(slots=True, repr=False)
class Upload:
    """A part being uploaded. `sent` has the segments' hashes of each chunk that the broker has.

    `query` names the group through which the user writes, if any.
    """

    part: NewPart
    query: Query
    nonce: bytes = b""
    journal: Journal = field(default_factory=Journal)
    sent: dict[int, bytes] = field(default_factory=dict)


async def start(
    session: Session, content: Content, container_id: bytes | None, query: Query
) -> Upload:
    """Resume the unfinished upload of an unchanged file, or start a new upload.

    Without a container id the upload is for a new container, whose id is derived from the upload's nonce.
    """
    names = (b"upload", content.identity or b"", container_id or b"")
    journal = await io_thread.in_pool(Journal.open, session.state, session.journal_secret, *names)
    try:
        found = await _recorded(session, journal, query)
        if found is not None and found.sent:
            return found
        nonce = random_bytes(HASH_SIZE)
        if container_id is None:
            container_id = container_id_of(session.fingerprint, nonce).bytes
        part = NewPart.begin(container_id, Role.Content, session.fingerprint)
        journal.restart(_Start(nonce, part.container_id, part.part_id, part.key))
        return Upload(part, query, nonce, journal)
    except BaseException:
        journal.close()
        raise


async def _recorded(session: Session, journal: Journal, query: Query) -> Upload | None:
    """Return the recorded upload with the chunks that the broker still has; None without a record."""
    items = journal.items(_Start, _Sent)
    if items is None:
        return None
    first, sent = items
    part = NewPart(first.container_id, Role.Content, session.fingerprint, first.part_id, first.key)
    end = max((item.chunk for item in sent), default=-1) + 1
    stored = await _stored_chunks(session, part, end, query)
    hashes = {item.chunk: item.hashes for item in sent}
    kept = {chunk: each for chunk, each in hashes.items() if stored.get(chunk) == sha256(each)}
    return Upload(part, query, first.nonce, journal, kept)


async def _stored_chunks(
    session: Session, part: NewPart, end: int, query: Query
) -> dict[int, bytes]:
    """Return the hashes of the chunks before `end` that the broker says it has."""
    path = path_of(part.container_id, part.part_id)
    stored: dict[int, bytes] = {}
    for first in range(0, end, MAX_LISTED):
        some = {**query, "first": str(first)} if first else query
        found = await session.call("GET", f"{path}/chunks", Chunks, query=some)
        stored |= {chunk.index: chunk.hash for chunk in found.chunks}
    return stored


class _Chunk(NamedTuple):
    number: int
    sealed: memoryview
    hashes: bytes
    length: int


class Sealer:
    """Cut a content into sealed chunks, and collect the hashes of all segments."""

    def __init__(self, upload: Upload, content: Content, segments: Iterator[Segment]) -> None:
        self._upload, self._content, self._segments = upload, content, segments
        self._number = 0
        self._ended = False
        self.length: int = 0
        self.hashes: bytearray = bytearray()

    def next_chunk(self, buffer: memoryview) -> _Chunk | None:
        """Seal up to eight segments into the buffer; return None at the end. Runs in the pool."""
        self._skip_sent()
        if self._ended:
            return None
        number, size, length, hashes = self._number, 0, 0, bytearray()
        for index in range(number * CHUNK_SEGMENTS, (number + 1) * CHUNK_SEGMENTS):
            plaintext, last = next(self._segments)
            end = size + self._upload.part.seal_into(buffer[size:], index, last, plaintext)
            hashes += sha256(buffer[size:end])
            size, length = end, length + len(plaintext)
            if last:
                self._ended = True
                break
        self._add(length, hashes)
        return _Chunk(number, buffer[:size], bytes(hashes), length)

    def _skip_sent(self) -> None:
        """Pass over chunks that the broker has, without reading them."""
        first = self._number
        while not self._ended and (hashes := self._upload.sent.get(self._number)) is not None:
            length = _length_of(self._content, self._number)
            self._ended = (self._number + 1) * RUN >= (self._content.total or 0)
            self._add(length, hashes)
        if self._number > first and not self._ended:
            self._segments = self._content.segments(self._number * CHUNK_SEGMENTS)

    def _add(self, length: int, hashes: bytes | bytearray) -> None:
        self.hashes += hashes
        self.length += length
        self._number += 1


async def send(
    session: Session,
    upload: Upload,
    content: Content,
    segments: Iterator[Segment],
    progress: Progress,
) -> tuple[int, bytes]:
    """Seal and send the chunks that the broker lacks; return the content's length and segments' hashes."""
    sealer = Sealer(upload, content, segments)
    done = sum(_length_of(content, chunk) for chunk in upload.sent)
    meter = Meter(progress, content.total, done)
    chunks = None if content.total is None else -(-content.total // RUN) or 1
    path = path_of(upload.part.container_id, upload.part.part_id)
    urls = PresignedUrls(session, path, upload.query, chunks, upload.sent)

    if content.total is not None and content.total - done > RUN:
        # Ask once for the quota, before sealing and sending more than it allows.
        await accounts.check_free(session, content.total - done)

    is_begun = False

    async def put(chunk: _Chunk, buffer: memoryview, buffers: Taken) -> None:
        nonlocal is_begun
        is_begun = True
        moved = meter.follow(chunk.number, chunk.length, len(chunk.sealed))
        if not await urls.put(chunk.number, chunk.sealed, chunk.hashes, moved):
            to = f"{path}/chunks/{chunk.number}"
            await session.send("PUT", to, octets=chunk.sealed, moved=moved, query=upload.query)
        buffers.give_back(buffer)
        upload.journal.append_item(_Sent(chunk.number, chunk.hashes))
        meter.complete(chunk.number, chunk.length)

    if content.waits:
        # Use no pool thread: the caller's code may wait for another transfer, which needs the pool.
        run = io_thread.in_own_thread
        memory = Buffers(CHUNKS_AT_ONCE + 1, MAX_CHUNK, kept_seconds=0)
    else:
        run, memory = io_thread.in_pool, session.requests.sealed
    try:
        with memory.transfer() as buffers:
            async with all_or_first_error() as sending:
                while True:
                    buffer = await buffers.take()
                    chunk = await run(sealer.next_chunk, buffer)
                    if chunk is None:
                        break
                    sending.create_task(put(chunk, buffer, buffers))
    except BaseException as error:
        # Drop an upload that cannot be resumed, unless the broker did not answer: dropping would fail too.
        if (
            is_begun
            and not upload.journal.is_kept
            and not isinstance(error, BrokerUnavailableError)
        ):
            await _drop(session, path, upload.query)
        raise
    return sealer.length, bytes(sealer.hashes)


async def _drop(session: Session, path: str, query: Query) -> None:
    """Have the broker delete an abandoned part; if this fails, it is deleted after `upload_seconds`."""
    with suppress(BrokerError, TimeoutError):
        async with asyncio.timeout(_DROP_SECONDS):
            await session.send("DELETE", path, query=query)


def _length_of(content: Content, chunk: int) -> int:
    return min(RUN, (content.total or 0) - chunk * RUN)
