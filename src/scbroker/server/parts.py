"""Large contents in chunks: receiving, resuming, serving ranges. Spec: docs/spec/protocol.md, section 5.

A chunk is up to eight sealed segments. It goes to the object store first; its row, with the hash of
each segment, makes it count; the record that names the part takes it over.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import (
    AlreadyExistsError,
    DeletedError,
    IncompleteUploadError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    PartGoneError,
    PermissionDeniedError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.container_record import (
    MAX_SEGMENTS,
    SEGMENT,
    Part,
    check_segment_hashes,
    segment_count,
)
from scbroker.server import events
from scbroker.server import statements as sql
from scbroker.server.blobs import blob_name
from scbroker.server.broker import Broker, Call, now
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import (
    CHUNK_SEGMENTS,
    MAX_CHUNK,
    SEALED_SEGMENT,
    Chunks,
    ChunkState,
    SegmentsQuery,
)

_UNKNOWN: Final = "There is no such part that you have access to."


def sealed_segment_size(plaintext: int) -> int:
    """The size of a sealed segment (docs/spec/ids.md, section 2: Cobblestone-256)."""
    return plaintext + 56 + 16 * (plaintext // 16_384 + 1)


def check_sealed_size(padded_length: int, sealed: int) -> None:
    """Raises `IntegrityError` unless all segments together have the size they must have."""
    count = segment_count(padded_length)
    last = padded_length - (count - 1) * SEGMENT
    if sealed != (count - 1) * SEALED_SEGMENT + sealed_segment_size(last):
        raise IntegrityError("Sealed bytes have another size than their part's length gives.")


async def receive(broker: Broker, call: Call, message: bytes) -> None:
    """Stores a chunk of a part that no record names yet; the same chunk again changes nothing."""
    part_id, number = call.uuid("partId"), call.number("index")
    container_id, user_id = call.uuid("containerId"), call.session.id
    if number > MAX_SEGMENTS // CHUNK_SEGMENTS:
        raise TooLargeError("A content has at most 1,048,576 segments.")
    if not 72 < len(message) <= MAX_CHUNK:
        raise TooLargeError("A chunk has one to eight sealed segments.")
    chunk_hash = sha256(message)
    segment_hashes = b"".join(
        sha256(message[start : start + SEALED_SEGMENT])
        for start in range(0, len(message), SEALED_SEGMENT)
    )

    def begin(connection: Connection) -> bool:
        _check_upload(connection, container_id, user_id)
        part = sql.one(connection, sql.FIND_PART, part=part_id)
        if part is None:
            _begin_part(connection, broker, container_id, user_id, part_id)
            return False
        if (part.user_id, part.container_id) != (user_id, container_id):
            raise AlreadyExistsError("This part id is taken.")
        found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=number)
        if found is not None and found.chunk_hash == chunk_hash:
            return True
        if part.committed:
            raise AlreadyExistsError("A record names this part already.")
        return False

    def keep(connection: Connection) -> bytes | None:
        part = sql.one(connection, sql.LOCK_PART, part=part_id)
        if part is None or part.committed:
            raise AlreadyExistsError("A record names this part already.")
        found = sql.one(connection, sql.FIND_CHUNK, part=part_id, number=number)
        connection.execute(sql.TOUCH_PART, {"part": part_id, "touched_at": now()})
        connection.execute(sql.DROP_CHUNK, {"part": part_id, "number": number})
        connection.execute(
            sql.ADD_CHUNK,
            {
                "part_id": part_id,
                "chunk": number,
                "size": len(message),
                "chunk_hash": chunk_hash,
                "hashes": segment_hashes,
            },
        )
        return found.chunk_hash if found is not None else None

    if await broker.database.write(begin):
        return
    await broker.blobs.put(blob_name(part_id, number, chunk_hash), message)
    replaced = await broker.database.write(keep)
    if replaced is not None and replaced != chunk_hash:
        await broker.blobs.remove([blob_name(part_id, number, replaced)])


async def list_chunks(broker: Broker, call: Call, message: None) -> Chunks:
    """What is there of a part that the session's user began to send and no record names."""
    del message
    part_id, user_id = call.uuid("partId"), call.session.id

    def read(connection: Connection) -> list[Row[Any]]:
        part = sql.one(connection, sql.FIND_PART, part=part_id)
        if part is None or part.user_id != user_id or part.committed:
            return []
        return list(connection.execute(sql.CHUNKS, {"part": part_id}))

    rows = await broker.database.read(read)
    return Chunks(chunks=[ChunkState(index=row.chunk, hash=row.chunk_hash) for row in rows])


async def segment_hashes(broker: Broker, call: Call, message: None) -> bytes:
    """The hashes of all segments of a part that the reader may download."""
    del message
    part = await broker.database.read(lambda c: _readable(c, call), large=True)
    return bytes(part.hashes)


