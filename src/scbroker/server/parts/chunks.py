"""Store, list and serve the chunks of large contents. Spec: docs/spec/protocol.md, section 5.

A chunk is up to eight sealed segments. Its bytes go to the object store first, through the broker or by a
presigned URL (`presigned`). The chunk counts as stored once it has a row, with the hash of each segment. The
record that names the part commits all its chunks.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.records.container_record import MAX_SEGMENTS, SEALED_SEGMENT, SEGMENT, sealed_size
from scbroker.records.roster import cut
from scbroker.server.broker import (
    Broker,
    Call,
    Charges,
    check_active,
    check_unexpired,
    is_unexpired,
    not_found,
    now,
)
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.blobs import new_blob_name
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import parts as wire
from scbroker.wire.parts import CHUNK_SEGMENTS

# Until its part is committed, each chunk counts for at least so many bytes, or tiny chunks would circumvent
# the limits.
_LEAST_COUNTED: Final = 65_536
# One session's share of the quota, in quarters: a thief of its token leaves the rest to the user.
_SHARE: Final = 3
COMMITTED: Final = "A record names this part already."

PART_HASHES: Final = sa.select(t.parts.c.hashes).where(sql.of(t.parts, "part"))
_UNFINISHED: Final = sql.of(t.parts, "user") & ~t.parts.c.committed & (t.parts.c.touched_at > 0)
_IS_OWN: Final = t.parts.c.session == b("session")


def _is_alive(session: sa.Column[Any]) -> sa.ColumnElement[bool]:
    return sa.exists().where(t.sessions.c.token_hash == session, t.sessions.c.expires_at > b("now"))


def _total(number: Any) -> Any:
    return sa.func.coalesce(sa.func.sum(number), 0)


def _reserved(condition: sa.ColumnElement[bool]) -> Any:
    """Return a subquery for the bytes that are reserved for objects that a user may be uploading."""
    found = sa.select(_total(t.pending_blobs.c.size))
    return found.where(sql.of(t.pending_blobs, "user"), condition).scalar_subquery()


# The count and the bytes of a user's unfinished uploads, in all and by one session. The bytes include what is
# reserved for objects that sessions may still be uploading.
_PENDING: Final = t.pending_blobs.c.session
UNFINISHED_PARTS: Final = sa.select(
    sa.func.count().label("parts"),
    (_total(t.parts.c.received) + _reserved(_is_alive(_PENDING))).label("received"),
    _total(sa.case((_IS_OWN, 1), else_=0)).label("own_parts"),
    (
        _total(sa.case((_IS_OWN, t.parts.c.received), else_=0))
        + _reserved(b("session") == _PENDING)
    ).label("own_received"),
).where(_UNFINISHED)
UNFINISHED_OF_ENDED_SESSIONS: Final = (
    sa.select(t.parts.c.part_id, t.parts.c.received)
    .where(_UNFINISHED, ~_is_alive(t.parts.c.session))
    .order_by(t.parts.c.touched_at)
)
CLAIM_PART: Final = sql.change(t.parts, "part", session=b("session"), touched_at=b("now"))
# The sweeper deletes dropped parts. Until then, another chunk makes one an unfinished upload again.
DROP_UNFINISHED: Final = sql.change(
    t.parts, sql.among(t.parts.c.part_id, "gone"), ~t.parts.c.committed, touched_at=0
)
TOUCH_PART: Final = sql.change(
    t.parts, "part", touched_at=b("now"), received=t.parts.c.received + b("more")
)
CHUNK_HASHES: Final = sql.chunks_between(t.chunks.c.chunk_hash)
DROP_CHUNK: Final = sql.drop(t.chunks, "part", "number")
# Object names pending deletion. Remove the mark only if it is still the one that we set: another transaction
# may have claimed or postponed it.
_MARKED: Final = (t.pending_blobs.c.name == b("blob")) & (t.pending_blobs.c.since == b("marked"))
KEEP_BLOB: Final = sql.drop(t.pending_blobs, _MARKED).returning(t.pending_blobs.c.size)
# The object is due now, and its charge stays until it is deleted.
HASTEN_BLOB: Final = sql.change(t.pending_blobs, _MARKED, since=0)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk whose row is to be written."""

    number: int
    hashes: bytes
    """Concatenated hashes of its segments."""
    size: int
    blob: str
    pending_since: int
    """The time in its pending deletion: `keep` refuses the chunk if another time, or none, is recorded."""


