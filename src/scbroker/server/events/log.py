"""The event log: one row for each user that an event concerns, numbered when its user looks.

Writers insert rows without a number. `list_events` locks only the reader's own counter, numbers
what is visible, commits, then pages: ids are gapless, and an event that commits later never gets a
smaller id than one already listed. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import structlog
from sqlalchemy import Connection, Row

from scbroker.errors import NotAuthenticatedError, OverloadedError
from scbroker.records.access_list import Entry
from scbroker.records.container_record import ContainerRecord
from scbroker.records.ids import user_id_of
from scbroker.records.judge import InForce
from scbroker.server.broker import Access, Broker, Call, now
from scbroker.server.containers.incoming import Incoming
from scbroker.server.events.pages import events_page
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows, is_of_database
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.events import NO_EVENTS, Change, Event, EventQuery, Events

_log: Final = structlog.get_logger("scbroker.server")
_CHANGES: Final[tuple[Change, ...]] = ("header", "content", "access", "type")
_ACCESS: Final = 1 << _CHANGES.index("access")
_TYPE: Final = 1 << _CHANGES.index("type")
_NUMBERED_AT_ONCE: Final = 10_000
_EXPIRIES_AT_ONCE: Final = 500
_ACCESS_INTERVAL: Final = 3_600_000_000
_NOTED: Final = 100_000  # about 0.2 kB each
_TOLD_AT_ONCE: Final = 256
Noted = tuple[Access, str]


@dataclass(frozen=True, slots=True)
class News:
    """A record that is being stored, and what was before it."""

    incoming: Incoming
    before: InForce | None
    after: InForce
    parent: ContainerRecord | None
    type_before: str | None
    type_now: str | None


def tell_of_record(new_rows: NewRows, news: News, *, living: set[bytes], moment: int) -> None:
    """Adds what a record means to each of the users that it concerns.

    Whose time was over at `moment` is out, in the list before as in the new one.
    """
    record = news.incoming.known.record
    old = news.before.access.unexpired(moment) if news.before else {}
    new = {} if record.tombstone else news.after.access.unexpired(moment)
    changes = _changes(news)
    rows = []
    for fingerprint in sorted((old.keys() | new.keys()) & living):
        was, entry = old.get(fingerprint), new.get(fingerprint)
        kind, seen = ContainerEventType.Updated, 0
        if entry is None:
            kind = ContainerEventType.Deleted
        elif was is None:
            kind = ContainerEventType.Added
        else:
            seen = _visible(changes, was, entry)
            if not seen:
                continue
        # Whoever is out is told of the type that they could see.
        text = news.type_before if entry is None else news.type_now
        saw_type = was is not None and was.allows(ContainerAccessLevel.ViewType)
        previous = news.type_before if seen & _TYPE and saw_type else None
        row = _row(news.incoming, kind, fingerprint, entry or was, text)
        rows.append({**row, "changes": seen, "previous_type": previous})
    new_rows.add(sql.ADD_EVENTS, rows)


def tell_of_expiry(connection: Connection, containers: Sequence[Row[Any]], moment: int) -> None:
    """Tells the members whose time is over and who were not told yet, in the order of their expiry.

    Under the locks of the containers' rows, and ahead of whatever happens to them next.
    """
    found = {container.id: container for container in containers}
    claimed = connection.execute(sql.CLAIM_EXPIRED, {"some": list(found), "now": moment}).all()
    rows = [
        _expiry(member, found[member.container_id])
        for member in sorted(claimed, key=lambda member: int(member.expires_at))
        if not found[member.container_id].deleted  # of a deletion they were told
    ]
    if rows:
        connection.execute(sql.ADD_EVENTS, rows)


def tell_user_of_expiry(connection: Connection, user_id: bytes) -> bool:
    """The same wherever a user's time is over, before they look; gives whether there may be more."""
    values = {"user": user_id, "now": now(), "count": _EXPIRIES_AT_ONCE}
    found = connection.execute(sql.EXPIRED_OF_USER, values).scalars().all()
    tell_of_expiry_in(connection, found)
    return len(found) == _EXPIRIES_AT_ONCE


def tell_of_expiry_in(connection: Connection, containers: Collection[bytes]) -> None:
    """The same for these containers, once nobody is writing to them."""
    if containers:
        some = {"some": sorted(containers)}
        tell_of_expiry(connection, connection.execute(sql.SHARE_CONTAINERS, some).all(), now())


