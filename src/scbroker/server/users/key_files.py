"""Store, open and delete KeyFiles. Spec: docs/spec/protocol.md, section 5; keyfile.md, 3 and 4; ids.md, 4.

A KeyFile is opened by a proof of the passphrase; it is replaced and deleted by signed orders. Storing one may
append key records: both are stored, or neither. The database stores it sealed under the broker's key, and
nothing that is computed from it without that key: a thief of the database could otherwise test guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import HASH_SIZE, equal, keyed_hash, sha256
from scbroker.records import key_record
from scbroker.records.canonical import UserId
from scbroker.records.key_record import KeyChain, Signed, parse_key_record
from scbroker.server.broker import SECOND, Broker, Call, add_to_counter, check_active, refusing
from scbroker.server.keys import KEY_FILE, Keys
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.users import sessions, throttle
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire

_WRONG: Final = "Wrong passphrase, unknown user, or no KeyFile on this broker."
_SEALED_VERIFIER: Final = 60  # with a nonce of 12 bytes and a tag of 16
_DAY: Final = 86_400 * SECOND
_MONTH: Final = 30 * _DAY
_MOST_CHANGES: Final = 1_000
"""Changes and deletions of their KeyFile that one user may make in a day."""
_CHANGED: Final = "The KeyFile was replaced meanwhile, on another device: log in again."

COUNT_KEY_FILES: Final = sql.count(t.key_files)
KEY_FILES_AFTER: Final = sql.page(
    sql.find(t.key_files, t.key_files.c.user_id > b("last")), t.key_files.c.user_id
)
# Only if the KeyFile is still the one that was opened: its user may have replaced it meanwhile.
RESEAL_KEY_FILE: Final = sql.change(
    t.key_files,
    "user",
    t.key_files.c.key_file == b("old"),
    key_file=b("new_key_file"),
    verifier=b("new_verifier"),
)
DROP_KEY_FILE: Final = sql.drop(t.key_files, "user")
END_OTHER_SESSIONS: Final = sql.drop(t.sessions, "user", t.sessions.c.token_hash != b("kept"))


async def open_key_file(
    broker: Broker, call: Call, message: wire.KeyFileOpening
) -> wire.KeyFileAnswer:
    """Return the KeyFile to a request that proves the passphrase; guesses are counted before.

    Only such a request discloses that the user is suspended.
    """
    user_id = call.user_id
    limits = throttle.limits_of(broker, call, user_id, message.devicePass)
    await throttle.count(broker, call, limits)

    def find(connection: Connection) -> tuple[Row | None, Row | None, Keys]:
        key_file = sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id)
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        return user, key_file, broker.keys.at(connection)

    user, row, keys = await broker.database.read(find)
    verifier = verifier_of(keys, user_id, message.auth)
    stored = _opened_verifier(keys, user_id, None if row is None else row.verifier)
    if not equal(verifier, stored) or row is None or user is None:
        sessions.note_refusal("passphrase", user_id)
        raise errors.CredentialsError(_WRONG)
    await throttle.forgive_guess(broker, limits)
    check_active(user)
    return wire.KeyFileAnswer(keyFile=_opened(keys, user_id, row.key_file))


async def state(broker: Broker, call: Call) -> wire.KeyFileState:
    """Return the hash of the stored KeyFile, and the generation of the last one."""
    user_id = call.session.id

    def read(connection: Connection) -> wire.KeyFileState:
        user = sql.the(connection, sql.FIND_USER, id=user_id)
        stored = Stored.find(connection, broker.keys.at(connection), user_id)
        key_file_hash = None if stored is None else sha256(stored.key_file)
        return wire.KeyFileState(hash=key_file_hash, generation=user.key_file_generation)

    return await broker.database.read(read)


async def store(broker: Broker, call: Call, message: wire.KeyFileStoring) -> None:
    """Replace the KeyFile that the message names, and append its key records.

    Without a reminder the stored one stays; an empty one removes it.
    """
    check_reminder(message.reminder)
    records = tuple(item.signed for item in message.keyRecords)
    user_id = call.session.id
    await broker.chain_of(
        call.session
    )  # before the write needs it: a long one would occupy the writer

    def write(connection: Connection) -> None:
        keys = broker.keys.at(connection, writing=True)
        verifier = verifier_of(keys, user_id, message.auth)
        user = check_active(sql.the(connection, sql.LOCK_USER, id=user_id))
        stored = Stored.find(connection, keys, user_id)
        kept = "" if stored is None else stored.reminder
        new = Stored(
            message.keyFile, verifier, kept if message.reminder is None else message.reminder
        )
        chain = broker.chains.read(connection, user_id, user.chain_length)
        # This very request may have been stored before, and is repeated because its answer was lost.
        if (
            stored is not None
            and user.key_file_generation == message.generation
            and stored.is_same(new)
            and chain.records[len(chain.records) - len(records) :] == records
        ):
            return
        _check_order(connection, broker, call, user, message, "store-key-file", message.digest)
        _check_next(user, stored, message)
        grown = grown_chain(chain, records, call.now)
        check_retirements(records, user.signed_until)
        if grown.closed:
            raise errors.RejectedError(
                "Only the user's deletion closes a chain: this key record would (K8)."
            )
        if records:
            # Counted: a reader of a container verifies the chains of all its authors, however long these are.
            what = "You changed your keys too often in a month"
            bucket, limit = broker.keyed("key-records", user_id), broker.settings.max_key_records
            more = len(records)
            add_to_counter(connection, bucket, limit, _MONTH, call.now, more=more, what=what)
        add_key_records(connection, user_id, records, len(chain.records))
        state = {**key_columns(grown), "key_file_generation": message.generation}
        connection.execute(sql.SET_USER, {"user": user_id, **state})
        connection.execute(DROP_KEY_FILE, {"user": user_id})
        connection.add(t.key_files, new.row(keys, user_id))
        if message.endOtherSessions:
            others = {"user": user_id, "kept": call.session.token_hash}
            connection.execute(END_OTHER_SESSIONS, others)
            connection.woken.add(user_id)
        details = {"generation": message.generation, "keyRecords": len(records)}
        _record(connection, broker, call, "key-file-stored", details)

    await broker.database.write(write)
    broker.is_scrubbed = False


async def delete(broker: Broker, call: Call, message: wire.KeyFileDeletion) -> None:
    """Delete KeyFile, verifier and reminder. The generation stays: a later KeyFile has a higher one."""
    user_id = call.session.id

    def write(connection: Connection) -> None:
        user = check_active(sql.the(connection, sql.LOCK_USER, id=user_id))
        if sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id) is None:
            return
        _check_order(connection, broker, call, user, message, "delete-key-file", wire.NO_DIGEST)
        connection.execute(DROP_KEY_FILE, {"user": user_id})
        _record(connection, broker, call, "key-file-deleted")

    await broker.database.write(write)
    broker.is_scrubbed = False


def _record(
    connection: Connection,
    broker: Broker,
    call: Call,
    action: str,
    details: Mapping[str, object] = {},
) -> None:
    """Record a change of the caller's credentials in the audit log; raise `ThrottledError` above a limit.

    The log is kept for ever, and without a limit one user could fill the disk with it.
    """
    user_id = call.session.id
    bucket, what = broker.keyed("key-files", user_id), "You replaced your KeyFile too often"
    add_to_counter(connection, bucket, _MOST_CHANGES, _DAY, call.now, what=what)
    user = str(UUID(bytes=user_id))
    broker.record(connection, action, user, details, actor=user)


def _check_order(
    connection: Connection,
    broker: Broker,
    call: Call,
    user: Row,
    message: wire.KeyFileStoring | wire.KeyFileDeletion,
    action: wire.Action,
    digest: bytes,
) -> None:
    """Raise `ChallengeError` unless the user signed a fresh order for this action; use its nonce up."""
    order, signed = sessions.parse_authorization(message.authorization)
    sessions.check_fresh(broker, order, call.now)
    sessions.check_purpose(order, action, digest)
    with sessions.using_up(broker, order.nonce):
        signer = sessions.Signer.of(connection, user)
        sessions.check_signed(signer, order, wire.ORDER_LABEL, signed)
    sessions.use_nonce(connection, order.nonce)


def check_reminder(reminder: str | None) -> None:
    """Raise `TooLargeError` for a reminder that is too long."""
    if reminder is not None and len(reminder.encode()) > wire.MAX_REMINDER:
        raise errors.TooLargeError(f"A reminder has at most {wire.MAX_REMINDER} bytes of UTF-8.")


def verifier_of(keys: Keys, user_id: UserId, auth: bytes) -> bytes:
    """Return the stored hash of a passphrase's proof: useless without a key of the broker."""
    return keyed_hash(keys.first, "verifier", user_id, auth)


