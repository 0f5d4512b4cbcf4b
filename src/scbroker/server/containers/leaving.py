"""Let a user leave a container or a group by a signed departure.

Spec: docs/spec/container.md, sections 4.1 and 10; groups.md, 9 and 12.

The departure is verified before the transaction that stores it. That transaction only checks that the access
list or leaf and the user's keys are still the same. A departure is stored beside the chain of records: no
record, head or roster changes.
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
from scbroker.server.containers import members, stored_groups, storing
from scbroker.server.containers.incoming import Stored
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import wake_after_commit
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType, KeyType
from scbroker.wire.containers import DEPARTURE_SIZE, DepartureRequest
from scbroker.wire.groups import GroupDepartureRequest

_LIST_CHANGED: Final = "The access list of the container was changed meanwhile: read it again."
_MEMBERSHIP_CHANGED: Final = "Your membership was changed meanwhile: read the group again."
_GROUP_CHANGED: Final = "The group was changed meanwhile: read it again."
D = TypeVar("D", Departure, GroupDeparture)
M = TypeVar("M", DepartureRequest, GroupDepartureRequest)

ADD_DEPARTURE: Final = sa.insert(t.departures)
FIND_DEPARTURE: Final = sql.DEPARTURES.where(sql.of(t.departures, "user"))
COUNT_DEPARTURES: Final = sa.select(sa.func.count()).select_from(t.departures).where(sql.OF_LIST)
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
    """A parsed departure with the request that sent it. Its signature is not verified yet."""

    departure: D
    message: M
    call: Call

    @property
    def signed(self) -> Signed:
        return self.message.departure.signed


_OfContainer = _Leaving[Departure, DepartureRequest]
_OfGroup = _Leaving[GroupDeparture, GroupDepartureRequest]


async def leave(broker: Broker, call: Call, message: DepartureRequest) -> None:
    """Store the user's departure from a container; one that is stored already changes nothing."""
    with refusing():
        departure = parse_departure(message.departure.signed.body)
    if departure.containerId != call.container_id:
        raise errors.InvalidArgumentError("The departure names another container than the path.")
    await _leave(broker, _Leaving(departure, message, call), _verify, _store)


async def leave_group(broker: Broker, call: Call, message: GroupDepartureRequest) -> None:
    """Store the user's departure from a group; one that is stored already changes nothing."""
    with refusing():
        departure = parse_group_departure(message.departure.signed.body)
    if ContainerId(stored_user_id(departure.group)) != call.group_id:
        raise errors.InvalidArgumentError("The departure names another group than the path.")
    await _leave(broker, _Leaving(departure, message, call), _verify_of_group, _store_of_group)


async def _leave(
    broker: Broker,
    leaving: _Leaving[D, M],
    verify: Callable[..., int | None],
    store: Callable[..., None],
) -> None:
    """Verify a departure and store it, unless it is stored already.

    `verify` returns how many key records the user has; None if the departure is stored already.
    """
    if leaving.departure.fingerprint != leaving.call.session.fingerprint:
        raise errors.PermissionDeniedError("Only the user who leaves can send the departure.")
    verified = partial(verify, broker=broker, leaving=leaving)
    length = await broker.database.read(verified, large=True)
    if length is not None:
        await broker.database.write(partial(store, leaving=leaving, chain_length=length))


def _check_dated(leaving: _Leaving[D, M], since: int) -> None:
    """Raise unless the departure's time is at most five minutes off.

    A time up to `since` is accepted as well: the list or leaf that it names may be dated ahead.
    """
    time, moment = leaving.departure.time, leaving.call.now
    if not moment - CLOCK_TOLERANCE <= time <= max(moment + CLOCK_TOLERANCE, since):
        raise errors.ClockError(
            "The departure is dated more than five minutes off: set the clock right."
        )


def _keys_of(connection: Connection, broker: Broker, leaving: _Leaving[D, M]) -> KeyChain:
    """Return the leaver's keys; raise unless the departure names the latest signing key."""
    user = check_active(sql.the(connection, sql.FIND_USER, id=leaving.call.session.id))
    keys = broker.chains.get(connection, user.id, user.chain_length)
    if leaving.departure.keyIndex != keys.latest(KeyType.Signing).index:
        raise errors.RejectedError(
            "The departure is not signed with the latest active signing key: sign it with that key."
        )
    return keys


