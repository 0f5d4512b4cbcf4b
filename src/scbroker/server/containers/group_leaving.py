"""Let a user leave a group by a signed departure. Spec: docs/spec/groups.md, sections 9 and 12.

The departure is verified before the transaction that stores it, which only has to find the same leaf and the
same keys. It is stored in the member's row: no record and no roster changes.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from scbroker import errors
from scbroker.records import group as rules
from scbroker.records import judge
from scbroker.records.canonical import ContainerId, stored_user_id
from scbroker.records.key_record import CLOCK_TOLERANCE, Signed
from scbroker.records.roster import GroupDeparture, parse_group_departure
from scbroker.server.broker import Broker, Call, SessionUser, check_active, not_found, now, refusing
from scbroker.server.containers import members, rosters, stored_groups, storing
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import wake_after_commit
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType, KeyType
from scbroker.wire.groups import GroupDepartureRequest

_ATTEMPTS: Final = 4
_CHANGED: Final = "Your membership was changed meanwhile: read the group again."
_MOVED: Final = "The group was changed meanwhile: read it again."


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A parsed departure with what was sent with it. Its signature is not verified yet."""

    departure: GroupDeparture
    signed: Signed
    seen: int
    """How many departures of others the leaver has seen."""
    last: int
    """The version of the group that the leaver has seen."""
    user: SessionUser
    application: str

    @property
    def group_id(self) -> ContainerId:
        return ContainerId(stored_user_id(self.departure.group))


async def leave(broker: Broker, call: Call, message: GroupDepartureRequest) -> None:
    """Store a departure of the session's user; one that is stored already changes nothing."""
    leaving = _parse(call, message)
    for _ in range(_ATTEMPTS):
        verify = partial(_verify, broker=broker, leaving=leaving, moment=call.now)
        length = await broker.database.read(verify, large=True)
        if length is None:
            return
        try:
            await broker.database.write(partial(_store, leaving=leaving, chain_length=length))
        except storing.KeysChangedError:  # nothing was stored: verify with the new keys
            continue
        return
    raise errors.OverloadedError("Your keys changed several times meanwhile: try again.", 1)


def _parse(call: Call, message: GroupDepartureRequest) -> _Leaving:
    signed = message.departure.signed
    with refusing():
        departure = parse_group_departure(signed.body)
    if ContainerId(stored_user_id(departure.group)) != call.group_id:
        raise errors.InvalidArgumentError("The departure names another group than the path.")
    if departure.fingerprint != call.session.fingerprint:
        raise errors.PermissionDeniedError("Only the user who leaves can send the departure.")
    return _Leaving(
        departure, signed, message.departures, message.last, call.session, call.application
    )


def _verify(connection: Connection, broker: Broker, leaving: _Leaving, moment: int) -> int | None:
    """Verify a departure from the roster in force; return how many key records its user has.

    Returns None if it is stored already.
    """
    known = sql.one(connection, sql.FIND_GROUP, id=leaving.group_id)
    found = _members(connection, leaving)
    if _is_stored(leaving, found):
        return None
    container = sql.one(connection, sql.FIND_CONTAINER, id=leaving.group_id)
    container, row = _check_member(leaving, container, known, found)
    place = {"container": container.id, "number": container.version}
    head = judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)
    in_force = members.in_force(connection, container.id, head)
    stored = storing.Stored(container, head, in_force)
    group = stored_groups.read(connection, stored, row, found)
    since = _since(connection, leaving)
    said = leaving.departure
    if not moment - CLOCK_TOLERANCE <= said.time <= max(moment + CLOCK_TOLERANCE, since.time):
        raise errors.ClockError(
            "The departure is dated more than five minutes off: set the clock right."
        )
    user = check_active(sql.the(connection, sql.FIND_USER, id=leaving.user.id))
    keys = broker.chains.get(connection, user.id, user.chain_length)
    chain = replace(group.chain, moments=rules.Moments().adding(said.version, since))
    with refusing():
        if said.keyIndex != keys.latest(KeyType.Signing).index:
            raise errors.RejectedError(
                "The departure is not signed with the latest active signing key: sign it with that key."
            )
        rules.verify_departure(leaving.signed, chain, group.parsed, keys, moment)
    return len(keys.records)


def _since(connection: Connection, leaving: _Leaving) -> rules.Moment:
    """Return the record of the group that introduced the leaver's leaf, as `verify_departure` needs it."""
    place = {"container": leaving.group_id, "number": leaving.departure.version}
    known = judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)
    return rules.Moment(known.hash, known.record.time, 0, b"", 0)


def _members(connection: Connection, leaving: _Leaving) -> dict[bytes, Row]:
    rows = connection.execute(sql.GROUP_MEMBERS, {"group": leaving.group_id})
    return {bytes(row.user_id): row for row in rows}


def _is_stored(leaving: _Leaving, found: dict[bytes, Row]) -> bool:
    own = found.get(leaving.user.id)
    return own is not None and own.departure == leaving.signed.body


def _check_member(
    leaving: _Leaving, container: Row | None, group: Row | None, found: dict[bytes, Row]
) -> tuple[Row, Row]:
    """Return the group's rows; raise unless this user may leave this roster now."""
    own = found.get(leaving.user.id)
    if container is None or group is None or group.deleted or own is None or own.gone:
        raise not_found(memberships.WHAT)
    if own.version != leaving.departure.version:
        raise errors.ConflictError(_CHANGED)
    if own.permissions & ContainerAccessLevel.ModifyAccess:
        # Another owner may have left or stepped down meanwhile. The client has to read the group again, to
        # warn that no owner would remain.
        left = sum(row.departure is not None for row in found.values())
        if leaving.seen != left:
            raise errors.ConflictError(rosters.LEFT)
        if leaving.last != container.version:
            raise errors.ConflictError(_MOVED)
    others = (row for row in found.values() if row.user_id != leaving.user.id)
    if all(row.gone or row.deleted for row in others):
        raise errors.RejectedError("The group has no other member: delete the group instead.")
    return container, group


def _store(connection: Connection, leaving: _Leaving, chain_length: int) -> None:
    """Store a verified departure, and end the user's membership.

    Lock order, as in every writer: container, users, event log. Raises `KeysChangedError` unless the user
    still has the key records that verified the signature. The wrap stays: it says that an epoch is owed.
    """
    container = sql.one(connection, sql.LOCK_CONTAINER, id=leaving.group_id)
    group = sql.one(connection, sql.LOCK_GROUP, id=leaving.group_id)
    user = check_active(sql.the(connection, sql.SHARE_USERS, ids=[leaving.user.id]))
    found = _members(connection, leaving)
    if _is_stored(leaving, found):
        return
    container, _ = _check_member(leaving, container, group, found)
    if user.chain_length != chain_length:
        raise storing.KeysChangedError(user.chain_length)
    values: dict[str, Any] = {
        "group": leaving.group_id,
        "user": user.id,
        "gone": True,
        "accepted": False,
        "departure": leaving.signed.body,
        "departure_signature": leaving.signed.signature,
    }
    connection.execute(sql.SET_GROUP_MEMBER, values)
    who = user.id, leaving.application
    kind = ContainerEventType.Deleted
    row = log.group_row(leaving.group_id, user.id, kind, container.version, now(), *who)
    connection.execute(sql.ADD_EVENTS, [row])
    # Requests of the leaver that wait for the group's events end.
    wake_after_commit(connection, [user.id, leaving.group_id])
    storing.raise_signed_until(connection, user, leaving.departure.time)
