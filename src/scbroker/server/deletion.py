"""The end of a user: everything of theirs goes, and nothing that others need.

A user is gone as a whole with the first transaction, and stands among the doomed ones until the rows are
gone as well: some of them in one transaction, so that other writers get their turn. Whatever ends in
between, a broker goes on with it. What stays is the id, so that nobody has it again, the public key
records, and in the containers of others what their members need to judge and to read. Spec:
docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import BrokerError, ChallengeError
from scbroker.records.key_record import KeyChain
from scbroker.server import challenges, events
from scbroker.server import statements as sql
from scbroker.server.at_once import sweep_at_once
from scbroker.server.broker import Broker, Call, now
from scbroker.wire.orders import NO_DIGEST, Deletion

# In one transaction: containers, with so many records together unless one alone has more, and other rows.
_CONTAINERS: Final = 200
_RECORDS: Final = 2_000
_ROWS: Final = 2_000
_USERS: Final = 100
_SECONDS: Final = 10.0


async def delete_user(broker: Broker, call: Call, message: Deletion) -> None:
    """Carries out a signed order; an order of a user who is gone already changes nothing more.

    Rows and objects follow at once, for a few seconds; what is left then goes with the next rounds in the
    background.
    """
    order, _ = challenges.parse_authorization(message.authorization)
    user_id = call.uuid("userId")

    def find(connection: Connection) -> tuple[Row[Any], KeyChain, bool]:
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        if user is None:
            raise ChallengeError(challenges.REFUSED)
        if not user.deleted_at:
            challenges.check_fresh(broker, order)
        doomed = sql.one(connection, sql.FIND_DOOMED_USER, user=user_id) is not None
        return user, broker.chains.get(connection, user_id, user.chain_length), doomed

    # What anybody can send is verified before it may take the writer's time.
    async with broker.gate:
        found, chain, doomed = await broker.database.read(find, large=True)
        challenges.check_ordered(found, chain, message.authorization, "delete-user", NO_DIGEST)
        if not found.deleted_at:
            await broker.database.write(lambda c: _end(c, user_id, found.chain_length, order.nonce))
        elif not doomed:
            return
    with contextlib.suppress(BrokerError):  # what fails here is done later
        deadline = time.monotonic() + _SECONDS
        more = True
        while more and time.monotonic() < deadline:
            more = await _purge_some(broker, user_id) or await sweep_at_once(broker)


async def finish(broker: Broker) -> int:
    """Removes what is left of users who are gone; gives of how many there was something."""
    last, count = b"", 0
    while found := await _doomed(broker, last):
        for user_id in found:
            while await _purge_some(broker, user_id):
                pass
        last, count = found[-1], count + len(found)
    return count


async def _doomed(broker: Broker, last: bytes) -> list[bytes]:
    values = {"last": last, "count": _USERS}
    return await broker.database.look(lambda c: list(c.execute(sql.DOOMED_USERS, values).scalars()))


async def _purge_some(broker: Broker, user_id: bytes) -> bool:
    return await broker.database.write(lambda c: purge_some(c, user_id))


def _end(connection: Connection, user_id: bytes, chain_length: int, nonce: bytes) -> None:
    """From here on the user is gone. Nothing of theirs is written any more, for who writes holds them."""
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted_at:
        return
    if user.chain_length != chain_length:
        raise ChallengeError(challenges.REFUSED)
    challenges.use_nonce(connection, nonce)
    for statement in sql.END_USER:
        connection.execute(statement, {"user": user_id})
    connection.execute(sql.SET_USER, {"user": user_id, "deleted_at": now()})
    connection.execute(sql.DOOM_USER, {"user_id": user_id})


def purge_some(connection: Connection, user_id: bytes) -> bool:
    """Removes some rows of a user who is gone; gives whether there may be more.

    A user is one broker's at a time. Containers come before users, as every writer locks them, and before
    the log: who still writes of an expiry there has the lock of a container of theirs.
    """
    if sql.one(connection, sql.LOCK_DOOMED_USER, user=user_id) is None:
        return False
    for statement in (sql.CONTAINERS_OF_MEMBER, sql.CONTAINERS_OF_CREATOR):
        if _leave_some(connection, user_id, statement):
            return True
    sql.the(connection, sql.LOCK_USER, id=user_id)
    if _drop_accesses(connection, user_id) or _drop_events(connection, user_id):
        return True
    connection.execute(
        sql.SET_USER,
        {
            "user": user_id,
            "registered_at": 0,
            "last_event": 0,
            "first_event": 1,
            "dropped_digest": None,
            "key_file_generation": 0,
        },
    )
    connection.execute(sql.FORGET_USER, {"user": user_id})
    return False


def _leave_some(connection: Connection, user_id: bytes, statement: Any) -> bool:
    """Takes the user out of some containers, which go if nobody else has access to them."""
    found = connection.execute(statement, {"user": user_id, "count": _CONTAINERS}).scalars().all()
    if not found:
        return False
    locked = connection.execute(sql.LOCK_CONTAINERS, {"some": sorted(found)}).all()
    some = _first_of(sorted(found), {row.id: row.version for row in locked})
    values = {"user": user_id, "now": now(), "some": some}
    shared = connection.execute(sql.WITH_OTHER_MEMBERS, values).scalars()
    alone = sorted(set(some) - set(shared))
    if alone:
        expired = connection.execute(sql.EXPIRED_IN, {**values, "some": alone}).scalars()
        events.tell_of_expiry_in(connection, set(expired))
        for purge in sql.PURGE_CONTAINERS:
            connection.execute(purge, {"some": alone})
    begun = [row.id for row in locked if row.creator_id == user_id]
    connection.execute(sql.FORGET_CREATOR, {"some": sorted({*begun} & {*some})})
    connection.execute(sql.DROP_MEMBER, [{"user": user_id, "container": id} for id in some])
    return len(found) == _CONTAINERS or len(some) < len(found)


def _first_of(found: Sequence[bytes], records: dict[bytes, int]) -> Sequence[bytes]:
    """As many containers as have few enough records together, and at least one."""
    sums = list(accumulate(records.get(container, 0) for container in found))
    return found[: max(1, bisect_right(sums, _RECORDS))]


def _drop_accesses(connection: Connection, user_id: bytes) -> bool:
    values = {"user": user_id, "count": _ROWS}
    found = connection.execute(sql.ACCESSES_OF_USER, values).scalars().all()
    if found:
        connection.execute(sql.DROP_ACCESS, [{"user": user_id, "container": id} for id in found])
    return len(found) == _ROWS


def _drop_events(connection: Connection, user_id: bytes) -> bool:
    values = {"user": user_id, "count": _ROWS}
    found = connection.execute(sql.EVENTS_OF_USER, values).scalars().all()
    if found:
        connection.execute(sql.DROP_EVENT, [{"user": user_id, "row": row} for row in found])
    return len(found) == _ROWS
