"""Store, list and serve the chunks of large contents. Spec: docs/spec/protocol.md, section 5.

A chunk is up to eight sealed segments. Its bytes go to the object store first, through the broker or by a
presigned URL (`presigned`). Then a row with the hash of each segment makes the chunk count. The record that
names the part commits all its chunks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker import errors
from scbroker.crypto.verify import HASH_SIZE, sha256
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
from scbroker.wire.codec import NoQuery
from scbroker.wire.parts import (
    CHUNK_SEGMENTS,
    MAX_CHUNK,
    MAX_LISTED,
    Chunks,
    ChunksQuery,
    ChunkState,
    SegmentsQuery,
)

# Each chunk counts for at least so many bytes of the quota, or tiny chunks would circumvent it.
_LEAST_COUNTED: Final = 65_536
COMMITTED: Final = "A record names this part already."


def check_sealed_size(padded_length: int, sealed: int) -> None:
    """Raise `IntegrityError` unless the sealed segments of a part have the right size in all."""
    count = segment_count(padded_length)
    last = padded_length - (count - 1) * SEGMENT
    if sealed != (count - 1) * SEALED_SEGMENT + sealed_size(last):
        raise errors.IntegrityError(
            "The sealed bytes have another size than the length of their part gives."
        )


async def receive(broker: Broker, call: Call, message: memoryview) -> None:
    """Store a chunk of a part that is not committed; the same chunk again changes nothing.

    First the object's name is recorded as pending deletion, then its bytes are stored, then a row names it
    and the record is removed. After a crash in between, the sweeper deletes the object.
    """
    check_number(broker, call.chunk)
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
    """Return the concatenated hashes of a chunk's segments."""
    return b"".join(
        sha256(message[start : start + SEALED_SEGMENT])
        for start in range(0, len(message), SEALED_SEGMENT)
    )


@dataclass(frozen=True, slots=True)
class Upload:
    """A part that a user uploads to a container."""

    container_id: bytes
    part_id: bytes
    user_id: bytes

    @classmethod
    def of(cls, call: Call) -> Upload:
        return cls(call.container_id, call.part_id, call.session.id)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk whose row is to be written."""

    upload: Upload
    number: int
    hashes: bytes
    """Concatenated hashes of its segments."""
    size: int
    blob: str
    pending_since: int
    """The time in its pending deletion: `keep` refuses the chunk if another time, or none, is recorded."""

    @property
    def hash(self) -> bytes:
        return sha256(self.hashes)


def check_number(broker: Broker, number: int) -> None:
    """Raise `TooLargeError` if a chunk lies beyond the largest content."""
    limit = min(broker.settings.max_content, MAX_SEGMENTS * SEGMENT)
    if number * CHUNK_SEGMENTS * SEGMENT >= limit:
        raise errors.TooLargeError(f"This broker accepts contents of at most {limit} bytes.")


def _check_size(message: memoryview) -> None:
    if len(message) > MAX_CHUNK:
        raise errors.TooLargeError("A chunk must have at most eight sealed segments.")
    if 0 < len(message) % SEALED_SEGMENT < sealed_size(1) or not message:
        raise errors.InvalidArgumentError("A chunk must have one to eight sealed segments.")


def _reserve(connection: Connection, broker: Broker, chunk: Chunk) -> bool:
    """Return whether this chunk is stored already; if not, check the quota and record its object's name."""
    part = find_upload(connection, chunk.upload)
    if is_stored(connection, chunk):
        return True
    check_quota(connection, broker, chunk.upload, part, chunk.size)
    connection.execute(sql.ADD_PENDING_BLOBS, {"name": chunk.blob, "since": chunk.pending_since})
    return False


def find_upload(connection: Connection, upload: Upload) -> Row[Any] | None:
    """Return the part's row, if any; raise if the user may not upload it."""
    _check_user_exists(connection, upload.user_id)
    _check_upload(connection, upload.container_id, upload.user_id)
    part = sql.one(connection, sql.FIND_PART, part=upload.part_id)
    if part is not None and (part.user_id, part.container_id) != (
        upload.user_id,
        upload.container_id,
    ):
        raise errors.AlreadyExistsError("This part id belongs to another upload.")
    return part


def is_stored(connection: Connection, chunk: Chunk) -> bool:
    """Return whether a chunk has a row with these hashes, and if so extend the life of its part."""
    part_id = chunk.upload.part_id
    found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=chunk.number)
    if found is None or found.chunk_hash != chunk.hash:
        return False
    touch(connection, part_id, 0)
    return True


def check_quota(
    connection: Connection, broker: Broker, upload: Upload, part: Row[Any] | None, size: int
) -> None:
    """Raise if the user may not upload `size` more bytes of the part; add its row if it has none."""
    if part is not None and part.committed:
        raise errors.AlreadyExistsError(COMMITTED)
    settings = broker.settings
    pending = sql.the(connection, sql.UNCOMMITTED_PARTS, user=upload.user_id)
    if part is None and pending.parts >= settings.max_pending_parts:
        raise errors.TooLargeError("Too many uploads are unfinished: finish one first.")
    if pending.received + size > settings.max_pending_bytes:
        raise errors.TooLargeError("Unfinished uploads have too many bytes: finish one first.")
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


def lock_part(connection: Connection, upload: Upload) -> Row[Any]:
    """Return the part's row, locked until the transaction ends."""
    _check_user_exists(connection, upload.user_id)
    part = sql.one(connection, sql.LOCK_PART, part=upload.part_id)
    if part is None:
        raise errors.OverloadedError(
            "The part was deleted meanwhile: upload it again.", retryAfter=1
        )
    return part


