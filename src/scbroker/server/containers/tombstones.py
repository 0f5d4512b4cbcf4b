"""Reduce a deleted container to what proves its deletion. Spec: docs/spec/container.md, section 10.

The transaction that stores the tombstone also removes type, wraps and permissions and marks the parts as
replaced (`empty`). Records, lists and events may be many: they are removed in short transactions
(`purge_some`), for some seconds before the deletion is answered, the rest in the background of any broker.
Until then `views` serves no more than what stays.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import IntegrityError
from scbroker.records.canonical import ContainerId, stored_user_id
from scbroker.records.container_record import ContainerRecord, parse_either
from scbroker.server.broker import Broker, Charges
from scbroker.server.containers import members
from scbroker.server.events.pages import event_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.events import details_hash

_RECORDS: Final = 500
_EVENTS: Final = 500
_ACCESSES: Final = 2_000
_PENDING: Final = 100
Purge = Callable[[Connection, Any], bool]
"""Deletes some rows of what has this id, and returns whether there may be more."""

RECORD_SIZES_IN: Final = sql.RECORD_SIZES.where(sql.among(t.records.c.container_id, "some"))
SET_LIST: Final = sa.update(t.access_lists).where(
    sql.of(t.access_lists, "container"), t.access_lists.c.access_version == b("number")
)
# Departures from a list of a deleted container, except those of `kept_users`, the authors.
DROP_DEPARTURES: Final = sa.delete(t.departures).where(
    sql.OF_LIST, t.departures.c.user_id.not_in(b("kept_users", expanding=True))
)
DROP_GROUP_AUTHOR: Final = sa.delete(t.group_authors).where(
    sql.of(t.group_authors, "container", "group", "user")
)
# Uploads by users without access stay until they are abandoned, or the users would notice the deletion.
DROP_CONTAINER_PARTS: Final = sql.change(
    t.parts,
    sql.of(t.parts, "container"),
    t.parts.c.committed
    | t.parts.c.user_id.in_(sa.select(t.members.c.user_id).where(sql.of(t.members, "container"))),
    replaced_at=0,
)
# Deleted containers: everything that does not prove the deletion is removed, in short transactions.
DROP_EXPIRED_MEMBERS: Final = sa.delete(t.members).where(
    sql.of(t.members, "container"), t.members.c.expires_at <= b("now")
)
EMPTY_MEMBERS: Final = sql.change(
    t.members,
    sql.of(t.members, "container"),
    permissions=0,
    key_index=0,
    expires_at=None,
    wrap=None,
    type=None,
)
# The groups of a deleted container that still have a row of `members`: the tombstone is served through them.
GROUPS_AMONG_MEMBERS: Final = (
    sa.select(t.members.c.user_id)
    .join(t.users, t.users.c.id == t.members.c.user_id)
    .where(sql.of(t.members, "container"), ~sql.IS_USER)
    .order_by(t.members.c.user_id)
)
ADD_PURGE: Final = sa.insert(t.containers_to_purge)
LOCK_PURGE: Final = sql.FIND_PURGE.with_for_update()
SET_PURGE: Final = sa.update(t.containers_to_purge).where(
    sql.of(t.containers_to_purge, "container")
)
DROP_PURGE: Final = sa.delete(t.containers_to_purge).where(
    sql.of(t.containers_to_purge, "container")
)
PURGES: Final = sql.after(t.containers_to_purge.c.container_id)
SET_BODY: Final = sa.update(t.records).where(sql.of(t.records, "container", "number"))
DROP_RECORDS: Final = sa.delete(t.records).where(
    sql.of(t.records, "container"), sql.among(t.records.c.version, "versions")
)
NEXT_LOG_WITH: Final = sql.after(t.events.c.user_id, sql.of(t.events, "container")).limit(1)
EVENTS_TO_EMPTY: Final = (
    sa.select(t.events)
    .where(
        sql.of(t.events, "container", "user"),
        t.events.c.version > 0,
        t.events.c.version != b("deletion"),
    )
    .limit(b("count"))
)
EMPTY_EVENT: Final = sql.change(
    t.events,
    sql.of(t.events, "user"),
    t.events.c.row_id == b("row"),
    version=0,
    date=b("deleted_at"),
    salt=None,
    details_hash=b("hash"),
    container_type=None,
    previous_type=None,
    related_user_id=None,
    application="",
    changes=0,
)
DROP_AUTHOR: Final = sa.delete(t.authors).where(sql.of(t.authors, "container", "user"))


def empty(
    connection: Connection, tombstone: ContainerRecord, groups: Sequence[bytes], moment: int
) -> None:
    """Remove the few rows at once, and mark the container to be purged. Its row must be locked.

    Only the ids of its members and `groups` stay: the broker serves the tombstone to these users.
    """
    at = {"container": tombstone.containerId}
    connection.execute(DROP_EXPIRED_MEMBERS, {**at, "now": moment})
    connection.execute(EMPTY_MEMBERS, at)
    state: dict[str, Any] = {"type": None, "type_salt": None}
    if groups:
        kept = connection.execute(GROUPS_AMONG_MEMBERS, at).scalars()
        state["groups"] = b"".join(kept) or None
        members.release_groups(connection, groups)
    connection.execute(sql.SET_CONTAINER, {**at, **state})
    connection.execute(DROP_CONTAINER_PARTS, at)
    add_purge(connection, tombstone.containerId, tombstone.version, tombstone.time)


def add_purge(connection: Connection, container_id: bytes, version: int, deleted_at: int) -> None:
    """Mark a container to be purged; `version` is the tombstone's, or 0 if the records are deleted too."""
    purge = {
        "container_id": container_id,
        "version": version,
        "deleted_at": deleted_at,
        "past_version": 0,
        "past_user": b"",
    }
    connection.execute(ADD_PURGE, purge)


