"""Reduce deleted containers to what proves their deletion, and remove deleted users and groups from others.

Spec: docs/spec/container.md, section 10; protocol.md, section 5; groups.md, section 10.

The transaction that stores the tombstone also removes type, wraps and permissions and marks the parts as
replaced (`empty`). Records, lists and events may be many: they are removed in short transactions
(`purge_some`), for some seconds before the deletion is answered, the rest in the background of any broker.
Until then `views` serves no more than what stays.
"""

import contextlib
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import IntegrityError
from scbroker.records.canonical import ContainerId, UserId, stored_user_id
from scbroker.records.container_record import ContainerRecord, parse_either
from scbroker.server.broker import Broker, Charges, now
from scbroker.server.containers import members
from scbroker.server.events import log
from scbroker.server.events.pages import event_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.events import details_hash

_RECORDS: Final = 500
_EVENTS: Final = 500
_ACCESSES: Final = 2_000
_PENDING: Final = 100
# Limits of one transaction. A container with more than _RECORDS_AT_ONCE records gets its own transaction.
_CONTAINERS: Final = 200
_RECORDS_AT_ONCE: Final = 2_000
Purge = Callable[[Connection, Any], bool]
"""Deletes some rows of what has this id, and returns whether there may be more."""

RECORD_SIZES_IN: Final = sql.RECORD_SIZES.where(sql.among(t.records.c.container_id, "some"))
SET_LIST: Final = sql.change(t.access_lists, "container", "number")
# Departures from a list of a deleted container, except those of `kept_users`, the authors.
DROP_DEPARTURES: Final = sql.drop(
    t.departures,
    "container",
    "number",
    t.departures.c.user_id.not_in(b("kept_users", expanding=True)),
)
DROP_GROUP_AUTHOR: Final = sql.drop(t.group_authors, "container", "group", "user")
# Uploads by users without access stay until they are abandoned, or the users would notice the deletion.
DROP_CONTAINER_PARTS: Final = sql.change(
    t.parts,
    "container",
    t.parts.c.committed
    | t.parts.c.user_id.in_(sa.select(t.members.c.user_id).where(sql.of(t.members, "container"))),
    replaced_at=0,
)
DROP_EXPIRED_MEMBERS: Final = sql.drop(t.members, "container", t.members.c.expires_at <= b("now"))
EMPTY_MEMBERS: Final = sql.change(
    t.members, "container", permissions=0, key_index=0, expires_at=None, wrap=None, type=None
)
# The groups of a deleted container that still have a row of `members`: the tombstone is served through them.
GROUPS_AMONG_MEMBERS: Final = (
    sa.select(t.members.c.user_id)
    .join(t.users, t.users.c.id == t.members.c.user_id)
    .where(sql.of(t.members, "container"), ~sql.IS_USER)
    .order_by(t.members.c.user_id)
)
LOCK_PURGE: Final = sql.FIND_PURGE.with_for_update()
SET_PURGE: Final = sql.change(t.containers_to_purge, "container")
DROP_PURGE: Final = sql.drop(t.containers_to_purge, "container")
PURGES: Final = sql.after(t.containers_to_purge.c.container_id)
SET_BODY: Final = sql.change(t.records, "container", "number")
DROP_RECORDS: Final = sql.drop(t.records, "container", sql.among(t.records.c.version, "versions"))
NEXT_LOG_WITH: Final = sql.after(t.events.c.user_id, "container").limit(1)
EVENTS_TO_EMPTY: Final = sql.find(
    t.events, "container", "user", t.events.c.version > 0, t.events.c.version != b("deletion")
).limit(b("count"))
EMPTY_EVENT: Final = sql.change(
    t.events,
    "user",
    "row",
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
DROP_AUTHOR: Final = sql.drop(t.authors, "container", "user")

_CONTAINER: Final = t.members.c.container_id
EXPIRED_IN: Final = sa.select(_CONTAINER).where(sql.among(_CONTAINER), sql.EXPIRED)
# Containers that have events in another user's log, and that are not pending a purge yet.
IN_OTHER_LOGS: Final = (
    sa.select(t.events.c.container_id)
    .where(
        sql.among(t.events.c.container_id),
        t.events.c.user_id != b("user"),
        ~sa.exists().where(t.containers_to_purge.c.container_id == t.events.c.container_id),
    )
    .distinct()
)
# Containers with an unexpired entry of another user or group, which was not deleted.
WITH_OTHER_MEMBERS: Final = (
    sa.select(_CONTAINER)
    .join(t.users, t.users.c.id == t.members.c.user_id)
    .where(
        sql.among(_CONTAINER), t.members.c.user_id != b("user"), sql.UNEXPIRED, ~t.users.c.deleted
    )
    .distinct()
)
# Those of the containers `some` that belong to groups whose records are kept.
KEPT_GROUPS: Final = sa.select(t.users.c.id).where(
    sql.among(t.users.c.id), ~sql.IS_USER, t.users.c.fingerprint.is_not(None)
)
_OF_CONTAINERS: Final = (
    t.records,
    t.access_lists,
    t.departures,
    t.members,
    t.accesses,
    t.authors,
    t.group_authors,
)
PURGE_CONTAINERS: Final = (
    *(sql.drop(table, sql.among(table.c.container_id)) for table in _OF_CONTAINERS),
    sql.change(t.parts, sql.among(t.parts.c.container_id), t.parts.c.committed, replaced_at=0),
    sql.change(
        t.containers,
        sql.among(t.containers.c.id),
        deleted=True,
        type=None,
        type_salt=None,
        groups=None,
    ),
)
DROP_CONTAINERS: Final = sql.drop(t.containers, sql.among(t.containers.c.id))
FORGET_CREATOR: Final = sql.change(t.containers, sql.among(t.containers.c.id), creator_id=None)
# Keep a deleted group's row in `members`, because the access list still has its entry, but take it out of
# `t.LISTED`: `leave_some` does not find it again.
SET_ASIDE: Final = sql.change(t.members, "container", "user", expiry_recorded=True)


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
        members.release_keys(connection, groups)
    connection.execute(sql.SET_CONTAINER, {**at, **state})
    connection.execute(DROP_CONTAINER_PARTS, at)
    add_purge(connection, tombstone.containerId, tombstone.version, tombstone.time)


def add_purge(connection: Connection, container_id: bytes, version: int, deleted_at: int) -> None:
    """Mark a container to be purged; `version` is the tombstone's, or 0 if the records are deleted too."""
    purge = {"container_id": container_id, "version": version, "deleted_at": deleted_at}
    connection.add(t.containers_to_purge, {**purge, "past_version": 0, "past_user": b""})


async def finish(broker: Broker, deadline: float = math.inf) -> int:
    """Purge what is left of all deleted containers; return how many were pending."""
    return await purge_all(broker, PURGES, purge_some, deadline)


async def purge_all(broker: Broker, pending: Any, purge: Purge, deadline: float) -> int:
    """Purge everything whose id the statement `pending` finds; return how many ids it found."""
    values, count = {"last": b"", "count": _PENDING}, 0

    def find(connection: Connection) -> Sequence[bytes]:
        return connection.execute(pending, values).scalars()

    while time.monotonic() < deadline and (found := await broker.database.query(find)):
        await purge_each(broker, purge, found, deadline)
        values["last"], count = found[-1], count + len(found)
    return count


async def purge_each(broker: Broker, purge: Purge, ids: Iterable[bytes], deadline: float) -> None:
    """Purge the containers or groups with these ids, in short transactions; background work does the rest."""
    for each in ids:
        work = partial(_purge, purge=purge, pending_id=each)
        while time.monotonic() < deadline and await broker.database.write(work):
            pass


def _purge(connection: Connection, purge: Purge, pending_id: bytes) -> bool:
    return purge(connection, pending_id)


def delete_some(
    connection: Connection, find: Any, delete: Any, owner: dict[str, Any], column: str, count: int
) -> bool:
    """Delete rows that a statement finds by their owner, one by one; return whether there may be more.

    `column` is the parameter of `delete` that takes what `find` returns. A single DELETE of many rows would
    scan all rows of the owner.
    """
    found = connection.execute(find, {**owner, "count": count}).scalars()
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
    names, authors, acted = _kept(connection, purge)
    kept_users, charges = [stored_user_id(name) for name in names], Charges()
    stripped = []
    for row in rows:
        size = len(row.body) + row.signature_size
        if row.governing:
            place = {**at, "number": row.version}
            parsed = parse_either(row.body)
            stripped.append({**place, "body": parsed.bare})
            size = len(row.body) - len(parsed.bare)
            if parsed.record.changes_access:
                entries = sql.the(connection, sql.FIND_LIST, **place).entries
                shown = members.StoredList.decode(entries).only(names).encode()
                size += len(entries) - len(shown)
                connection.execute(SET_LIST, {**place, "entries": shown})
                connection.execute(DROP_DEPARTURES, {**place, "kept_users": kept_users})
        _credit(row.body, size, charges)
    connection.execute(SET_BODY, stripped)
    last = rows[-1].version
    if last == purge.version - 1:
        _release_authors(connection, purge.container_id, authors, acted)
    connection.execute(SET_PURGE, {**at, "past_version": last})
    charges.apply(connection)
    return True


def _credit_records(
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


def _kept(
    connection: Connection, purge: Row
) -> tuple[set[bytes], set[UserId], set[tuple[UserId, UserId]]]:
    """Return what readers need to verify a tombstone.

    The names of entries: authors, or the groups for which they acted. The ids of the authors of remaining
    records. Pairs (group id, user id) of the authors who acted for a group.
    """
    at = {"container": purge.container_id, "number": purge.version}
    bodies = [sql.the(connection, sql.FIND_RECORD, **at).body]
    bodies += [row.body for row in sql.governing(connection, purge.container_id, 1, purge.version)]
    records = [parse_either(body).record for body in bodies]
    acted = {
        (stored_user_id(record.via.group), stored_user_id(record.author))
        for record in records
        if record.via is not None
    }
    authors = {stored_user_id(record.author) for record in records}
    return set(map(members.actor_of, records)), authors, acted


def _release_authors(
    connection: Connection,
    container_id: ContainerId,
    authors: set[UserId],
    acted: set[tuple[UserId, UserId]],
) -> None:
    """Delete the rows of authors who signed no remaining record.

    The container no longer needs their keys, or the records of the groups for which they acted.
    """
    some, at = {"some": [container_id]}, {"container": container_id}
    gone = sorted({*connection.execute(sql.AUTHORS_IN, some).scalars()} - authors)
    members.release_keys(connection, gone)
    connection.execute(DROP_AUTHOR, [{**at, "user": user_id} for user_id in gone])
    found = connection.execute(sql.GROUP_AUTHORS_IN, some)
    released = sorted({(row.group_id, row.user_id) for row in found} - acted)
    members.release_keys(connection, [group_id for group_id, _ in released])
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
    of = {"user": user_id, "deleted_at": purge.deleted_at}
    emptied = [{**of, "row": row.row_id, "hash": details_hash(event_of(row))} for row in found]
    connection.execute(EMPTY_EVENT, emptied)
    if len(found) < _EVENTS:
        connection.execute(SET_PURGE, {**at, "past_user": user_id})
    return True


def leave_some(
    connection: Connection, user_id: UserId, statement: Any, *, is_group: bool = False
) -> bool:
    """Remove the user from some containers; delete those to which nobody else has access.

    The row of a group is kept, but not listed any more: the list has its entry until somebody changes it.
    """
    moment = now()
    asked = {"user": user_id, "now": moment, "count": _CONTAINERS}
    found = sorted(connection.execute(statement, asked).scalars())
    if not found:
        return False
    locked = connection.execute(sql.LOCK_CONTAINERS, {"some": found}).all()
    # Take the first containers with at most _RECORDS_AT_ONCE records in all, and at least one container.
    records = {row.id: row.version for row in locked}
    sums = list(accumulate(records.get(each, 0) for each in found))
    some = found[: max(1, bisect_right(sums, _RECORDS_AT_ONCE))]
    values = {"user": user_id, "now": moment, "some": some}
    shared = set(connection.execute(WITH_OTHER_MEMBERS, values).scalars())
    if groups := [row.id for row in locked if row.is_group]:
        shared |= set(connection.execute(KEPT_GROUPS, {"some": groups}).scalars())
    alone = [row for row in locked if row.id in some and row.id not in shared]
    charges = Charges()
    if alone:
        purge_containers(connection, user_id, alone, moment, charges)
    left = [{"user": user_id, "container": container_id} for container_id in some]
    created = {row.id: row for row in locked if row.creator_id == user_id and row.id in shared}
    if created:
        charges.add(user_id, containers=-sum(not row.deleted for row in created.values()))
        # The creator is named by the container's row, any other author by a row of `authors`.
        connection.execute(FORGET_CREATOR, {"some": sorted(created)})
        connection.execute(sql.ADD_AUTHOR, [row for row in left if row["container"] in created])
    connection.execute(SET_ASIDE if is_group else sql.DROP_MEMBER, left)
    charges.apply(connection)
    return len(found) == _CONTAINERS or len(some) < len(found)


def purge_containers(
    connection: Connection,
    user_id: UserId,
    containers: Sequence[Any],
    moment: int,
    charges: Charges,
) -> None:
    """Delete containers, and mark their deleted authors as pending deletion: their keys may be deleted now.

    The row of a container stays while its creator is not deleted: only they could use the id again, which
    is a hash of their fingerprint. The purge empties the events of these containers in the logs of former
    members.
    """
    some = sorted(row.id for row in containers)
    values = {"some": some, "now": moment}
    expired = connection.execute(EXPIRED_IN, values).scalars()
    log.record_expiry_in(connection, set(expired), moment)
    authors = connection.execute(sql.AUTHORS_IN, values).scalars()
    acted = [row.group_id for row in connection.execute(sql.GROUP_AUTHORS_IN, values)]
    listed = [each for row in containers for each in members.group_ids_of(row)]
    members.release_keys(connection, [*authors, *acted, *listed])
    for container_id in connection.execute(IN_OTHER_LOGS, {**values, "user": user_id}).scalars():
        add_purge(connection, container_id, 0, moment)
    _credit_records(connection, some, charges)
    for row in containers:
        if not row.deleted and row.creator_id is not None:
            charges.add(row.creator_id, containers=-1)
    for purge in PURGE_CONTAINERS:
        connection.execute(purge, values)
    unused = sorted(row.id for row in containers if row.creator_id in (None, user_id))
    connection.execute(DROP_CONTAINERS, {"some": unused})
