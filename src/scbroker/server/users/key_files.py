"""KeyFiles: given for the passphrase's proof, replaced and removed by signed orders.

Storing one may append key records: both or neither. Spec: docs/spec/protocol.md, section 5;
keyfile.md, 3 and 4; ids.md, 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import equal, sha256
from scbroker.errors import (
    ClockError,
    ConflictError,
    CredentialsError,
    IntegrityError,
    NotAuthenticatedError,
    RejectedError,
    TooLargeError,
)
from scbroker.records.key_record import (
    ACTIVE,
    CLOCK_TOLERANCE,
    RETIREMENT_AHEAD,
    RETIREMENT_TOLERANCE,
    KeyChain,
    Signed,
    parse_key_record,
)
from scbroker.server.broker import Broker, Call, now
from scbroker.server.storage import statements as sql
from scbroker.server.users import challenges, throttle
from scbroker.vocabulary import KeyType
from scbroker.wire.users import (
    MAX_REMINDER,
    NO_DIGEST,
    KeyFileAnswer,
    KeyFileDeletion,
    KeyFileOpening,
    KeyFileState,
    KeyFileStoring,
)

_WRONG: Final = "Wrong passphrase, unknown user, or no KeyFile on this broker."
_CHANGED: Final = "The KeyFile was replaced meanwhile, on another device: log in again."


async def open_key_file(broker: Broker, call: Call, message: KeyFileOpening) -> KeyFileAnswer:
    """Return the KeyFile to a request that proves the passphrase; guesses are counted before."""
    user_id = call.uuid("userId")
    buckets = await throttle.count_guess(broker, call, user_id, message.devicePass)
    row = await broker.database.read(lambda c: sql.one(c, sql.FIND_KEY_FILE, user_id=user_id))
    verifier = verifier_of(broker, user_id, message.auth)
    stored = row.verifier if row is not None else bytes(32)
    if not equal(verifier, stored) or row is None:
        raise CredentialsError(_WRONG)
    await throttle.forgive_guess(broker, buckets)
    return KeyFileAnswer(keyFile=row.key_file)


async def state(broker: Broker, call: Call, message: None) -> KeyFileState:
    """The hash of the stored KeyFile and the generation of the last one; for knowing what comes next."""
    del message
    user_id = call.session.id

    def read(connection: Connection) -> KeyFileState:
        user = sql.the(connection, sql.FIND_USER, id=user_id)
        stored = sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id)
        return KeyFileState(
            hash=None if stored is None else stored.key_file_hash,
            generation=user.key_file_generation,
        )

    return await broker.database.read(read)


async def store(broker: Broker, call: Call, message: KeyFileStoring) -> None:
    """Store a KeyFile in place of the one that it names, and append its key records.

    Without a reminder the stored one stays; an empty one removes it.
    """
    check_reminder(message.reminder)
    records = [item.signed for item in message.keyRecords]
    user_id = call.session.id
    verifier = verifier_of(broker, user_id, message.auth)
    await _verify_chain(broker, call)

    def write(connection: Connection) -> None:
        user = _lock_living(connection, user_id)
        stored = sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id)
        kept = "" if stored is None else stored.reminder
        reminder = kept if message.reminder is None else message.reminder
        row = key_file_row(user_id, message.keyFile, verifier, reminder)
        chain = broker.chains.look(connection, user_id, user.chain_length)
        if _is_stored(user, stored, chain, message, row):
            return
        order, _ = challenges.parse_authorization(message.authorization)
        challenges.check_fresh(broker, order)
        challenges.check_ordered(
            user, chain, message.authorization, "store-key-file", message.digest
        )
        _check_next(user, stored, message, row)
        grown = grown_chain(chain, records)
        if grown.closed:
            raise RejectedError("A key record closes a chain with the user's deletion alone (K8).")
        challenges.use_nonce(connection, order.nonce)
        if records:
            add_key_records(connection, user_id, records, len(chain.records))
        connection.execute(
            sql.SET_USER,
            {
                "user": user_id,
                "chain_length": len(grown.records),
                "encryption_index": grown.latest(KeyType.Encryption).index,
                "key_file_generation": message.generation,
            },
        )
        connection.execute(sql.DROP_KEY_FILE, {"user": user_id})
        connection.execute(sql.ADD_KEY_FILE, row)
        if message.endOtherSessions:
            others = {"user": user_id, "kept": call.session.token_hash}
            connection.execute(sql.END_OTHER_SESSIONS, others)

    await broker.database.write(write)


async def delete(broker: Broker, call: Call, message: KeyFileDeletion) -> None:
    """Removes KeyFile, verifier and reminder. The generation stays, and so do the clients' marks."""
    user_id = call.session.id
    await _verify_chain(broker, call)

    def write(connection: Connection) -> None:
        user = _lock_living(connection, user_id)
        if sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id) is None:
            return
        chain = broker.chains.look(connection, user_id, user.chain_length)
        order, _ = challenges.parse_authorization(message.authorization)
        challenges.check_fresh(broker, order)
        challenges.check_ordered(user, chain, message.authorization, "delete-key-file", NO_DIGEST)
        challenges.use_nonce(connection, order.nonce)
        connection.execute(sql.DROP_KEY_FILE, {"user": user_id})

    await broker.database.write(write)