def _expiry(member: Row[Any], container: Row[Any]) -> dict[str, Any]:
    sees_type = member.permissions & ContainerAccessLevel.ViewType
    return {
        "user_id": member.user_id,
        "event_type": ContainerEventType.Deleted.value,
        "container_id": container.id,
        "container_type": container.type if sees_type else None,
        "date": member.expires_at,
        "version": container.version,
        "related_user_id": None,
        "application": "",
        "changes": 0,
    }


def _changes(news: News) -> int:
    record, parent = news.incoming.known.record, news.parent
    changed = {
        "header": parent is not None and _part_id(record.header) != _part_id(parent.header),
        "content": parent is not None and _part_id(record.content) != _part_id(parent.content),
        "access": record.changes_access,
        "type": parent is not None and news.type_now != news.type_before,
    }
    return sum(1 << bit for bit, name in enumerate(_CHANGES) if changed[name])


def _part_id(part: Any) -> bytes | None:
    return None if part is None else part.partId


def _visible(changes: int, was: Entry, entry: Entry) -> int:
    """The changes that a user may know of: one's own access always, others' with ViewAccess."""
    own = (was.permissions, was.expiresAt) != (entry.permissions, entry.expiresAt)
    if not own and not entry.allows(ContainerAccessLevel.ViewAccess):
        changes &= ~_ACCESS
    if not entry.allows(ContainerAccessLevel.ViewType):
        changes &= ~_TYPE
    return changes


def _row(
    incoming: Incoming,
    kind: ContainerEventType,
    fingerprint: bytes,
    entry: Entry | None,
    type_now: str | None,
) -> dict[str, object]:
    sees_type = entry is not None and entry.allows(ContainerAccessLevel.ViewType)
    return {
        "user_id": user_id_of(fingerprint).bytes,
        "event_type": kind.value,
        "container_id": incoming.container_id,
        "container_type": type_now if sees_type else None,
        "date": now(),
        "version": incoming.known.record.version,
        "related_user_id": incoming.user.id,
        "application": incoming.application,
    }


def tell_of_access(
    connection: Connection, container: Row[Any], reader_id: bytes, application: str
) -> None:
    """Record in the logs of those who asked for it that somebody else fetched header or content.

    The container's row must be locked: an event written after the container's purge would never be emptied.
    """
    if container.deleted:
        return
    told = [
        member
        for member in connection.execute(sql.MEMBERS, {"container": container.id})
        if member.permissions & ContainerAccessLevel.ReceiveAccessEvents
        and member.user_id != reader_id
        and (member.expires_at is None or member.expires_at > now())
    ]
    if not told:
        return
    # Held, so that nothing is written of a user who is deleted meanwhile.
    users = [reader_id, *(member.user_id for member in told)]
    found = connection.execute(sql.SHARE_USERS, {"ids": users})
    living = {user.id for user in found if not user.deleted}
    if reader_id not in living or not _is_due(connection, container.id, reader_id):
        return
    rows = [
        {
            "user_id": member.user_id,
            "event_type": ContainerEventType.Accessed.value,
            "container_id": container.id,
            "container_type": container.type
            if member.permissions & ContainerAccessLevel.ViewType
            else None,
            "date": now(),
            "version": container.version,
            "related_user_id": reader_id,
            "application": application,
            "changes": 0,
        }
        for member in told
        if member.user_id in living
    ]
    if rows:
        connection.execute(sql.ADD_EVENTS, rows)


def _is_due(connection: Connection, container_id: bytes, reader_id: bytes) -> bool:
    """Whether a fetch is told of: at most one an hour for a reader and container."""
    values = {"container": container_id, "user": reader_id}
    found = sql.one(connection, sql.FIND_ACCESS, **values)
    if found is None:
        row = {"container_id": container_id, "user_id": reader_id, "told_at": now()}
        connection.execute(sql.ADD_ACCESS, row)
        return True
    if found.told_at > now() - _ACCESS_INTERVAL:
        return False
    connection.execute(sql.SET_ACCESS, {**values, "told_at": now()})
    return True


def note_access(broker: Broker, call: Call, container_id: bytes) -> None:
    """Remembers a fetch; `tell_accesses` writes it soon, so that no read waits for a write."""
    if len(broker.accesses) < _NOTED:
        broker.accesses[(container_id, call.session.id)] = call.application


