"""Large contents in chunks: receiving, resuming, serving ranges. Spec: docs/spec/protocol.md, section 5.

A chunk is up to eight sealed segments. It goes to the object store first, through here or, as `transfers`
lets it, past the broker; its row, with the hash of each segment, makes it count; the record that names the
part takes it over.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import (
    AlreadyExistsError,
    DeletedError,
    IncompleteUploadError,
    IntegrityError,
    InvalidArgumentError,
    NotAuthenticatedError,
    OverloadedError,
    PartGoneError,
    PermissionDeniedError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.container_record import (
    MAX_SEGMENTS,
    SEALED_SEGMENT,
    SEGMENT,
    Part,
    check_segment_hashes,
    sealed_size,
    segment_count,
)
from scbroker.server.broker import Broker, Call, check_unexpired, not_found, now
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import new_blob_name
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.parts import (
    CHUNK_SEGMENTS,
    MAX_CHUNK,
    MAX_LISTED,
    Chunks,
    ChunksQuery,
    ChunkState,
    SegmentsQuery,
)
from scbroker.wire.query import NoQuery

# Longer than storing a chunk may take.
DOOMED_AFTER: Final = 3_600_000_000
# A chunk counts as this much at least, so that tiny ones are no way around the quota.
_LEAST_COUNTED: Final = 65_536


def check_sealed_size(padded_length: int, sealed: int) -> None:
    """Raises `IntegrityError` unless all segments together have the size they must have."""
    count = segment_count(padded_length)
    last = padded_length - (count - 1) * SEGMENT
    if sealed != (count - 1) * SEALED_SEGMENT + sealed_size(last):
        raise IntegrityError("Sealed bytes have another size than their part's length gives.")


async def receive(broker: Broker, call: Call, message: memoryview) -> None:
    """Stores a chunk of a part that no record names yet; the same chunk again changes nothing.

    Reserve a name, store the bytes, then the row that names them: a crash in between leaves a doomed
    name for the sweeper.
    """
    check_place(broker, call.chunk)
    _check_size(message)
    hashes = await asyncio.to_thread(hashes_of, message)
    upload = Upload.of(call)
    name = new_blob_name(upload.part_id)
    chunk = Chunk(upload, call.chunk, hashes, len(message), name, now())
    if await broker.database.write(lambda c: _reserve(c, broker, chunk)):
        return
    await broker.blobs.put(chunk.blob, message)
    await broker.database.write(lambda c: keep(c, chunk, max(chunk.size, _LEAST_COUNTED)))


def hashes_of(message: memoryview) -> bytes:
    """The hashes of a chunk's segments, one after the other."""
    return b"".join(
        sha256(message[start : start + SEALED_SEGMENT])
        for start in range(0, len(message), SEALED_SEGMENT)
    )


