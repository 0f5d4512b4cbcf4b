"""Let a user leave a container by a signed departure. Spec: docs/spec/container.md, sections 4.1 and 10.

The departure is verified before the transaction that stores it, which only has to find the same access list
in force and the same keys. It is stored beside the chain of records: no record and no head changes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from scbroker import errors
from scbroker.records import judge
from scbroker.records.canonical import ContainerId
from scbroker.records.departure import Departure, parse_departure
from scbroker.records.key_record import CLOCK_TOLERANCE, Signed
from scbroker.server.broker import (
    Broker,
    Call,
    SessionUser,
    check_active,
    check_unexpired,
    is_unexpired,
    not_found,
    now,
    refusing,
)
from scbroker.server.containers import members, storing
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, KeyType
from scbroker.wire.containers import DEPARTURE_SIZE, DepartureRequest

_ATTEMPTS: Final = 4
_CHANGED: Final = "The access list of the container was changed meanwhile: read it again."


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A parsed departure with what was sent with it. Its signature is not verified yet."""

    departure: Departure
    signed: Signed
    seen: int
    """How many departures from the same list the leaver has seen."""
    user: SessionUser
    application: str

    @property
    def container_id(self) -> ContainerId:
        return ContainerId(self.departure.containerId)

    @property
    def place(self) -> dict[str, Any]:
        """The parameters of statements: the departure's container, list and user."""
        number = self.departure.accessVersion
        return {"container": self.container_id, "number": number, "user": self.user.id}


async def leave(broker: Broker, call: Call, message: DepartureRequest) -> None:
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


def _parse(call: Call, message: DepartureRequest) -> _Leaving:
    signed = message.departure.signed
    with refusing():
        departure = parse_departure(signed.body)
    if departure.containerId != call.container_id:
        raise errors.InvalidArgumentError("The departure names another container than the path.")
    if departure.fingerprint != call.session.fingerprint:
        raise errors.PermissionDeniedError("Only the user who leaves can send the departure.")
    return _Leaving(departure, signed, message.departures, call.session, call.application)


def _verify(connection: Connection, broker: Broker, leaving: _Leaving, moment: int) -> int | None:
    """Verify a departure from the list in force; return how many key records its user has.

    Returns None if it is stored already.
    """
    if _is_stored(connection, leaving):
        return None
    found = sql.one(connection, sql.FIND_CONTAINER, id=leaving.container_id)
    row, _ = _check_member(connection, leaving, found, moment)
    user = check_active(sql.the(connection, sql.FIND_USER, id=leaving.user.id))
    chain = broker.chains.get(connection, user.id, user.chain_length)
    place = {"container": row.id, "number": row.governing_version}
    governing = judge.Known.parse(sql.the(connection, sql.FIND_RECORD, **place).body)
    in_force = members.in_force(connection, row.id, governing)
    time = leaving.departure.time
    if leaving.departure.accessList != in_force.governing.accessList:
        raise errors.ConflictError(_CHANGED)
    if not moment - CLOCK_TOLERANCE <= time <= max(moment + CLOCK_TOLERANCE, in_force.since):
        raise errors.ClockError(
            "The departure is dated more than five minutes off: set the clock right."
        )
    with refusing():
        if leaving.departure.keyIndex != chain.latest(KeyType.Signing).index:
            raise errors.RejectedError(
                "The departure is not signed with the latest active signing key: sign it with that key."
            )
        judge.verify_departure(leaving.signed, in_force, chain, moment)
    return len(chain.records)


def _is_stored(connection: Connection, leaving: _Leaving) -> bool:
    stored = sql.one(connection, sql.FIND_DEPARTURE, **leaving.place)
    return stored is not None and stored.body == leaving.signed.body


def _check_member(
    connection: Connection, leaving: _Leaving, row: Row | None, moment: int
) -> tuple[Row, Row]:
    """Return the container and the leaver's membership; raise unless this user may leave this list now."""
    if row is None:
        raise not_found()
    found = sql.one(connection, sql.FIND_MEMBER, container=row.id, user=leaving.user.id)
    member = check_unexpired(found, moment)
    if row.deleted:
        raise errors.DeletedError()
    if row.access_version != leaving.departure.accessVersion:
        raise errors.ConflictError(_CHANGED)
    if member.permissions & ContainerAccessLevel.ModifyAccess:
        # If two such members leave at once, the second one must read that nobody else can change access.
        place = {"container": row.id, "number": row.access_version}
        if leaving.seen != connection.execute(sql.COUNT_DEPARTURES, place).scalar_one():
            raise errors.ConflictError(storing.LEFT)
    others = {"container": row.id, "user": leaving.user.id, "now": moment}
    if sql.one(connection, sql.ANOTHER_MEMBER, **others) is None:
        raise errors.RejectedError("Nobody else has access: delete the container instead.")
    return row, member


def _store(connection: Connection, leaving: _Leaving, chain_length: int) -> None:
    """Store a verified departure, and end the user's membership.

    Lock order, as in every writer: container, user, event log. Raises `KeysChangedError` unless the user
    still has the key records that verified the signature. The user is named in `authors`: readers need these
    keys as long as the container exists.
    """
    locked = sql.one(connection, sql.LOCK_CONTAINER, id=leaving.container_id)
    user = check_active(sql.the(connection, sql.SHARE_USERS, ids=[leaving.user.id]))
    moment = now()
    if _is_stored(connection, leaving):
        return
    container, member = _check_member(connection, leaving, locked, moment)
    if user.chain_length != chain_length:
        raise storing.KeysChangedError(user.chain_length)
    log.record_expiry(connection, [container], moment)
    row = {
        "container_id": container.id,
        "access_version": leaving.departure.accessVersion,
        "user_id": user.id,
        "body": leaving.signed.body,
        "signature": leaving.signed.signature,
    }
    connection.execute(sql.ADD_DEPARTURE, row)
    ids = {"container": container.id, "user": user.id}
    connection.execute(sql.DROP_MEMBER, ids)
    if container.creator_id != user.id:
        connection.execute(sql.ADD_AUTHOR, ids)
    size = {
        "container": container.id,
        "governing_bytes": container.governing_bytes + DEPARTURE_SIZE,
    }
    connection.execute(sql.SET_CONTAINER, size)
    others = [
        other
        for other in connection.execute(sql.MEMBERS, {"container": container.id})
        if is_unexpired(other, moment)
    ]
    log.record_departure(connection, container, member, others, leaving.application, moment)
    storing.raise_signed_until(connection, user, leaving.departure.time)
