"""Registration, reminders, public keys. Spec: docs/spec/protocol.md, section 5; ids.md, 4.

What the broker learns of a user: the public keys, the sealed KeyFile, a verifier of the passphrase
under a key that is not in the database, and the reminder.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row

from scbroker.errors import (
    AlreadyExistsError,
    ClockError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    RejectedError,
)
from scbroker.records.ids import parse_uuid
from scbroker.records.key_record import CLOCK_TOLERANCE, KeyChain, Signed
from scbroker.server.broker import Broker, Call, now
from scbroker.server.storage import statements as sql
from scbroker.server.users import throttle
from scbroker.server.users.key_files import (
    add_key_records,
    check_reminder,
    key_file_row,
    verifier_of,
)
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import (
    MAX_KEY_RECORDS,
    KeyRecords,
    KeyRecordsFrom,
    KeyRecordsRequest,
    Registered,
    Registration,
    ReminderAnswer,
    UserKeyRecords,
)


async def register(broker: Broker, call: Call, message: Registration) -> Registered:
    """A new user: key records, KeyFile, verifier and reminder, all or nothing."""
    await throttle.count_registration(broker, call)
    records = [item.signed for item in message.keyRecords]
    check_reminder(message.reminder)
    chain = _verified(records)
    user_id = chain.userId
    verifier = verifier_of(broker, user_id.bytes, message.auth)

    def store(connection: Connection) -> None:
        if sql.one(connection, sql.FIND_USER, id=user_id.bytes) is not None:
            _check_same(connection, user_id.bytes, records, message.keyFile)
            return
        connection.execute(
            sql.ADD_USER,
            {
                "id": user_id.bytes,
                "fingerprint": chain.fingerprint,
                "chain_length": len(records),
                "encryption_index": chain.latest(KeyType.Encryption).index,
                "registered_at": now(),
                "deleted": False,
                "last_event": 0,
                "first_event": 1,
                "key_file_generation": 1,
            },
        )
        add_key_records(connection, user_id.bytes, records, 0)
        row = key_file_row(user_id.bytes, message.keyFile, verifier, message.reminder or "")
        connection.execute(sql.ADD_KEY_FILE, row)

    await broker.database.write(store)
    return Registered(userId=str(user_id))


async def reminder(broker: Broker, call: Call, message: None) -> ReminderAnswer:
    """Return any user's reminder; empty for an unknown user as for one without."""
    del message
    await throttle.count_reminder(broker, call)
    return await _reminder_of(broker, call.uuid("userId"))


async def own_reminder(broker: Broker, call: Call, message: None) -> ReminderAnswer:
    """Return the reminder of the session's user, whatever strangers at the same address have read."""
    del message
    return await _reminder_of(broker, call.session.id)


async def _reminder_of(broker: Broker, user_id: bytes) -> ReminderAnswer:
    row = await broker.database.read(lambda c: sql.one(c, sql.FIND_REMINDER, user_id=user_id))
    return ReminderAnswer(reminder="" if row is None else row.reminder)


async def read_key_records(broker: Broker, call: Call, message: KeyRecordsRequest) -> KeyRecords:
    """The key records of some users, each from a sequence on, as many as fit in one answer."""
    del call

    if len({asked.userId for asked in message.users}) < len(message.users):
        raise InvalidArgumentError("A user is asked for twice.")

    wanted = {parse_uuid(asked.userId).bytes: asked for asked in message.users}

    def users(connection: Connection) -> list[tuple[KeyRecordsFrom, Row[Any]]]:
        rows = connection.execute(sql.FIND_USERS, {"ids": list(wanted)})
        found = {row.id: row for row in rows}
        for user_id, asked in wanted.items():
            if user_id not in found:
                raise NotFoundError(f"The broker knows no user {asked.userId}.")
        return [(asked, found[user_id]) for user_id, asked in wanted.items()]

    def read(connection: Connection) -> list[UserKeyRecords]:
        room, answers = MAX_KEY_RECORDS, []
        for asked, user in users(connection):
            found = (
                sql.key_chain(connection, user.id, asked.from_, room) if _news(asked, user) else []
            )
            room -= len(found)
            answers.append(_key_records(asked, user, found))
        return answers

    known = await broker.database.query(users)
    if not any(_news(asked, user) for asked, user in known):  # as it mostly is
        return KeyRecords(users=[_key_records(asked, user, []) for asked, user in known])
    return KeyRecords(users=await broker.database.read(read, large=True))


def _news(asked: KeyRecordsFrom, user: Row[Any]) -> bool:
    return asked.from_ < int(user.chain_length)


def _key_records(asked: KeyRecordsFrom, user: Row[Any], found: list[Signed]) -> UserKeyRecords:
    records = [SignedObject.of(signed) for signed in found]
    return UserKeyRecords(userId=asked.userId, keyRecords=records, deleted=user.deleted)


def _verified(records: list[Signed]) -> KeyChain:
    try:
        chain = KeyChain.verify(records, now())
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    if any(abs(key.introduced - now()) > CLOCK_TOLERANCE for key in chain.keys.values()):
        raise ClockError("The key records are more than five minutes off: set the clock right.")
    return chain


def _check_same(
    connection: Connection, user_id: bytes, records: list[Signed], key_file: bytes
) -> None:
    """A registration sent again is the same registration; any other one finds the id taken."""
    found = sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id)
    if found is None or found.key_file != key_file or sql.key_chain(connection, user_id) != records:
        raise AlreadyExistsError("This user is registered already: log in.")
