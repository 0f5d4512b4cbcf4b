"""Removing what nothing needs any more: contents that were replaced or given up, and doomed objects.

Rows go first, in one transaction with the names of their objects among the doomed, a bounded number at a
time; then names are claimed; then their objects go; then the names. A name that is claimed is never kept
(`parts.keep`), and what a sweeper that ends in between has claimed is swept by the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from scbroker.errors import OverloadedError
from scbroker.server.broker import Broker, now
from scbroker.server.storage import statements as sql
from scbroker.server.storage.blobs import good_until

_SECOND: Final = 1_000_000
_PARTS: Final = 32
# About a twentieth of a second of SQLite.
_CHUNKS: Final = 2_000
_BLOBS: Final = 256
# Longer than storing a chunk may take.
_DOOMED_AFTER: Final = 3_600 * _SECOND


@dataclass(frozen=True, slots=True)
class Swept:
    """What one round did."""

    parts: int
    blobs: int
    """Objects that went."""
    stuck: int
    """Objects that could not be removed."""
    more: bool
    """Whether there may be more."""


async def sweep(broker: Broker) -> bool:
    """Removes some of what nothing needs any more; gives whether there may be more."""
    return (await sweep_some(broker)).more


async def sweep_some(broker: Broker) -> Swept:
    """The same, and gives what went. `OverloadedError` where objects had to go and none did."""
    dropped, full, names = await broker.database.write(lambda c: _doom_and_claim(c, broker))
    if not names:
        return Swept(dropped, 0, 0, full)
    tried = await broker.blobs.remove(names)
    await broker.database.write(lambda c: _settle(c, tried))
    gone = sum(tried.values())
    if not gone:
        raise OverloadedError("The broker's object store removed nothing.", retryAfter=1)
    return Swept(dropped, gone, len(tried) - gone, full or len(names) >= _BLOBS)


def _doom_and_claim(connection: Connection, broker: Broker) -> tuple[int, bool, list[str]]:
    """How many parts went, whether there may be more, and the names whose objects are to go."""
    dropped, full = _drop(connection, broker)
    values = {"before": now() - _DOOMED_AFTER, "count": _BLOBS}
    names = list(connection.execute(sql.PENDING_BLOBS, values).scalars())
    if names:
        connection.execute(sql.CLAIM_BLOBS, {"names": names})
    return dropped, full, names


def _drop(connection: Connection, broker: Broker) -> tuple[int, bool]:
    """Dooms the objects of parts that are over; a part goes with the last of its chunks."""
    settings = broker.settings
    limits = {
        sql.REPLACED_PARTS: now() - settings.part_grace_seconds * _SECOND,
        sql.ABANDONED_PARTS: now() - settings.upload_seconds * _SECOND,
    }
    found = {
        statement: connection.execute(statement, {"before": before, "count": _PARTS})
        .scalars()
        .all()
        for statement, before in limits.items()
    }
    over = sorted({part_id for some in found.values() for part_id in some})
    if not over:
        return 0, False
    rows = connection.execute(sql.BLOBS_IN, {"gone": over, "count": _CHUNKS}).all()
    if rows:
        connection.execute(sql.ADD_PENDING_BLOBS, [{"name": row.blob, "since": 0} for row in rows])
    full = len(rows) >= _CHUNKS
    if full:  # not come to the end of the last one: its first chunks go, and the parts before it
        last = rows[-1].part_id
        over = [part_id for part_id in over if part_id < last]
        connection.execute(sql.DROP_CHUNKS_TO, {"part": last, "number": rows[-1].chunk})
    if over:
        connection.execute(sql.DROP_CHUNKS, {"gone": over})
        connection.execute(sql.DROP_PARTS, {"gone": over})
    return len(over), full or any(len(some) >= _PARTS for some in found.values())


def _settle(connection: Connection, tried: dict[str, bool]) -> None:
    """Forgets what is gone. Where somebody may still put something, it is removed once more.

    What could not be removed is tried again when all that was doomed before had its turn.
    """
    limit = now() - _DOOMED_AFTER
    gone = [name for name, went in tried.items() if went]
    # Not the time at which its address was given: what was removed is never kept.
    late = [
        {"blob": name, "later": good_until(name) + 1} for name in gone if good_until(name) > limit
    ]
    late += [{"blob": name, "later": now()} for name, went in tried.items() if not went]
    if late:
        connection.execute(sql.POSTPONE_BLOB, late)
    over = [name for name in gone if good_until(name) <= limit]
    if over:
        connection.execute(sql.FORGET_BLOBS, {"names": over})
