"""Read a stored group, and write its rows after a record. Spec: docs/spec/groups.md, sections 4 and 11.

`rosters` judges the record first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.crypto.verify import WRAP_SIZE
from scbroker.records import roster
from scbroker.records.canonical import UserId, stored_user_id
from scbroker.records.container_record import GROUP_TYPE
from scbroker.records.group import GroupChain, Moments
from scbroker.records.roster import Member, SaltedMember
from scbroker.server.broker import Charges
from scbroker.server.containers import members as lists
from scbroker.server.containers.incoming import Incoming, Stored, Transaction
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows, wake_after_commit
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.events import Change
from scbroker.wire.rosters import RosterRequest

ADD_GROUP_MEMBERS: Final = sa.insert(t.group_members)
DROP_GROUP_MEMBER: Final = sa.delete(t.group_members).where(
    sql.of(t.group_members, "group", "user")
)
ADD_ROSTER: Final = sa.insert(t.rosters)
ADD_LEAVES: Final = sa.insert(t.leaves)
END_LEAF: Final = sql.change(
    t.leaves,
    sql.of(t.leaves, "group"),
    t.leaves.c.place == b("leaf"),
    sql.END == sql.LATEST,
    until=b("number"),
)
ADD_INFO: Final = sa.insert(t.group_infos)
DROP_INFO: Final = sa.delete(t.group_infos).where(sql.of(t.group_infos, "group"))


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is stored, with its row of `users` locked."""

    stored: Stored
    row: Row
    """The group's row of `users`."""
    chain: GroupChain
    leaves: Mapping[bytes, SaltedMember]
    """Those of the roster in force, by fingerprint, in their order."""
    parsed: Mapping[bytes, Member]
    """The members of these leaves."""
    members: Mapping[bytes, Row]
    """Rows of `statements.GROUP_MEMBERS` by user id."""


class ChangedGroup(NamedTuple):
    """A group with the record that is being stored."""

    chain: GroupChain
    leaves: Mapping[bytes, SaltedMember]
    members: Mapping[bytes, Member]
    changed: Mapping[bytes, Member]
    """New and changed members, by fingerprint."""
    removed: Collection[bytes]
    new_epoch: bool


def members_of(connection: Connection, group_id: bytes) -> dict[bytes, Row]:
    """Return the rows of a group's members, by user id."""
    rows = connection.execute(sql.GROUP_MEMBERS, {"group": group_id})
    return {bytes(row.user_id): row for row in rows}


def departures(members: Mapping[bytes, Row]) -> int:
    """Return how many of the members of a roster have left."""
    return sum(member.departure is not None for member in members.values())


def read(
    connection: Connection, stored: Stored, row: Row, members: Mapping[bytes, Row]
) -> StoredGroup:
    """Return a stored group. Its chain has what `group.extend` needs, and no older moments."""
    place = {"group": stored.row.id, "number": stored.row.version}
    found = sql.the(connection, sql.ROSTER_AT, **place)
    chain = GroupChain(
        row.fingerprint,
        stored.head,
        stored.in_force,
        roster.parse_roster(found.body),
        bytes(found.body),
        Moments(),
        (),
    )
    leaves = memberships.leaves_at(connection, stored.row.id, stored.row.version)
    by_name = {bytes(leaf.place): memberships.salted(leaf) for leaf in leaves}
    parsed = {name: roster.parse_member(leaf.member) for name, leaf in by_name.items()}
    return StoredGroup(stored, row, chain, by_name, parsed, members)


def write_group(
    tx: Transaction, incoming: Incoming, before: StoredGroup | None, after: ChangedGroup
) -> None:
    """Write the group's row of `users`."""
    state = {"encryption_index": after.chain.roster.epoch, "group_version": after.chain.version}
    if before is not None:
        tx.connection.execute(sql.SET_USER, {"user": incoming.container_id, **state})
        return
    row = {
        "id": incoming.container_id,
        "fingerprint": after.chain.name,
        "chain_length": 0,
        "signing_sequence": 0,
        "signed_until": 0,
        "registered_at": 0,
        "deleted": False,
        "last_event": 0,
        "first_event": 1,
        "key_file_generation": 0,
        **state,
    }
    tx.connection.execute(sql.ADD_USER, row)


def write_roster(
    tx: Transaction,
    incoming: Incoming,
    request: RosterRequest,
    type_salt: bytes,
    before: StoredGroup | None,
    after: ChangedGroup,
    charges: Charges,
) -> None:
    """Write roster, leaves and info, and charge the author for them."""
    at = {"group": incoming.container_id, "number": incoming.record.version}
    version, author, connection = incoming.record.version, incoming.user.id, tx.connection
    ended = [*after.removed, *(after.changed.keys() & (before.leaves if before else {}).keys())]
    connection.execute(END_LEAF, [{**at, "leaf": name} for name in ended])
    rows: list[dict[str, Any]] = [
        {
            "group_id": incoming.container_id,
            "place": name,
            "version": version,
            "until": sql.LATEST,
            "hash": after.leaves[name].hash,
            "salt": after.leaves[name].salt,
            "member": after.leaves[name].member,
        }
        for name in after.changed
    ]
    connection.execute(ADD_LEAVES, rows)
    size = len(request.roster) + sum(len(row["salt"]) + len(row["member"]) for row in rows)
    new = {
        "group_id": incoming.container_id,
        "version": version,
        "author_id": author,
        "epoch": after.chain.roster.epoch,
        "type_salt": type_salt,
        "body": request.roster,
        "size": size,
    }
    connection.execute(ADD_ROSTER, new)
    if request.info is not None:
        _drop_info(connection, incoming.container_id, charges)
        info = {"group_id": incoming.container_id, "info": request.info, "author_id": author}
        connection.execute(ADD_INFO, info)
        size += len(request.info)
    charges.add(author, size=size)


