"""Record events in the users' logs, and list them. Spec: docs/spec/protocol.md, section 5.

An event is one row for each user whom it concerns. Writers insert rows without a number. `list_events` locks
the log of its user, numbers the rows that are visible, commits, and then reads a page: so ids have no gap,
and an event that commits later never gets a smaller id than one that was listed.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import structlog
from sqlalchemy import Connection, Row

from scbroker.errors import NotAuthenticatedError, OverloadedError
from scbroker.records.canonical import ContainerId, UserId, stored_user_id
from scbroker.records.container_record import AccessList, ContainerRecord, Entry, Part
from scbroker.server.broker import Access, Broker, Call, now
from scbroker.server.events.pages import events_page
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows, is_of_database
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.events import NO_EVENTS, Event, EventQuery, Events
from scbroker.wire.events import Change as ChangeName

_log: Final = structlog.get_logger("scbroker.server")
_CHANGES: Final[tuple[ChangeName, ...]] = ("header", "content", "access", "type")
_ACCESS: Final = 1 << _CHANGES.index("access")
_TYPE: Final = 1 << _CHANGES.index("type")
_NUMBERED_AT_ONCE: Final = 10_000
_EXPIRIES_AT_ONCE: Final = 500
_ACCESS_INTERVAL: Final = 3_600_000_000
_MAX_WAITING: Final = 100_000
"""Fetches that wait for `record_accesses`, of about 0.2 kB each; further ones are not recorded."""
_ACCESSES_AT_ONCE: Final = 256
Fetch = tuple[Access, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record that is being stored, and the state before it."""

    record: ContainerRecord
    parent: ContainerRecord | None
    before: AccessList | None
    after: AccessList
    type_before: str | None
    type_now: str | None
    author: UserId
    application: str


def record_change(new: NewRows, change: Change, living: set[bytes], moment: int) -> None:
    """Add an event for each of the `living` users to whom the change is visible.

    An entry that has expired at `moment` gives no access, in the old list as in the new one.
    """
    record = change.record
    old = change.before.unexpired(moment) if change.before else {}
    present = {} if record.tombstone else change.after.unexpired(moment)
    changes = _changes(change)
    rows = []
    for fingerprint in sorted((old.keys() | present.keys()) & living):
        was, entry = old.get(fingerprint), present.get(fingerprint)
        kind, visible = ContainerEventType.Updated, 0
        if entry is None:
            kind = ContainerEventType.Deleted
        elif was is None:
            kind = ContainerEventType.Added
        else:
            visible = _visible(changes, was, entry)
            if not visible:
                continue
        # A user who lost access gets the type that they could see before.
        text = change.type_before if entry is None else change.type_now
        rows.append(
            _event(
                stored_user_id(fingerprint), kind, ContainerId(record.containerId),
                text if _sees_type(entry or was) else None,
                date=moment, version=record.version, related_user_id=change.author,
                application=change.application, changes=visible,
                previous_type=change.type_before if visible & _TYPE and _sees_type(was) else None,
            )
        )  # fmt: skip
    new.add(sql.ADD_EVENTS, rows)


def record_expiry(connection: Connection, containers: Sequence[Row[Any]], moment: int) -> None:
    """Add an event for each member whose access has expired and who has none yet, in order of expiry.

    The containers' rows must be locked, and later events of these containers must not be inserted yet.
    """
    found = {container.id: container for container in containers}
    claimed = connection.execute(sql.CLAIM_EXPIRED, {"some": list(found), "now": moment}).all()
    rows = []
    for member in sorted(claimed, key=lambda member: int(member.expires_at)):
        container = found[member.container_id]
        if not container.deleted:  # else they have the event of its deletion
            kind, text = ContainerEventType.Deleted, _type_for(member, container)
            rows.append(
                _event(member.user_id, kind, container.id, text,
                       date=member.expires_at, version=container.version)
            )  # fmt: skip
    if rows:
        connection.execute(sql.ADD_EVENTS, rows)


