"""What the broker keeps of a deleted container: the tombstone, and what proves its author's right to it.

The transaction that stores the tombstone takes the type, the wraps, the permissions and the parts with it
(`empty`). Records, lists and events of others may be many: they go in short transactions (`purge_some`), at
once as far as some seconds suffice, the rest in the background of any broker. Until then `views` serves no
more than what stays. Spec: docs/spec/container.md, section 10.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.records.container_record import bare_body, parse_bare
from scbroker.server import statements as sql
from scbroker.server.broker import Broker, now
from scbroker.server.events import event_of
from scbroker.server.stored_lists import StoredList
from scbroker.wire.events import details_hash

_RECORDS: Final = 500
_EVENTS: Final = 500
_ACCESSES: Final = 2_000
_CONTAINERS: Final = 100
_SECONDS: Final = 10.0


def empty(connection: Connection, container_id: bytes) -> None:
    """Under the lock of the container's row, with its tombstone: takes away what nobody is served any more.

    Of the members only the ids stay, for the broker to know to whom it serves the tombstone.
    """
    at = {"container": container_id}
    connection.execute(sql.SET_CONTAINER, {**at, "type": None, "type_salt": None})
    connection.execute(sql.DROP_EXPIRED_MEMBERS, {**at, "now": now()})
    connection.execute(sql.EMPTY_MEMBERS, at)
    connection.execute(sql.DROP_CONTAINER_PARTS, at)
    connection.execute(
        sql.ADD_PURGE, {"container_id": container_id, "past_version": 0, "past_user": b""}
    )


async def purge_at_once(broker: Broker, containers: Iterable[bytes]) -> None:
    """Purges these for some seconds. What is left then, the background purges."""
    deadline = time.monotonic() + _SECONDS
    for container_id in containers:
        while time.monotonic() < deadline and await _purge(broker, container_id):
            pass


async def finish(broker: Broker) -> int:
    """Purges what is left of all deleted containers; gives their number."""
    last, count = b"", 0
    while found := await _waiting(broker, last):
        for container_id in found:
            while await _purge(broker, container_id):
                pass
        last, count = found[-1], count + len(found)
    return count


async def _waiting(broker: Broker, last: bytes) -> list[bytes]:
    values = {"last": last, "count": _CONTAINERS}
    return await broker.database.look(lambda c: list(c.execute(sql.PURGES, values).scalars()))


async def _purge(broker: Broker, container_id: bytes) -> bool:
    return await broker.database.write(lambda c: purge_some(c, container_id))


def purge_some(connection: Connection, container_id: bytes) -> bool:
    """Removes some of what does not stay; gives whether there may be more.

    One broker at a time purges a container. Lock order, as in every writer: containers, then events.
    """
    job = sql.one(connection, sql.LOCK_PURGE, container=container_id)
    if job is None:
        return False
    head = sql.the(connection, sql.HEAD_OF, container=container_id)
    if _purge_records(connection, head, job.past_version):
        return True
    if _purge_accesses(connection, container_id) or _purge_events(connection, head, job.past_user):
        return True
    connection.execute(sql.DROP_PURGE, {"container": container_id})
    return False


def _purge_records(connection: Connection, head: Row[Any], past: int) -> bool:
    """Keeps of the records the governing ones, without parts, and of their lists the authors' entries."""
    at = {"container": head.container_id}
    rows = connection.execute(
        sql.BODIES, {**at, "from": past + 1, "to": head.version, "count": _RECORDS}
    ).all()
    if not rows:
        return False
    skipped = [row.version for row in rows if not row.governing]
    if skipped:
        connection.execute(sql.DROP_RECORDS, {**at, "versions": skipped})
    governing = [row for row in rows if row.governing]
    if governing:
        stripped = [{**at, "number": row.version, "body": bare_body(row.body)} for row in governing]
        connection.execute(sql.SET_BODY, stripped)
        authors = _authors(connection, head)
        for row in governing:
            if parse_bare(row.body).changes_access:
                _keep_entries(connection, {**at, "number": row.version}, authors)
    connection.execute(sql.SET_PURGE, {**at, "past_version": rows[-1].version})
    return True


def _authors(connection: Connection, head: Row[Any]) -> set[bytes]:
    """Everybody whose right has to be looked up in a list, to judge the tombstone."""
    found = {parse_bare(head.body).author}
    for row in sql.governing(connection, head.container_id, 1, head.version):
        found.add(parse_bare(row.body).author)
    return found


def _keep_entries(connection: Connection, at: dict[str, Any], authors: set[bytes]) -> None:
    stored = StoredList.decode(sql.the(connection, sql.FIND_LIST, **at).entries)
    connection.execute(sql.SET_LIST, {**at, "entries": stored.only(authors).encode()})


def _purge_accesses(connection: Connection, container_id: bytes) -> bool:
    values = {"container": container_id, "count": _ACCESSES}
    found = connection.execute(sql.ACCESSES_TO, values).scalars().all()
    if found:
        connection.execute(
            sql.DROP_ACCESS, [{"user": user, "container": container_id} for user in found]
        )
    return len(found) == _ACCESSES


def _purge_events(connection: Connection, head: Row[Any], past: bytes) -> bool:
    """Empties the events of one user's log that tell of the container, but for the deletion's own.

    Their ids stay, for a log without gaps, and the hash of what they said, for its digest. A version of 0
    marks them as emptied.
    """
    at = {"container": head.container_id}
    user_id = connection.execute(sql.NEXT_LOG_WITH, {**at, "last": past}).scalar_one_or_none()
    if user_id is None:
        return False
    values = {**at, "user": user_id, "deletion": head.version, "count": _EVENTS}
    found = connection.execute(sql.EVENTS_TO_EMPTY, values).all()
    if found:
        at = {"user": user_id, "deleted_at": parse_bare(head.body).time}
        emptied = [{**at, "row": row.row_id, "hash": details_hash(event_of(row))} for row in found]
        connection.execute(sql.EMPTY_EVENT, emptied)
    if len(found) < _EVENTS:
        connection.execute(sql.SET_PURGE, {"container": head.container_id, "past_user": user_id})
    return True
