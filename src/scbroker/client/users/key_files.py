"""The KeyFile on the broker: replaced, given back, compared, removed. Spec: docs/spec/keyfile.md, 4.

Whatever replaces it names the one that it replaces and is signed for, so that neither a stolen token
nor a second device can undo what the user did. What the broker learns is what it learns at a
registration (`accounts`).
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http.transport import Transport
from scbroker.client.users.credentials import Validator, check_kept_reminder, checked_new
from scbroker.client.users.directory import now
from scbroker.client.users.session import Session, log_in_again
from scbroker.client.users.trust_store import Marks, raise_to
from scbroker.crypto.verify import SIGNATURE_SIZE, sha256
from scbroker.errors import (
    BrokerFaultError,
    ConflictError,
    CredentialsError,
    DecryptionError,
    ForkError,
    IntegrityError,
    InvalidArgumentError,
    KeySubstitutionError,
    RollbackError,
)
from scbroker.keys import (
    KeyRing,
    OpenedKeyFile,
    PassphraseKeys,
    check_key_file,
    open_key_file,
    seal_key_file,
)
from scbroker.records.key_record import KeyChain, Signed
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import Authorization, KeyFileDeletion, KeyFileStoring, UserDeletion

_KIND: Final = "key-file"
_OLDER: Final = (
    "An older KeyFile was served than this device has seen: the broker was restored from a backup, or "
    "it lies."
)
_OTHER: Final = "Another KeyFile of the same generation was seen before."
# Placeholder: the order is signed last, because it names the digest of all other fields.
_UNSIGNED: Final = Authorization(order=b"", signature=bytes(SIGNATURE_SIZE))
# Nobody changes credentials so often; a broker that says so would use up the numbers.
_MOST_AHEAD: Final = 2**32


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The newest KeyFile that this device opened or stored."""

    generation: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class _Current:
    """What there is to replace: the published keys, and the stored KeyFile as far as it is known."""

    chain: KeyChain
    stored: bytes | None
    generation: int


async def change_credentials(
    session: Session, password: str, passphrase: str, reminder: str | None, *, compromised: bool
) -> bytes:
    """A KeyFile of the next generation under new secrets; with new sub-keys where the old may be known."""
    async with session.changing_keys():
        current = await _current(session)
        _check_not_changed_elsewhere(session, current)
        await _check_kept_reminder(session, reminder, (password, passphrase))
        generation = max(current.generation, session.keys.generation) + 1
        ring = session.keys.next(generation, fresh=compromised)
        keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, session.userId)
        key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        records = ring.next_records(current.chain, now())
        storing = KeyFileStoring(
            keyFile=key_file,
            generation=generation,
            auth=keys.auth,
            replaces=current.stored,
            reminder=reminder,
            keyRecords=[SignedObject.of(signed) for signed in records],
            endOtherSessions=True,
            authorization=_UNSIGNED,
        )
        await _store(session, storing, ring, current.chain, records)
        return key_file


async def create_or_update(
    session: Session,
    key_file: bytes,
    secrets: tuple[str, str],
    reminder: str | None,
    validator: Validator,
) -> bytes:
    """Store a KeyFile that its password opens, secured by this passphrase; return the bytes stored.

    The KeyFile must have the published keys and be no older than the one stored last. If its passphrase
    is another one, its KeyRing is sealed anew: other bytes need another generation (keyfile.md, 4).
    """
    password, passphrase = secrets
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, session.userId)
    opened, is_under_it = await _open(session, key_file, password, keys)
    if not is_under_it:
        checked_new("passphrase", passphrase, validator)
    async with session.changing_keys():
        current = await _current(session)
        _check_not_older(session, current, opened)
        ring = opened.ring
        if not is_under_it:
            generation = max(current.generation, ring.generation, session.keys.generation) + 1
            ring = ring.next(generation, fresh=False)
            key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        await _check_kept_reminder(session, reminder, secrets)
        storing = KeyFileStoring(
            keyFile=key_file,
            generation=ring.generation,
            auth=keys.auth,
            replaces=current.stored,
            reminder=reminder,
            authorization=_UNSIGNED,
        )
        await _store(session, storing, ring, current.chain, [])
        return key_file