async def receive(broker: Broker, call: Call, message: memoryview) -> None:
    """Store a chunk of a part that is not committed; the same chunk again changes nothing.

    First the object's name is recorded as pending deletion and its bytes are charged to the user. Then they
    are stored. Then a row names the object, the part takes over the charge, and the record is removed. After
    a crash in between, the sweeper deletes the object and ends the charge.
    """
    check_number(broker, call.chunk)
    size = len(message)
    if size > wire.MAX_CHUNK:
        raise errors.TooLargeError("A chunk must have at most eight sealed segments.")
    if 0 < size % SEALED_SEGMENT < sealed_size(1) or not size:
        raise errors.InvalidArgumentError("A chunk must have one to eight sealed segments.")
    hashes = await asyncio.to_thread(hashes_of, message)
    chunk = Chunk(call.chunk, hashes, size, new_blob_name(call.part_id), now())

    def reserve(connection: Connection) -> bool:
        """Return whether this chunk is stored; if not, check the quota and record its object's name."""
        part = find_upload(connection, call)
        if is_stored(connection, call, part, chunk.number, hashes):
            return True
        check_quota(connection, broker, call, part, size)
        charged = counted_size(size)
        reserve_objects(connection, call, [chunk.blob], since=chunk.pending_since, size=charged)
        return False

    if await broker.database.write(reserve):
        return
    await broker.blobs.put(chunk.blob, message)
    if not await broker.database.write(lambda c: keep(c, call, chunk)):
        raise errors.OverloadedError("The chunk was deleted meanwhile: send it again.", 1)


def counted_size(size: int) -> int:
    """Return the bytes that a chunk of this size is charged with until its part is committed."""
    return max(size, _LEAST_COUNTED)


def reserve_objects(
    connection: Connection, call: Call, names: Sequence[str], *, since: int, size: int
) -> None:
    """Charge `size` bytes for each object that may be stored soon, and record it as pending deletion.

    Raises `QuotaExceededError` if these bytes exceed the user's quota.
    """
    user = call.session
    charge = {"user_id": user.id, "session": user.token_hash, "size": size}
    connection.add(t.pending_blobs, [{"name": name, "since": since, **charge} for name in names])
    charges = Charges()
    charges.add(user.id, size=size * len(names))
    charges.apply(connection)


def hashes_of(message: memoryview) -> bytes:
    """Return the concatenated hashes of a chunk's segments."""
    starts = range(0, len(message), SEALED_SEGMENT)
    return b"".join(sha256(message[start : start + SEALED_SEGMENT]) for start in starts)


def check_number(broker: Broker, number: int) -> None:
    """Raise `TooLargeError` if a chunk lies beyond the largest content."""
    limit = min(broker.settings.max_content, MAX_SEGMENTS * SEGMENT)
    if number * CHUNK_SEGMENTS * SEGMENT >= limit:
        raise errors.TooLargeError(f"This broker accepts contents of at most {limit} bytes.")


def find_upload(connection: Connection, call: Call) -> Row | None:
    """Return the part's row, if any; raise if the user may not upload it.

    A user without access gets the same answers as for an id that no container has: only the record that
    names the part is refused.
    """
    _lock_user(connection, call)
    _check_access(connection, call)
    part = sql.one(connection, sql.FIND_PART, part=call.part_id)
    if part is not None and not _is_own(part, call):
        raise errors.AlreadyExistsError("This part id belongs to another upload.")
    return part


def _is_own(part: Row, call: Call) -> bool:
    return (part.user_id, part.container_id) == (call.session.id, call.container_id)


def _check_access(connection: Connection, call: Call) -> None:
    """Raise if the user has access without Upload, or is not a member of the group that they name."""
    user_id, role = call.session.id, None
    if call.via is not None:
        role = memberships.check(connection, call.via, user_id).role
    names = {"container": call.container_id, "user": call.via or user_id}
    member = sql.one(connection, sql.FIND_MEMBER, **names)
    if is_unexpired(member, now()):
        if sql.the(connection, sql.FIND_CONTAINER, id=call.container_id).deleted:
            raise errors.DeletedError()
        left = member.permissions if role is None else cut(member.permissions, role)
        if not left & ContainerAccessLevel.Upload:
            raise errors.PermissionDeniedError("Your access to this container lacks Upload.")


def _lock_user(connection: Connection, call: Call) -> None:
    """Lock the user's row, or this request could leave data of a deleted user behind."""
    check_active(sql.the(connection, sql.SHARE_USERS, ids=[call.session.id]))