# From a container


def _verify(connection: Connection, broker: Broker, leaving: _OfContainer) -> int | None:
    """Verify a departure from the list in force; return how many key records its user has.

    Returns None if it is stored already.
    """
    if _is_stored(connection, leaving):
        return None
    found = sql.one(connection, sql.FIND_CONTAINER, id=leaving.call.container_id)
    row, _ = _check_member(connection, leaving, found, leaving.call.now)
    keys = _keys_of(connection, broker, leaving)
    place = {"container": row.id, "number": row.governing_version}
    governing = judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)
    in_force = members.in_force(connection, row.id, governing)
    if leaving.departure.accessList != in_force.governing.accessList:
        raise errors.ConflictError(_LIST_CHANGED)
    _check_dated(leaving, in_force.since)
    with refusing():
        judge.verify_departure(leaving.signed, in_force, keys, leaving.call.now)
    return len(keys.records)


def _is_stored(connection: Connection, leaving: _OfContainer) -> bool:
    place = {"container": leaving.call.container_id, "number": leaving.departure.accessVersion}
    stored = sql.one(connection, FIND_DEPARTURE, **place, user=leaving.call.session.id)
    return stored is not None and stored.body == leaving.signed.body


def _check_member(
    connection: Connection, leaving: _OfContainer, row: Row | None, moment: int
) -> tuple[Row, Row]:
    """Return the container and the leaver's membership; raise unless this user may leave this list now."""
    if row is None:
        raise not_found()
    who = {"container": row.id, "user": leaving.call.session.id}
    member = check_unexpired(sql.one(connection, sql.FIND_MEMBER, **who), moment)
    if row.deleted:
        raise errors.DeletedError()
    if row.access_version != leaving.departure.accessVersion:
        raise errors.ConflictError(_LIST_CHANGED)
    if member.permissions & ContainerAccessLevel.ModifyAccess:
        # If two such members leave at once, the second client must check again that others can change access.
        place = {"container": row.id, "number": row.access_version}
        left = connection.execute(COUNT_DEPARTURES, place).scalar_one()
        if leaving.message.departures != left:
            raise errors.ConflictError(storing.LEFT)
    if sql.one(connection, ANOTHER_MEMBER, **who, now=moment) is None:
        raise errors.RejectedError("Nobody else has access: delete the container instead.")
    return row, member


def _store(connection: Connection, leaving: _OfContainer, chain_length: int) -> None:
    """Store a verified departure, and end the user's membership.

    Lock order, as in every writer: container, user, event log. The user gets a row of `authors`: readers need
    the leaver's keys as long as the container exists.
    """
    locked = sql.one(connection, sql.LOCK_CONTAINER, id=leaving.call.container_id)
    user = check_active(sql.the(connection, sql.SHARE_USERS, ids=[leaving.call.session.id]))
    moment = now()
    if _is_stored(connection, leaving):
        return
    container, member = _check_member(connection, leaving, locked, moment)
    storing.check_same_keys(user, chain_length)
    log.record_expiry(connection, [container], moment)
    row = {
        "container_id": container.id,
        "access_version": leaving.departure.accessVersion,
        "user_id": user.id,
        "body": leaving.signed.body,
        "signature": leaving.signed.signature,
    }
    connection.execute(ADD_DEPARTURE, row)
    ids = {"container": container.id, "user": user.id}
    connection.execute(sql.DROP_MEMBER, ids)
    if container.creator_id != user.id:
        connection.execute(sql.ADD_AUTHOR, ids)
    size = container.governing_bytes + DEPARTURE_SIZE
    connection.execute(sql.SET_CONTAINER, {"container": container.id, "governing_bytes": size})
    found = connection.execute(sql.MEMBERS, {"container": container.id})
    others = [other for other in found if is_unexpired(other, moment)]
    log.record_departure(connection, container, member, others, leaving.call.application, moment)
    storing.raise_signed_until(connection, user, leaving.departure.time)


# From a group