async def _verify_chain(broker: Broker, call: Call) -> None:
    """Has the caller's key chain at hand before a writer asks for it: a long one takes a moment."""
    session = call.session
    if broker.chains.held(session.id, session.chain_length) is None:
        await broker.database.read(
            lambda c: broker.chains.get(c, session.id, session.chain_length), large=True
        )


def check_reminder(reminder: str | None) -> None:
    if reminder is not None and len(reminder.encode()) > MAX_REMINDER:
        raise TooLargeError(f"A reminder has at most {MAX_REMINDER} bytes of UTF-8.")


def verifier_of(broker: Broker, user_id: bytes, auth: bytes) -> bytes:
    """What is kept of a passphrase's proof; worth nothing without the broker's key."""
    return broker.keyed("verifier", user_id, auth)


def key_file_row(user_id: bytes, key_file: bytes, verifier: bytes, reminder: str) -> dict[str, Any]:
    return {
        "user_id": user_id,
        "key_file": key_file,
        "key_file_hash": sha256(key_file),
        "verifier": verifier,
        "reminder": reminder,
    }


def add_key_records(
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


def _lock_living(connection: Connection, user_id: bytes) -> Row[Any]:
    user = sql.the(connection, sql.LOCK_USER, id=user_id)
    if user.deleted:
        raise NotAuthenticatedError("The account was deleted.")
    return user


def _is_stored(
    user: Row[Any],
    stored: Row[Any] | None,
    chain: KeyChain,
    message: KeyFileStoring,
    row: dict[str, Any],
) -> bool:
    """Whether this very request was carried out before, as after an answer that got lost."""
    records = tuple(item.signed for item in message.keyRecords)
    return (
        stored is not None
        and user.key_file_generation == message.generation
        and (stored.key_file, stored.reminder) == (row["key_file"], row["reminder"])
        and equal(stored.verifier, row["verifier"])
        and chain.records[len(chain.records) - len(records) :] == records
    )


def _check_next(
    user: Row[Any], stored: Row[Any] | None, message: KeyFileStoring, row: dict[str, Any]
) -> None:
    if (None if stored is None else stored.key_file_hash) != message.replaces:
        raise ConflictError(_CHANGED)
    same = stored is None or stored.key_file_hash == row["key_file_hash"]
    if message.generation < user.key_file_generation + (not same):
        raise ConflictError("The KeyFile is of an older generation than the one stored last.")


def grown_chain(chain: KeyChain, records: Sequence[Signed]) -> KeyChain:
    """The chain with these records behind it, each dated as a broker has to have it (ids.md, 4)."""
    try:
        grown = chain.extend(records, now())
        parsed = [parse_key_record(signed) for signed in records]
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    for record in parsed:
        ahead, tolerance = (
            (0, CLOCK_TOLERANCE)
            if record.state == ACTIVE
            else (RETIREMENT_AHEAD, RETIREMENT_TOLERANCE)
        )
        if abs(record.time - now() - ahead) > tolerance:
            minutes = tolerance / 60_000_000
            raise ClockError(
                f"The key records are more than {minutes:g} minutes off: set the clock right."
            )
    return grown