def record_expiry_in(
    connection: Connection, containers: Collection[ContainerId], moment: int
) -> None:
    """Lock these containers, and record the expiry of their members' access."""
    if containers:
        some = {"some": sorted(containers)}
        record_expiry(connection, connection.execute(sql.SHARE_CONTAINERS, some).all(), moment)


def _event(
    user_id: UserId,
    kind: ContainerEventType,
    container_id: ContainerId,
    container_type: str | None,
    *,
    date: int,
    version: int,
    related_user_id: UserId | None = None,
    application: str = "",
    changes: int = 0,
    previous_type: str | None = None,
) -> dict[str, Any]:
    return {
        "user_id": user_id,
        "event_type": kind.value,
        "container_id": container_id,
        "container_type": container_type,
        "date": date,
        "version": version,
        "related_user_id": related_user_id,
        "application": application,
        "changes": changes,
        "previous_type": previous_type,
    }


def _sees_type(entry: Entry | None) -> bool:
    return entry is not None and entry.allows(ContainerAccessLevel.ViewType)


def _type_for(member: Row[Any], container: Row[Any]) -> str | None:
    return container.type if member.permissions & ContainerAccessLevel.ViewType else None


def _changes(change: Change) -> int:
    record, parent = change.record, change.parent
    changed = {
        "header": parent is not None and _part_id(record.header) != _part_id(parent.header),
        "content": parent is not None and _part_id(record.content) != _part_id(parent.content),
        "access": record.changes_access,
        "type": parent is not None and change.type_now != change.type_before,
    }
    return sum(1 << bit for bit, name in enumerate(_CHANGES) if changed[name])


def _part_id(part: Part | None) -> bytes | None:
    return None if part is None else part.partId


def _visible(changes: int, was: Entry, entry: Entry) -> int:
    """Return the changes that a user may know of: their own access always, others' with ViewAccess."""
    own = (was.permissions, was.expiresAt) != (entry.permissions, entry.expiresAt)
    if not own and not entry.allows(ContainerAccessLevel.ViewAccess):
        changes &= ~_ACCESS
    if not entry.allows(ContainerAccessLevel.ViewType):
        changes &= ~_TYPE
    return changes


def note_access(broker: Broker, call: Call, container_id: ContainerId) -> None:
    """Remember a fetch for `record_accesses`, so that no read waits for a write."""
    if len(broker.accesses) < _MAX_WAITING:
        broker.accesses[(container_id, call.session.id)] = call.application


async def record_accesses(broker: Broker) -> None:
    """Record the remembered fetches, some in one transaction, so that other writers get their turn.

    Fetches that cannot be written, because the process stops or the database is not available, wait for the
    next call. A fetch that was written in spite of an error is not recorded twice: see `_is_due`.
    """
    waiting, broker.accesses = broker.accesses, {}
    try:
        while waiting:
            some = sorted(islice(waiting.items(), _ACCESSES_AT_ONCE))
            try:
                await _record(broker, some)
            except OverloadedError:
                raise
            except Exception:
                # A fetch that cannot be written must not keep back the others.
                await _record_each(broker, waiting, some)
            else:
                for access, _ in some:
                    del waiting[access]
    finally:
        kept = {**waiting, **broker.accesses}
        broker.accesses = dict(islice(kept.items(), _MAX_WAITING))


async def _record_each(broker: Broker, waiting: dict[Access, str], some: list[Fetch]) -> None:
    """Record fetches one by one. One at which the database fails is put at the end, others are dropped."""
    failed: Exception | None = None
    for access, application in some:
        try:
            await _record(broker, [(access, application)])
        except OverloadedError:
            raise
        except Exception as error:
            if is_of_database(error):
                failed, waiting[access] = error, waiting.pop(access)
                continue
            _log.warning("a fetch was not recorded", error=repr(error))
        del waiting[access]
    if failed is not None:
        raise failed