def _verify_of_group(connection: Connection, broker: Broker, leaving: _OfGroup) -> int | None:
    """Verify a departure from the roster in force; return how many key records its user has.

    Returns None if it is stored already.
    """
    said, group_id = leaving.departure, leaving.call.group_id
    found = stored_groups.members_of(connection, group_id)
    if _is_stored_of_group(leaving, found):
        return None
    row = sql.one(connection, sql.FIND_GROUP, id=group_id)
    container = sql.one(connection, sql.FIND_CONTAINER, id=group_id)
    container, row = _check_group_member(leaving, container, row, found)

    def read(version: int) -> judge.Known:
        place = {"container": group_id, "number": version}
        return judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)

    head, known = read(container.version), read(said.version)
    in_force = members.in_force(connection, container.id, head)
    stored = Stored(container, head, in_force)
    group = stored_groups.read(connection, stored, row, found)
    _check_dated(leaving, known.record.time)
    keys = _keys_of(connection, broker, leaving)
    # The record of the group that introduced the leaver's leaf, as `verify_departure` needs it.
    since = rules.Moment(known.hash, known.record.time, 0, b"", 0)
    chain = replace(group.chain, moments=rules.Moments().adding(said.version, since))
    with refusing():
        rules.verify_departure(leaving.signed, chain, group.parsed, keys, leaving.call.now)
    return len(keys.records)


def _is_stored_of_group(leaving: _OfGroup, found: dict[bytes, Row]) -> bool:
    own = found.get(leaving.call.session.id)
    return own is not None and own.departure == leaving.signed.body


def _check_group_member(
    leaving: _OfGroup, container: Row | None, group: Row | None, found: dict[bytes, Row]
) -> tuple[Row, Row]:
    """Return the group's rows; raise unless this user may leave this roster now."""
    own = found.get(leaving.call.session.id)
    if container is None or group is None or group.deleted or own is None or own.gone:
        raise not_found(memberships.WHAT)
    if own.version != leaving.departure.version:
        raise errors.ConflictError(_MEMBERSHIP_CHANGED)
    if own.permissions & ContainerAccessLevel.ModifyAccess:
        # Another owner may have left or stepped down meanwhile. The client has to read the group again, to
        # warn that no owner would remain.
        if leaving.message.departures != stored_groups.departures(found):
            raise errors.ConflictError(storing.LEFT)
        if leaving.message.last != container.version:
            raise errors.ConflictError(_GROUP_CHANGED)
    others = (row for row in found.values() if row is not own)
    if all(row.gone or row.deleted for row in others):
        raise errors.RejectedError("The group has no other member: delete the group instead.")
    return container, group


def _store_of_group(connection: Connection, leaving: _OfGroup, chain_length: int) -> None:
    """Store a verified departure in the member's row, and end the user's membership.

    Lock order, as in every writer: container, users, event log. The wrap stays until a
    new epoch is made: by a wrap of a user who has left, `sql.OWED` finds that the group owes one.
    """
    group_id = leaving.call.group_id
    container = sql.one(connection, sql.LOCK_CONTAINER, id=group_id)
    group = sql.one(connection, sql.LOCK_GROUP, id=group_id)
    user = check_active(sql.the(connection, sql.SHARE_USERS, ids=[leaving.call.session.id]))
    found = stored_groups.members_of(connection, group_id)
    if _is_stored_of_group(leaving, found):
        return
    container, _ = _check_group_member(leaving, container, group, found)
    storing.check_same_keys(user, chain_length)
    values: dict[str, Any] = {
        "group": group_id,
        "user": user.id,
        "gone": True,
        "accepted": False,
        "departure": leaving.signed.body,
        "departure_signature": leaving.signed.signature,
    }
    connection.execute(sql.SET_GROUP_MEMBER, values)
    of_group, who = (group_id, GROUP_TYPE, container.version), (user.id, leaving.call.application)
    row = log.event_row(user.id, ContainerEventType.Deleted, *of_group, now(), *who)
    connection.execute(sql.ADD_EVENTS, [row])
    # This ends the leaver's requests that wait for the group's events.
    wake_after_commit(connection, [user.id, group_id])
    storing.raise_signed_until(connection, user, leaving.departure.time)