def is_stored(
    connection: Connection, call: Call, part: Row | None, number: int, hashes: bytes
) -> bool:
    """Return whether a chunk has a row with these hashes, and if so extend the life of its part."""
    if part is None or part.dropped:
        return False
    found = sql.one(connection, sql.FIND_CHUNK, part=call.part_id, number=number)
    if found is None or found.chunk_hash != sha256(hashes):
        return False
    touch(connection, call, 0)
    return True


def check_quota(
    connection: Connection, broker: Broker, call: Call, part: Row | None, size: int
) -> None:
    """Assign the part to the session; raise if the session may not upload `size` more bytes of it."""
    if part is not None and part.committed:
        raise errors.AlreadyExistsError(COMMITTED)
    moment, session = now(), call.session.token_hash
    if part is None:
        row = {
            "part_id": call.part_id,
            "container_id": call.container_id,
            "user_id": call.session.id,
            "touched_at": moment,
            "committed": False,
            "received": 0,
            "session": session,
        }
        connection.add(t.parts, row)
    elif part.dropped or part.session != session:
        connection.execute(CLAIM_PART, {"part": call.part_id, "session": session, "now": moment})
    asked = {"user": call.session.id, "session": session, "now": moment}
    found = sql.the(connection, UNFINISHED_PARTS, **asked)
    parts, received = broker.settings.max_pending_parts, broker.settings.max_pending_bytes
    _check_free(found.own_parts <= _share(parts), found.own_received + size <= _share(received))
    if found.parts > parts or found.received + size > received:
        over = found.parts - parts, found.received + size - received
        _free_quota(connection, call, *over, moment)


def _check_free(has_parts: bool, has_bytes: bool) -> None:
    if not has_parts:
        raise errors.TooLargeError("Too many uploads are unfinished: finish or drop one first.")
    if not has_bytes:
        raise errors.TooLargeError(
            "Unfinished uploads have too many bytes: finish or drop one first."
        )