async def segments(broker: Broker, call: Call, message: None) -> bytes:
    """Sealed segments, one after the other."""
    del message
    query = call.query_as(SegmentsQuery)
    first, count = query.first, query.count
    part_id = call.uuid("partId")

    def read(connection: Connection) -> tuple[Row[Any], list[Row[Any]]]:
        part = _readable(connection, call)
        if first + count > len(part.hashes) // HASH_SIZE:
            raise InvalidArgumentError("The part has fewer segments.")
        numbers = range(first // CHUNK_SEGMENTS, (first + count - 1) // CHUNK_SEGMENTS + 1)
        found = (sql.one(connection, sql.FIND_CHUNK, part=part_id, number=n) for n in numbers)
        return part, [row for row in found if row is not None]

    part, rows = await broker.database.read(read)
    events.note_access(broker, call, part.container_id)
    if part.inline is not None:
        return bytes(part.inline)
    return b"".join([await _range(broker, row, part_id, first, count) for row in rows])


async def _range(broker: Broker, row: Row[Any], part_id: bytes, first: int, count: int) -> bytes:
    base = row.chunk * CHUNK_SEGMENTS
    start = max(first - base, 0) * SEALED_SEGMENT
    end = min(min(first + count - base, CHUNK_SEGMENTS) * SEALED_SEGMENT, row.size)
    return await broker.blobs.get(blob_name(part_id, row.chunk, row.chunk_hash), start, end)


def take_over(connection: Connection, container_id: bytes, user_id: bytes, part: Part) -> None:
    """Makes a part that came in chunks a container's; every segment must be there and right."""
    row = sql.one(connection, sql.LOCK_PART, part=part.partId)
    if row is None or row.user_id != user_id or row.container_id != container_id:
        raise IncompleteUploadError("No chunk of the content has arrived: send it first.")
    if row.committed:
        raise RejectedError("A part id is used a second time.")
    found = list(connection.execute(sql.CHUNKS, {"part": part.partId}))
    expected = -(-segment_count(part.paddedLength) // CHUNK_SEGMENTS)
    if [chunk.chunk for chunk in found] != list(range(expected)):
        raise IncompleteUploadError(f"{len(found)} of {expected} chunks are here: send the others.")
    if any(chunk.size != MAX_CHUNK for chunk in found[:-1]):
        raise RejectedError("A chunk before the last is not full.")
    hashes = b"".join(chunk.hashes for chunk in found)
    try:
        check_sealed_size(part.paddedLength, sum(chunk.size for chunk in found))
        check_segment_hashes(part, hashes)
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    connection.execute(sql.COMMIT_PART, {"part": part.partId, "all_hashes": hashes})


async def sweep(broker: Broker, count: int = 100) -> int:
    """Removes parts that nothing needs any more, rows first; gives how many."""
    settings = broker.settings
    limits = {
        "replaced_before": now() - settings.part_grace_seconds * 1_000_000,
        "touched_before": now() - settings.upload_seconds * 1_000_000,
        "count": count,
    }

    def forget(connection: Connection) -> tuple[list[bytes], list[str]]:
        ids = [row.part_id for row in connection.execute(sql.DEAD_PARTS, limits)]
        rows = [row for part in ids for row in connection.execute(sql.CHUNKS, {"part": part})]
        if ids:
            connection.execute(sql.DROP_CHUNKS, {"gone": ids})
            connection.execute(sql.DROP_PARTS, {"gone": ids})
        return ids, [blob_name(row.part_id, row.chunk, row.chunk_hash) for row in rows]

    ids, names = await broker.database.write(forget)
    await broker.blobs.remove(names)
    return len(ids)


def _check_upload(connection: Connection, container_id: bytes, user_id: bytes) -> None:
    container = sql.one(connection, sql.FIND_CONTAINER, id=container_id)
    if container is None:
        return
    member = sql.one(connection, sql.FIND_MEMBER, container=container_id, user=user_id)
    if member is None or (member.expires_at is not None and member.expires_at <= now()):
        raise NotFoundError("There is no container of this id that you have access to.")
    if container.deleted:
        raise DeletedError()
    if not member.permissions & ContainerAccessLevel.Upload:
        raise PermissionDeniedError("Your access to this container lacks Upload.")


def _begin_part(
    connection: Connection, broker: Broker, container_id: bytes, user_id: bytes, part_id: bytes
) -> None:
    pending = connection.execute(sql.PENDING_PARTS, {"user": user_id}).scalar_one()
    if pending >= broker.settings.max_pending_parts:
        raise TooLargeError("Too many contents are begun and not finished: finish one first.")
    connection.execute(
        sql.ADD_PART,
        {
            "part_id": part_id,
            "container_id": container_id,
            "user_id": user_id,
            "touched_at": now(),
            "committed": False,
        },
    )


def _readable(connection: Connection, call: Call) -> Row[Any]:
    container_id, part_id = call.uuid("containerId"), call.uuid("partId")
    found = sql.one(
        connection, sql.CONTAINER_AND_MEMBER, container=container_id, user=call.session.id
    )
    if found is None or (found.expires_at is not None and found.expires_at <= now()):
        raise NotFoundError(_UNKNOWN)
    if found.deleted:
        raise DeletedError()
    if not found.permissions & ContainerAccessLevel.Download:
        raise PermissionDeniedError("Your access to this container lacks Download.")
    part = sql.one(connection, sql.FIND_PART, part=part_id)
    if part is None:
        raise PartGoneError()
    if part.container_id != container_id or not part.committed:
        raise NotFoundError(_UNKNOWN)
    return part
