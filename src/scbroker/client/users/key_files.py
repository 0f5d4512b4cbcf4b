"""Replace, fetch, compare and delete the KeyFile on the broker, and delete the user.

Each replacement names the stored KeyFile that it replaces and is signed, so that neither a stolen token nor a
second device can undo what the user did. Spec: docs/spec/keyfile.md, section 4.
"""

import uuid
from contextlib import suppress
from typing import Final

import msgspec

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http.transport import Transport
from scbroker.client.users.credentials import Validator, check_kept_reminder, check_new
from scbroker.client.users.session import Session, log_in_again
from scbroker.client.users.trust_store import Marks, raise_to
from scbroker.crypto.verify import SIGNATURE_SIZE, sha256
from scbroker.keys import (
    KeyRing,
    OpenedKeyFile,
    PassphraseKeys,
    check_key_file,
    open_key_file,
    seal_key_file,
)
from scbroker.records.key_record import KeyChain, Signed
from scbroker.types import now
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject

_KIND: Final = "key-file"
# Placeholder: the order is signed last, because it names the digest of all other fields.
_UNSIGNED: Final = wire.Authorization(order=b"", signature=bytes(SIGNATURE_SIZE))
# Nobody changes credentials so often; a broker that claims so could use up the generations.
_MOST_AHEAD: Final = 2**32


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The newest KeyFile that this device opened or stored."""

    generation: int
    hash: bytes


async def change_credentials(
    session: Session, password: str, passphrase: str, reminder: str | None, *, compromised: bool
) -> bytes:
    """Store a KeyFile of the next generation under new secrets, with new keys if `compromised`."""
    async with session.changing_keys():
        chain, state = await _published(session)
        mark = _mark(session.marks)
        if mark is not None and state.generation > mark.generation:
            raise errors.ConflictError(
                "The credentials were changed on another device: log in with the new passphrase first."
            )
        await _check_kept_reminder(session, reminder, (password, passphrase))
        present = session.keys.ring
        generation = max(state.generation, present.generation) + 1
        ring = present.next(generation, fresh=compromised)
        keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, session.userId)
        key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        records = ring.next_records(chain, now())
        storing = wire.KeyFileStoring(
            keyFile=key_file,
            generation=generation,
            auth=keys.auth,
            replaces=state.hash,
            reminder=reminder,
            keyRecords=[SignedObject.of(signed) for signed in records],
            endOtherSessions=True,
            authorization=_UNSIGNED,
        )
        await _store(session, storing, ring, chain, records)
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
    opened, has_passphrase = await _open(session, key_file, password, keys)
    if not has_passphrase:
        check_new("passphrase", passphrase, validator)
    async with session.changing_keys():
        chain, state = await _published(session)
        _check_not_older(session, chain, state, opened)
        ring = opened.ring
        if not has_passphrase:
            known = (state.generation, ring.generation, session.keys.ring.generation)
            ring = ring.next(max(known) + 1, fresh=False)
            key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        await _check_kept_reminder(session, reminder, secrets)
        storing = wire.KeyFileStoring(
            keyFile=key_file,
            generation=ring.generation,
            auth=keys.auth,
            replaces=state.hash,
            reminder=reminder,
            authorization=_UNSIGNED,
        )
        await _store(session, storing, ring, chain, [])
        return key_file


async def fetch(session: Session, passphrase: str) -> bytes:
    """Return the stored KeyFile after it opened and proved to be no older than this device has seen."""
    key_file, opened = await open_stored(
        session.transport, session.userId, passphrase, None, session.token.device_pass
    )
    keep_mark(session.marks, opened)
    return key_file


async def open_stored(
    transport: Transport,
    user_id: uuid.UUID,
    passphrase: str,
    password: str | None,
    device_pass: bytes | None,
) -> tuple[bytes, OpenedKeyFile]:
    """Fetch a user's KeyFile by a proof of the passphrase, and open it. Needs no session."""
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, user_id)
    answer = await transport.call(
        "POST",
        f"/v1/users/{user_id}/key-file/open",
        wire.KeyFileAnswer,
        message=wire.KeyFileOpening(auth=keys.auth, devicePass=device_pass),
    )
    opened = await io_thread.in_pool(open_key_file, answer.keyFile, user_id, keys, password)
    return answer.keyFile, opened


async def delete(session: Session) -> None:
    """Delete the stored KeyFile. The mark stays: an older KeyFile must not come back."""
    async with session.changing_keys():
        message = wire.KeyFileDeletion(authorization=await session.order("delete-key-file"))
        with log_in_again():
            await session.send("POST", "/v1/key-file/deletion", message=message)


async def differs(session: Session, copy: bytes) -> bool:
    """Return whether the broker stores no KeyFile, or another than the one with this SHA-256."""
    return (await _state(session)).hash != copy


async def delete_user(session: Session) -> None:
    """Delete the user for ever, by a record that closes their key chain and an order that names it.

    Neither needs a session, nor the keys as the broker has them now: both can be sent again after a
    deletion whose answer was lost.
    """
    async with session.changing_keys():
        closing = session.keys.ring.closing_record(session.directory.own, now())
        unsigned = wire.UserDeletion(keyRecord=SignedObject.of(closing), authorization=_UNSIGNED)
        authorization = await session.order("delete-user", unsigned.digest)
        message = msgspec.structs.replace(unsigned, authorization=authorization)
        with log_in_again():
            await session.transport.send(
                "POST", f"/v1/users/{session.userId}/deletion", message=message
            )