async def fetch(session: Session, passphrase: str) -> bytes:
    """The stored KeyFile, once it opened and proved to be no older than this device has seen."""
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, session.userId)
    answer = await session.transport.call(
        "POST",
        f"/v1/users/{session.userId}/key-file/open",
        wire.KeyFileAnswer,
        message=wire.KeyFileOpening(auth=keys.auth, devicePass=session.device_pass),
    )
    opened = await io_thread.in_pool(open_key_file, answer.keyFile, session.userId, keys, None)
    keep_mark(session.marks, opened)
    return answer.keyFile


async def fetch_own_reminder(session: Session) -> str:
    """Return the stored reminder of the session's user; the broker does not count this request."""
    return (await session.call("GET", "/v1/reminder", wire.ReminderAnswer)).reminder


async def fetch_reminder(transport: Transport, user_id: uuid.UUID) -> str:
    """Return the stored reminder of any user; "" for an unknown user as for one without."""
    answer = await transport.call("GET", f"/v1/users/{user_id}/reminder", wire.ReminderAnswer)
    return answer.reminder


async def delete(session: Session) -> None:
    """Removes the stored KeyFile; what this device has seen of it stays seen."""
    async with session.changing_keys():
        message = KeyFileDeletion(authorization=await session.order("delete-key-file"))
        with log_in_again():
            await session.send("POST", "/v1/key-file/deletion", message=message)


async def differs(session: Session, copy: bytes) -> bool:
    """Return whether the broker keeps another KeyFile than the one with this SHA-256, or none."""
    state = await _state(session)
    return state.hash != copy


async def delete_user(session: Session) -> None:
    """Delete the user for ever, by a record that closes their key chain and an order that names it.

    Neither needs a session, nor the keys as the broker has them now: both can be sent again after a
    deletion whose answer was lost.
    """
    async with session.changing_keys():
        closing = session.keys.closing_record(session.directory.own, now())
        unsigned = UserDeletion(keyRecord=SignedObject.of(closing), authorization=_UNSIGNED)
        authorization = await session.order("delete-user", unsigned.digest)
        message = msgspec.structs.replace(unsigned, authorization=authorization)
        with log_in_again():
            await session.transport.send(
                "POST", f"/v1/users/{session.userId}/deletion", message=message
            )


def checked_bytes(data: object) -> bytes:
    """Return a copy of `keyFileData`; `InvalidArgumentError` unless it is bytes-like."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(f"keyFileData must be bytes, not {type(data).__name__}.")
    return bytes(data)


def checked_key_file(data: object, user_id: uuid.UUID) -> bytes:
    """Return a copy of `keyFileData`; `InvalidArgumentError` unless it is this user's KeyFile."""
    key_file = checked_bytes(data)
    try:
        check_key_file(key_file, user_id)
    except (IntegrityError, KeySubstitutionError) as error:
        raise InvalidArgumentError(f"keyFileData is not this user's KeyFile: {error}") from None
    return key_file


def keep_mark(marks: Marks, opened: OpenedKeyFile) -> None:
    """Raise the mark to this KeyFile, unless this device has seen a newer one or another of its generation."""

    def decide(stored: bytes | None) -> bytes:
        _check_mark(_decode(stored), opened)
        return msgspec.msgpack.encode(Mark(opened.ring.generation, opened.hash))

    raise_to(marks, _KIND, b"", decide)


def _check_mark(mark: Mark | None, opened: OpenedKeyFile) -> None:
    if mark is None:
        return
    if opened.ring.generation < mark.generation:
        raise RollbackError(_OLDER)
    if opened.ring.generation == mark.generation:
        _check_same(opened.hash, mark.hash)