async def finish(broker: Broker, deadline: float = math.inf) -> int:
    """Purge what is left of all deleted containers; return how many were pending."""
    return await purge_all(broker, PURGES, purge_some, deadline)


async def purge_all(broker: Broker, pending: Any, purge: Purge, deadline: float) -> int:
    """Purge everything whose id the statement `pending` finds; return how many ids it found."""
    values, count = {"last": b"", "count": _PENDING}, 0

    def find(connection: Connection) -> Sequence[bytes]:
        return connection.execute(pending, values).scalars().all()

    while time.monotonic() < deadline and (found := await broker.database.query(find)):
        await purge_each(broker, purge, found, deadline)
        values["last"], count = found[-1], count + len(found)
    return count


async def purge_each(broker: Broker, purge: Purge, ids: Iterable[bytes], deadline: float) -> None:
    """Purge the containers or groups with these ids, in short transactions; background work does the rest."""
    for each in ids:
        while time.monotonic() < deadline and await _purge_one(broker, purge, each):
            pass


async def _purge_one(broker: Broker, purge: Purge, pending_id: bytes) -> bool:
    return await broker.database.write(lambda c: purge(c, pending_id))


def delete_some(
    connection: Connection, find: Any, delete: Any, owner: dict[str, Any], column: str, count: int
) -> bool:
    """Delete rows that a statement finds by their owner, one by one; return whether there may be more.

    `column` is the parameter of `delete` that takes what `find` returns. A single DELETE of many rows would
    scan all rows of the owner.
    """
    found = connection.execute(find, {**owner, "count": count}).scalars().all()
    if found:
        connection.execute(delete, [{**owner, column: each} for each in found])
    return len(found) == count


def purge_some(connection: Connection, container_id: ContainerId) -> bool:
    """Remove some rows; return whether there may be more.

    Lock order, as in every writer: container, user, event log. While the container is locked, no event of a
    fetch is recorded, and its last member is not deleted. The deletion of the last member removes records
    and container but not the events, so the purge relies on its own row alone.
    """
    container = sql.one(connection, sql.LOCK_CONTAINER, id=container_id)
    purge = sql.one(connection, LOCK_PURGE, container=container_id)
    if purge is None:
        return False
    # A deleted group keeps its records: readers need them to judge records that were made through it.
    is_group = container is not None and container.is_group
    if not is_group and _purge_records(connection, purge):
        return True
    owner = {"container": container_id}
    if delete_some(connection, sql.ACCESSES_TO, sql.DROP_ACCESS, owner, "user", _ACCESSES):
        return True
    if _purge_events(connection, purge):
        return True
    connection.execute(DROP_PURGE, {"container": container_id})
    return False


def _purge_records(connection: Connection, purge: Row) -> bool:
    """Delete non-governing records, the parts in the others, and entries and departures of non-authors."""
    at = {"container": purge.container_id}
    some = {"from": purge.past_version + 1, "to": purge.version, "count": _RECORDS}
    rows = connection.execute(sql.BODIES, {**at, **some}).all()
    if not rows:
        return False
    skipped = [row.version for row in rows if not row.governing]
    if skipped:
        connection.execute(DROP_RECORDS, {**at, "versions": skipped})
    kept, stripped = _kept(connection, purge), []
    kept_users, charges = [stored_user_id(name) for name in kept.names], Charges()
    for row in rows:
        size = len(row.body) + row.signature_size
        if row.governing:
            place = {**at, "number": row.version}
            parsed = parse_either(row.body)
            stripped.append({**place, "body": parsed.bare})
            size = len(row.body) - len(parsed.bare)
            if parsed.record.changes_access:
                entries = sql.the(connection, sql.FIND_LIST, **place).entries
                shown = members.StoredList.decode(entries).only(kept.names).encode()
                size += len(entries) - len(shown)
                connection.execute(SET_LIST, {**place, "entries": shown})
                connection.execute(DROP_DEPARTURES, {**place, "kept_users": kept_users})
        _credit(row.body, size, charges)
    if stripped:
        connection.execute(SET_BODY, stripped)
    last = rows[-1].version
    if last == purge.version - 1:
        _release_authors(connection, purge.container_id, kept)
    connection.execute(SET_PURGE, {**at, "past_version": last})
    charges.apply(connection)
    return True


