"""Number events, list them in pages, and drop old ones. Spec: docs/spec/protocol.md, section 5.

`list_events` locks the log of its user, numbers the rows that are visible, commits, and then reads a page: so
ids have no gap, and an event that commits later never gets a smaller id than one that was listed.

An index serves every combination of criteria; there is one statement for each, built when it is first used.

A log loses only its oldest events, those before the first that is young enough. Several brokers may drop
events at once: a log is locked by one of them at a time, and some events are deleted in each transaction.
"""

import functools
import uuid
from itertools import takewhile
from typing import Any, Final, get_args

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.records.canonical import UserId, parse_uuid
from scbroker.server.broker import SECOND, Broker, Call, check_active, now
from scbroker.server.events.log import CHANGES, record_expiry_in
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.storage.tables import events
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.events import NO_EVENTS, Event, EventQuery, Events, EventType, digest_with

_KINDS: Final = sorted(get_args(EventType))
# The conditions of the partial indexes by type and by kind. They differ, so that a query by type and kind,
# which has the first one, cannot use the index by kind. PostgreSQL's generic plan would use it, and read all
# events of the kind: it does not know how rare the type is.
_NUMBERED: Final = events.c.id.is_not(None)
_OF_ANY_TYPE: Final = events.c.id > sa.literal_column("0")
_CRITERIA: Final[dict[str, sa.ColumnElement[bool]]] = {
    "container": events.c.container_id == b("container"),
    "type": events.c.container_type == b("type"),
    "previous_type": events.c.previous_type == b("type"),
    "first": events.c.id >= b("first"),
    "last": events.c.id <= b("last"),
    # In a query by container, `coalesce` keeps the planner from using the indexes by type and by kind.
    "its_type": sa.or_(
        sa.func.coalesce(events.c.container_type, events.c.container_type) == b("its_type"),
        sa.func.coalesce(events.c.previous_type, events.c.previous_type) == b("its_type"),
    ),
    "its_kinds": sa.func.coalesce(events.c.event_type, events.c.event_type).in_(
        b("its_kinds", expanding=True)
    ),
}
_NUMBERED_AT_ONCE: Final = 10_000
_EXPIRIES_AT_ONCE: Final = 500
_DROPPED_AT_ONCE: Final = 500

EXPIRED_OF_USER: Final = sql.page(
    sa.select(t.members.c.container_id).where(sql.of(t.members, "user"), sql.EXPIRED),
    t.members.c.expires_at,
)
# Returns no row if another transaction has locked the log.
LOCK_LOG_IF_FREE: Final = sql.ENDS_OF_LOG.with_for_update(key_share=True, skip_locked=True)
UNNUMBERED: Final = sql.page(
    sa.select(t.events.c.row_id).where(sql.of(t.events, "user"), t.events.c.id.is_(None)),
    t.events.c.row_id,
)
NUMBER_EVENT: Final = sql.change(t.events, "row", "user", id=b("number"))
# Old events of all users by date; `date` and `row` are the position where the last page ended.
OLD_EVENTS: Final = sql.page(
    sa.select(t.events.c.user_id, t.events.c.id, t.events.c.date, t.events.c.row_id).where(
        t.events.c.date <= b("before"),
        sa.tuple_(t.events.c.date, t.events.c.row_id) > sa.tuple_(b("date"), b("row")),
    ),
    t.events.c.date,
    t.events.c.row_id,
)
FIRST_EVENTS: Final = sql.page(
    sql.find(t.events, "user", t.events.c.id >= b("from")), t.events.c.id
)
DROP_EVENTS: Final = sql.drop(t.events, "user", t.events.c.id < b("to"))


async def list_events(broker: Broker, call: Call, query: EventQuery) -> Events:
    """Return a page of the user's own log, or of that of a group of theirs.

    Events are numbered first, in a transaction of their own. A request through a group fails with
    `NotFoundError` as soon as the user is no longer a member.
    """
    user_id = log_of(call)
    if call.via is not None:
        group = call.via
        await broker.database.query(lambda c: memberships.check(c, group, call.session.id))
    await _number(broker, user_id, call.now)

    def read(connection: Connection) -> Events:
        if call.via is not None:
            memberships.check(connection, call.via, call.session.id)
        ends = check_active(sql.the(connection, sql.ENDS_OF_LOG, user=user_id))
        rows = connection.execute(*events_page(user_id, query))
        return Events(
            events=[event_of(row) for row in rows],
            firstId=ends.first_event,
            lastId=ends.last_event,
            droppedDigest=ends.dropped_digest or NO_EVENTS,
        )

    return await broker.database.read(read, large=True)


def log_of(call: Call) -> UserId:
    """Return whose log a request reads: the id of the user, or of the group that it names."""
    return call.session.id if call.via is None else UserId(call.via)


async def _number(broker: Broker, user_id: UserId, moment: int) -> None:
    """Number the user's events that are visible and have no number, after recording expired access."""

    def has_unnumbered(connection: Connection) -> bool:
        values = {"user": user_id, "now": moment, "count": 1}
        statements = (UNNUMBERED, EXPIRED_OF_USER)
        return any(connection.execute(each, values).first() is not None for each in statements)

    more = await broker.database.query(has_unnumbered)
    while more:
        more = await broker.database.write(lambda c: _number_some(c, user_id, moment))


