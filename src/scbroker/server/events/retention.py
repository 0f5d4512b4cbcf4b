"""Delete events that are older than the operator keeps them.

Spec: docs/spec/protocol.md, section 5.

A log loses only its oldest events, those before the first that is young enough, so that its ids have no gap.
Events without a number are numbered first. Several brokers may do this at once: a log is locked by one of
them at a time, and some events are deleted in each transaction.
"""

import functools
from itertools import takewhile
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.records.ids import UserId
from scbroker.server.broker import SECOND, Broker, now
from scbroker.server.events.log import event_of, number
from scbroker.server.storage import statements as sql
from scbroker.wire.events import NO_EVENTS, digest_with

_AT_ONCE: Final = 500


async def drop_old(broker: Broker) -> None:
    """Delete what is older than the setting `event_retention_seconds`; 0 keeps everything."""
    seconds = broker.settings.event_retention_seconds
    if not seconds:
        return
    moment = now()
    before, last = moment - seconds * SECOND, (-1, -1)

    def page(connection: Connection) -> list[Row[Any]]:
        values = {"before": before, "date": last[0], "row": last[1], "count": _AT_ONCE}
        return list(connection.execute(sql.OLD_EVENTS, values))

    # Pages, because old events that follow younger ones in their log stay.
    while found := await broker.database.read(page, large=True):
        unnumbered = {row.user_id for row in found if row.id is None}
        for user_id in sorted({row.user_id for row in found}):
            if user_id in unnumbered:
                await number(broker, user_id, moment)
            while await broker.database.write(
                functools.partial(drop_some, user_id=user_id, before=before)
            ):
                pass
        last = (found[-1].date, found[-1].row_id)


def drop_some(connection: Connection, user_id: UserId, before: int) -> bool:
    """Delete the oldest events of a log up to a date; return whether there may be more."""
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