def _opened_verifier(keys: Keys, user_id: UserId, stored: bytes | None) -> bytes:
    """Return the stored hash of a proof. If it is missing or damaged, return zeros after the same work."""
    decoy = bytes(_SEALED_VERIFIER if keys.is_rotated else HASH_SIZE)
    try:
        return keys.open_verifier(user_id, decoy if stored is None else stored)
    except errors.IntegrityError:
        return bytes(HASH_SIZE)


def _opened(keys: Keys, user_id: UserId, stored: bytes) -> bytes:
    try:
        return keys.open(KEY_FILE, user_id, stored)
    except errors.IntegrityError as error:
        raise errors.BrokerFaultError("The stored KeyFile is damaged: ask the operator.") from error


@dataclass(frozen=True, slots=True)
class Stored:
    """A user's row of KeyFiles."""

    key_file: bytes
    verifier: bytes
    reminder: str

    @classmethod
    def find(cls, connection: Connection, keys: Keys, user_id: UserId) -> Stored | None:
        row = sql.one(connection, sql.FIND_KEY_FILE, user_id=user_id)
        if row is None:
            return None
        verifier = _opened_verifier(keys, user_id, row.verifier)
        return cls(_opened(keys, user_id, row.key_file), verifier, row.reminder)

    def row(self, keys: Keys, user_id: UserId) -> dict[str, Any]:
        return {
            "user_id": user_id,
            "key_file": keys.seal(KEY_FILE, user_id, self.key_file),
            "verifier": keys.seal_verifier(user_id, self.verifier),
            "reminder": self.reminder,
        }

    def is_same(self, other: Stored) -> bool:
        """Compare all fields, the verifiers in constant time."""
        same_verifier = equal(self.verifier, other.verifier)
        same = (self.key_file, self.reminder) == (other.key_file, other.reminder)
        return same_verifier and same


