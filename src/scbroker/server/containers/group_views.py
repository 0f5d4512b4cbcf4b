"""Serve the records of groups, and what only members may read. Spec: docs/spec/groups.md, section 12.

Every user may read the records of every group with its managers and rosters. Leaves, wrap, info and
departures are for members alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import BrokerError, InvalidArgumentError, NotFoundError
from scbroker.records.canonical import parse_uuid, stored_user_id
from scbroker.records.container_record import parse_record
from scbroker.records.judge import governing_of
from scbroker.records.key_record import Signed
from scbroker.records.roster import group_type
from scbroker.server import metrics
from scbroker.server.broker import Broker, Call
from scbroker.server.containers.members import StoredList, chain_state, leaver_of_group
from scbroker.server.groups import memberships, proofs
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire import containers as wire
from scbroker.wire import groups
from scbroker.wire.codec import NoQuery, SignedObject
from scbroker.wire.problems import item_problem_of
from scbroker.wire.users import KeyChainState

_PAGE_RECORDS: Final = wire.PAGE_BYTES // 3000
ViewOrError = groups.GroupView | BrokerError

# Consecutive records with their signatures.
WHOLE_RECORDS: Final = sql.page(
    sa.select(t.records.c.version, t.records.c.body, t.records.c.signature).where(
        sql.of(t.records, "container"), t.records.c.version >= b("from")
    ),
    t.records.c.version,
)
# The groups of a user that are not deleted, in the order of ids.
GROUPS_OF_USER: Final = (
    sa.select(t.group_members.c.group_id, t.group_members.c.accepted, sql.GROUP.c.group_version)
    .join(sql.GROUP, sql.GROUP.c.id == t.group_members.c.group_id)
    .where(
        sql.of(t.group_members, "user"),
        ~t.group_members.c.gone,
        t.group_members.c.group_id > b("last"),
        ~sql.GROUP.c.deleted,
    )
    .order_by(t.group_members.c.group_id)
    .limit(b("count"))
)
# The departures from a group's roster in force.
GROUP_DEPARTURES: Final = sa.select(
    t.group_members.c.departure, t.group_members.c.departure_signature
).where(sql.of(t.group_members, "group"), t.group_members.c.departure.is_not(None))
OWN_GROUP_DEPARTURE: Final = GROUP_DEPARTURES.where(sql.of(t.group_members, "user"))


async def read_views(
    broker: Broker, call: Call, message: groups.GroupViewsRequest
) -> groups.GroupViews:
    """Return the first of the groups, at least one and about PAGE_BYTES in all, as of one moment."""
    if len({item.groupId for item in message.groups}) < len(message.groups):
        raise InvalidArgumentError("groups names a group twice: name each group once.")
    found = await broker.database.read(lambda c: _views(c, call, message.groups), large=True)
    answers = []
    for result in found:
        if isinstance(result, BrokerError):
            metrics.count_problem(result)
            answers.append(groups.GroupOutcome(view=None, problem=item_problem_of(result)))
        else:
            answers.append(groups.GroupOutcome(view=result, problem=None))
    return groups.GroupViews(groups=answers)


def _views(
    connection: Connection, call: Call, asked: Iterable[groups.GroupViewRequest]
) -> list[ViewOrError]:
    found: list[ViewOrError] = []
    left = wire.PAGE_BYTES
    for item in asked:
        try:
            view, size = _view(connection, call, item, left)
        except NotFoundError as error:
            found.append(error)
            continue
        found.append(view)
        left -= size
        if left <= 0:
            break
    return found


def _view(
    connection: Connection, call: Call, asked: groups.GroupViewRequest, left: int
) -> tuple[groups.GroupView, int]:
    """Return the view of a group, and about how many bytes it takes in the answer."""
    group_id = parse_uuid(asked.groupId).bytes
    row = sql.one(connection, sql.FIND_CONTAINER, id=group_id)
    records = None if row is None or not row.is_group else _Records(connection, row, left)
    if records is None or not records.read(min(asked.since, records.row.version)):
        raise NotFoundError(f"No group has the id {asked.groupId}.")
    membership = departure = None
    if asked.membership and records.is_whole:
        membership = _membership(connection, call, group_id, records)
        if membership is None:  # the departure tells the user's other devices that one of them left
            own = sql.one(connection, OWN_GROUP_DEPARTURE, group=group_id, user=call.session.id)
            if own is not None:
                departure = SignedObject.of(Signed(own.departure, own.departure_signature))
    view = groups.GroupView(
        records=records.served,
        last=records.row.version,
        keyChains=_chains(connection, records.signers),
        membership=membership,
        departure=departure,
    )
    return view, records.size


@dataclass(slots=True)
class _Records:
    """A page of a group's records, with the lists, types and rosters that they introduce."""

    connection: Connection
    row: Row
    """The row of the group's container."""
    left: int
    """Bytes that are left in the answer. The record that exceeds them is the last of the page."""
    served: list[groups.GroupRecord] = field(default_factory=list)
    signers: set[bytes] = field(default_factory=set)
    """The fingerprints of the users whose keys a reader needs to verify the page."""
    size: int = 0
    is_whole: bool = False
    """Whether the page ends with the head."""

    def read(self, first: int) -> bool:
        """Read the page from a version on; return whether it has a record."""
        at = {"container": self.row.id, "from": first, "count": _PAGE_RECORDS}
        rows = self.connection.execute(WHOLE_RECORDS, at).all()
        if not rows:
            return False
        now = sql.the(self.connection, sql.ROSTER_AT, group=self.row.id, number=first)
        values = {"group": self.row.id, "from": first, "count": _PAGE_RECORDS}
        rosters = {each.version: each for each in self.connection.execute(sql.ROSTERS, values)}
        rosters[first] = now
        last_list = 0
        for row in rows:
            record = parse_record(row.body)
            access = text = roster = None
            if record.governing is not None and governing_of(record).accessVersion != last_list:
                last_list = governing_of(record).accessVersion
                access = self._list(last_list)
            changed = rosters.get(row.version)
            if record.governing is not None and changed is not None:
                roster = bytes(changed.body)
                text = wire.TypeText(salt=changed.type_salt, type=group_type(roster))
            signed = wire.SignedRecord.of(Signed(row.body, row.signature))
            self.served.append(
                groups.GroupRecord(record=signed, accessList=access, type=text, roster=roster)
            )
            self.signers.add(record.author)
            entries = 0 if access is None else len(access.disclosed)
            self.size += wire.governing_size(signed.signed, entries, roster)
            self.is_whole = row.version == self.row.version
            if self.size > self.left:
                break
        return True

    def _list(self, version: int) -> wire.ListView:
        values = {"container": self.row.id, "number": version}
        return StoredList.decode(sql.the(self.connection, sql.FIND_LIST, **values).entries).view()


