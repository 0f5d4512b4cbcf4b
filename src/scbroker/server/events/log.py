"""Record changes, expired access and fetches in the users' logs. Spec: docs/spec/protocol.md, section 5.

An event is one row for each user whom it concerns. It is inserted without a number: see `pages`.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import structlog

from scbroker.records.canonical import ContainerId, UserId, stored_user_id
from scbroker.records.container_record import ContainerRecord, Entry, Role
from scbroker.records.judge import InForce
from scbroker.server.broker import SECOND, Access, Broker, Call, is_unexpired, now
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows, is_of_database
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.events import Change

_log: Final = structlog.get_logger("scbroker.server")
CHANGES: Final[tuple[Change, ...]] = ("header", "content", "access", "type")
"""The changes of an event by their bits, the lowest first; those of the parts are `1 << role`."""
ACCESS: Final = 1 << CHANGES.index("access")
TYPE: Final = 1 << CHANGES.index("type")
_ACCESS_INTERVAL: Final = 3600 * SECOND
_MAX_WAITING: Final = 100_000
"""Fetches that wait for `record_accesses`, of about 0.2 kB each; further ones are not recorded."""
_ACCESSES_AT_ONCE: Final = 256
Fetch = tuple[Access, str]

CLAIM_EXPIRED: Final = sql.change(
    t.members, sql.among(t.members.c.container_id), sql.EXPIRED, expiry_recorded=True
).returning(
    t.members.c.container_id, t.members.c.user_id, t.members.c.permissions, t.members.c.expires_at
)
FIND_ACCESS: Final = sql.find(t.accesses, "container", "user")
SET_ACCESS: Final = sql.change(t.accesses, "container", "user")


def record_change(
    new: NewRows,
    record: ContainerRecord,
    parent: ContainerRecord | None,
    before: InForce | None,
    after: InForce,
    *,
    type_before: str | None,
    type_now: str | None,
    who: Mapping[str, object],
    living: set[bytes],
    moment: int,
) -> None:
    """Add an event for each of the `living` users to whom a record that is being stored is visible.

    `who` has the columns of its author.

    In both lists, entries that have expired at `moment` and entries of users who have left give no access.
    """
    old = before.present(moment) if before else {}
    present = {} if record.tombstone else after.present(moment)
    changes = ACCESS if record.changes_access else 0
    if parent is not None:
        changes |= TYPE if type_now != type_before else 0
        for role in Role:
            part, previous = record.part(role), parent.part(role)
            if (part and part.partId) != (previous and previous.partId):
                changes |= 1 << role
    rows: list[dict[str, Any]] = []
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
        text = type_before if entry is None else type_now
        columns: dict[str, Any] = {
            "container_type": text if _sees_type(entry or was) else None,
            "previous_type": type_before if visible & TYPE and _sees_type(was) else None,
            "changes": visible,
            **who,
        }
        user_id = stored_user_id(fingerprint)
        rows.append(event_row(user_id, kind, record.containerId, record.version, moment, columns))
    add_events(new, rows)


def add_events(to: NewRows | Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Insert events, or add them to the rows that are to be inserted, and wake the requests that wait."""
    to.add(t.events, rows)
    to.woken.update(row["user_id"] for row in rows)


def record_departure(
    connection: Connection,
    container: Row,
    leaver: Row,
    others: Sequence[Row],
    application: str,
    moment: int,
) -> None:
    """Add a `Deleted` for a member who leaves, and an `Updated` for the `others` with ViewAccess.

    The container's row must be locked. Deleted users get no event.
    """
    readers = [each for each in others if each.permissions & ContainerAccessLevel.ViewAccess]
    found = connection.execute(sql.FIND_USERS, {"ids": [each.user_id for each in readers]})
    living = {user.id for user in found if not user.deleted}
    who = leaver.user_id, application
    rows = [_row(container, leaver, ContainerEventType.Deleted, moment, *who)]
    for each in sorted(readers, key=lambda member: bytes(member.user_id)):
        if each.user_id in living:
            updated = _row(container, each, ContainerEventType.Updated, moment, *who)
            rows.append({**updated, "changes": ACCESS})
    add_events(connection, rows)


def record_expiry(connection: Connection, containers: Sequence[Row], moment: int) -> None:
    """Add an event for each member whose access has expired and who has none yet, in order of expiry.

    The containers' rows must be locked, and later events of these containers must not be inserted yet.
    """
    found = {container.id: container for container in containers}
    claimed = connection.execute(CLAIM_EXPIRED, {"some": list(found), "now": moment}).all()
    rows = [
        _row(found[member.container_id], member, ContainerEventType.Deleted, member.expires_at)
        for member in sorted(claimed, key=lambda member: int(member.expires_at))
        if not found[member.container_id].deleted  # else the deletion has added an event for them
    ]
    add_events(connection, rows)