def key_columns(chain: KeyChain) -> dict[str, int]:
    """Return the columns of a user's row that follow from the key chain."""
    return {
        "chain_length": len(chain.records),
        "encryption_index": chain.latest(KeyType.Encryption).index,
        "signing_sequence": chain.signing_sequence,
    }


def add_key_records(
    connection: Connection, user_id: UserId, records: Sequence[Signed], first: int
) -> None:
    """Insert key records; `first` is the sequence of the first one."""
    rows = [
        {"user_id": user_id, "sequence": n, "body": signed.body, "signature": signed.signature}
        for n, signed in enumerate(records, first)
    ]
    if rows:
        connection.add(t.key_records, rows)


def _check_next(user: Row, stored: Stored | None, message: wire.KeyFileStoring) -> None:
    """Raise `ConflictError` unless the message replaces the stored KeyFile with one of a later generation."""
    if (None if stored is None else sha256(stored.key_file)) != message.replaces:
        raise errors.ConflictError(_CHANGED)
    same = stored is None or stored.key_file == message.keyFile
    if message.generation < user.key_file_generation + (not same):
        raise errors.ConflictError(
            f"The KeyFile has generation {message.generation}, but a later one was stored before."
        )


def grown_chain(chain: KeyChain | None, records: Sequence[Signed], moment: int) -> KeyChain:
    """Return the chain with these records appended; each must have the date that ids.md, 4 requires.

    Without a chain these are all records of a new user.
    """
    with refusing():
        grown = chain.extend(records, moment) if chain else KeyChain.verify(records, moment)
    check_dates(records, moment)
    return grown


def check_dates(records: Sequence[Signed], moment: int) -> None:
    """Raise `ClockError` unless each record has the date that ids.md, 4 requires."""
    for record in map(parse_key_record, records):
        expected, tolerance = moment, key_record.CLOCK_TOLERANCE
        if record.state != key_record.ACTIVE:
            expected += key_record.RETIREMENT_AHEAD
            tolerance = key_record.RETIREMENT_TOLERANCE
        if abs(record.time - expected) > tolerance:
            minutes = tolerance / 60_000_000
            raise errors.ClockError(
                f"The key records are more than {minutes:g} minutes off: set the clock right."
            )


def check_retirements(records: Sequence[Signed], signed_until: int) -> None:
    """Raise `ClockError` for a retirement that would invalidate a stored record of the user (ids.md, 4).

    The bounds of `grown_chain` prevent this while the brokers' clocks agree. The user's row must be locked.
    """
    for record in map(parse_key_record, records):
        if record.state != key_record.ACTIVE and record.time <= signed_until:
            raise errors.ClockError(
                "A key would be retired before records that it signed: the broker's clock was set back, or "
                "its brokers' clocks differ. Try again in some minutes."
            )