def _drop_info(connection: Connection, group_id: bytes, charges: Charges) -> None:
    found = sql.one(connection, sql.FIND_INFO, group=group_id)
    if found is not None:
        charges.add(found.author_id, size=-len(found.info))
        connection.execute(DROP_INFO, {"group": group_id})


def write_members(
    tx: Transaction,
    incoming: Incoming,
    before: StoredGroup | None,
    after: ChangedGroup,
    charges: Charges,
) -> None:
    """Write the rows of members that differ. Wraps that are replaced or dropped are no longer charged."""
    request, group_id = incoming.message.roster, incoming.container_id
    wraps = {item.fingerprint: item.wrap for item in request.wraps} if request else {}
    old = before.members if before else {}
    kept, rows = set[bytes](), dict[bytes, dict[str, Any]]()
    for name in after.leaves:
        user_id = stored_user_id(name)
        kept.add(user_id)
        known = old.get(user_id)
        row = _row_of(incoming, after, name, known, wraps.get(name))
        if known is None or any(getattr(known, each) != value for each, value in row.items()):
            rows[user_id] = row
    gone = sorted(old.keys() - kept) + sorted(old.keys() & rows.keys())
    _drop_members(tx.connection, group_id, [old[each] for each in gone], rows, charges)
    added = [{"group_id": group_id, "user_id": each, **row} for each, row in rows.items()]
    tx.connection.execute(ADD_GROUP_MEMBERS, added)
    charges.add(incoming.user.id, size=WRAP_SIZE * len(wraps))


def _row_of(
    incoming: Incoming, after: ChangedGroup, name: bytes, known: Row | None, wrap: bytes | None
) -> dict[str, Any]:
    """Return the columns of a member's row; unchanged values come from the former row, if any."""
    member, manager = after.members[name], after.chain.managers.get(name)
    has_same_leaf = known is not None and name not in after.changed
    was_member = known is not None and not known.gone
    row: dict[str, Any] = {
        "version": member.version,
        "role": member.role,
        "key_index": member.keyIndex,
        "permissions": 0 if manager is None else manager.permissions,
        # A new member has to accept the group, except the author of the record.
        "accepted": known.accepted if was_member and known else name == incoming.user.fingerprint,
        "gone": bool(has_same_leaf and known and known.gone),
        "wrap": None,
        "wrap_author_id": None,
        "departure": known.departure if has_same_leaf and known else None,
        "departure_signature": known.departure_signature if has_same_leaf and known else None,
    }
    if wrap is not None:
        row |= {"wrap": wrap, "wrap_author_id": incoming.user.id}
    elif known is not None and not after.new_epoch:
        row |= {"wrap": known.wrap, "wrap_author_id": known.wrap_author_id}
    return row


def _drop_members(
    connection: Connection,
    group_id: bytes,
    dropped: Sequence[Row],
    changed: Mapping[bytes, Mapping[str, Any]],
    charges: Charges,
) -> None:
    """Delete rows of members, and credit the authors of their wraps.

    A deleted user's keys were kept to verify the departure in the row: now they may be deleted too.
    """
    released = []
    for member in dropped:
        after = changed.get(member.user_id)
        if member.wrap is not None and (after is None or after["wrap"] != member.wrap):
            charges.add(member.wrap_author_id, size=-len(member.wrap))
        if member.departure is not None and (after is None or after["departure"] is None):
            released.append(UserId(member.user_id))
    rows = [{"group": group_id, "user": member.user_id} for member in dropped]
    connection.execute(DROP_GROUP_MEMBER, rows)
    if released:
        lists.release_keys(connection, released)


def end(connection: Connection, group_id: bytes, charges: Charges) -> None:
    """End a group: delete what only its members need, and mark the rest as pending deletion.

    The group's rows must be locked.
    """
    rows = connection.execute(sql.GROUP_MEMBERS, {"group": group_id}).all()
    _drop_members(connection, group_id, rows, {}, charges)
    _drop_info(connection, group_id, charges)
    connection.execute(sql.SET_USER, {"user": group_id, "deleted": True})
    connection.execute(sql.ADD_PENDING_GROUP, {"group": group_id})
    wake_after_commit(connection, [group_id])


def add_events(
    incoming: Incoming, before: StoredGroup | None, after: ChangedGroup, new: NewRows, moment: int
) -> None:
    """Add the events of a record: for users who become or cease to be members, and one for the group."""
    record, old = incoming.record, before.members if before else {}
    rows: list[dict[str, Any]] = []

    def add(user_id: bytes, kind: ContainerEventType, changes: Collection[Change] = ()) -> None:
        group = record.containerId, GROUP_TYPE, record.version
        who = incoming.user.id, incoming.application
        rows.append(log.event_row(user_id, kind, *group, moment, *who, changes))

    were = {user_id for user_id, member in old.items() if not (member.gone or member.deleted)}
    if record.tombstone:
        for user_id in sorted(were):
            add(user_id, ContainerEventType.Deleted)
    else:
        for user_id in sorted({stored_user_id(name) for name in after.changed} - were):
            add(user_id, ContainerEventType.Added)
        for user_id in sorted(were & {stored_user_id(name) for name in after.removed}):
            add(user_id, ContainerEventType.Deleted)
        if before is not None:
            changes: list[Change] = ["access"] if record.changes_access else []
            changes += ["type"] if incoming.message.roster is not None else []
            add(incoming.container_id, ContainerEventType.Updated, changes)
    log.add_events(new, rows)
