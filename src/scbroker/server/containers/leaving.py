"""Let a user leave a container or a group by a signed departure.

Spec: docs/spec/container.md, sections 4.1 and 10; groups.md, 9 and 12.

A departure is checked twice: before the transaction that stores it, so that one with a wrong signature does
not occupy the writer, and in it, under locks. It is stored beside the chain of records: no record, head or
roster changes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.records import group as rules
from scbroker.records import judge
from scbroker.records.canonical import ContainerId, stored_user_id
from scbroker.records.container_record import GROUP_TYPE
from scbroker.records.departure import Departure, parse_departure
from scbroker.records.key_record import CLOCK_TOLERANCE, KeyChain, Signed
from scbroker.records.roster import GroupDeparture, parse_group_departure
from scbroker.server.broker import (
    Broker,
    Call,
    check_active,
    check_unexpired,
    is_unexpired,
    not_found,
    now,
    refusing,
)
from scbroker.server.containers import members, rosters, storing
from scbroker.server.containers.incoming import Stored
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType, KeyType
from scbroker.wire.containers import DEPARTURE_SIZE, DepartureRequest
from scbroker.wire.groups import GroupDepartureRequest

_LIST_CHANGED: Final = "The access list of the container was changed meanwhile: read it again."
_MEMBERSHIP_CHANGED: Final = "Your membership was changed meanwhile: read the group again."
_GROUP_CHANGED: Final = "The group was changed meanwhile: read it again."
D = TypeVar("D", Departure, GroupDeparture)
M = TypeVar("M", DepartureRequest, GroupDepartureRequest)

FIND_DEPARTURE: Final = sql.DEPARTURES.where(sql.of(t.departures, "user"))
COUNT_DEPARTURES: Final = sql.count(t.departures, "container", "number")
# Another user or group with unexpired access that was not deleted. A group is deleted with its last member.
ANOTHER_MEMBER: Final = (
    sa.select(t.members.c.user_id)
    .join(t.users, t.users.c.id == t.members.c.user_id)
    .where(
        sql.of(t.members, "container"),
        t.members.c.user_id != b("user"),
        sql.UNEXPIRED,
        ~t.users.c.deleted,
    )
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class _Leaving(Generic[D, M]):
    """A parsed departure with the request that sent it."""

    broker: Broker
    call: Call
    departure: D
    message: M

    @property
    def signed(self) -> Signed:
        return self.message.departure.signed

    def keys(self, connection: Connection, user: Row, *, writing: bool) -> KeyChain:
        """Return the leaver's keys; raise unless the departure names the latest signing key.

        A transaction that writes caches nothing: another of its requests may have added a key, and it may
        fail.
        """
        chains = self.broker.chains
        keys = (chains.read if writing else chains.get)(connection, user.id, user.chain_length)
        if self.departure.keyIndex != keys.latest(KeyType.Signing).index:
            raise errors.RejectedError(
                "The departure is not signed with the latest active signing key: sign it with that key."
            )
        return keys

    def check_dated(self, since: int) -> None:
        """Raise unless the departure's time is at most five minutes off.

        A time up to `since` is accepted as well: the list or leaf that it names may be dated ahead.
        """
        time, moment = self.departure.time, self.call.now
        if not moment - CLOCK_TOLERANCE <= time <= max(moment + CLOCK_TOLERANCE, since):
            raise errors.ClockError(
                "The departure is dated more than five minutes off: set the clock right."
            )

    async def run(self, store: Callable[..., None]) -> None:
        """Check the departure with `store` in a snapshot, then store it, unless it is stored already."""
        if self.departure.fingerprint != self.call.session.fingerprint:
            raise errors.PermissionDeniedError("Only the user who leaves can send the departure.")
        await self.broker.database.read(partial(store, self, writing=False), large=True)
        await self.broker.database.write(partial(store, self, writing=True))


_OfContainer = _Leaving[Departure, DepartureRequest]
_OfGroup = _Leaving[GroupDeparture, GroupDepartureRequest]


async def leave(broker: Broker, call: Call, message: DepartureRequest) -> None:
    """Store the user's departure from a container; one that is stored already changes nothing."""
    with refusing():
        departure = parse_departure(message.departure.signed.body)
    if departure.containerId != call.container_id:
        raise errors.InvalidArgumentError("The departure names another container than the path.")
    await _Leaving(broker, call, departure, message).run(_store)


async def leave_group(broker: Broker, call: Call, message: GroupDepartureRequest) -> None:
    """Store the user's departure from a group; one that is stored already changes nothing."""
    with refusing():
        departure = parse_group_departure(message.departure.signed.body)
    if ContainerId(stored_user_id(departure.group)) != call.group_id:
        raise errors.InvalidArgumentError("The departure names another group than the path.")
    await _Leaving(broker, call, departure, message).run(_store_of_group)


