"""The end of a user: everything of theirs goes, and nothing that others need.

What stays is the id, so that nobody has it again, the public key records, and in the containers of
others what their members need to judge and to read. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import BrokerError, ChallengeError
from scbroker.records.key_record import KeyChain
from scbroker.server import challenges, events, sweeping
from scbroker.server import statements as sql
from scbroker.server.broker import Broker, Call, now
from scbroker.wire.orders import NO_DIGEST, Deletion

_BATCH: Final = 500
_EVENTS: Final = 100_000
_SWEEP_SECONDS: Final = 10.0


async def delete_user(broker: Broker, call: Call, message: Deletion) -> None:
    """Carries out a signed order; an order of a user who is gone already changes nothing.

    Rows go in one transaction. Objects follow at once, for a few seconds; what is left then goes with
    the sweeper's next rounds.
    """
    order, _ = challenges.parse_authorization(message.authorization)
    user_id = call.uuid("userId")

    def find(connection: Connection) -> tuple[Row[Any], KeyChain]:
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        if user is None:
            raise ChallengeError(challenges.REFUSED)
        if not user.deleted_at:
            challenges.check_fresh(broker, order)
        return user, broker.chains.get(connection, user_id, user.chain_length)

    # What anybody can send is verified before it may take the writer's time.
    found, chain = await broker.database.read(find, large=True)
    challenges.check_ordered(found, chain, message.authorization, "delete-user", NO_DIGEST)
    if found.deleted_at:
        return

    def write(connection: Connection) -> None:
        # Containers before users, as every writer locks them.
        locked = _lock(connection, _containers(connection, user_id))
        user = sql.the(connection, sql.LOCK_USER, id=user_id)
        if user.deleted_at:
            return
        if user.chain_length != found.chain_length:
            raise ChallengeError(challenges.REFUSED)
        challenges.use_nonce(connection, order.nonce)
        locked |= _lock(connection, _containers(connection, user_id) - locked)
        _purge(connection, user_id, locked, user.last_event)

    await broker.database.write(write)
    with contextlib.suppress(BrokerError):  # what fails here is swept later
        deadline = time.monotonic() + _SWEEP_SECONDS
        while await sweeping.sweep(broker) and time.monotonic() < deadline:
            pass


def _containers(connection: Connection, user_id: bytes) -> set[bytes]:
    return set(connection.execute(sql.CONTAINERS_OF_USER, {"user": user_id}).scalars())


def _lock(connection: Connection, containers: set[bytes]) -> set[bytes]:
    for some in _batches(containers):
        connection.execute(sql.LOCK_CONTAINERS, {"some": some}).all()
    return containers


def _batches(containers: Collection[bytes]) -> Iterator[list[bytes]]:
    """As many as one statement takes, in the one order that all who lock them keep to."""
    ordered = sorted(containers)
    for start in range(0, len(ordered), _BATCH):
        yield ordered[start : start + _BATCH]


def _purge(connection: Connection, user_id: bytes, containers: set[bytes], last_event: int) -> None:
    """Removes the containers that nobody else has access to, then all rows of the user's own."""
    moment = now()
    values = {"user": user_id, "now": moment}
    for some in _batches(containers):
        shared = connection.execute(sql.WITH_OTHER_MEMBERS, {**values, "some": some}).scalars()
        alone = sorted(set(some) - set(shared))
        if alone:
            expired = connection.execute(sql.EXPIRED_IN, {**values, "some": alone}).scalars()
            events.tell_of_expiry_in(connection, set(expired))
            for statement in sql.PURGE_CONTAINERS:
                connection.execute(statement, {"some": alone})
    for last in range(_EVENTS, last_event, _EVENTS):
        connection.execute(sql.PURGE_EVENTS, {"user": user_id, "to": last})
    for statement in sql.PURGE_USER:
        connection.execute(statement, values)