def record_expiry_in(
    connection: Connection, containers: Collection[ContainerId], moment: int
) -> None:
    """Lock these containers, and record the expiry of their members' access."""
    if containers:
        some = {"some": sorted(containers)}
        record_expiry(connection, connection.execute(sql.SHARE_CONTAINERS, some).all(), moment)


def _row(
    container: Row,
    member: Row,
    kind: ContainerEventType,
    date: int,
    related_user_id: UserId | None = None,
    application: str = "",
) -> dict[str, Any]:
    """Return the row of an event without changes; its type is NULL unless the member has ViewType."""
    text = container.type if member.permissions & ContainerAccessLevel.ViewType else None
    columns = {"container_type": text, **who_of(related_user_id, application)}
    return event_row(member.user_id, kind, container.id, container.version, date, columns)


def who_of(user_id: bytes | None, application: str) -> dict[str, object]:
    """Return the columns of the user, if any, who caused an event, and of the user's application."""
    return {"related_user_id": user_id, "application": application}


def event_row(
    user_id: bytes,
    kind: ContainerEventType,
    container_id: bytes,
    version: int,
    date: int,
    columns: Mapping[str, object],
) -> dict[str, Any]:
    """Return the row of an event in the log of a user, or of a group, with further columns."""
    return {
        "user_id": user_id,
        "event_type": kind.value,
        "container_id": container_id,
        "version": version,
        "date": date,
        "container_type": None,
        "changes": 0,
        "previous_type": None,
        **columns,
    }


def _sees_type(entry: Entry | None) -> bool:
    return entry is not None and entry.allows(ContainerAccessLevel.ViewType)


def _visible(changes: int, was: Entry, entry: Entry) -> int:
    """Return the changes that a user may know of: their own access always, others' with ViewAccess."""
    own = (was.permissions, was.expiresAt) != (entry.permissions, entry.expiresAt)
    if not own and not entry.allows(ContainerAccessLevel.ViewAccess):
        changes &= ~ACCESS
    if not entry.allows(ContainerAccessLevel.ViewType):
        changes &= ~TYPE
    return changes


def note_access(broker: Broker, call: Call, container_id: ContainerId) -> None:
    """Remember a fetch for `record_accesses`, so that no read waits for a write."""
    if len(broker.accesses) < _MAX_WAITING:
        broker.accesses[(container_id, call.session.id)] = call.application


async def record_accesses(broker: Broker) -> None:
    """Record the remembered fetches, some in one transaction, so that other writers get their turn.

    Fetches that cannot be written, because the process stops or the database is not available, wait for the
    next call. A fetch that was written in spite of an error is not recorded twice: see `_record_access`.
    """
    waiting, broker.accesses = broker.accesses, {}
    try:
        while waiting:
            some = sorted(islice(waiting.items(), _ACCESSES_AT_ONCE))
            try:
                await broker.database.write(partial(_record, some=some))
            except Exception as error:
                if is_of_database(error):
                    raise
                # Drop these: fetches that the database refuses would delay all others for ever.
                _log.warning("fetches were not recorded", count=len(some), error=repr(error))
            for access, _ in some:
                del waiting[access]
    finally:
        kept = {**waiting, **broker.accesses}
        broker.accesses = dict(islice(kept.items(), _MAX_WAITING))


def _record(connection: Connection, some: Sequence[Fetch]) -> None:
    fetched = {"some": sorted({container_id for (container_id, _), _ in some})}
    locked = {row.id: row for row in connection.execute(sql.SHARE_CONTAINERS, fetched)}
    moment = now()
    for (container_id, reader_id), application in some:
        if container_id in locked:
            _record_access(connection, locked[container_id], reader_id, application, moment)


def _record_access(
    connection: Connection, container: Row, reader_id: UserId, application: str, moment: int
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
        and is_unexpired(member, moment)
    ]
    if not receivers:
        return
    # Locked, so that no event names a user who is deleted meanwhile.
    users = [reader_id, *(member.user_id for member in receivers)]
    found = connection.execute(sql.SHARE_USERS, {"ids": users})
    living = {user.id for user in found if not user.deleted}
    if reader_id not in living:
        return
    # At most one event an hour for each reader and container.
    values = {"container": container.id, "user": reader_id}
    last = sql.one(connection, FIND_ACCESS, **values)
    if last is None:
        row = {"container_id": container.id, "user_id": reader_id, "recorded_at": moment}
        connection.add(t.accesses, row)
    elif last.recorded_at > moment - _ACCESS_INTERVAL:
        return
    else:
        connection.execute(SET_ACCESS, {**values, "recorded_at": moment})
    rows = [
        _row(container, member, ContainerEventType.Accessed, moment, reader_id, application)
        for member in receivers
        if member.user_id in living
    ]
    add_events(connection, rows)
