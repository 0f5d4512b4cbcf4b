"""How long events are kept, where the operator set an end to it. Spec: docs/spec/protocol.md, section 5.

A log loses its oldest events alone, those before the first that is young enough, so that its ids stay
gapless. Unnumbered events of who has not looked for so long are numbered first. Several brokers may be at
it at once: a log is one's at a time, and a bite of it one transaction.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.server.broker import Broker, now
from scbroker.server.events.log import event_of, number
from scbroker.server.storage import statements as sql
from scbroker.wire.events import NO_EVENTS, digest_with

_SECOND: Final = 1_000_000
_AT_ONCE: Final = 500


async def drop_old(broker: Broker) -> None:
    """Drops what is older than the operator wants it kept."""
    seconds = broker.settings.event_retention_seconds
    if not seconds:
        return
    before, last = now() - seconds * _SECOND, (-1, -1)
    # Old ones behind younger ones stay, and are passed by.
    while found := await _page(broker, before, last):
        unnumbered = {row.user_id for row in found if row.id is None}
        for user_id in sorted({row.user_id for row in found}):
            if user_id in unnumbered:
                await number(broker, user_id)
            await _drop_of(broker, user_id, before)
        last = (found[-1].date, found[-1].row_id)


async def _page(broker: Broker, before: int, last: tuple[int, int]) -> list[Row[Any]]:
    values = {"before": before, "date": last[0], "row": last[1], "count": _AT_ONCE}
    return await broker.database.read(lambda c: list(c.execute(sql.OLD_EVENTS, values)), large=True)


async def _drop_of(broker: Broker, user_id: bytes, before: int) -> None:
    while await broker.database.write(lambda c: drop_some(c, user_id, before)):
        pass


def drop_some(connection: Connection, user_id: bytes, before: int) -> bool:
    """Drops the oldest events of a log as far as they are old; gives whether there may be more."""
    log = sql.one(connection, sql.LOCK_LOG_IF_FREE, user=user_id)
    if log is None:
        return False
    values = {"user": user_id, "from": log.first_event, "count": _AT_ONCE}
    rows = connection.execute(sql.FIRST_EVENTS, values)
    old = list(takewhile(lambda row: row.date <= before, rows.all()))
    if not old:
        return False
    digest = log.dropped_digest or NO_EVENTS
    for row in old:
        digest = digest_with(digest, event_of(row))
    first = old[-1].id + 1
    connection.execute(sql.DROP_EVENTS, {"user": user_id, "to": first})
    connection.execute(
        sql.SET_USER, {"user": user_id, "first_event": first, "dropped_digest": digest}
    )
    return len(old) == _AT_ONCE
