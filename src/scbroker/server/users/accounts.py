"""Register users; serve reminders, key records and usage; keep blocks.

Spec: docs/spec/protocol.md, section 5; ids.md, 4.

The broker learns a user's public keys, the KeyFile, a proof of the passphrase, and the reminder. KeyFile and
proof are stored under a key that is not in the database. A user who is blocked cannot give the blocking user
access: `containers.members` refuses such a record.
"""

from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.records.canonical import UserId, parse_uuid
from scbroker.records.key_record import Signed
from scbroker.server.broker import Broker, Call, check_active, quota_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.server.users import key_files, sessions, throttle
from scbroker.server.users.key_files import Stored
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject

COUNT_USERS: Final = sql.count(t.users, ~t.users.c.deleted, sql.IS_USER)
# Blocked users: `blocked` cannot give `user` access.
ADD_BLOCK: Final = sql.if_new(user=t.blocks.c.user_id, blocked=t.blocks.c.blocked_id)
COUNT_BLOCKS: Final = sql.count(t.blocks, "user")
BLOCKED_BY: Final = (
    sa.select(t.blocks.c.blocked_id).where(sql.of(t.blocks, "user")).order_by(t.blocks.c.blocked_id)
)
# A user without a row of usage has used nothing.
FIND_USAGE: Final = (
    sa.select(
        sa.func.coalesce(t.usage.c.bytes, 0).label("bytes"),
        sa.func.coalesce(t.usage.c.containers, 0).label("containers"),
        *sql.QUOTAS,
    )
    .select_from(t.users)
    .outerjoin(t.usage, t.usage.c.user_id == t.users.c.id)
    .where(t.users.c.id == b("user"))
)


async def register(broker: Broker, call: Call, message: wire.Registration) -> wire.Registered:
    """Store a new user: key records, KeyFile, verifier and reminder, all or nothing.

    A user whose log-ins would be refused is not stored: the client says for which origin it will sign them.
    """
    if message.origin is not None:
        sessions.check_origin(broker, message.origin, errors.InvalidArgumentError)
    limit = broker.settings.registrations_address
    await throttle.count_address(broker, call, "registration-address", limit)
    records = [item.signed for item in message.keyRecords]
    key_files.check_reminder(message.reminder)
    chain = key_files.grown_chain(None, records, call.now)
    user_id = UserId(chain.userId.bytes)

    def store(connection: Connection) -> None:
        keys = broker.keys.at(connection, writing=True)
        verifier = key_files.verifier_of(keys, user_id, message.auth)
        key_file = Stored(message.keyFile, verifier, message.reminder or "")
        if sql.one(connection, sql.FIND_USER, id=user_id) is not None:
            # The same request may be repeated because its answer was lost.
            found = Stored.find(connection, keys, user_id)
            is_same = found is not None and found.is_same(key_file)
            if not is_same or sql.key_chain(connection, user_id) != records:
                raise errors.AlreadyExistsError("This user is registered already: log in.")
            return
        names = {"id": user_id, "fingerprint": chain.fingerprint, "registered_at": call.now}
        columns = {**key_files.key_columns(chain), "key_file_generation": 1}
        connection.add(t.users, {**sql.NEW_USER, **names, **columns})
        key_files.add_key_records(connection, user_id, records, 0)
        connection.add(t.key_files, key_file.row(keys, user_id))
        user_name = str(chain.userId)
        broker.record(connection, "user-registered", user_name, actor=user_name)

    await broker.database.write(store)
    return wire.Registered(userId=str(chain.userId))


async def reminder(broker: Broker, call: Call) -> wire.ReminderAnswer:
    """Return a user's reminder; empty for an unknown user, as for one without a reminder."""
    limit = broker.settings.reminders_address
    await throttle.count_address(broker, call, "reminder-address", limit)
    return await _reminder_of(broker, call.user_id)


async def own_reminder(broker: Broker, call: Call) -> wire.ReminderAnswer:
    """Return the reminder of the session's user; the request is not counted against the address."""
    return await _reminder_of(broker, call.session.id)


