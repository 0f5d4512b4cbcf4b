"""Delete a user, and everything of theirs that others do not need. Spec: docs/spec/protocol.md, section 5.

One transaction ends the user for everybody (`end`, or `end_by_operator`). Their id is then pending deletion
until their rows are deleted as well, some in each transaction, so that others can write in between. Any
broker continues this.
The id stays, so that nobody can register it again. Containers with other members stay; so do the user's
public keys, as long as the table `authors` has a row of them: readers need the keys to verify records. When
the last such container is purged, its deleted authors are pending deletion again, and their keys are deleted.
"""

import contextlib
import math
import time
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.crypto.verify import labelled_hash
from scbroker.errors import BrokerError, ChallengeError, RejectedError
from scbroker.records.canonical import UserId, stored_user_id
from scbroker.records.key_record import (
    LABEL,
    KeyChain,
    Signed,
    closing_fingerprint,
    parse_key_record,
)
from scbroker.server.broker import Broker, Call, check_active, refusing
from scbroker.server.containers import ended_groups, tombstones
from scbroker.server.parts.sweeping import sweep_at_once
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.server.storage.notices import notify_brokers
from scbroker.server.users import sessions, throttle
from scbroker.server.users.key_files import (
    add_key_records,
    check_dates,
    check_retirements,
    grown_chain,
)
from scbroker.server.users.sessions import Signer, check_signed
from scbroker.wire.users import ORDER_LABEL, Order, UserDeletion

_ROWS: Final = 2_000
"""The most rows that one transaction deletes of a table."""
_SECONDS: Final = 10.0
DROP_UNUSED_USAGE: Final = sql.drop(
    t.usage, "user", t.usage.c.bytes == 0, t.usage.c.containers == 0
)
# Rows that are deleted at once with the user. The others follow in short transactions (`purge_some`).
END_USER: Final = (
    sql.drop(t.key_files, "user"),
    sql.END_SESSIONS,
    sql.change(t.parts, "user", ~t.parts.c.committed, touched_at=0),
)
DROP_GUESSES: Final = sql.drop(t.guesses, sql.among(t.guesses.c.bucket, "buckets"))
LOCK_PENDING_USER: Final = sql.FIND_PENDING_USER.with_for_update()
PENDING_USERS: Final = sql.after(t.pending_users.c.user_id)
FORGET_USER: Final = sql.drop(t.pending_users, "user")
CONTAINERS_OF_CREATOR: Final = sql.some(t.containers.c.id, t.containers.c.creator_id == b("user"))
# Containers with a record that the user signed and without unexpired members.
CONTAINERS_OF_AUTHOR: Final = sql.some(
    t.authors.c.container_id,
    "user",
    ~sa.exists()
    .where(t.members.c.container_id == t.authors.c.container_id, sql.UNEXPIRED)
    .where(t.users.c.id == t.members.c.user_id, ~t.users.c.deleted),
    # The container of a group has no rows of `members`: it is deleted with the group.
    ~sa.exists().where(t.containers.c.id == t.authors.c.container_id, t.containers.c.is_group),
)
DROP_KEY_RECORDS: Final = sql.drop(t.key_records, "user")
ACCESSES_OF_USER: Final = sql.some(t.accesses.c.container_id, "user")
BLOCKED_BY_USER: Final = sql.some(t.blocks.c.blocked_id, "user")
_IS_BLOCKED: Final = t.blocks.c.blocked_id == b("user")
BLOCKING_USER: Final = sql.some(t.blocks.c.user_id, _IS_BLOCKED)
DROP_BLOCK_OF: Final = sql.drop(t.blocks, t.blocks.c.user_id == b("blocking"), _IS_BLOCKED)
_OWN_ROWS: Final = (
    (ACCESSES_OF_USER, sql.DROP_ACCESS, "container"),
    (BLOCKED_BY_USER, sql.DROP_BLOCK, "blocked"),
    (BLOCKING_USER, DROP_BLOCK_OF, "blocking"),
    (sql.EVENTS_OF_USER, sql.DROP_EVENT, "row"),
)
# The columns of a deleted user; `_NO_KEYS` once no container needs their keys.
_NOTHING: Final = {
    "registered_at": 0,
    "signed_until": 0,
    "last_event": 0,
    "first_event": 1,
    "dropped_digest": None,
    "key_file_generation": 0,
    "suspended_at": None,
    "suspension_reason": None,
}
_NO_KEYS: Final = {
    "fingerprint": None,
    "chain_length": 0,
    "encryption_index": 0,
    "signing_sequence": 0,
}


async def delete_user(broker: Broker, call: Call, message: UserDeletion) -> None:
    """Delete the user who signed the order; the same order sent again changes nothing.

    Rows and objects are deleted for some seconds before the answer, the rest in the background.
    """
    order, signed = sessions.parse_authorization(message.authorization)
    closing = message.keyRecord.signed
    user_id = call.user_id

    def find(connection: Connection) -> tuple[bool, Signer | None]:
        """Return whether the user was deleted, and the signer of orders if not."""
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        return user is not None and user.deleted, Signer.of(connection, user)

    # A stranger can send this: it is verified before it may occupy the writer.
    _check_own(user_id, order, message)
    deleted, signer = await broker.database.read(find)
    if not deleted:
        sessions.check_fresh(broker, order, call.now)
        with sessions.using_up(broker, order.nonce):
            user = check_signed(signer, order, ORDER_LABEL, signed).user
        length = check_active(user).chain_length
        if await _check_closes(broker, user_id, length, closing, call.now):
            await broker.database.write(
                lambda c: end(c, broker, user_id, length, closing, order.nonce)
            )
            broker.is_scrubbed = False
    with contextlib.suppress(BrokerError):  # background work repeats what fails here
        await purge(broker, user_id, _SECONDS)


