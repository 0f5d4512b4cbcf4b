"""Hand out presigned URLs for chunks, and accept chunks put to them. Spec: docs/spec/protocol.md, section 5.

The bytes go straight between client and object store. The broker knows a chunk's hashes only from its sender
and checks only the object's size; readers verify each segment. Before we hand out a URL we record the object
name as pending deletion, due one hour after the URL expires. Reporting the chunk removes that record.
"""

from collections.abc import Sequence
from typing import Final, Literal

from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import HASH_SIZE
from scbroker.records.container_record import SEALED_SEGMENT, sealed_size
from scbroker.server.broker import SECOND, Broker, Call, now
from scbroker.server.events import log
from scbroker.server.parts import chunks
from scbroker.server.parts.chunks import Chunk
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.blobs import good_until, is_name_of, new_blob_name
from scbroker.server.storage.driver import Connection
from scbroker.wire import parts as wire

CHUNK_BLOBS: Final = sql.chunks_between(t.chunks.c.blob)
FIND_PENDING_BLOB: Final = sql.find(t.pending_blobs, t.pending_blobs.c.name == b("blob"))


async def to_send(broker: Broker, call: Call, message: wire.TransfersRequest) -> wire.Transfers:
    """Return URLs to put these chunks to; none if uploads go through the broker."""
    _check_distinct(message.chunks)
    for number in message.chunks:
        chunks.check_number(broker, number)
    seconds = broker.settings.transfer_seconds
    until = now() + seconds * SECOND
    names = [new_blob_name(call.part_id, until) for _ in message.chunks]

    def reserve(connection: Connection) -> None:
        """Charge a full chunk for each URL: the broker does not see the upload.

        The charge of an unused URL ends when its object can no longer be put, and is deleted.
        """
        part = chunks.find_upload(connection, call)
        chunks.check_quota(connection, broker, call, part, len(names) * wire.MAX_CHUNK)
        chunks.touch(connection, call, 0)
        chunks.reserve_objects(connection, call, names, since=until, size=wire.MAX_CHUNK)

    found = await _presigned(broker, "PUT", message.chunks, names, seconds)
    if found.transfers:
        await broker.database.write(reserve)
    return found


async def sent(broker: Broker, call: Call, message: wire.SentChunks) -> None:
    """Write the rows of chunks that were put to the object store; known chunks change nothing."""
    _check_distinct([chunk.index for chunk in message.chunks])
    _check_distinct([chunk.name for chunk in message.chunks])
    for chunk in message.chunks:
        chunks.check_number(broker, chunk.index)
        if not is_name_of(chunk.name, call.part_id) or len(chunk.hashes) % HASH_SIZE:
            raise errors.InvalidArgumentError(
                f"Chunk {chunk.index} must have the name that came with its presigned URL, and whole hashes."
            )

    def find_missing(connection: Connection) -> list[wire.SentChunk]:
        """Return the chunks without a row; refuse names that we did not hand out before we ask the store."""
        part = chunks.find_upload(connection, call)
        missing = [
            chunk
            for chunk in message.chunks
            if not chunks.is_stored(connection, call, part, chunk.index, chunk.hashes)
        ]
        if missing and part is not None and part.committed:
            raise errors.AlreadyExistsError(chunks.COMMITTED)
        for chunk in missing:
            pending = sql.one(connection, FIND_PENDING_BLOB, blob=chunk.name)
            # Accept only the time that `to_send` recorded: another means that the name was claimed or used.
            if pending is None or pending.since != good_until(chunk.name):
                raise _used(chunk.index)
        return missing

    def keep(connection: Connection) -> None:
        for chunk in arrived:
            if not chunks.keep(connection, call, chunk):
                raise _used(chunk.number)

    missing = await broker.database.write(find_missing)
    sizes = await broker.blobs.sizes([chunk.name for chunk in missing])
    arrived = [_arrived(chunk, size) for chunk, size in zip(missing, sizes, strict=True)]
    if arrived:
        await broker.database.write(keep)


def _used(number: int) -> errors.IncompleteUploadError:
    return errors.IncompleteUploadError(
        f"The presigned URL of chunk {number} was used or has expired: ask for another."
    )


def _arrived(chunk: wire.SentChunk, size: int | None) -> Chunk:
    if size is None:
        raise errors.IncompleteUploadError(
            f"Chunk {chunk.index} is not in the object store: upload it."
        )
    count = len(chunk.hashes) // HASH_SIZE
    before = (count - 1) * SEALED_SEGMENT
    if not before + sealed_size(1) <= size <= before + SEALED_SEGMENT:
        raise errors.RejectedError(
            f"Chunk {chunk.index} does not have the size of {count} segments."
        )
    return Chunk(chunk.index, chunk.hashes, size, chunk.name, good_until(chunk.name))


async def to_read(broker: Broker, call: Call, query: wire.TransfersQuery) -> wire.Transfers:
    """Return URLs to get chunks from; none if downloads go through the broker."""
    first, end = query.first, query.first + query.count

    def read(connection: Connection) -> tuple[list[int], list[str], int | None]:
        part, ends = chunks.readable(connection, call)
        values = {"part": part.part_id, "first": first, "end": end}
        rows = connection.execute(CHUNK_BLOBS, values).all()
        if len(rows) < query.count and not part.is_inline:
            if (end - 1) * wire.CHUNK_SEGMENTS < part.hashes_size // HASH_SIZE:
                raise errors.PartGoneError()  # the part was replaced, and some of its chunks are swept
            raise errors.InvalidArgumentError("The part has fewer chunks.")
        return [row.chunk for row in rows], [row.blob for row in rows], ends

    numbers, names, ends = await broker.database.read(read)
    seconds = broker.settings.transfer_seconds
    if ends is not None:
        seconds = max(1, min(seconds, (ends - now()) // SECOND))
    found = await _presigned(broker, "GET", numbers, names, seconds)
    if found.transfers:
        log.note_access(broker, call, call.container_id)
    return found


async def _presigned(
    broker: Broker,
    method: Literal["GET", "PUT"],
    numbers: Sequence[int],
    names: Sequence[str],
    seconds: int,
) -> wire.Transfers:
    urls: Sequence[str] = ()
    if broker.settings.direct_transfer and names:
        urls = await broker.blobs.presigned_urls(method, names, seconds)
    if not urls:
        return wire.Transfers(transfers=[], seconds=0)
    transfers = [
        wire.Transfer(index=number, name=name, url=url)
        for number, name, url in zip(numbers, names, urls, strict=True)
    ]
    return wire.Transfers(transfers=transfers, seconds=seconds)


def _check_distinct(items: Sequence[int] | Sequence[str]) -> None:
    if len(set(items)) < len(items):
        raise errors.InvalidArgumentError("Each chunk must be named once.")