def _check_same(found: bytes, seen: bytes) -> None:
    if found != seen:
        raise ForkError(_OTHER)


def _decode(stored: bytes | None) -> Mark | None:
    return None if stored is None else msgspec.msgpack.decode(stored, type=Mark)


def _mark(session: Session) -> Mark | None:
    return _decode(session.marks.get(_KIND, b""))


async def _open(
    session: Session, key_file: bytes, password: str, keys: PassphraseKeys
) -> tuple[OpenedKeyFile, bool]:
    """Open a KeyFile with its password, and tell whether it is sealed under this passphrase too."""
    with suppress(DecryptionError):  # another passphrase, unless the password is wrong as well
        return await io_thread.in_pool(
            open_key_file, key_file, session.userId, keys, password
        ), True
    try:
        return await io_thread.in_pool(
            open_key_file, key_file, session.userId, None, password
        ), False
    except DecryptionError:
        raise CredentialsError(
            "The password does not open this KeyFile, or the KeyFile is damaged."
        ) from None


async def _check_kept_reminder(
    session: Session, given: str | None, secrets: tuple[str, str]
) -> None:
    """Refuse to keep a stored reminder that contains one of these secrets.

    Costs one request if no reminder is given. The answer of GET /v1/key-file could carry the reminder
    instead, but then every needToSyncAccount would transfer it too.
    """
    if given is None:
        check_kept_reminder(await fetch_own_reminder(session), secrets)


async def _state(session: Session) -> wire.KeyFileState:
    """What the broker says is stored, which is nothing older than this device has seen."""
    state = await session.call("GET", "/v1/key-file", wire.KeyFileState)
    mark = _mark(session)
    seen = session.keys.generation if mark is None else mark.generation
    if mark is not None and state.generation < mark.generation:
        raise RollbackError(_OLDER)
    if mark is not None and state.generation == mark.generation and state.hash is not None:
        _check_same(state.hash, mark.hash)
    if state.generation > seen + _MOST_AHEAD:
        raise BrokerFaultError(
            "The broker says what cannot be of how often the KeyFile was replaced."
        )
    return state


async def _current(session: Session) -> _Current:
    """The published keys have to be those of the session before anything takes their place."""
    chain = await session.directory.latest_own()
    session.keys.check_chain(chain)
    state = await _state(session)
    return _Current(chain, state.hash, state.generation)


def _check_not_older(session: Session, current: _Current, opened: OpenedKeyFile) -> None:
    """Raise unless the KeyFile has the published keys, and is the newest or follows it."""
    opened.ring.check_chain(current.chain)
    if opened.ring.generation < current.generation:
        raise RollbackError(
            "A newer KeyFile than this one was stored before: give the bytes that createOrUpdateKeyFile or "
            "changeCredentials gave last, or use changeCredentials for new secrets."
        )
    if opened.ring.generation == current.generation and current.stored is not None:
        _check_same(opened.hash, current.stored)
    _check_mark(_mark(session), opened)


def _check_not_changed_elsewhere(session: Session, current: _Current) -> None:
    mark = _mark(session)
    if mark is not None and current.generation > mark.generation:
        raise ConflictError(
            "The credentials were changed on another device: log in with the new passphrase first."
        )


async def _store(
    session: Session,
    storing: KeyFileStoring,
    ring: KeyRing,
    chain: KeyChain,
    records: list[Signed],
) -> None:
    """Signs for it, sends it, and goes on with the KeyRing that is inside."""
    authorization = await session.order("store-key-file", storing.digest)
    message = msgspec.structs.replace(storing, authorization=authorization)
    with log_in_again():
        await session.send("PUT", "/v1/key-file", message=message)
    session.replace_keys(ring)
    session.directory.set_own(chain.extend(records, now()))
    keep_mark(session.marks, OpenedKeyFile(ring, sha256(storing.keyFile)))