async def _record(broker: Broker, some: list[Fetch]) -> None:
    def write(connection: Connection) -> None:
        fetched = {"some": sorted({container_id for (container_id, _), _ in some})}
        locked = {row.id: row for row in connection.execute(sql.SHARE_CONTAINERS, fetched)}
        moment = now()
        for (container_id, reader_id), application in some:
            if container_id in locked:
                container = locked[container_id]
                record_access(connection, container, reader_id, application, moment)

    await broker.database.write(write)


def record_access(
    connection: Connection, container: Row[Any], reader_id: UserId, application: str, moment: int
) -> None:
    """Add an event for each member with ReceiveAccessEvents: another user fetched header or content.

    The container's row must be locked: an event written after the container's purge would never be emptied.
    """
    if container.deleted:
        return
    receivers = [
        member
        for member in connection.execute(sql.MEMBERS, {"container": container.id})
        if member.permissions & ContainerAccessLevel.ReceiveAccessEvents
        and member.user_id != reader_id
        and (member.expires_at is None or member.expires_at > moment)
    ]
    if not receivers:
        return
    # Locked, so that no event names a user who is deleted meanwhile.
    users = [reader_id, *(member.user_id for member in receivers)]
    found = connection.execute(sql.SHARE_USERS, {"ids": users})
    living = {user.id for user in found if not user.deleted}
    if reader_id not in living or not _is_due(connection, container.id, reader_id, moment):
        return
    kind = ContainerEventType.Accessed
    rows = [
        _event(member.user_id, kind, container.id, _type_for(member, container),
               date=moment, version=container.version, related_user_id=reader_id,
               application=application)
        for member in receivers
        if member.user_id in living
    ]  # fmt: skip
    if rows:
        connection.execute(sql.ADD_EVENTS, rows)


def _is_due(
    connection: Connection, container_id: ContainerId, reader_id: UserId, moment: int
) -> bool:
    """Return whether to record a fetch: at most one an hour for each reader and container."""
    values = {"container": container_id, "user": reader_id}
    found = sql.one(connection, sql.FIND_ACCESS, **values)
    if found is None:
        row = {"container_id": container_id, "user_id": reader_id, "told_at": moment}
        connection.execute(sql.ADD_ACCESS, row)
        return True
    if found.told_at > moment - _ACCESS_INTERVAL:
        return False
    connection.execute(sql.SET_ACCESS, {**values, "told_at": moment})
    return True


async def list_events(broker: Broker, call: Call, query: EventQuery) -> Events:
    """Return a page of the user's own log. Events are numbered first, in a transaction of their own."""
    user_id = call.session.id
    await number(broker, user_id, call.now)

    def read(connection: Connection) -> Events:
        ends = sql.the(connection, sql.ENDS_OF_LOG, user=user_id)
        if ends.deleted:  # after the session was found
            raise NotAuthenticatedError("The account was deleted.")
        rows = connection.execute(*events_page(user_id, query))
        return Events(
            events=[event_of(row) for row in rows],
            firstId=ends.first_event,
            lastId=ends.last_event,
            droppedDigest=ends.dropped_digest or NO_EVENTS,
        )

    return await broker.database.read(read, large=True)


async def number(broker: Broker, user_id: UserId, moment: int) -> None:
    """Number the user's events that are visible and have no number, after recording expired access."""
    more = await broker.database.query(lambda c: _has_unnumbered(c, user_id, moment))
    while more:
        more = await broker.database.write(lambda c: _number_some(c, user_id, moment))


def _has_unnumbered(connection: Connection, user_id: UserId, moment: int) -> bool:
    values = {"user": user_id, "now": moment, "count": 1}
    return any(
        connection.execute(statement, values).first() is not None
        for statement in (sql.UNNUMBERED, sql.EXPIRED_OF_USER)
    )


def _number_some(connection: Connection, user_id: UserId, moment: int) -> bool:
    """Number events in the order in which they were inserted; return whether there may be more."""
    values = {"user": user_id, "now": moment, "count": _EXPIRIES_AT_ONCE}
    expired = connection.execute(sql.EXPIRED_OF_USER, values).scalars().all()
    record_expiry_in(connection, expired, moment)
    if len(expired) == _EXPIRIES_AT_ONCE:
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