async def tell_accesses(broker: Broker) -> None:
    """Writes the fetches noted since the last time, some in one transaction: others write as well.

    What could not be written, since the broker ends or the database is away, stays noted for the next time;
    what was written after all is not told again.
    """
    noted, broker.accesses = broker.accesses, {}
    try:
        while noted:
            await _tell_some(broker, noted)
    finally:
        kept = {**noted, **broker.accesses}
        broker.accesses = dict(islice(kept.items(), _NOTED))


async def _tell_some(broker: Broker, noted: dict[Access, str]) -> None:
    """Writes some of them, and takes out what is done."""
    some = sorted(islice(noted.items(), _TOLD_AT_ONCE))
    try:
        await _tell(broker, some)
    except OverloadedError:
        raise
    except Exception:
        # One that cannot be written must not take the others with it.
        await _tell_each(broker, noted, some)
    else:
        for access, _ in some:
            del noted[access]


async def _tell_each(broker: Broker, noted: dict[Access, str], some: list[Noted]) -> None:
    """The same one by one. What fails with the database goes behind all others, any other is given up."""
    failed: Exception | None = None
    for access, application in some:
        try:
            await _tell(broker, [(access, application)])
        except OverloadedError:
            raise
        except Exception as error:
            if is_of_database(error):
                failed, noted[access] = error, noted.pop(access)
                continue
            _log.warning("a fetch was not told of", error=repr(error))
        del noted[access]
    if failed is not None:
        raise failed


async def _tell(broker: Broker, some: list[Noted]) -> None:
    def write(connection: Connection) -> None:
        fetched = {"some": sorted({container_id for (container_id, _), _ in some})}
        locked = {row.id: row for row in connection.execute(sql.SHARE_CONTAINERS, fetched)}
        for (container_id, reader_id), application in some:
            if container_id in locked:
                tell_of_access(connection, locked[container_id], reader_id, application)

    await broker.database.write(write)


async def list_events(broker: Broker, call: Call, message: None) -> Events:
    """A page of the user's own log. Numbering comes first, in a transaction of its own."""
    del message
    user_id = call.session.id
    query = call.query_as(EventQuery)
    await number(broker, user_id)
    return await broker.database.read(lambda c: _page(c, user_id, query), large=True)


async def number(broker: Broker, user_id: bytes) -> None:
    """Gives a number to each event of a user's that is visible and has none."""
    more = await broker.database.query(lambda c: _has_news(c, user_id))
    while more:
        more = await broker.database.write(lambda c: _number(c, user_id))


def _has_news(connection: Connection, user_id: bytes) -> bool:
    unnumbered = {"user": user_id, "count": 1}
    if connection.execute(sql.UNNUMBERED, unnumbered).first() is not None:
        return True
    expired = {"user": user_id, "now": now(), "count": 1}
    return connection.execute(sql.EXPIRED_OF_USER, expired).first() is not None


def _number(connection: Connection, user_id: bytes) -> bool:
    """Numbers what is visible, in order of arrival; gives whether there may be more."""
    if tell_user_of_expiry(connection, user_id):
        return True
    last = sql.the(connection, sql.LOCK_LOG, user=user_id).last_event
    found = connection.execute(sql.UNNUMBERED, {"user": user_id, "count": _NUMBERED_AT_ONCE})
    numbered = [
        {"user": user_id, "row": row.row_id, "number": last + n}
        for n, row in enumerate(found, start=1)
    ]
    if numbered:
        connection.execute(sql.NUMBER_EVENT, numbered)
        connection.execute(sql.SET_USER, {"user": user_id, "last_event": last + len(numbered)})
    return len(numbered) == _NUMBERED_AT_ONCE


def _page(connection: Connection, user_id: bytes, query: EventQuery) -> Events:
    log = sql.the(connection, sql.ENDS_OF_LOG, user=user_id)
    if log.deleted:  # since the session was found
        raise NotAuthenticatedError("The account was deleted.")
    return Events(
        events=[event_of(row) for row in connection.execute(*events_page(user_id, query))],
        firstId=log.first_event,
        lastId=log.last_event,
        droppedDigest=log.dropped_digest or NO_EVENTS,
    )


def event_of(row: Row[Any]) -> Event:
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
        changes=[name for bit, name in enumerate(_CHANGES) if row.changes >> bit & 1],
        previousContainerType=row.previous_type,
        salt=row.salt,
        detailsHash=row.details_hash,
    )