def keep(connection: Connection, chunk: Chunk, counted: int) -> None:
    """Write the row of a stored chunk, in place of an older one, and add `counted` bytes to the quota.

    The sweeper claims an object's name before it deletes the object; no row can reference a claimed name. A
    late upload stays unreferenced and is swept later. No clock is involved.
    """
    part_id = chunk.upload.part_id
    if lock_part(connection, chunk.upload).committed:
        raise errors.AlreadyExistsError(COMMITTED)
    values = {"blob": chunk.blob, "marked": chunk.pending_since}
    if connection.execute(sql.KEEP_BLOB, values).rowcount != 1:
        raise errors.OverloadedError(
            "The chunk was deleted meanwhile: send it again.", retryAfter=1
        )
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
    """Extend the life of a part, and count `more` bytes of it in its user's quota."""
    connection.execute(sql.TOUCH_PART, {"part": part_id, "now": now(), "more": more})


async def list_chunks(broker: Broker, call: Call, query: ChunksQuery) -> Chunks:
    """Return which chunks of an uncommitted part of the session's user are stored, from `first` on."""
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
    """Return the concatenated hashes of all segments of a part that the reader may download."""
    del query

    def read(connection: Connection) -> bytes:
        part, _ = readable(connection, call)
        return bytes(sql.the(connection, sql.PART_HASHES, part=part.part_id).hashes)

    return await broker.database.read(read, large=True)


async def segments(broker: Broker, call: Call, query: SegmentsQuery) -> bytes | memoryview:
    """Return sealed segments of a part, concatenated."""
    first, count = query.first, query.count

    def read(connection: Connection) -> bytes | list[Row[Any]]:
        part, _ = readable(connection, call)
        if first + count > part.hashes_size // HASH_SIZE:
            raise errors.InvalidArgumentError("The part has fewer segments.")
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
        await broker.database.read(read)  # raises if the content was replaced or deleted meanwhile
        raise
    return ranges[0] if len(ranges) == 1 else b"".join(ranges)


def _chunk_of(connection: Connection, part_id: bytes, number: int) -> Row[Any]:
    """Return a chunk of a committed part; `PartGoneError` if the part was replaced and swept."""
    found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=number)
    if found is None:
        raise errors.PartGoneError()
    return found


async def _range(broker: Broker, row: Row[Any], first: int, count: int) -> memoryview:
    base = row.chunk * CHUNK_SEGMENTS
    start = max(first - base, 0) * SEALED_SEGMENT
    end = min(min(first + count - base, CHUNK_SEGMENTS) * SEALED_SEGMENT, row.size)
    return await broker.blobs.get(row.blob, start, end)


def take_over(connection: Connection, container_id: bytes, user_id: bytes, part: Part) -> None:
    """Commit an uploaded part to its container; raise unless all of its segments are stored and match."""
    row = sql.one(connection, sql.LOCK_PART, part=part.partId)
    if row is None or row.user_id != user_id or row.container_id != container_id:
        raise errors.IncompleteUploadError("No chunk of the content is stored: upload it first.")
    if row.committed:
        raise errors.RejectedError("This part belongs to another record already.")
    expected = -(-segment_count(part.paddedLength) // CHUNK_SEGMENTS)
    # Count first: the hashes of an incomplete part would cost much to read, again at each attempt.
    stored = sql.the(connection, sql.COUNT_CHUNKS, part=part.partId)
    if (stored.arrived, stored.last) != (expected, expected - 1):
        raise errors.IncompleteUploadError(
            f"{stored.arrived} of {expected} chunks are stored: upload the others."
        )
    found = list(connection.execute(sql.CHUNKS, {"part": part.partId}))
    if any(chunk.size != MAX_CHUNK for chunk in found[:-1]):
        raise errors.RejectedError("A chunk before the last one has fewer than eight segments.")
    hashes = b"".join(chunk.hashes for chunk in found)
    try:
        check_sealed_size(part.paddedLength, sum(chunk.size for chunk in found))
        check_segment_hashes(part, hashes)
    except errors.IntegrityError as error:
        raise errors.RejectedError(str(error)) from None
    connection.execute(sql.COMMIT_PART, {"part": part.partId, "all_hashes": hashes})


def _check_user_exists(connection: Connection, user_id: bytes) -> None:
    """Lock the user's row; raise if the user was deleted, or this request would leave data behind."""
    if sql.the(connection, sql.SHARE_USERS, ids=[user_id]).deleted:
        raise errors.NotAuthenticatedError("The account was deleted.")


def _check_upload(connection: Connection, container_id: bytes, user_id: bytes) -> None:
    container = sql.one(connection, sql.FIND_CONTAINER, id=container_id)
    if container is None:
        return
    found = sql.one(connection, sql.FIND_MEMBER, container=container_id, user=user_id)
    member = check_unexpired(found, now())
    if container.deleted:
        raise errors.DeletedError()
    if not member.permissions & ContainerAccessLevel.Upload:
        raise errors.PermissionDeniedError("Your access to this container lacks Upload.")


def readable(connection: Connection, call: Call) -> tuple[Row[Any], int | None]:
    """Return the part, and when the user's access expires; raise if the user may not download it."""
    container_id, part_id = call.container_id, call.part_id
    row = sql.one(
        connection, sql.CONTAINER_AND_MEMBER, container=container_id, user=call.session.id
    )
    found = check_unexpired(row, call.now, "part")
    if found.deleted:
        raise errors.DeletedError()
    if not found.permissions & ContainerAccessLevel.Download:
        raise errors.PermissionDeniedError("Your access to this container lacks Download.")
    part = sql.one(connection, sql.FIND_PART, part=part_id)
    if part is None:
        raise errors.PartGoneError()
    if part.container_id != container_id or not part.committed:
        raise not_found("part")
    return part, found.expires_at