async def _reminder_of(broker: Broker, user_id: UserId) -> wire.ReminderAnswer:
    row = await broker.database.read(lambda c: sql.one(c, sql.FIND_KEY_FILE, user_id=user_id))
    return wire.ReminderAnswer(reminder="" if row is None else row.reminder)


async def read_key_records(
    broker: Broker, call: Call, message: wire.KeyRecordsRequest
) -> wire.KeyRecords:
    """Return key records of several users, each from a sequence on, at most MAX_KEY_RECORDS in all."""
    del call
    wanted = {parse_uuid(asked.userId).bytes: asked for asked in message.users}
    if len(wanted) < len(message.users):
        raise errors.InvalidArgumentError("users names a user twice: name each user once.")

    def read(connection: Connection, *, new_too: bool) -> list[wire.UserKeyRecords]:
        """Return key records; without `new_too`, an empty list if a user has new records."""
        rows = connection.execute(sql.FIND_USERS, {"ids": list(wanted)})
        found = {row.id: row for row in rows}
        left, answers = wire.MAX_KEY_RECORDS, []
        for user_id, asked in wanted.items():
            user, records = found.get(user_id), list[Signed]()
            if user is None or user.group_version is not None:  # a group is not a user
                raise errors.NotFoundError(f"The broker knows no user {asked.userId}.")
            if asked.from_ < user.chain_length:
                if not new_too:
                    return []
                records = sql.key_chain(connection, user.id, asked.from_, left)
                left -= len(records)
            sent = [SignedObject.of(signed) for signed in records]
            answers.append(
                wire.UserKeyRecords(userId=asked.userId, keyRecords=sent, deleted=user.deleted)
            )
        return answers

    users = await broker.database.query(lambda c: read(c, new_too=False))
    if not users:  # some user has new records, which is rare
        users = await broker.database.read(lambda c: read(c, new_too=True), large=True)
    return wire.KeyRecords(users=users)


async def block(broker: Broker, call: Call) -> None:
    """Block a user; blocking the same user again changes nothing.

    Both users are locked in the order of their ids, so neither is deleted meanwhile. A record that gives the
    session's user access takes a shared lock on that user: so it is stored before the block, or refused.
    """
    user_id, blocked = call.session.id, call.user_id
    if user_id == blocked:
        raise errors.InvalidArgumentError("userId is your own: a user cannot block themselves.")

    def write(connection: Connection) -> None:
        for each in sorted((user_id, blocked)):
            if each == user_id:
                check_active(sql.the(connection, sql.LOCK_USER, id=each))
            else:
                other = sql.one(connection, sql.SHARE_USERS, ids=[each])
                if other is None or other.deleted or other.group_version is not None:
                    raise errors.NotFoundError(f"The broker knows no user {UUID(bytes=each)}.")
        connection.execute(ADD_BLOCK, {"user": user_id, "blocked": blocked})
        if connection.execute(COUNT_BLOCKS, {"user": user_id}).scalar_one() > wire.MAX_BLOCKED:
            raise errors.TooLargeError(
                f"A user blocks at most {wire.MAX_BLOCKED} others: unblock somebody first."
            )

    await broker.database.write(write)


async def unblock(broker: Broker, call: Call) -> None:
    """Remove a block; without one this changes nothing."""
    names = {"user": call.session.id, "blocked": call.user_id}
    await broker.database.write(lambda c: c.execute(sql.DROP_BLOCK, names))


async def list_blocked(broker: Broker, call: Call) -> wire.BlockedUsers:
    """Return the users whom the session's user has blocked."""
    asked = {"user": call.session.id}
    found = await broker.database.read(lambda c: c.execute(BLOCKED_BY, asked).scalars().all())
    return wire.BlockedUsers(users=[str(UUID(bytes=each)) for each in found])


async def own_usage(broker: Broker, call: Call) -> wire.Usage:
    """Return the usage and the quotas of the session's user."""

    def read(connection: Connection) -> wire.Usage:
        row = sql.the(connection, FIND_USAGE, user=call.session.id)
        return wire.Usage(
            bytes=row.bytes,
            containers=row.containers,
            quotaBytes=quota_of(row, "bytes"),
            quotaContainers=quota_of(row, "containers"),
        )

    return await broker.database.query(read)