def _number_some(connection: Connection, user_id: UserId, moment: int) -> bool:
    """Number events in the order in which they were inserted; return whether there may be more."""
    values = {"user": user_id, "now": moment, "count": _EXPIRIES_AT_ONCE}
    expired = connection.execute(EXPIRED_OF_USER, values).scalars().all()
    record_expiry_in(connection, expired, moment)
    if len(expired) == _EXPIRIES_AT_ONCE:
        return True
    last = sql.the(connection, sql.LOCK_LOG, user=user_id).last_event
    found = connection.execute(UNNUMBERED, {"user": user_id, "count": _NUMBERED_AT_ONCE})
    numbered = [
        {"user": user_id, "row": row.row_id, "number": last + n}
        for n, row in enumerate(found, start=1)
    ]
    if numbered:
        connection.execute(NUMBER_EVENT, numbered)
        connection.execute(sql.SET_USER, {"user": user_id, "last_event": last + len(numbered)})
    return len(numbered) == _NUMBERED_AT_ONCE


def event_of(row: Row) -> Event:
    """Return an event as its user gets it; the id is 0 until the event is numbered."""
    related = row.related_user_id
    return Event(
        id=row.id or 0,
        eventType=row.event_type,
        containerId=str(uuid.UUID(bytes=row.container_id)),
        containerType=row.container_type,
        date=row.date,
        version=row.version,
        relatedUserId=None if related is None else str(uuid.UUID(bytes=related)),
        applicationName=row.application,
        changes=[name for bit, name in enumerate(CHANGES) if row.changes >> bit & 1],
        previousContainerType=row.previous_type,
        salt=row.salt,
        detailsHash=row.details_hash,
    )


def events_page(user_id: UserId, query: EventQuery) -> tuple[sa.Select[Any], dict[str, Any]]:
    """Return the statement, with its values, for the first of a user's numbered events that match the query.

    With a container, its events are read and filtered: they are few. Else each kind of event is a subquery
    of its own, because an index over several kinds is not in the order of the ids. Updates that changed the
    type to another one are a further subquery; no event has the same type before and after, so that none is
    found twice.
    """
    values: dict[str, Any] = {"first": query.startId, "last": query.endId}
    kinds = sorted({*query.eventType})
    if query.containerId is not None:
        values["container"] = parse_uuid(query.containerId).bytes
        values["its_type"], values["its_kinds"], kinds = query.containerType, kinds or None, []
    elif query.containerType is not None:
        values["type"], kinds = query.containerType, kinds or _KINDS
    asked = {name: value for name, value in values.items() if value is not None}
    named = {f"kind_{number}": kind for number, kind in enumerate(kinds)}
    statement = _statement(len(kinds), ContainerEventType.Updated in kinds, tuple(sorted(asked)))
    return statement, {"user": user_id, "count": query.limit, **asked, **named}


@functools.cache
def _statement(kinds: int, updated: bool, names: tuple[str, ...]) -> sa.Select[Any]:
    criteria = [_CRITERIA[name] for name in names]
    if not kinds:
        return _first(_NUMBERED, *criteria)
    numbered = _NUMBERED if "type" in names else _OF_ANY_TYPE
    pages = [
        _first(numbered, *criteria, events.c.event_type == b(f"kind_{number}"))
        for number in range(kinds)
    ]
    if updated and "type" in names:
        changed = [_CRITERIA["previous_type" if name == "type" else name] for name in names]
        pages.append(_first(_NUMBERED, *changed))
    if len(pages) == 1:
        return pages[0]
    found = sa.union_all(*(sa.select(page.subquery()) for page in pages)).subquery()
    return sa.select(found).order_by(found.c.id).limit(b("count"))


def _first(*criteria: sa.ColumnElement[bool]) -> sa.Select[Any]:
    own = events.c.user_id == b("user")
    return sa.select(events).where(own, *criteria).order_by(events.c.id).limit(b("count"))


async def drop_old(broker: Broker) -> None:
    """Delete events older than the setting `event_retention_seconds`; 0 keeps all."""
    seconds = broker.settings.event_retention_seconds
    if not seconds:
        return
    moment = now()
    before, last = moment - seconds * SECOND, (-1, -1)

    def page(connection: Connection) -> list[Row]:
        values = {"before": before, "date": last[0], "row": last[1], "count": _DROPPED_AT_ONCE}
        return list(connection.execute(OLD_EVENTS, values))

    # Each page begins after the last one. A log is only cut off at its beginning, so old events that follow a
    # younger one stay: a query for the oldest events would find them for ever.
    while found := await broker.database.read(page, large=True):
        unnumbered = {row.user_id for row in found if row.id is None}
        for user_id in sorted({row.user_id for row in found}):
            if user_id in unnumbered:
                await _number(broker, user_id, moment)
            drop = functools.partial(_drop_some, user_id=user_id, before=before)
            while await broker.database.write(drop):
                pass
        last = (found[-1].date, found[-1].row_id)


def _drop_some(connection: Connection, user_id: UserId, before: int) -> bool:
    """Delete the oldest events of a log up to a date; return whether there may be more."""
    log = sql.one(connection, LOCK_LOG_IF_FREE, user=user_id)
    if log is None:
        return False
    values = {"user": user_id, "from": log.first_event, "count": _DROPPED_AT_ONCE}
    rows = connection.execute(FIRST_EVENTS, values).all()
    old = list(takewhile(lambda row: row.date <= before, rows))
    if not old:
        return False
    digest = log.dropped_digest or NO_EVENTS
    for row in old:
        digest = digest_with(digest, event_of(row))
    first = old[-1].id + 1
    connection.execute(DROP_EVENTS, {"user": user_id, "to": first})
    ends = {"first_event": first, "dropped_digest": digest}
    connection.execute(sql.SET_USER, {"user": user_id, **ends})
    return len(old) == _DROPPED_AT_ONCE
