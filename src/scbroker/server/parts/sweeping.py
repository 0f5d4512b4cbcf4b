"""Delete replaced contents, abandoned uploads and objects that are pending deletion.

A round of the sweeper starts with one transaction that removes a bounded number of rows, records the names
of their objects as pending deletion, and claims names that are due. No row can reference a claimed name
(`chunks.keep`). Then the objects are deleted, then the records of their names. If a sweeper dies in between,
the next one continues with the claimed names.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import OverloadedError
from scbroker.server.broker import SECOND, Broker, Charges, now
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.blobs import good_until
from scbroker.server.storage.driver import Connection

_PARTS: Final = 32
# Removing so many rows takes SQLite about 50 ms.
_CHUNKS: Final = 2_000
_BLOBS: Final = 256
# Microseconds after which a name is due: longer than storing a chunk may take.
DUE_AFTER: Final = 3_600 * SECOND
# The longest time for which a request sweeps.
_REQUEST_SECONDS: Final = 10.0


def _due(
    name: sa.Column[Any], since: sa.Column[Any], *conditions: sa.ColumnElement[bool]
) -> sa.Select[Any]:
    """Select and lock a page of rows that were due `before` a time; skip rows locked by another sweeper."""
    found = sa.select(name).where(since <= b("before"), *conditions)
    return sql.page(found, since).with_for_update(skip_locked=True)


_NAMES: Final = sql.among(t.pending_blobs.c.name, "names")
DROP_CHUNKS: Final = sql.drop(t.chunks, sql.among(t.chunks.c.part_id, "gone"))
DROP_CHUNKS_TO: Final = sql.drop(t.chunks, "part", t.chunks.c.chunk <= b("number"))
DROP_PARTS: Final = sql.drop(t.parts, sql.among(t.parts.c.part_id, "gone")).returning(
    t.parts.c.user_id, t.parts.c.received
)
REPLACED_PARTS: Final = _due(t.parts.c.part_id, t.parts.c.replaced_at)
ABANDONED_PARTS: Final = _due(t.parts.c.part_id, t.parts.c.touched_at, ~t.parts.c.committed)
PENDING_BLOBS: Final = _due(t.pending_blobs.c.name, t.pending_blobs.c.since)
# -1 marks a claimed name: from then on no row may reference it. If the sweeper dies, the next one continues
# with these names, because -1 is the earliest time.
CLAIM_BLOBS: Final = sql.change(t.pending_blobs, _NAMES, since=-1)
POSTPONE_BLOB: Final = sql.change(
    t.pending_blobs, t.pending_blobs.c.name == b("blob"), since=b("later")
)
FORGET_BLOBS: Final = sql.drop(t.pending_blobs, _NAMES).returning(
    t.pending_blobs.c.user_id, t.pending_blobs.c.size
)


@dataclass(frozen=True, slots=True)
class Swept:
    """Counts of what one round deleted, and of objects that it failed to delete."""

    parts: int
    objects: int
    failed: int
    more: bool
    """Whether more may be due."""


async def sweep(broker: Broker) -> bool:
    """Run one round; return whether more may be due."""
    return (await sweep_some(broker)).more


async def sweep_some(broker: Broker) -> Swept:
    """Run one round. Raises `OverloadedError` if objects were due and none could be deleted."""
    dropped, full, names = await broker.database.write(lambda c: _remove_and_claim(c, broker))
    if not names:
        return Swept(dropped, 0, 0, full)
    tried = await broker.blobs.remove(names)
    await broker.database.write(lambda c: _complete(c, tried))
    deleted = sum(tried.values())
    if not deleted:
        raise OverloadedError("The broker's object store deleted no object.", retryAfter=1)
    return Swept(dropped, deleted, len(tried) - deleted, full or len(names) >= _BLOBS)


async def sweep_at_once(broker: Broker) -> bool:
    """Sweep for a request that deleted something; return whether more may be due. Takes no worker slot.

    One request of a process sweeps at a time, also for those that come meanwhile, which return at once: an
    object store that hangs holds up a single request. The background sweeper does what remains.
    """
    broker.unswept = True
    if broker.sweeping.locked():
        return False
    more, until = False, time.monotonic() + _REQUEST_SECONDS
    async with broker.sweeping:
        while broker.unswept and time.monotonic() < until:
            broker.unswept = False
            more = await sweep(broker)
    return more


def _remove_and_claim(connection: Connection, broker: Broker) -> tuple[int, bool, list[str]]:
    """Return the number of parts removed, whether more are due, and the claimed names."""
    charges = Charges()
    dropped, full = _remove_parts(connection, broker, charges)
    values = {"before": now() - DUE_AFTER, "count": _BLOBS}
    names = list(connection.execute(PENDING_BLOBS, values).scalars())
    if names:
        connection.execute(CLAIM_BLOBS, {"names": names})
    charges.apply(connection)
    return dropped, full, names


def _remove_parts(connection: Connection, broker: Broker, charges: Charges) -> tuple[int, bool]:
    """Remove rows of due parts; return the number of parts removed, and whether more are due.

    A part's row is removed together with the row of its last chunk.
    """
    found: list[Sequence[bytes]] = []
    for statement, seconds in (
        (REPLACED_PARTS, broker.settings.part_grace_seconds),
        (ABANDONED_PARTS, broker.settings.upload_seconds),
    ):
        limits = {"before": now() - seconds * SECOND, "count": _PARTS}
        found.append(connection.execute(statement, limits).scalars().all())
    due = sorted({part_id for some in found for part_id in some})
    if not due:
        return 0, False
    rows = connection.execute(sql.BLOBS_IN, {"gone": due, "count": _CHUNKS})
    connection.add(t.pending_blobs, [{"name": row.blob, "since": 0} for row in rows])
    full = len(rows) >= _CHUNKS
    # The last part may have more chunks than `_CHUNKS` allows: remove those that were read.
    if full:
        last = rows[-1].part_id
        due = [part_id for part_id in due if part_id < last]
        connection.execute(DROP_CHUNKS_TO, {"part": last, "number": rows[-1].chunk})
    if due:
        connection.execute(DROP_CHUNKS, {"gone": due})
        for part in connection.execute(DROP_PARTS, {"gone": due}):
            charges.add(part.user_id, size=-part.received)
    return len(due), full or any(len(some) >= _PARTS for some in found)


def _complete(connection: Connection, tried: dict[str, bool]) -> None:
    """Remove the records of deleted objects; `tried` says of each name whether its object is deleted.

    A name is deleted once more later if its presigned URL is valid or expired recently: somebody may still
    put an object there. An object that could not be deleted is tried again after all that is due before it.
    """
    limit = now() - DUE_AFTER
    again, done = [], []
    for name, is_deleted in tried.items():
        if not is_deleted:
            again.append({"blob": name, "later": now()})
        elif good_until(name) > limit:
            # Another time than that of the presigned URL: `chunks.keep` must not accept a deleted object.
            again.append({"blob": name, "later": good_until(name) + 1})
        else:
            done.append(name)
    connection.execute(POSTPONE_BLOB, again)
    if done:
        charges = Charges()
        for row in connection.execute(FORGET_BLOBS, {"names": done}):
            if row.user_id is not None:
                charges.add(row.user_id, size=-row.size)
        charges.apply(connection)
