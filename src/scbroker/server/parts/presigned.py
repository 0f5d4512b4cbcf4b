"""Chunks that go between client and object store past the broker. Spec: docs/spec/protocol.md, section 5.

The broker gives addresses that are good for minutes and never sees the bytes: of a chunk it knows what the
sender says, and that something of the right size is there. Readers verify each segment all the same.
A name is doomed from before its address is given until the sender says that the chunk is there.
"""

from __future__ import annotations

from typing import Final, Literal

from sqlalchemy import Connection

from scbroker.crypto.verify import HASH_SIZE
from scbroker.errors import (
    AlreadyExistsError,
    IncompleteUploadError,
    InvalidArgumentError,
    PartGoneError,
    RejectedError,
)
from scbroker.records.container_record import SEALED_SEGMENT, sealed_size
from scbroker.server.broker import Broker, Call, now
from scbroker.server.events import log
from scbroker.server.parts import chunks
from scbroker.server.parts.chunks import Chunk, Upload
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import good_until, is_name_of, new_blob_name
from scbroker.wire.parts import (
    CHUNK_SEGMENTS,
    MAX_CHUNK,
    SentChunk,
    SentChunks,
    Transfer,
    Transfers,
    TransfersQuery,
    TransfersRequest,
)

_SECOND: Final = 1_000_000
_NONE: Final = Transfers(transfers=[], seconds=0)


async def to_send(broker: Broker, call: Call, message: TransfersRequest) -> Transfers:
    """Addresses to put these chunks to; none where the broker takes them itself."""
    upload = Upload.of(call)
    _check_once(message.chunks)
    for number in message.chunks:
        chunks.check_place(broker, number)
    seconds = broker.settings.transfer_seconds
    until = now() + seconds * _SECOND
    names = [new_blob_name(upload.part_id, until) for _ in message.chunks]
    found = await _addresses(broker, "PUT", message.chunks, names, seconds)
    if found.transfers:
        await broker.database.write(lambda c: _reserve(c, broker, upload, names, until))
    return found


def _reserve(
    connection: Connection, broker: Broker, upload: Upload, names: list[str], until: int
) -> None:
    """Counts each address as a whole chunk: what is put to it is not seen."""
    size = len(names) * MAX_CHUNK
    chunks.make_room(connection, broker, upload, chunks.begun(connection, upload), size)
    chunks.touch(connection, upload.part_id, size)
    connection.execute(sql.ADD_PENDING_BLOBS, [{"name": name, "since": until} for name in names])


async def sent(broker: Broker, call: Call, message: SentChunks) -> None:
    """Takes chunks that were put to the object store; what was taken already changes nothing."""
    upload = Upload.of(call)
    _check_once([chunk.index for chunk in message.chunks])
    _check_once([chunk.name for chunk in message.chunks])
    for chunk in message.chunks:
        chunks.check_place(broker, chunk.index)
        if not is_name_of(chunk.name, upload.part_id) or len(chunk.hashes) % HASH_SIZE:
            raise InvalidArgumentError("A chunk has the name that came with its address.")
    missing = await broker.database.write(lambda c: _missing(c, upload, message.chunks))
    sizes = await broker.blobs.sizes([chunk.name for chunk in missing])
    found = [_stored(upload, chunk, size) for chunk, size in zip(missing, sizes, strict=True)]
    if found:
        await broker.database.write(lambda c: _keep(c, found))


def _missing(connection: Connection, upload: Upload, sent: list[SentChunk]) -> list[SentChunk]:
    """Those that have no row yet. The store is asked for none whose address was not given."""
    part = chunks.begun(connection, upload)
    missing = [
        chunk
        for chunk in sent
        if not chunks.is_here(
            connection, Chunk(upload, chunk.index, chunk.hashes, 0, chunk.name, 0)
        )
    ]
    if missing and part is not None and part.committed:
        raise AlreadyExistsError("A record names this part already.")
    for chunk in missing:
        _check_given(connection, chunk.index, chunk.name)
    return missing


def _check_given(connection: Connection, number: int, name: str) -> None:
    doomed = sql.one(connection, sql.FIND_PENDING_BLOB, blob=name)
    if doomed is None or doomed.since != good_until(name):  # as `_reserve` doomed it
        raise IncompleteUploadError(
            f"The address of chunk {number} is used or has run out: ask for another."
        )


def _stored(upload: Upload, chunk: SentChunk, size: int | None) -> Chunk:
    if size is None:
        raise IncompleteUploadError(f"Chunk {chunk.index} is not in the object store: send it.")
    before = (len(chunk.hashes) // HASH_SIZE - 1) * SEALED_SEGMENT
    if not before + sealed_size(1) <= size <= before + SEALED_SEGMENT:
        raise RejectedError(f"Chunk {chunk.index} has another size than so many segments have.")
    return Chunk(upload, chunk.index, chunk.hashes, size, chunk.name, good_until(chunk.name))


def _keep(connection: Connection, arrived: list[Chunk]) -> None:
    for chunk in arrived:
        chunks.locked(connection, chunk.upload)
        if chunks.is_here(connection, chunk):
            continue
        _check_given(connection, chunk.number, chunk.blob)
        chunks.keep(connection, chunk, 0)


async def to_read(broker: Broker, call: Call, query: TransfersQuery) -> Transfers:
    """Addresses to get chunks from; none where the broker gives them itself."""

    def read(connection: Connection) -> tuple[list[int], list[str], int | None]:
        part, ends = chunks.readable(connection, call)
        values = {
            "part": part.part_id, "first": query.first, "end": query.first + query.count
        }  # fmt: skip
        rows = connection.execute(sql.CHUNK_BLOBS, values).all()
        if len(rows) < query.count and not part.is_inline:
            if (query.first + query.count - 1) * CHUNK_SEGMENTS < part.hashes_size // HASH_SIZE:
                raise PartGoneError()  # it was replaced, and its first chunks are swept
            raise InvalidArgumentError("The part has fewer chunks.")
        return [row.chunk for row in rows], [row.blob for row in rows], ends

    numbers, names, ends = await broker.database.read(read)
    seconds = broker.settings.transfer_seconds
    if ends is not None:
        seconds = max(1, min(seconds, (ends - now()) // _SECOND))
    found = await _addresses(broker, "GET", numbers, names, seconds)
    if found.transfers:
        log.note_access(broker, call, call.container_id)
    return found


async def _addresses(
    broker: Broker,
    method: Literal["GET", "PUT"],
    numbers: list[int],
    names: list[str],
    seconds: int,
) -> Transfers:
    if not broker.settings.direct_transfer or not names:
        return _NONE
    urls = await broker.blobs.presigned_urls(method, names, seconds)
    if not urls:
        return _NONE
    transfers = [
        Transfer(index=number, name=name, url=url)
        for number, name, url in zip(numbers, names, urls, strict=True)
    ]
    return Transfers(transfers=transfers, seconds=seconds)


def _check_once(items: list[int] | list[str]) -> None:
    if len(set(items)) < len(items):
        raise InvalidArgumentError("A chunk stands there twice.")