@dataclass(frozen=True, slots=True)
class Upload:
    """A part that its user sends."""

    container_id: bytes
    part_id: bytes
    user_id: bytes

    @classmethod
    def of(cls, call: Call) -> Upload:
        return cls(call.container_id, call.part_id, call.session.id)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk on its way into its row."""

    upload: Upload
    number: int
    hashes: bytes
    """Of its segments, one after the other."""
    size: int
    blob: str
    doomed: int
    """Since when its name is among the doomed; with another time there, or none, it is not kept."""

    @property
    def hash(self) -> bytes:
        return sha256(self.hashes)


def check_place(broker: Broker, number: int) -> None:
    """Raises `TooLargeError` for a chunk beyond the largest content."""
    limit = min(broker.settings.max_content, MAX_SEGMENTS * SEGMENT)
    if number * CHUNK_SEGMENTS * SEGMENT >= limit:
        raise TooLargeError(f"This broker takes contents of at most {limit} bytes.")


def _check_size(message: memoryview) -> None:
    if len(message) > MAX_CHUNK:
        raise TooLargeError("A chunk has at most eight sealed segments.")
    if 0 < len(message) % SEALED_SEGMENT < sealed_size(1) or not message:
        raise InvalidArgumentError("A chunk has one to eight sealed segments.")


def _reserve(connection: Connection, broker: Broker, chunk: Chunk) -> bool:
    """Whether this very chunk is here already; if not, room is made for it."""
    part = begun(connection, chunk.upload)
    if is_here(connection, chunk):
        return True
    make_room(connection, broker, chunk.upload, part, chunk.size)
    connection.execute(sql.ADD_PENDING_BLOBS, {"name": chunk.blob, "since": chunk.doomed})
    return False


def begun(connection: Connection, upload: Upload) -> Row[Any] | None:
    """The part as far as it is here; raises what keeps the user from sending it."""
    _check_living(connection, upload.user_id)
    _check_upload(connection, upload.container_id, upload.user_id)
    part = sql.one(connection, sql.FIND_PART, part=upload.part_id)
    if part is not None and (part.user_id, part.container_id) != (
        upload.user_id,
        upload.container_id,
    ):
        raise AlreadyExistsError("This part id is taken.")
    return part


def is_here(connection: Connection, chunk: Chunk) -> bool:
    """Whether this very chunk has a row; its part is kept for longer then."""
    part_id = chunk.upload.part_id
    found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=chunk.number)
    if found is None or found.chunk_hash != chunk.hash:
        return False
    touch(connection, part_id, 0)
    return True


def make_room(
    connection: Connection, broker: Broker, upload: Upload, part: Row[Any] | None, size: int
) -> None:
    """Begins the part if it is not; raises if nothing, or not so much, may be sent of it."""
    if part is not None and part.committed:
        raise AlreadyExistsError("A record names this part already.")
    settings = broker.settings
    pending = sql.the(connection, sql.UNCOMMITTED_PARTS, user=upload.user_id)
    if part is None and pending.parts >= settings.max_pending_parts:
        raise TooLargeError("Too many contents are begun and not finished: finish one first.")
    if pending.received + size > settings.max_pending_bytes:
        raise TooLargeError("Too much is sent and not finished: finish a content first.")
    if part is None:
        connection.execute(
            sql.ADD_PART,
            {
                "part_id": upload.part_id,
                "container_id": upload.container_id,
                "user_id": upload.user_id,
                "touched_at": now(),
                "committed": False,
                "received": 0,
            },
        )


def locked(connection: Connection, upload: Upload) -> Row[Any]:
    """The part, which nobody else changes until the transaction ends."""
    _check_living(connection, upload.user_id)
    part = sql.one(connection, sql.LOCK_PART, part=upload.part_id)
    if part is None:
        raise OverloadedError("The part was swept meanwhile: send it again.", retryAfter=1)
    return part


def keep(connection: Connection, chunk: Chunk, counted: int) -> None:
    """Gives a stored chunk its row; another one of its place is dropped. So many bytes count.

    Whoever sweeps claims a name before its object goes, and from then on no row can name it: whatever the
    clocks of the two say, and however long the bytes took. Bytes that come after the sweep nothing names.
    """
    part_id = chunk.upload.part_id
    if locked(connection, chunk.upload).committed:
        raise AlreadyExistsError("A record names this part already.")
    spared = connection.execute(sql.KEEP_BLOB, {"blob": chunk.blob, "marked": chunk.doomed})
    if spared.rowcount != 1:
        raise OverloadedError("The chunk was swept meanwhile: send it again.", retryAfter=1)
    found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=chunk.number)
    if found is not None:
        connection.execute(sql.DROP_CHUNK, {"part": part_id, "number": chunk.number})
        connection.execute(sql.ADD_PENDING_BLOBS, {"name": found.blob, "since": 0})
    connection.execute(
        sql.ADD_CHUNK,
        {
            "part_id": part_id,
            "chunk": chunk.number,
            "size": chunk.size,
            "chunk_hash": chunk.hash,
            "blob": chunk.blob,
            "hashes": chunk.hashes,
        },
    )
    touch(connection, part_id, counted)


def touch(connection: Connection, part_id: bytes, more: int) -> None:
    """Keeps the part for longer; so many more bytes of it count."""
    connection.execute(sql.TOUCH_PART, {"part": part_id, "now": now(), "more": more})


async def list_chunks(broker: Broker, call: Call, query: ChunksQuery) -> Chunks:
    """What is there, of some chunks, of a part that the session's user began to send and no record names."""
    part_id, user_id = call.part_id, call.session.id
    first = query.first

    def read(connection: Connection) -> list[Row[Any]]:
        part = sql.one(connection, sql.FIND_PART, part=part_id)
        if part is None or part.user_id != user_id or part.committed:
            return []
        values = {"part": part_id, "first": first, "end": first + MAX_LISTED}
        return list(connection.execute(sql.CHUNK_HASHES, values))

    rows = await broker.database.read(read, large=True)
    return Chunks(chunks=[ChunkState(index=row.chunk, hash=row.chunk_hash) for row in rows])


async def segment_hashes(broker: Broker, call: Call, query: NoQuery) -> bytes:
    """The hashes of all segments of a part that the reader may download."""
    del query

    def read(connection: Connection) -> bytes:
        part, _ = readable(connection, call)
        return bytes(sql.the(connection, sql.PART_HASHES, part=part.part_id).hashes)

    return await broker.database.read(read, large=True)


