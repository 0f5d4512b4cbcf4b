"""The deletion of a user: everything of theirs goes, and nothing that others need.

One transaction deletes the user for everybody; their id is then pending deletion until their rows are
gone as well, some in each transaction, so that others can write in between. If a broker stops, another
one goes on. Of the user there stays the id, so that nobody registers it again, and what others need to
verify what the user signed in containers that still exist: these containers' rows and, as long as the
table `authors` names one of them, the public keys. The last container that goes makes its deleted authors
pending again, and their keys go as well. Spec: docs/spec/protocol.md, section 5.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import BrokerError, ChallengeError, IntegrityError, RejectedError
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed, closing_fingerprint
from scbroker.server.broker import Broker, Call, now
from scbroker.server.containers import members, tombstones
from scbroker.server.events import log
from scbroker.server.parts.sweeping import sweep_at_once
from scbroker.server.storage import statements as sql
from scbroker.server.users import challenges, throttle
from scbroker.server.users.key_files import add_key_records, grown_chain
from scbroker.wire.users import Order, UserDeletion

# In one transaction: containers, with so many records together unless one alone has more, and other rows.
_CONTAINERS: Final = 200
_RECORDS: Final = 2_000
_ROWS: Final = 2_000
_USERS: Final = 100
_SECONDS: Final = 10.0
# The columns of a deleted user; `_NO_KEYS` as soon as no container needs their keys.
_NOTHING: Final = {
    "registered_at": 0,
    "last_event": 0,
    "first_event": 1,
    "dropped_digest": None,
    "key_file_generation": 0,
}
_NO_KEYS: Final = {"fingerprint": None, "chain_length": 0, "encryption_index": 0}


async def delete_user(broker: Broker, call: Call, message: UserDeletion) -> None:
    """Carry out a signed order; an order of a user who was deleted already changes nothing more.

    Rows and objects go at once, for a few seconds; what is left then goes with the next rounds in the
    background.
    """
    order, _ = challenges.parse_authorization(message.authorization)
    closing = message.keyRecord.signed
    user_id = call.uuid("userId")

    def find(connection: Connection) -> tuple[Row[Any], KeyChain | None]:
        """The user, and their keys unless they were deleted: then these may be gone."""
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        if user is None:
            raise ChallengeError(challenges.REFUSED)
        if user.deleted:
            return user, None
        challenges.check_fresh(broker, order)
        return user, broker.chains.get(connection, user_id, user.chain_length)

    # What anybody can send is verified before it may take the writer's time.
    _check_own(user_id, order, message)
    user, chain = await broker.database.read(find, large=True)
    if chain is not None:
        challenges.check_ordered(user, chain, message.authorization, "delete-user", message.digest)
        if not grown_chain(chain, [closing]).closed:
            raise RejectedError("The key record does not close the chain (K8).")
        buckets = throttle.buckets_of(broker, user_id)
        await broker.database.write(
            lambda c: end(c, user_id, user.chain_length, closing, order.nonce, buckets)
        )
    with contextlib.suppress(BrokerError):  # what fails here is done later
        deadline = time.monotonic() + _SECONDS
        more = True
        while more and time.monotonic() < deadline:
            more = (
                await _purge_some(broker, user_id)
                or await tombstones.purge_next(broker)
                or await sweep_at_once(broker)
            )


def _check_own(user_id: bytes, order: Order, message: UserDeletion) -> None:
    """Raise `ChallengeError` unless the user's own signing key 0 signed the closing record.

    The broker's copy of their keys is not used: it may have none of a deleted user, and the same order
    sent again has to get the same answer.
    """
    try:
        fingerprint = closing_fingerprint(message.keyRecord.signed)
    except IntegrityError:
        raise ChallengeError(challenges.REFUSED) from None
    named = (user_id_of(fingerprint).bytes, fingerprint, "delete-user", message.digest)
    if (user_id, order.fingerprint, order.action, order.digest) != named:
        raise ChallengeError(challenges.REFUSED)


async def finish(broker: Broker) -> int:
    """Remove what is left of deleted users; return how many users had something left."""
    last, count = b"", 0
    while found := await _doomed(broker, last):
        for user_id in found:
            while await _purge_some(broker, user_id):
                pass
        last, count = found[-1], count + len(found)
    return count


async def _doomed(broker: Broker, last: bytes) -> list[bytes]:
    values = {"last": last, "count": _USERS}
    return await broker.database.query(
        lambda c: list(c.execute(sql.PENDING_USERS, values).scalars())
    )


async def _purge_some(broker: Broker, user_id: bytes) -> bool:
    return await broker.database.write(lambda c: purge_some(c, user_id))


def end(
    connection: Connection,
    user_id: bytes,
    chain_length: int,
    closing: Signed,
    nonce: bytes,
    buckets: Sequence[bytes],
) -> None:
    """Delete the user for everybody. Every writer locks its user first, so nothing of theirs follows."""
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted:
        return
    if user.chain_length != chain_length:
        raise ChallengeError(challenges.REFUSED)
    challenges.use_nonce(connection, nonce)
    for statement in sql.END_USER:
        connection.execute(statement, {"user": user_id})
    connection.execute(sql.DROP_GUESSES, {"buckets": buckets})
    add_key_records(connection, user_id, [closing], chain_length)
    connection.execute(
        sql.SET_USER, {"user": user_id, "deleted": True, "chain_length": chain_length + 1}
    )
    connection.execute(sql.ADD_PENDING_USER, {"user": user_id})


def purge_some(connection: Connection, user_id: bytes) -> bool:
    """Remove some rows of a deleted user; return whether there may be more.

    Only one broker purges a user at a time. Lock order, as in every writer: containers, users, event log.
    """
    if sql.one(connection, sql.LOCK_PENDING_USER, user=user_id) is None:
        return False
    for statement in (
        sql.CONTAINERS_OF_MEMBER,
        sql.CONTAINERS_OF_CREATOR,
        sql.CONTAINERS_OF_AUTHOR,
    ):
        if _leave_some(connection, user_id, statement):
            return True
    sql.the(connection, sql.LOCK_USER, id=user_id)
    if _drop_accesses(connection, user_id) or _drop_events(connection, user_id):
        return True
    connection.execute(sql.SET_USER, {"user": user_id, **_NOTHING})
    if sql.one(connection, sql.ANY_CONTAINER_OF_AUTHOR, user=user_id) is None:
        connection.execute(sql.DROP_KEY_RECORDS, {"user": user_id})
        connection.execute(sql.SET_USER, {"user": user_id, **_NO_KEYS})
    connection.execute(sql.FORGET_USER, {"user": user_id})
    return False


def _leave_some(connection: Connection, user_id: bytes, statement: Any) -> bool:
    """Remove the user from some containers, and those containers to which nobody else has access."""
    moment = now()
    asked = {"user": user_id, "now": moment, "count": _CONTAINERS}
    found = connection.execute(statement, asked).scalars().all()
    if not found:
        return False
    locked = connection.execute(sql.LOCK_CONTAINERS, {"some": sorted(found)}).all()
    some = _first_of(sorted(found), {row.id: row.version for row in locked})
    values = {"user": user_id, "now": moment, "some": some}
    shared = set(connection.execute(sql.WITH_OTHER_MEMBERS, values).scalars())
    alone = [row for row in locked if row.id in some and row.id not in shared]
    if alone:
        _purge_containers(connection, user_id, alone, moment)
    left = [{"user": user_id, "container": id} for id in some]
    begun = {row.id for row in locked if row.creator_id == user_id} & shared
    if begun:
        connection.execute(sql.FORGET_CREATOR, {"some": sorted(begun)})
        connection.execute(sql.ADD_AUTHOR, [each for each in left if each["container"] in begun])
    connection.execute(sql.DROP_MEMBER, left)
    return len(found) == _CONTAINERS or len(some) < len(found)


def _purge_containers(
    connection: Connection, user_id: bytes, gone: Sequence[Any], moment: int
) -> None:
    """Remove containers, and make their deleted authors pending: the keys may go now.

    The row of a container stays while its creator is not deleted: only they could use the id again, which
    is a hash of their fingerprint. The purge empties what the logs of former
    members say of these containers.
    """
    values = {"some": sorted(row.id for row in gone), "now": moment}
    expired = connection.execute(sql.EXPIRED_IN, values).scalars()
    log.tell_of_expiry_in(connection, set(expired))
    members.release_keys(connection, connection.execute(sql.AUTHORS_IN, values).scalars().all())
    logged = connection.execute(sql.IN_OTHER_LOGS, {**values, "user": user_id}).scalars().all()
    for container_id in logged:
        tombstones.add_purge(connection, container_id, 0, moment)
    for purge in sql.PURGE_CONTAINERS:
        connection.execute(purge, values)
    dead = sorted(row.id for row in gone if row.creator_id in (None, user_id))
    connection.execute(sql.DROP_CONTAINERS, {"some": dead})


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