def _store(leaving: _OfContainer, connection: Connection, *, writing: bool) -> None:
    """Verify a departure from the list in force; if `writing`, store it, and end the user's membership.

    Lock order, as in every writer: container, user, event log. The user gets a row of `authors`: readers need
    the leaver's keys as long as the container exists.
    """
    call, departure = leaving.call, leaving.departure
    find, found = sql.FIND_CONTAINER, sql.FIND_USERS
    if writing:
        find, found = sql.LOCK_CONTAINER, sql.SHARE_USERS
    container = sql.one(connection, find, id=call.container_id)
    user = check_active(sql.the(connection, found, ids=[call.session.id]))
    place = {"container": call.container_id, "number": departure.accessVersion}
    stored = sql.one(connection, FIND_DEPARTURE, **place, user=user.id)
    if stored is not None and stored.body == leaving.signed.body:
        return
    if container is None:
        raise not_found()
    moment, ids = now() if writing else call.now, {"container": container.id, "user": user.id}
    member = check_unexpired(sql.one(connection, sql.FIND_MEMBER, **ids), moment)
    if container.deleted:
        raise errors.DeletedError()
    if container.access_version != departure.accessVersion:
        raise errors.ConflictError(_LIST_CHANGED)
    if member.permissions & ContainerAccessLevel.ModifyAccess:
        # If two such members leave at once, the second client must check again that others can change access.
        left = connection.execute(COUNT_DEPARTURES, place).scalar_one()
        if leaving.message.departures != left:
            raise errors.ConflictError(storing.LEFT)
    if sql.one(connection, ANOTHER_MEMBER, **ids, now=moment) is None:
        raise errors.RejectedError("Nobody else has access: delete the container instead.")
    keys = leaving.keys(connection, user, writing=writing)
    governing = members.known_at(connection, container.id, container.governing_version)
    in_force = members.in_force(connection, container.id, governing)
    if departure.accessList != in_force.governing.accessList:
        raise errors.ConflictError(_LIST_CHANGED)
    leaving.check_dated(in_force.since)
    with refusing():
        judge.verify_departure(leaving.signed, in_force, keys, call.now)
    if not writing:
        return
    log.record_expiry(connection, [container], moment)
    body, signature = leaving.signed
    row = {
        "container_id": container.id,
        "access_version": departure.accessVersion,
        "user_id": user.id,
        "body": body,
        "signature": signature,
    }
    connection.add(t.departures, row)
    connection.execute(sql.DROP_MEMBER, ids)
    if container.creator_id != user.id:
        connection.execute(sql.ADD_AUTHOR, ids)
    size = container.governing_bytes + DEPARTURE_SIZE
    connection.execute(sql.SET_CONTAINER, {"container": container.id, "governing_bytes": size})
    remaining = connection.execute(sql.MEMBERS, {"container": container.id})
    others = [other for other in remaining if is_unexpired(other, moment)]
    log.record_departure(connection, container, member, others, call.application, moment)
    storing.raise_signed_until(connection, user, departure.time)


def _store_of_group(leaving: _OfGroup, connection: Connection, *, writing: bool) -> None:
    """Verify a departure from the roster in force; if `writing`, store it in the member's row.

    Lock order, as in every writer: container, users, event log. The wrap stays until a new epoch is made: by
    a wrap of a user who has left, `sql.OWED` finds that the group owes one.
    """
    call, departure, group_id = leaving.call, leaving.departure, leaving.call.group_id
    find, find_group, found = sql.FIND_CONTAINER, sql.FIND_GROUP, sql.FIND_USERS
    if writing:
        find, find_group, found = sql.LOCK_CONTAINER, sql.LOCK_GROUP, sql.SHARE_USERS
    container = sql.one(connection, find, id=group_id)
    group = sql.one(connection, find_group, id=group_id)
    user = check_active(sql.the(connection, found, ids=[call.session.id]))
    stored = rosters.members_of(connection, group_id)
    own = stored.get(user.id)
    if own is not None and own.departure == leaving.signed.body:
        return
    if container is None or group is None or group.deleted or own is None or own.gone:
        raise not_found(memberships.WHAT)
    if own.version != departure.version:
        raise errors.ConflictError(_MEMBERSHIP_CHANGED)
    if own.permissions & ContainerAccessLevel.ModifyAccess:
        # Another owner may have left or stepped down meanwhile. The client has to read the group again, to
        # warn that no owner would remain.
        if leaving.message.departures != rosters.departures(stored):
            raise errors.ConflictError(storing.LEFT)
        if leaving.message.last != container.version:
            raise errors.ConflictError(_GROUP_CHANGED)
    others = (row for row in stored.values() if row is not own)
    if all(row.gone or row.deleted for row in others):
        raise errors.RejectedError("The group has no other member: delete the group instead.")
    head = members.known_at(connection, container.id, container.version)
    known = members.known_at(connection, container.id, departure.version)
    in_force = members.in_force(connection, container.id, head)
    read = rosters.read(connection, Stored(container, head, in_force), group, stored)
    leaving.check_dated(known.record.time)
    # The record of the group that introduced the leaver's leaf, as `verify_departure` needs it.
    since = rules.Moment(known.hash, known.record.time, 0, b"", 0)
    chain = replace(read.chain, moments=rules.Moments().adding(departure.version, since))
    keys = leaving.keys(connection, user, writing=writing)
    with refusing():
        rules.verify_departure(leaving.signed, chain, read.parsed, keys, call.now)
    if not writing:
        return
    body, signature = leaving.signed
    values: dict[str, Any] = {
        "group": group_id,
        "user": user.id,
        "gone": True,
        "accepted": False,
        "departure": body,
        "departure_signature": signature,
    }
    connection.execute(sql.SET_GROUP_MEMBER, values)
    columns = {"container_type": GROUP_TYPE, **log.who_of(user.id, call.application)}
    kind, version = ContainerEventType.Deleted, container.version
    connection.add(t.events, log.event_row(user.id, kind, group_id, version, now(), columns))
    # This ends the leaver's requests that wait for the group's events.
    connection.woken.update([user.id, group_id])
    storing.raise_signed_until(connection, user, departure.time)