def credit_records(
    connection: Connection, containers: Sequence[ContainerId], charges: Charges
) -> None:
    """Credit the authors of containers with the records and lists, which are about to be deleted."""
    last: dict[str, Any] = {"container_id": b"", "version": 0}
    while True:
        asked = {**last, "some": containers, "count": _RECORDS}
        rows = connection.execute(RECORD_SIZES_IN, asked).all()
        for row in rows:
            _credit(row.body, len(row.body) + row.more, charges)
        if len(rows) < _RECORDS:
            return
        last = {name: getattr(rows[-1], name) for name in last}


def _credit(body: bytes, size: int, charges: Charges) -> None:
    """Credit the author of a record; nobody if the record is damaged, which must not stop its deletion."""
    with contextlib.suppress(IntegrityError):
        charges.add(stored_user_id(parse_either(body).record.author), size=-size)


@dataclass(slots=True)
class _Kept:
    """The authors, groups and names of entries that readers need to verify a tombstone."""

    authors: set[bytes] = field(default_factory=set)
    """User ids of the authors of remaining records."""
    acted: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Pairs (group id, user id): the authors of remaining records who acted for a group."""
    names: set[bytes] = field(default_factory=set)
    """The names whose entries are needed: authors, or the groups for which they acted."""


def _kept(connection: Connection, purge: Row) -> _Kept:
    at = {"container": purge.container_id, "number": purge.version}
    tombstone = parse_either(sql.the(connection, sql.FIND_RECORD, **at).body).record
    rows = sql.governing(connection, purge.container_id, 1, purge.version)
    found = _Kept()
    for record in (tombstone, *(parse_either(row.body).record for row in rows)):
        author = stored_user_id(record.author)
        found.authors.add(author)
        found.names.add(members.actor_of(record))
        if record.via is not None:
            found.acted.add((stored_user_id(record.via.group), author))
    return found


def _release_authors(connection: Connection, container_id: ContainerId, kept: _Kept) -> None:
    """Delete the rows of authors who signed no remaining record.

    The container no longer needs their keys, or the records of the groups for which they acted.
    """
    signed = connection.execute(sql.AUTHORS_IN, {"some": [container_id]}).scalars()
    gone = sorted(set(signed) - kept.authors)
    if gone:
        members.release_keys(connection, gone)
        rows = [{"container": container_id, "user": user} for user in gone]
        connection.execute(DROP_AUTHOR, rows)
    acted = connection.execute(sql.GROUP_AUTHORS_IN, {"some": [container_id]})
    released = sorted({(row.group_id, row.user_id) for row in acted} - kept.acted)
    if released:
        members.release_keys(connection, sorted({group_id for group_id, _ in released}))
        at = {"container": container_id}
        rows = [{**at, "group": group_id, "user": user_id} for group_id, user_id in released]
        connection.execute(DROP_GROUP_AUTHOR, rows)


def _purge_events(connection: Connection, purge: Row) -> bool:
    """Empty the container's events in one user's log, except for the event of the deletion.

    Their ids stay, so that the log has no gap, and the hash of their details stays for its digest. Version 0
    marks them as emptied. The log is locked first: numbering and retention update the same rows in another
    order, and PostgreSQL would abort one of two such transactions as a deadlock.
    """
    at = {"container": purge.container_id}
    last = {**at, "last": purge.past_user}
    user_id = connection.execute(NEXT_LOG_WITH, last).scalar_one_or_none()
    if user_id is None:
        return False
    sql.one(connection, sql.LOCK_LOG, user=user_id)
    values = {**at, "user": user_id, "deletion": purge.version, "count": _EVENTS}
    found = connection.execute(EVENTS_TO_EMPTY, values).all()
    if found:
        of = {"user": user_id, "deleted_at": purge.deleted_at}
        emptied = [{**of, "row": row.row_id, "hash": details_hash(event_of(row))} for row in found]
        connection.execute(EMPTY_EVENT, emptied)
    if len(found) < _EVENTS:
        connection.execute(SET_PURGE, {**at, "past_user": user_id})
    return True
