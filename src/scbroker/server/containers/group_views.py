"""Serve the records of groups, and what only members may read. Spec: docs/spec/groups.md, section 12.

Every user may read the records of every group with its managers and rosters. Leaves, wrap, info and
departures are for members alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import BrokerError, InvalidArgumentError, NotFoundError
from scbroker.records.canonical import parse_uuid, stored_user_id
from scbroker.records.container_record import parse_record
from scbroker.records.key_record import Signed
from scbroker.records.roster import group_type
from scbroker.server import metrics
from scbroker.server.broker import Broker, Call
from scbroker.server.containers.members import StoredList, chain_state, leaver_of_group
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.wire import containers as wire
from scbroker.wire import groups
from scbroker.wire.codec import SignedObject
from scbroker.wire.problems import item_problem_of

_PAGE_RECORDS: Final = wire.PAGE_BYTES // 3000
ViewOrError = groups.GroupView | BrokerError

# Consecutive records with their signatures.
WHOLE_RECORDS: Final = sql.page(
    sql.find(t.records, "container", t.records.c.version >= b("from")), t.records.c.version
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
GROUP_DEPARTURES: Final = sql.find(
    t.group_members, "group", t.group_members.c.departure.is_not(None)
)
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
    found, left = list[ViewOrError](), wire.PAGE_BYTES
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
    """Return a view with a page of a group's records, and about how many bytes it takes in the answer.

    The record that exceeds the bytes that are `left` is the last of the page. Each has the list, type and
    roster that it introduces.
    """
    group_id = parse_uuid(asked.groupId).bytes
    row = sql.one(connection, sql.FIND_CONTAINER, id=group_id)
    if row is None or not row.is_group:
        raise NotFoundError(f"No group has the id {asked.groupId}.")
    first = min(asked.since, row.version)
    some = {"container": group_id, "group": group_id, "from": first, "count": _PAGE_RECORDS}
    stored = connection.execute(WHOLE_RECORDS, some)
    if not stored:
        raise NotFoundError(f"No group has the id {asked.groupId}.")
    rosters = {each.version: each for each in connection.execute(sql.ROSTERS, some)}
    rosters[first] = sql.the(connection, sql.ROSTER_AT, group=group_id, number=first)
    records, signers, size, last_list, last = list[groups.GroupRecord](), set[bytes](), 0, 0, 0
    for each in stored:
        record, last = parse_record(each.body), each.version
        access = text = body = None
        if record.governing is not None:
            if record.governing.accessVersion != last_list:
                last_list = record.governing.accessVersion
                place = {"container": group_id, "number": last_list}
                found = sql.the(connection, sql.FIND_LIST, **place)
                access = StoredList.decode(found.entries).view()
            if (changed := rosters.get(last)) is not None:
                body = bytes(changed.body)
                text = wire.TypeText(salt=changed.type_salt, type=group_type(body))
        signed = Signed(each.body, each.signature)
        made = wire.SignedRecord.of(signed)
        records.append(groups.GroupRecord(record=made, accessList=access, type=text, roster=body))
        signers.add(record.author)
        size += wire.governing_size(signed, len(access.disclosed) if access else 0, body)
        if size > left:
            break
    membership = departure = None
    if asked.membership and last == row.version:
        membership = _membership(connection, call, group_id, last)
        if membership is None:  # the departure tells the user's other devices that one of them left
            own = sql.one(connection, OWN_GROUP_DEPARTURE, group=group_id, user=call.session.id)
            if own is not None:
                departure = SignedObject.of(Signed(own.departure, own.departure_signature))
        else:
            signers |= {leaver_of_group(item.signed) for item in membership.departures}
            size += len(membership.info) + 128 * len(membership.leaves)
            size += wire.DEPARTURE_SIZE * len(membership.departures)
    ids = [stored_user_id(name) for name in sorted(signers)]
    users = {user.id: user for user in connection.execute(sql.FIND_USERS, {"ids": ids})}
    chains = [chain_state(each, users[each].chain_length) for each in ids if each in users]
    view = groups.GroupView(
        records=records,
        last=row.version,
        keyChains=chains,
        membership=membership,
        departure=departure,
    )
    return view, size


def _membership(
    connection: Connection, call: Call, group_id: bytes, version: int
) -> groups.GroupMembership | None:
    """Return what the broker serves to a member; None to anybody else."""
    own = memberships.find(connection, group_id, call.session.id)
    if own is None:
        return None
    group = {"group": group_id}
    left = {
        leaver_of_group(signed): SignedObject.of(signed)
        for row in connection.execute(GROUP_DEPARTURES, group)
        for signed in [Signed(row.departure, row.departure_signature)]
    }
    owed = connection.execute(sql.OWED, group) if own.permissions else []
    return groups.GroupMembership(
        leaves=memberships.served_leaves(connection, group_id, version),
        wrap=own.wrap,
        info=bytes(sql.the(connection, sql.FIND_INFO, **group).info),
        departures=[left[name] for name in sorted(left)],
        owed=[chain_state(row.user_id, row.chain_length) for row in owed],
        accepted=own.accepted,
    )


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


async def accept(broker: Broker, call: Call) -> None:
    """Note that the session's user accepts a group; a repeated request changes nothing."""
    group_id, user_id = call.group_id, call.session.id

    def write(connection: Connection) -> None:
        sql.one(connection, sql.LOCK_GROUP, id=group_id)
        if not memberships.check(connection, group_id, user_id).accepted:
            values = {"group": group_id, "user": user_id, "accepted": True}
            connection.execute(sql.SET_GROUP_MEMBER, values)
            memberships.check_accepted(connection, user_id)

    await broker.database.write(write)
