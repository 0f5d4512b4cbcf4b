"""Messages about chunks and segments of large contents. Spec: docs/spec/protocol.md, section 5."""

from typing import Annotated, Final

from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE
from scbroker.records.canonical import Uint
from scbroker.records.container_record import MAX_SEGMENTS, SEALED_SEGMENT
from scbroker.wire.codec import Hash, Id, Message, Text

CHUNK_SEGMENTS: Final = 8
MAX_CHUNK: Final = CHUNK_SEGMENTS * SEALED_SEGMENT
MAX_CHUNKS: Final = MAX_SEGMENTS // CHUNK_SEGMENTS
MAX_LISTED: Final = 4096
MAX_TRANSFERS: Final = 64

ChunkNumber = Annotated[int, Meta(ge=0, lt=MAX_CHUNKS)]
ObjectName = Annotated[Text, Meta(min_length=1, max_length=128)]
Address = Annotated[str, Meta(min_length=1, max_length=8192)]
SegmentHashes = Annotated[bytes, Meta(min_length=HASH_SIZE, max_length=HASH_SIZE * CHUNK_SEGMENTS)]


class ViaQuery(Message, frozen=True, kw_only=True):
    via: Id | None = None
    """The group by whose entry the user acts."""


class SegmentsQuery(ViaQuery, frozen=True, kw_only=True):
    first: Annotated[int, Meta(ge=0, lt=MAX_SEGMENTS)]
    count: Annotated[int, Meta(ge=1, le=CHUNK_SEGMENTS)]


class ChunkState(Message, frozen=True, kw_only=True):
    index: Uint
    hash: Hash


class Chunks(Message, frozen=True, kw_only=True):
    chunks: Annotated[list[ChunkState], Meta(max_length=MAX_LISTED)]


class ChunksQuery(ViaQuery, frozen=True, kw_only=True):
    first: ChunkNumber = 0


class TransfersRequest(Message, frozen=True, kw_only=True):
    chunks: Annotated[list[ChunkNumber], Meta(min_length=1, max_length=MAX_TRANSFERS)]


class TransfersQuery(ViaQuery, frozen=True, kw_only=True):
    first: ChunkNumber
    count: Annotated[int, Meta(ge=1, le=MAX_TRANSFERS)]


class Transfer(Message, frozen=True, kw_only=True):
    index: ChunkNumber
    name: ObjectName
    url: Address

    def __repr__(self) -> str:
        return f"Transfer(index={self.index})"  # no URL: a log that has it would give access


class Transfers(Message, frozen=True, kw_only=True):
    transfers: Annotated[list[Transfer], Meta(max_length=MAX_TRANSFERS)]
    seconds: Annotated[int, Meta(ge=0, le=3600)]


class SentChunk(Message, frozen=True, kw_only=True):
    index: ChunkNumber
    name: ObjectName
    hashes: SegmentHashes


class SentChunks(Message, frozen=True, kw_only=True):
    chunks: Annotated[list[SentChunk], Meta(min_length=1, max_length=MAX_TRANSFERS)]