def _membership(
    connection: Connection, call: Call, group_id: bytes, records: _Records
) -> groups.GroupMembership | None:
    """Return what the broker serves to a member; None to anybody else."""
    own = memberships.find(connection, group_id, call.session.id)
    if own is None:
        return None
    group = {"group": group_id}
    leaves = proofs.leaves_at(connection, group_id, records.row.version)
    left = {
        leaver_of_group(signed): signed
        for row in connection.execute(GROUP_DEPARTURES, group)
        for signed in [Signed(row.departure, row.departure_signature)]
    }
    records.signers |= left.keys()
    info = bytes(sql.the(connection, sql.FIND_INFO, **group).info)
    owed = connection.execute(sql.OWED, group).all() if own.permissions else []
    records.size += len(info) + 128 * len(leaves) + wire.DEPARTURE_SIZE * len(left)
    return groups.GroupMembership(
        leaves=leaves,
        wrap=own.wrap,
        info=info,
        departures=[SignedObject.of(left[name]) for name in sorted(left)],
        owed=[chain_state(row.user_id, row.chain_length) for row in owed],
        accepted=own.accepted,
    )


def _chains(connection: Connection, signers: set[bytes]) -> list[KeyChainState]:
    ids = [stored_user_id(name) for name in sorted(signers)]
    found = {row.id: row for row in connection.execute(sql.FIND_USERS, {"ids": ids})}
    return [chain_state(each, found[each].chain_length) for each in ids if each in found]


async def list_groups(broker: Broker, call: Call, query: groups.GroupsQuery) -> groups.GroupList:
    """Return a page of the groups in which the session's user is a member, accepted or offered."""
    last = b"" if query.after is None else parse_uuid(query.after).bytes
    values = {"user": call.session.id, "last": last, "count": query.limit + 1}
    rows = await broker.database.read(lambda c: c.execute(GROUPS_OF_USER, values).all())
    listed = [
        groups.ListedGroup(
            groupId=str(UUID(bytes=row.group_id)), version=row.group_version, accepted=row.accepted
        )
        for row in rows[: query.limit]
    ]
    following = listed[-1].groupId if len(rows) > query.limit else None
    return groups.GroupList(groups=listed, next=following)


async def accept(broker: Broker, call: Call, query: NoQuery) -> None:
    """Note that the session's user accepts a group; a repeated request changes nothing."""
    del query
    group_id, user_id = call.group_id, call.session.id

    def write(connection: Connection) -> None:
        sql.one(connection, sql.LOCK_GROUP, id=group_id)
        if not memberships.check(connection, group_id, user_id).accepted:
            values = {"group": group_id, "user": user_id, "accepted": True}
            connection.execute(sql.SET_GROUP_MEMBER, values)
            memberships.check_accepted(connection, user_id)

    await broker.database.write(write)
