"""Reduce a deleted container to what proves its deletion. Spec: docs/spec/container.md, section 10.

The transaction that stores the tombstone also removes type, wraps and permissions and marks the parts as
replaced (`empty`). Records, lists and events may be many: they are removed in short transactions
(`purge_some`), for some seconds before the deletion is answered, the rest in the background of any broker.
Until then `views` serves no more than what stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.records.container_record import ContainerRecord, bare_body, parse_bare
from scbroker.records.ids import user_id_of
from scbroker.server.broker import Broker, now
from scbroker.server.containers import members
from scbroker.server.containers.stored_lists import StoredList
from scbroker.server.events.log import event_of
from scbroker.server.storage import statements as sql
from scbroker.wire.events import details_hash

_RECORDS: Final = 500
_EVENTS: Final = 500
_ACCESSES: Final = 2_000
_CONTAINERS: Final = 100
_SECONDS: Final = 10.0


def empty(connection: Connection, tombstone: ContainerRecord) -> None:
    """Remove what is few, and note the container for the purge. The container's row must be locked.

    Only the members' ids stay: the broker serves the tombstone to these users.
    """
    at = {"container": tombstone.containerId}
    connection.execute(sql.SET_CONTAINER, {**at, "type": None, "type_salt": None})
    connection.execute(sql.DROP_EXPIRED_MEMBERS, {**at, "now": now()})
    connection.execute(sql.EMPTY_MEMBERS, at)
    connection.execute(sql.DROP_CONTAINER_PARTS, at)
    add_purge(connection, tombstone.containerId, tombstone.version, tombstone.time)


def add_purge(connection: Connection, container_id: bytes, version: int, deleted_at: int) -> None:
    """Note a container for the purge. `version` is the tombstone's, or 0 if the records are gone as well."""
    purge = {
        "container_id": container_id,
        "version": version,
        "deleted_at": deleted_at,
        "past_version": 0,
        "past_user": b"",
    }
    connection.execute(sql.ADD_PURGE, purge)


async def purge_at_once(broker: Broker, containers: Iterable[bytes]) -> None:
    """Purge these containers for some seconds. The background purges what is left then."""
    deadline = time.monotonic() + _SECONDS
    for container_id in containers:
        while time.monotonic() < deadline and await _purge(broker, container_id):
            pass


async def purge_next(broker: Broker) -> bool:
    """Purge some of any deleted container; return whether there may be more."""
    found = await _waiting(broker, b"")
    if not found:
        return False
    await _purge(broker, found[0])
    return True


async def finish(broker: Broker) -> int:
    """Purge what is left of all deleted containers; return how many there were."""
    last, count = b"", 0
    while found := await _waiting(broker, last):
        for container_id in found:
            while await _purge(broker, container_id):
                pass
        last, count = found[-1], count + len(found)
    return count


async def _waiting(broker: Broker, last: bytes) -> list[bytes]:
    values = {"last": last, "count": _CONTAINERS}
    return await broker.database.query(lambda c: list(c.execute(sql.PURGES, values).scalars()))


async def _purge(broker: Broker, container_id: bytes) -> bool:
    return await broker.database.write(lambda c: purge_some(c, container_id))


def purge_some(connection: Connection, container_id: bytes) -> bool:
    """Remove some of what does not stay; return whether there may be more.

    Lock order, as in every writer: container, user, event log. The container's lock keeps out
    `events.tell_of_access` and the deletion of the last member. The latter removes the container's records
    and its row; its events are still to be emptied then, so the purge depends on its own row alone.
    """
    sql.one(connection, sql.LOCK_CONTAINER, id=container_id)
    purge = sql.one(connection, sql.LOCK_PURGE, container=container_id)
    if purge is None:
        return False
    if (
        _purge_records(connection, purge)
        or _purge_accesses(connection, container_id)
        or _purge_events(connection, purge)
    ):
        return True
    connection.execute(sql.DROP_PURGE, {"container": container_id})
    return False


def _purge_records(connection: Connection, purge: Row[Any]) -> bool:
    """Drop records that do not govern, parts of those that do, and other entries than the authors'."""
    at = {"container": purge.container_id}
    some = {"from": purge.past_version + 1, "to": purge.version, "count": _RECORDS}
    rows = connection.execute(sql.BODIES, {**at, **some}).all()
    if not rows:
        return False
    skipped = [row.version for row in rows if not row.governing]
    if skipped:
        connection.execute(sql.DROP_RECORDS, {**at, "versions": skipped})
    authors = _authors(connection, purge)
    governing = [row for row in rows if row.governing]
    if governing:
        stripped = [{**at, "number": row.version, "body": bare_body(row.body)} for row in governing]
        connection.execute(sql.SET_BODY, stripped)
    for row in governing:
        if parse_bare(row.body).changes_access:
            _keep_entries(connection, {**at, "number": row.version}, authors)
    last = rows[-1].version
    if last == purge.version - 1:
        _forget_authors(connection, purge.container_id, authors)
    connection.execute(sql.SET_PURGE, {**at, "past_version": last})
    return True


def _authors(connection: Connection, purge: Row[Any]) -> set[bytes]:
    """Return the users whose rights a reader looks up in a list to verify the tombstone."""
    at = {"container": purge.container_id, "number": purge.version}
    found = {parse_bare(sql.the(connection, sql.FIND_RECORD, **at).body).author}
    for row in sql.governing(connection, purge.container_id, 1, purge.version):
        found.add(parse_bare(row.body).author)
    return found


def _forget_authors(connection: Connection, container_id: bytes, kept: set[bytes]) -> None:
    """Drop the authors who signed none of the records that stay: no record here needs their keys."""
    signed = connection.execute(sql.AUTHORS_IN, {"some": [container_id]}).scalars()
    gone = sorted(set(signed) - {user_id_of(author).bytes for author in kept})
    if gone:
        members.release_keys(connection, gone)
        rows = [{"container": container_id, "user": user} for user in gone]
        connection.execute(sql.DROP_AUTHOR, rows)


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


def _purge_events(connection: Connection, purge: Row[Any]) -> bool:
    """Empty the container's events in one user's log, but for the deletion's own.

    Their ids stay, so that the log has no gap, and so does the hash of what they said, for its digest. A
    version of 0 marks them as emptied. The log is locked: numbering and retention update the same rows in
    an order of their own, and PostgreSQL would end one of two as a deadlock.
    """
    at = {"container": purge.container_id}
    last = {**at, "last": purge.past_user}
    user_id = connection.execute(sql.NEXT_LOG_WITH, last).scalar_one_or_none()
    if user_id is None:
        return False
    sql.one(connection, sql.LOCK_LOG, user=user_id)
    values = {**at, "user": user_id, "deletion": purge.version, "count": _EVENTS}
    found = connection.execute(sql.EVENTS_TO_EMPTY, values).all()
    if found:
        of = {"user": user_id, "deleted_at": purge.deleted_at}
        emptied = [{**of, "row": row.row_id, "hash": details_hash(event_of(row))} for row in found]
        connection.execute(sql.EMPTY_EVENT, emptied)
    if len(found) < _EVENTS:
        connection.execute(sql.SET_PURGE, {**at, "past_user": user_id})
    return True
