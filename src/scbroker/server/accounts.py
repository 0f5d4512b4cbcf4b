"""Registration, KeyFiles, reminders, public keys. Spec: docs/spec/protocol.md, section 5; keyfile.md, 3.

What the broker learns of a user: the public keys, the sealed KeyFile, a verifier of the passphrase
under a key that is not in the database, and the reminder.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from scbroker.crypto.verify import equal, sha256
from scbroker.errors import (
    AlreadyExistsError,
    ClockError,
    CredentialsError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.ids import parse_uuid
from scbroker.records.key_record import CLOCK_TOLERANCE, MAX_KEYS, KeyChain, Signed
from scbroker.server import sessions
from scbroker.server import statements as sql
from scbroker.server.broker import Broker, Call, now
from scbroker.vocabulary import KeyType
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import (
    MAX_KEY_RECORDS,
    MAX_REMINDER,
    KeyFileAnswer,
    KeyFileOpening,
    KeyRecords,
    KeyRecordsRequest,
    Registered,
    Registration,
    ReminderAnswer,
    UserKeyRecords,
)

_MAX_CHAIN: Final = 4 * MAX_KEYS  # introduced and retired, of both types (K7)
_WRONG: Final = "Wrong passphrase, unknown user, or no KeyFile on this broker."


async def register(broker: Broker, call: Call, message: Registration) -> Registered:
    """A new user: key records, KeyFile, verifier and reminder, all or nothing."""
    del call
    records = [item.signed for item in message.keyRecords]
    _check_reminder(message.reminder)
    chain = _verified(records)
    user_id = chain.userId
    verifier = broker.keyed("verifier", user_id.bytes, message.auth)

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
                "last_event": 0,
            },
        )
        _add_key_records(connection, user_id.bytes, records, 0)
        connection.execute(
            sql.ADD_KEY_FILE,
            {
                "user_id": user_id.bytes,
                "key_file": message.keyFile,
                "key_file_hash": sha256(message.keyFile),
                "verifier": verifier,
                "reminder": message.reminder or "",
            },
        )

    await broker.database.write(store)
    return Registered(userId=str(user_id))


async def open_key_file(broker: Broker, call: Call, message: KeyFileOpening) -> KeyFileAnswer:
    """The KeyFile, for whoever proves the passphrase; guesses are counted before they are judged."""
    user_id = call.uuid("userId")
    buckets = await sessions.count_guess(broker, call, user_id)
    row = await broker.database.read(lambda c: sql.one(c, sql.FIND_KEY_FILE, user_id=user_id))
    verifier = broker.keyed("verifier", user_id, message.auth)
    stored = row.verifier if row is not None else bytes(32)
    if not equal(verifier, stored) or row is None:
        raise CredentialsError(_WRONG)
    await sessions.forgive_guess(broker, buckets)
    return KeyFileAnswer(keyFile=row.key_file)


async def reminder(broker: Broker, call: Call, message: None) -> ReminderAnswer:
    """The user's reminder; empty for an unknown user as for one without."""
    del message
    user_id = call.uuid("userId")
    await sessions.count_reminder(broker, call)
    row = await broker.database.read(lambda c: sql.one(c, sql.FIND_REMINDER, user_id=user_id))
    return ReminderAnswer(reminder="" if row is None else row.reminder)


async def read_key_records(broker: Broker, call: Call, message: KeyRecordsRequest) -> KeyRecords:
    """The key records of some users, each from a sequence on, as many as fit in one answer."""
    del call

    if len({asked.userId for asked in message.users}) < len(message.users):
        raise InvalidArgumentError("A user is asked for twice.")

    def read(connection: Connection) -> list[UserKeyRecords]:
        room, answers = MAX_KEY_RECORDS, []
        for asked in message.users:
            user_id = parse_uuid(asked.userId).bytes
            user = sql.one(connection, sql.FIND_USER, id=user_id)
            if user is None:
                raise NotFoundError(f"The broker knows no user {asked.userId}.")
            found = sql.key_chain(connection, user_id, min(asked.from_, _MAX_CHAIN), room)
            room -= len(found)
            records = [SignedObject.of(signed) for signed in found]
            deleted = user.deleted_at is not None
            answers.append(UserKeyRecords(userId=asked.userId, keyRecords=records, deleted=deleted))
        return answers

    return KeyRecords(users=await broker.database.read(read, large=True))


def _check_reminder(reminder: str | None) -> None:
    if reminder is not None and len(reminder.encode()) > MAX_REMINDER:
        raise TooLargeError(f"A reminder has at most {MAX_REMINDER} bytes of UTF-8.")


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


def _add_key_records(
    connection: Connection, user_id: bytes, records: list[Signed], first: int
) -> None:
    connection.execute(
        sql.ADD_KEY_RECORDS,
        [
            {
                "user_id": user_id,
                "sequence": first + number,
                "body": signed.body,
                "signature": signed.signature,
            }
            for number, signed in enumerate(records)
        ],
    )
