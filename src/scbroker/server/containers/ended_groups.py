"""Delete what nobody needs of deleted groups, some rows in each transaction.

Spec: docs/spec/groups.md, sections 10 and 11.

A group is deleted by its tombstone, or with the last of its members. `rosters.end` deletes what only
members need. Records, lists, rosters and the hashes of leaves stay, and so do the leaves of users who signed
a record for the group: readers need them to judge such records. Once no container has such a record or an
entry of the group, everything is deleted. The purge of a container marks the deleted groups that it named as
pending deletion again.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.crypto.verify import HASH_SIZE
from scbroker.records.canonical import UserId, stored_user_id
from scbroker.records.roster import parse_member
from scbroker.server.broker import Broker, Charges, now
from scbroker.server.containers import rosters, tombstones
from scbroker.server.groups.memberships import NUMBERED
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row

_ROWS: Final = 2_000
_GROUPS: Final = 50
_LAST: Final = NUMBERED + b"\xff" * (HASH_SIZE - len(NUMBERED))
"""The highest place that is a number (see `_number_some`): every fingerprint sorts after it."""
_NOTHING: Final[dict[str, Any]] = {
    "registered_at": 0,
    "signed_until": 0,
    "last_event": 0,
    "first_event": 1,
    "dropped_digest": None,
}
_NO_RECORDS: Final[dict[str, Any]] = {"fingerprint": None, "encryption_index": 0}

# Statements for deleted groups. Rows that readers need are kept until no container has a record that was made
# through the group, or an entry of the group.
GROUPS_OF_MEMBER: Final = sql.some(t.group_members.c.group_id, "user", ~t.group_members.c.gone)
ANY_LIVING_MEMBER: Final = (
    sa.select(t.group_members.c.user_id)
    .join(t.users, t.users.c.id == t.group_members.c.user_id)
    .where(sql.of(t.group_members, "group"), ~t.group_members.c.gone, ~t.users.c.deleted)
    .limit(1)
)
LOCK_PENDING_GROUP: Final = sql.find(t.pending_groups, "group").with_for_update()
PENDING_GROUPS: Final = sql.after(t.pending_groups.c.group_id)
FORGET_GROUP: Final = sql.drop(t.pending_groups, "group")
# Leaves whose places come after `leaf`, in their order.
LEAVES_BEHIND: Final = sql.page(
    sql.find(t.leaves, "group", t.leaves.c.place > b("leaf")), t.leaves.c.place, t.leaves.c.version
)
LAST_PLACE: Final = sa.select(sa.func.max(t.leaves.c.place)).where(
    sql.of(t.leaves, "group"), t.leaves.c.place <= b("leaf")
)
NUMBER_LEAVES: Final = sql.change(t.leaves, "group", "leaf", place=b("position"))
EMPTY_LEAF: Final = sql.change(t.leaves, "group", "leaf", "number", salt=None, member=None)
DROP_LEAF: Final = sql.drop(t.leaves, "group", "leaf", "number")
SHRINK_ROSTER: Final = sql.change(
    t.rosters, "group", "number", size=t.rosters.c.size - b("less")
).returning(t.rosters.c.author_id)
DROP_ROSTER: Final = sql.drop(t.rosters, "group", "number")


def leave_some(connection: Connection, user_id: UserId) -> bool:
    """End the memberships of a deleted user in some groups; return whether there may be more.

    A group without another member is deleted with the user.
    """
    values = {"user": user_id, "count": _GROUPS}
    found = sorted(connection.execute(GROUPS_OF_MEMBER, values).scalars())
    if not found:
        return False
    charges = Charges()
    locked = connection.execute(sql.LOCK_CONTAINERS, {"some": found})
    creators = {row.id: row.creator_id for row in locked}
    for group_id in found:
        sql.one(connection, sql.LOCK_GROUP, id=group_id)
        member = {"group": group_id, "user": user_id}
        connection.execute(sql.SET_GROUP_MEMBER, {**member, "gone": True, "accepted": False})
        if sql.one(connection, ANY_LIVING_MEMBER, group=group_id) is None:
            # Deleted without a tombstone: nobody is left who could sign it.
            connection.execute(sql.SET_CONTAINER, {"container": group_id, "deleted": True})
            if creators[group_id] is not None:
                charges.add(creators[group_id], containers=-1)
            tombstones.add_purge(connection, group_id, 0, now())
            rosters.end(connection, group_id, charges)
    charges.apply(connection)
    return len(found) == _GROUPS


async def finish(broker: Broker, deadline: float = math.inf) -> int:
    """Purge what is left of all deleted groups; return how many were pending."""
    return await tombstones.purge_all(broker, PENDING_GROUPS, purge_some, deadline)


def purge_some(connection: Connection, group_id: bytes) -> bool:
    """Delete some rows of a deleted group; return whether there may be more.

    Only one broker purges a group at a time. Lock order, as in every writer: containers, users, event log.
    """
    at = {"group": group_id}
    if sql.one(connection, LOCK_PENDING_GROUP, **at) is None:
        return False
    own = UserId(group_id)
    if tombstones.leave_some(connection, own, sql.CONTAINERS_OF_MEMBER, is_group=True):
        return True
    container = sql.one(connection, sql.LOCK_CONTAINER, id=group_id)
    sql.the(connection, sql.LOCK_GROUP, id=group_id)
    log = {"user": group_id}
    if tombstones.delete_some(connection, sql.EVENTS_OF_USER, sql.DROP_EVENT, log, "row", _ROWS):
        return True
    charges = Charges()
    more = _number_some(connection, group_id, charges)
    if not more:
        _empty_leaves(connection, connection.execute(sql.KEPT_LEAVES, at), group_id, charges)
        needs = (sql.ANY_ENTRY_OF_GROUP, sql.ANY_AUTHOR_OF_GROUP)
        is_needed = any(connection.execute(each, at).first() is not None for each in needs)
        if not is_needed and container is not None:
            more = _remove_some(connection, container, charges)
    charges.apply(connection)
    if not more:
        connection.execute(sql.SET_USER, {"user": group_id, **_NOTHING})
        connection.execute(FORGET_GROUP, at)
    return more


def _number_some(connection: Connection, group_id: bytes, charges: Charges) -> bool:
    """Replace fingerprints, which identify members, by numbers as the places of some leaves.

    The order stays the same: numbers ascend as the fingerprints did, and sort before all fingerprints.
    """
    at = {"group": group_id}
    found = connection.execute(LEAVES_BEHIND, {**at, "leaf": _LAST, "count": _ROWS}).all()
    if not found:
        return False
    _empty_leaves(connection, found, group_id, charges)
    last = connection.execute(LAST_PLACE, {**at, "leaf": _LAST}).scalar_one()
    number = 0 if last is None else int.from_bytes(last[len(NUMBERED) :], "big")
    places = sorted({bytes(leaf.place) for leaf in found})
    rows = [
        {**at, "leaf": place, "position": NUMBERED + (number + n).to_bytes(4, "big")}
        for n, place in enumerate(places, start=1)
    ]
    connection.execute(NUMBER_LEAVES, rows)
    return True


def _empty_leaves(
    connection: Connection, found: Iterable[Row], group_id: bytes, charges: Charges
) -> None:
    """Empty these leaves, unless a container still has a record that the member signed for the group."""
    kept = set(connection.execute(sql.AUTHORS_OF_GROUP, {"group": group_id}).scalars())
    for leaf in found:
        if leaf.member is None or stored_user_id(parse_member(leaf.member).fingerprint) in kept:
            continue
        place = {"group": group_id, "number": leaf.version}
        connection.execute(EMPTY_LEAF, {**place, "leaf": leaf.place})
        less = len(leaf.salt) + len(leaf.member)
        roster = sql.the(connection, SHRINK_ROSTER, **place, less=less)
        charges.add(roster.author_id, size=-less)


def _remove_some(connection: Connection, container: Row, charges: Charges) -> bool:
    """Delete leaves, rosters and records of a group that no container needs; return whether more remain."""
    at = {"group": container.id}
    leaves = connection.execute(LEAVES_BEHIND, {**at, "leaf": b"", "count": _ROWS}).all()
    connection.execute(
        DROP_LEAF, [{**at, "leaf": leaf.place, "number": leaf.version} for leaf in leaves]
    )
    if len(leaves) == _ROWS:
        return True
    found = connection.execute(sql.ROSTERS, {**at, "from": 0, "count": _ROWS})
    for roster in found:
        charges.add(roster.author_id, size=-roster.size)
    connection.execute(DROP_ROSTER, [{**at, "number": roster.version} for roster in found])
    if len(found) == _ROWS:
        return True
    tombstones.purge_containers(connection, UserId(container.id), [container], now(), charges)
    connection.execute(sql.SET_USER, {"user": container.id, **_NO_RECORDS})
    return False