def check_own(key_file: bytes, user_id: uuid.UUID) -> None:
    """Raise `InvalidArgumentError` unless these bytes have the form of this user's KeyFile."""
    try:
        check_key_file(key_file, user_id)
    except (errors.IntegrityError, errors.KeySubstitutionError) as error:
        raise errors.InvalidArgumentError(
            f"keyFileData is not this user's KeyFile: {error}"
        ) from None


def keep_mark(marks: Marks, opened: OpenedKeyFile) -> None:
    """Raise the mark to this KeyFile; raise an error for an older one, or a second of its generation."""

    def decide(stored: bytes | None) -> bytes:
        _check_mark(_decoded(stored), opened.ring.generation, opened.hash)
        return msgspec.msgpack.encode(Mark(opened.ring.generation, opened.hash))

    raise_to(marks, _KIND, b"", decide)


def _mark(marks: Marks) -> Mark | None:
    return _decoded(marks.get(_KIND, b""))


def _decoded(stored: bytes | None) -> Mark | None:
    return None if stored is None else msgspec.msgpack.decode(stored, type=Mark)


def _check_mark(mark: Mark | None, generation: int, digest: bytes | None) -> None:
    if mark is None:
        return
    if generation < mark.generation:
        raise errors.RollbackError(
            "The broker served an older KeyFile than this device has seen: it was restored from a backup, "
            "or it lies."
        )
    if generation == mark.generation and digest is not None:
        _check_same(digest, mark.hash)


def _check_same(found: bytes, seen: bytes) -> None:
    if found != seen:
        raise errors.ForkError("This device has seen another KeyFile of the same generation.")


async def _open(
    session: Session, key_file: bytes, password: str, keys: PassphraseKeys
) -> tuple[OpenedKeyFile, bool]:
    """Open a KeyFile with its password, and tell whether it is sealed under this passphrase too."""
    opening = (open_key_file, key_file, session.userId)
    with suppress(
        errors.DecryptionError
    ):  # another passphrase, unless the password is wrong as well
        return await io_thread.in_pool(*opening, keys, password), True
    try:
        return await io_thread.in_pool(*opening, None, password), False
    except errors.DecryptionError:
        raise errors.CredentialsError(
            "The password does not open this KeyFile, or the KeyFile is damaged."
        ) from None


async def _check_kept_reminder(
    session: Session, given: str | None, secrets: tuple[str, str]
) -> None:
    """Refuse to keep a stored reminder that contains one of these secrets.

    Costs one request if no reminder is given. The answer of GET /v1/key-file could carry the reminder
    instead, but then every needToSyncAccount would transfer it too. The broker does not count this
    request against the limit for strangers.
    """
    if given is None:
        answer = await session.call("GET", "/v1/reminder", wire.ReminderAnswer)
        check_kept_reminder(answer.reminder, secrets)


async def _state(session: Session) -> wire.KeyFileState:
    """Return the generation and hash that the broker reports, checked against the mark."""
    state = await session.call("GET", "/v1/key-file", wire.KeyFileState)
    mark = _mark(session.marks)
    _check_mark(mark, state.generation, state.hash)
    seen = session.keys.ring.generation if mark is None else mark.generation
    if state.generation > seen + _MOST_AHEAD:
        raise errors.BrokerFaultError(
            "The broker reports an impossible number of replacements of the KeyFile."
        )
    return state


async def _published(session: Session) -> tuple[KeyChain, wire.KeyFileState]:
    """Return what is about to be replaced; the published keys must be those of the session."""
    chain = await session.directory.latest_own()
    session.keys.ring.check_chain(chain)
    return chain, await _state(session)


def _check_not_older(
    session: Session, chain: KeyChain, state: wire.KeyFileState, opened: OpenedKeyFile
) -> None:
    """Raise unless the KeyFile has the published keys, and is the newest or follows it."""
    opened.ring.check_chain(chain)
    if opened.ring.generation < state.generation:
        raise errors.RollbackError(
            "A newer KeyFile than this one was stored before: give the bytes that createOrUpdateKeyFile or "
            "changeCredentials gave last, or use changeCredentials for new secrets."
        )
    if opened.ring.generation == state.generation and state.hash is not None:
        _check_same(opened.hash, state.hash)
    _check_mark(_mark(session.marks), opened.ring.generation, opened.hash)


async def _store(
    session: Session,
    storing: wire.KeyFileStoring,
    ring: KeyRing,
    chain: KeyChain,
    records: list[Signed],
) -> None:
    """Sign and send a new KeyFile, and use its KeyRing from now on."""
    authorization = await session.order("store-key-file", storing.digest)
    message = msgspec.structs.replace(storing, authorization=authorization)
    with log_in_again():
        await session.send("PUT", "/v1/key-file", message=message)
    session.keys.replace(ring)
    session.directory.set_own(chain.extend(records, now()))
    keep_mark(session.marks, OpenedKeyFile(ring, sha256(storing.keyFile)))