async def purge(broker: Broker, user_id: UserId, seconds: float) -> None:
    """Delete rows and objects of a deleted user for at most `seconds`; background work deletes the rest."""
    deadline = time.monotonic() + seconds
    await tombstones.purge_each(broker, purge_some, [user_id], deadline)
    await ended_groups.finish(broker, deadline)
    await tombstones.finish(broker, deadline)
    while time.monotonic() < deadline and await sweep_at_once(broker):
        pass


async def _check_closes(
    broker: Broker, user_id: UserId, length: int, closing: Signed, moment: int
) -> bool:
    """Raise unless the record closes the user's chain of this length; return False if the user was deleted.

    Another request may delete the user and their key records after this request found the user.
    Date and predecessor are compared first. Otherwise a sender could make the broker verify a long chain
    again and again for a record that does not follow it.
    """
    check_dates([closing], moment)

    def read(connection: Connection) -> KeyChain | None:
        if sql.the(connection, sql.FIND_USER, id=user_id).deleted:
            return None
        [last] = sql.key_chain(connection, user_id, length - 1, 1)
        if parse_key_record(closing).previous != labelled_hash(LABEL, last.body):
            raise RejectedError("The key record does not follow the stored one (K2): log in again.")
        return broker.chains.get(connection, user_id, length)

    chain = await broker.database.read(read, large=True)
    if chain is None:
        return False
    if not grown_chain(chain, [closing], moment).closed:
        raise RejectedError("The key record does not close the chain (K8).")
    return True


def _check_own(user_id: UserId, order: Order, message: UserDeletion) -> None:
    """Raise `ChallengeError` unless the user's own signing key 0 signed the closing record.

    The broker's copy of their keys is not used: it may have none of a deleted user, and the same order
    sent again has to get the same answer.
    """
    with refusing(sessions.REFUSED, ChallengeError):
        fingerprint = closing_fingerprint(message.keyRecord.signed)
    named = (stored_user_id(fingerprint), fingerprint, "delete-user", message.digest)
    if (user_id, order.fingerprint, order.action, order.digest) != named:
        raise ChallengeError(sessions.REFUSED)


async def finish(broker: Broker) -> int:
    """Delete the rows of all users pending deletion; return how many users these were."""
    return await tombstones.purge_all(broker, PENDING_USERS, purge_some, math.inf)


def end(
    connection: Connection,
    broker: Broker,
    user_id: UserId,
    chain_length: int,
    closing: Signed,
    nonce: bytes,
) -> None:
    """Delete the user for everybody. Every writer locks its user first, so nothing of theirs is added."""
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted:
        return
    if check_active(user).chain_length != chain_length:
        raise ChallengeError(sessions.REFUSED)
    check_retirements([closing], user.signed_until)
    sessions.use_nonce(connection, nonce)
    add_key_records(connection, user_id, [closing], chain_length)
    _end(connection, broker, user_id, chain_length + 1)
    name = str(UUID(bytes=user_id))
    broker.record(connection, "user-deleted", name, actor=name)


def end_by_operator(connection: Connection, broker: Broker, user_id: UserId) -> bool:
    """Delete the user for everybody without the user's order; return False if this was done before.

    Only the user can sign a record that closes the chain. So it stays open: other users' clients have only
    the broker's word for the deletion.
    """
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted:
        return False
    _end(connection, broker, user_id, user.chain_length)
    notify_brokers(connection, user_id)
    broker.record(connection, "user-deleted", str(UUID(bytes=user_id)))
    return True


def _end(connection: Connection, broker: Broker, user_id: UserId, chain_length: int) -> None:
    """Delete what only the user needs at once; the user's row must be locked."""
    for statement in END_USER:
        connection.execute(statement, {"user": user_id})
    connection.execute(DROP_GUESSES, {"buckets": throttle.buckets_of(broker, user_id)})
    state = {"deleted": True, "chain_length": chain_length}
    connection.execute(sql.SET_USER, {"user": user_id, **state})
    connection.execute(sql.ADD_PENDING_USER, {"user": user_id})
    connection.woken.add(user_id)


def purge_some(connection: Connection, user_id: UserId) -> bool:
    """Delete some rows of a deleted user; return whether there may be more.

    Only one broker purges a user at a time. Lock order, as in every writer: containers, users, event log.
    """
    if sql.one(connection, LOCK_PENDING_USER, user=user_id) is None:
        return False
    if ended_groups.leave_some(connection, user_id):
        return True
    for statement in (
        sql.CONTAINERS_OF_MEMBER,
        sql.CONTAINERS_LEFT_TO_MEMBER,
        CONTAINERS_OF_CREATOR,
        CONTAINERS_OF_AUTHOR,
    ):
        if tombstones.leave_some(connection, user_id, statement):
            return True
    sql.the(connection, sql.LOCK_USER, id=user_id)
    owner = {"user": user_id}
    for find, delete, column in _OWN_ROWS:
        if tombstones.delete_some(connection, find, delete, owner, column, _ROWS):
            return True
    connection.execute(sql.SET_USER, {"user": user_id, **_NOTHING})
    needs = (sql.ANY_CONTAINER_OF_AUTHOR, sql.ANY_GROUP_DEPARTURE)
    if all(sql.one(connection, each, user=user_id) is None for each in needs):
        connection.execute(DROP_KEY_RECORDS, {"user": user_id})
        connection.execute(sql.SET_USER, {"user": user_id, **_NO_KEYS})
    connection.execute(FORGET_USER, {"user": user_id})
    # If parts of the user are still to be swept, the row stays, and has only zeros after that.
    connection.execute(DROP_UNUSED_USAGE, {"user": user_id})
    return False