async def segments(broker: Broker, call: Call, query: SegmentsQuery) -> bytes | memoryview:
    """Sealed segments, one after the other."""
    first, count = query.first, query.count

    def read(connection: Connection) -> bytes | list[Row[Any]]:
        part, _ = readable(connection, call)
        if first + count > part.hashes_size // HASH_SIZE:
            raise InvalidArgumentError("The part has fewer segments.")
        if part.is_inline:
            return bytes(sql.the(connection, sql.PARTS_INLINE, some=[part.part_id]).inline)
        numbers = range(first // CHUNK_SEGMENTS, (first + count - 1) // CHUNK_SEGMENTS + 1)
        return [_chunk_of(connection, part.part_id, number) for number in numbers]

    found = await broker.database.read(read)
    log.note_access(broker, call, call.container_id)
    if isinstance(found, bytes):
        return found
    try:
        ranges = [await _range(broker, row, first, count) for row in found]
    except LookupError:
        await broker.database.read(read)  # raises what became of the content, if it was not lost
        raise
    return ranges[0] if len(ranges) == 1 else b"".join(ranges)


def _chunk_of(connection: Connection, part_id: bytes, number: int) -> Row[Any]:
    """A chunk of a part that a record named; of one that was replaced it may be swept already."""
    found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=number)
    if found is None:
        raise PartGoneError()
    return found


async def _range(broker: Broker, row: Row[Any], first: int, count: int) -> memoryview:
    base = row.chunk * CHUNK_SEGMENTS
    start = max(first - base, 0) * SEALED_SEGMENT
    end = min(min(first + count - base, CHUNK_SEGMENTS) * SEALED_SEGMENT, row.size)
    return await broker.blobs.get(row.blob, start, end)


def take_over(connection: Connection, container_id: bytes, user_id: bytes, part: Part) -> None:
    """Makes a part that came in chunks a container's; every segment must be there and right."""
    row = sql.one(connection, sql.LOCK_PART, part=part.partId)
    if row is None or row.user_id != user_id or row.container_id != container_id:
        raise IncompleteUploadError("No chunk of the content has arrived: send it first.")
    if row.committed:
        raise RejectedError("A part id is used a second time.")
    expected = -(-segment_count(part.paddedLength) // CHUNK_SEGMENTS)
    # First what takes little: of a part that is not whole nobody has many hashes read again and again.
    here = sql.the(connection, sql.COUNT_CHUNKS, part=part.partId)
    if (here.arrived, here.last) != (expected, expected - 1):
        raise IncompleteUploadError(
            f"{here.arrived} of {expected} chunks are here: send the others."
        )
    found = list(connection.execute(sql.CHUNKS, {"part": part.partId}))
    if any(chunk.size != MAX_CHUNK for chunk in found[:-1]):
        raise RejectedError("A chunk before the last is not full.")
    hashes = b"".join(chunk.hashes for chunk in found)
    try:
        check_sealed_size(part.paddedLength, sum(chunk.size for chunk in found))
        check_segment_hashes(part, hashes)
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    connection.execute(sql.COMMIT_PART, {"part": part.partId, "all_hashes": hashes})


def _check_living(connection: Connection, user_id: bytes) -> None:
    """A user who is deleted meanwhile leaves nothing behind."""
    if sql.the(connection, sql.SHARE_USERS, ids=[user_id]).deleted:
        raise NotAuthenticatedError("The account was deleted.")


def _check_upload(connection: Connection, container_id: bytes, user_id: bytes) -> None:
    container = sql.one(connection, sql.FIND_CONTAINER, id=container_id)
    if container is None:
        return
    found = sql.one(connection, sql.FIND_MEMBER, container=container_id, user=user_id)
    member = check_unexpired(found, now())
    if container.deleted:
        raise DeletedError()
    if not member.permissions & ContainerAccessLevel.Upload:
        raise PermissionDeniedError("Your access to this container lacks Upload.")


def readable(connection: Connection, call: Call) -> tuple[Row[Any], int | None]:
    """The part that the user may download, and when their access ends; raises why they may not."""
    container_id, part_id = call.container_id, call.part_id
    row = sql.one(
        connection, sql.CONTAINER_AND_MEMBER, container=container_id, user=call.session.id
    )
    found = check_unexpired(row, call.now, "part")
    if found.deleted:
        raise DeletedError()
    if not found.permissions & ContainerAccessLevel.Download:
        raise PermissionDeniedError("Your access to this container lacks Download.")
    part = sql.one(connection, sql.FIND_PART, part=part_id)
    if part is None:
        raise PartGoneError()
    if part.container_id != container_id or not part.committed:
        raise not_found("part")
    return part, found.expires_at