def _share(limit: int) -> int:
    return -(-limit * _SHARE // 4)


def _free_quota(connection: Connection, call: Call, parts: int, received: int, moment: int) -> None:
    """Drop uploads of the user's ended sessions, oldest first, until so many parts and bytes are freed.

    Raises `TooLargeError` if they free less. Uploads of ended sessions are kept until their quota is needed,
    so that another session can resume them.
    """
    asked, gone = {"user": call.session.id, "now": moment}, []
    for row in connection.execute(UNFINISHED_OF_ENDED_SESSIONS, asked):
        if parts <= 0 and received <= 0:
            break
        parts, received = parts - 1, received - row.received
        gone.append(row.part_id)
    _check_free(parts <= 0, received <= 0)
    connection.execute(DROP_UNFINISHED, {"gone": gone})


async def drop(broker: Broker, call: Call) -> None:
    """Drop an unfinished upload of the session's user; without one, nothing changes."""

    def write(connection: Connection) -> None:
        _lock_user(connection, call)
        if call.via is not None:
            _check_access(connection, call)
        part = sql.one(connection, sql.LOCK_PART, part=call.part_id)
        if part is None or not _is_own(part, call):
            return
        if part.committed:
            raise errors.AlreadyExistsError(COMMITTED)
        connection.execute(DROP_UNFINISHED, {"gone": [call.part_id]})

    await broker.database.write(write)


def keep(connection: Connection, call: Call, chunk: Chunk) -> bool:
    """Write the row of a stored chunk, in place of another one; its part takes over the object's charge.

    Returns False if the chunk's pending deletion is gone. The sweeper claims an object's name before it
    deletes the object; no row can reference a claimed name. A late upload stays unreferenced and is swept
    later. No clock is involved.
    """
    _lock_user(connection, call)
    part = sql.one(connection, sql.LOCK_PART, part=call.part_id)
    if part is None or part.dropped:
        raise errors.OverloadedError("The part was deleted meanwhile: upload it again.", 1)
    place, chunk_hash = {"part": call.part_id, "number": chunk.number}, sha256(chunk.hashes)
    found = sql.one(connection, sql.FIND_CHUNK, **place)
    pending = {"blob": chunk.blob, "marked": chunk.pending_since}
    if found is not None and found.chunk_hash == chunk_hash:
        touch(connection, call, 0)
        # A chunk that was sent twice at once has two objects: the second is due now, not in an hour.
        if found.blob != chunk.blob:
            connection.execute(HASTEN_BLOB, pending)
        return True
    if part.committed:
        raise errors.AlreadyExistsError(COMMITTED)
    reserved = sql.one(connection, KEEP_BLOB, **pending)
    if reserved is None:
        return False
    if found is not None:
        connection.execute(DROP_CHUNK, place)
        connection.add(t.pending_blobs, {"name": found.blob, "since": 0})
    row = {
        "part_id": call.part_id,
        "chunk": chunk.number,
        "size": chunk.size,
        "chunk_hash": chunk_hash,
        "blob": chunk.blob,
        "hashes": chunk.hashes,
    }
    connection.add(t.chunks, row)
    counted = counted_size(chunk.size)
    touch(connection, call, counted)
    charges = Charges()
    # Credit the difference: the presigned URL was charged with the largest chunk.
    charges.add(call.session.id, size=counted - (reserved.size or 0), refusable=False)
    charges.apply(connection)
    return True


def touch(connection: Connection, call: Call, more: int) -> None:
    """Extend the life of a part, and count `more` bytes of it."""
    connection.execute(TOUCH_PART, {"part": call.part_id, "now": now(), "more": more})


async def list_chunks(broker: Broker, call: Call, query: wire.ChunksQuery) -> wire.Chunks:
    """Return which chunks of an uncommitted part of the session's user are stored, from `first` on."""

    def read(connection: Connection) -> list[Row]:
        if call.via is not None:
            _check_access(connection, call)
        part = sql.one(connection, sql.FIND_PART, part=call.part_id)
        if part is None or part.user_id != call.session.id or part.committed or part.dropped:
            return []
        some = {"first": query.first, "end": query.first + wire.MAX_LISTED}
        return list(connection.execute(CHUNK_HASHES, {"part": call.part_id, **some}))

    rows = await broker.database.read(read, large=True)
    found = [wire.ChunkState(index=row.chunk, hash=row.chunk_hash) for row in rows]
    return wire.Chunks(chunks=found)


async def segment_hashes(broker: Broker, call: Call) -> bytes:
    """Return the concatenated hashes of all segments of a part that the reader may download."""

    def read(connection: Connection) -> bytes:
        part, _ = readable(connection, call)
        return bytes(sql.the(connection, PART_HASHES, part=part.part_id).hashes)

    return await broker.database.read(read, large=True)


async def segments(broker: Broker, call: Call, query: wire.SegmentsQuery) -> bytes | memoryview:
    """Return sealed segments of a part, concatenated."""
    first, end = query.first, query.first + query.count

    def read(connection: Connection) -> bytes | list[Row]:
        part, _ = readable(connection, call)
        if end > part.hashes_size // HASH_SIZE:
            raise errors.InvalidArgumentError("The part has fewer segments.")
        if part.is_inline:
            return bytes(sql.the(connection, sql.PARTS_INLINE, some=[part.part_id]).inline)
        chunks = []
        for number in range(first // CHUNK_SEGMENTS, (end - 1) // CHUNK_SEGMENTS + 1):
            chunk = sql.one(connection, sql.FIND_CHUNK, part=part.part_id, number=number)
            if chunk is None:  # the part was replaced and swept
                raise errors.PartGoneError()
            chunks.append(chunk)
        return chunks

    async def get(chunk: Row) -> memoryview:
        base = chunk.chunk * CHUNK_SEGMENTS
        start = max(first - base, 0) * SEALED_SEGMENT
        stop = min((end - base) * SEALED_SEGMENT, chunk.size)
        return await broker.blobs.get(chunk.blob, start, stop)

    found = await broker.database.read(read)
    log.note_access(broker, call, call.container_id)
    if isinstance(found, bytes):
        return found
    try:
        ranges = await asyncio.gather(*map(get, found))
    except LookupError:
        await broker.database.read(read)  # raises if the content was replaced or deleted meanwhile
        raise
    return ranges[0] if len(ranges) == 1 else b"".join(ranges)


def readable(connection: Connection, call: Call) -> tuple[Row, int | None]:
    """Return the part, and when the user's access expires; raise if the user may not download it."""
    if call.via == call.session.id:
        raise not_found("part")  # a user's id in place of a group's
    names = {"container": call.container_id, "user": call.session.id, "now": call.now}
    named = call.via or call.session.id
    row = sql.one(connection, sql.CONTAINER_AND_MEMBER, **names, named=named)
    found = check_unexpired(row, call.now, "part")
    if found.deleted:
        raise errors.DeletedError()
    if not found.permissions & ContainerAccessLevel.Download:
        raise errors.PermissionDeniedError("Your access to this container lacks Download.")
    part = sql.one(connection, sql.FIND_PART, part=call.part_id)
    if part is None:
        raise errors.PartGoneError()
    if part.container_id != call.container_id or not part.committed:
        raise not_found("part")
    return part, found.expires_at
