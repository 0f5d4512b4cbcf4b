"""Register, log in, replace or delete the KeyFile on the broker, delete and block users, read the usage.

The broker learns the public keys, the sealed KeyFile and `auth`, which is derived from the passphrase and
opens nothing. Each replacement names the stored KeyFile that it replaces and is signed, so that neither a
stolen token nor a second device can undo what the user did.
Spec: docs/spec/keyfile.md; docs/spec/protocol.md, sections 3 and 5.
"""

import unicodedata
import uuid
from collections.abc import Callable
from typing import Final

import msgspec

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls.tasks import io_thread
from scbroker.client.http.requests import Requests
from scbroker.client.local_state import LocalState
from scbroker.client.users.session import Session, log_in_again
from scbroker.client.users.session_store import KeptSessions
from scbroker.client.users.trust_store import FileTrustStore, Marks, TrustStore, raise_to
from scbroker.crypto.verify import SIGNATURE_SIZE, sha256
from scbroker.errors import BrokerFaultError, InvalidArgumentError, QuotaExceededError
from scbroker.keys import KeyRing, PassphraseKeys, checked_secret, open_key_file, seal_key_file
from scbroker.records.canonical import decoder
from scbroker.records.key_record import KeyChain
from scbroker.types import Usage
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject
from scbroker.wire.users import MAX_REMINDER, BlockedUsers


async def fetch_usage(session: Session) -> Usage:
    """Return the usage and the quotas of the session's user: the broker's word."""
    found = await session.call("GET", "/v1/usage", wire.Usage)
    return Usage(found.bytes, found.containers, found.quotaBytes, found.quotaContainers)


async def check_free(session: Session, size: int) -> None:
    """Raise `QuotaExceededError` if the quota leaves fewer than `size` bytes."""
    found = await fetch_usage(session)
    if found.freeBytes is not None and found.quotaBytes is not None and size > found.freeBytes:
        raise QuotaExceededError(quota=found.quotaBytes, used=found.bytes, needed=size)


async def block(session: Session, user_id: uuid.UUID) -> None:
    """Have the broker refuse records by this user that give the session's user access."""
    await session.send("PUT", f"/v1/blocks/{user_id}")


async def unblock(session: Session, user_id: uuid.UUID) -> None:
    """Remove the block of this user, if there is one."""
    await session.send("DELETE", f"/v1/blocks/{user_id}")


async def blocked(session: Session) -> list[uuid.UUID]:
    """Return the blocked users, ascending."""
    answer = await session.call("GET", "/v1/blocks", BlockedUsers)
    if sorted(set(answer.users)) != answer.users:
        raise BrokerFaultError("The broker's list of blocked users is not in order.")
    return [uuid.UUID(each) for each in answer.users]


def check_other(session: Session, user_id: uuid.UUID) -> None:
    """Raise `InvalidArgumentError` for the session's own user."""
    if user_id == session.userId:
        raise InvalidArgumentError("userId is your own: name another user")


_KIND: Final = "key-file"
Validator = Callable[[str], str | None]
"""Returns what is wrong with a new password or passphrase, or None."""
# Placeholder: the order is signed last, because it names the digest of all other fields.
_UNSIGNED: Final = wire.Authorization(order=b"", signature=bytes(SIGNATURE_SIZE))
# Nobody changes credentials so often; a broker that claims so could use up the generations.
_MOST_AHEAD: Final = 2**32


class SupersededError(errors.RollbackError):
    """A log-in failed because the verified chain has newer keys: callers see a `RollbackError`."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The newest KeyFile that this device opened or stored."""

    generation: int
    hash: bytes


async def register(
    requests: Requests, store: TrustStore, password: str, passphrase: str, reminder: str | None
) -> tuple[Session, bytes]:
    """Create a user; return the session and the KeyFile."""
    ring = KeyRing.generate()
    chain, key_file = await publish(requests, ring, password, passphrase, reminder)
    session = session_of(requests, store, ring)
    session.directory.set_own(chain)
    await session.token.get()
    _keep_pass(store, session)
    keep_mark(session.marks, ring, key_file)
    return session, key_file


async def publish(
    requests: Requests, ring: KeyRing, password: str, passphrase: str, reminder: str | None
) -> tuple[KeyChain, bytes]:
    """Register a user with new keys, without a session; return the published chain and the KeyFile."""
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, ring.userId)
    key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
    records = ring.first_records(now())
    signed = [SignedObject.of(record) for record in records]
    message = wire.Registration(
        keyRecords=signed,
        keyFile=key_file,
        auth=keys.auth,
        reminder=reminder,
        origin=requests.endpoint.origin,
    )
    answer = await requests.call("POST", "/v1/users", wire.Registered, message=message)
    if answer.userId != str(ring.userId):
        raise errors.BrokerFaultError("The broker registered another user than the one asked for.")
    return KeyChain.verify(records, now()), key_file


async def log_in_with_key_file(
    requests: Requests, store: TrustStore, user_id: uuid.UUID, password: str | None, passphrase: str
) -> tuple[Session, bytes]:
    """Fetch the KeyFile with the passphrase, open it, and return a session with its keys."""
    device_pass = store.read_pass(user_id)
    if device_pass is not None and len(device_pass) != wire.DEVICE_PASS_SIZE:
        device_pass = None
    key_file, ring = await _open_stored(requests, user_id, passphrase, password, device_pass)
    session = session_of(requests, store, ring)
    keep_mark(session.marks, ring, key_file)
    await _log_in(session, store)
    return session, key_file


async def log_in_with_ring(
    requests: Requests, store: TrustStore, ring: KeyRing
) -> tuple[Session, None]:
    """Return a session with these keys, and no KeyFile."""
    session = session_of(requests, store, ring)
    await _log_in(session, store)
    return session, None


async def _log_in(session: Session, store: TrustStore) -> None:
    """Get a token and the published keys, which must be those of the session."""
    try:
        chain = await session.directory.latest_own()
    except errors.ChallengeError as error:
        raise errors.CredentialsError(f"The broker refused the log-in. {error}") from None
    check_published(session.keys.ring, chain)
    _keep_pass(store, session)


def check_published(ring: KeyRing, chain: KeyChain) -> None:
    """Raise unless these are exactly the published keys; `SupersededError` if newer ones are proved."""
    try:
        ring.check_chain(chain)
    except errors.RollbackError as error:
        if ring.is_superseded_by(chain):
            raise SupersededError(error.message) from None
        raise


async def fetch_reminder(requests: Requests, user_id: uuid.UUID) -> str:
    """Return the stored reminder of any user; "" for an unknown user as for one without."""
    answer = await requests.call("GET", f"/v1/users/{user_id}/reminder", wire.ReminderAnswer)
    return answer.reminder


def session_of(requests: Requests, store: TrustStore, ring: KeyRing) -> Session:
    """Return a session with these keys, without a request to the broker."""
    state = LocalState(store.directory) if isinstance(store, FileTrustStore) else None
    marks = store.open(ring.userId, ring.signing[0].derive("trust-store"))
    return Session(requests, ring, marks, state)


def _keep_pass(store: TrustStore, session: Session) -> None:
    if session.token.device_pass is not None:
        store.keep_pass(session.userId, session.token.device_pass)


async def change_credentials(
    session: Session,
    kept: KeptSessions,
    password: str,
    passphrase: str,
    reminder: str | None,
    compromised: bool,
) -> bytes:
    """Store a KeyFile of the next generation under new secrets, with new keys if `compromised`."""
    async with session.changing_keys:
        chain, state = await _published(session)
        mark, ring = _mark(session.marks), session.keys.ring
        # The mark is older than the KeyRing if the answer to this device's own change was lost.
        if mark is not None and state.generation > max(mark.generation, ring.generation):
            raise errors.ConflictError(
                "The credentials were changed on another device: log in with the new passphrase first."
            )
        await _check_kept_reminder(session, reminder, (password, passphrase))
        ring = ring.next(max(state.generation, ring.generation) + 1, fresh=compromised)
        keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, session.userId)
        key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        return await _store(
            session, kept, chain, state, ring, key_file, keys.auth, reminder, end_others=True
        )


async def create_or_update(
    session: Session,
    kept: KeptSessions,
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
    opening = (open_key_file, key_file, session.userId)
    has_passphrase = True
    try:
        ring = await io_thread.in_pool(*opening, keys, password)
    except errors.DecryptionError:
        # Passphrase or password may be wrong: the second attempt, with the password alone, tells which.
        has_passphrase = False
        try:
            ring = await io_thread.in_pool(*opening, None, password)
        except errors.DecryptionError:
            raise errors.CredentialsError(
                "The password does not open this KeyFile, or the KeyFile is damaged."
            ) from None
        check_new("passphrase", passphrase, validator)
        check_different(password, passphrase)
    async with session.changing_keys:
        chain, state = await _published(session)
        ring.check_chain(chain)
        if ring.generation < state.generation:
            raise errors.RollbackError(
                "A newer KeyFile than this one was stored before: give the bytes that createOrUpdateKeyFile "
                "or changeCredentials gave last, or use changeCredentials for new secrets."
            )
        digest = sha256(key_file)
        if state.hash is not None:
            _check_mark(Mark(state.generation, state.hash), ring.generation, digest)
        _check_mark(_mark(session.marks), ring.generation, digest)
        if not has_passphrase:
            known = (state.generation, ring.generation, session.keys.ring.generation)
            ring = ring.next(max(known) + 1, fresh=False)
            key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
        await _check_kept_reminder(session, reminder, secrets)
        return await _store(
            session, kept, chain, state, ring, key_file, keys.auth, reminder, end_others=False
        )


async def fetch(session: Session, passphrase: str) -> bytes:
    """Return the stored KeyFile after it opened and proved to be no older than this device has seen."""
    key_file, ring = await _open_stored(
        session.requests, session.userId, passphrase, None, session.token.device_pass
    )
    keep_mark(session.marks, ring, key_file)
    return key_file


async def _open_stored(
    requests: Requests,
    user_id: uuid.UUID,
    passphrase: str,
    password: str | None,
    device_pass: bytes | None,
) -> tuple[bytes, KeyRing]:
    """Fetch a user's KeyFile by a proof of the passphrase, and open it. Needs no session."""
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, user_id)
    message = wire.KeyFileOpening(auth=keys.auth, devicePass=device_pass)
    path = f"/v1/users/{user_id}/key-file/open"
    answer = await requests.call("POST", path, wire.KeyFileAnswer, message=message)
    ring = await io_thread.in_pool(open_key_file, answer.keyFile, user_id, keys, password)
    return answer.keyFile, ring


async def delete(session: Session) -> None:
    """Delete the stored KeyFile. The mark stays: an older KeyFile must not come back."""
    async with session.changing_keys:
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
    async with session.changing_keys:
        closing = session.keys.ring.closing_record(session.directory.own, now())
        unsigned = wire.UserDeletion(keyRecord=SignedObject.of(closing), authorization=_UNSIGNED)
        authorization = await session.order("delete-user", unsigned.digest)
        message = msgspec.structs.replace(unsigned, authorization=authorization)
        with log_in_again():
            path = f"/v1/users/{session.userId}/deletion"
            await session.requests.send("POST", path, message=message)


def keep_mark(marks: Marks, ring: KeyRing, key_file: bytes) -> None:
    """Raise the mark to this KeyFile; raise an error for an older one, or a second of its generation."""
    digest = sha256(key_file)

    def decide(stored: bytes | None) -> bytes:
        _check_mark(_decoded(stored), ring.generation, digest)
        return msgspec.msgpack.encode(Mark(ring.generation, digest))

    raise_to(marks, _KIND, b"", decide)


def _mark(marks: Marks) -> Mark | None:
    return _decoded(marks.get(_KIND, b""))


def _decoded(stored: bytes | None) -> Mark | None:
    return None if stored is None else decoder(Mark).decode(stored)


def _check_mark(mark: Mark | None, generation: int, digest: bytes | None) -> None:
    if mark is None:
        return
    if generation < mark.generation:
        raise errors.RollbackError(
            "The broker served an older KeyFile than this device has seen: ask its operator whether a "
            "backup was restored."
        )
    if generation == mark.generation and digest not in (None, mark.hash):
        raise errors.ForkError("This device has seen another KeyFile of the same generation.")


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
        if _contains(answer.reminder, secrets):
            raise errors.InvalidArgumentError(
                "The reminder that is stored contains one of these secrets, and the broker can read it: give "
                'another reminder, or "" to remove it.'
            )


async def _state(session: Session) -> wire.KeyFileState:
    """Return the generation and hash that the broker reports, checked against the mark."""
    state = await session.call("GET", "/v1/key-file", wire.KeyFileState)
    mark = _mark(session.marks)
    _check_mark(mark, state.generation, state.hash)
    seen = session.keys.ring.generation if mark is None else mark.generation
    if state.generation > seen + _MOST_AHEAD:
        raise errors.BrokerFaultError(
            f"The broker reports KeyFile generation {state.generation}; this device knows {seen}."
        )
    return state


async def _published(session: Session) -> tuple[KeyChain, wire.KeyFileState]:
    """Return chain and KeyFile state before a change; raise unless the session has the published keys."""
    chain = await session.directory.latest_own()
    session.keys.ring.check_chain(chain)
    return chain, await _state(session)


async def _store(
    session: Session,
    kept: KeptSessions,
    chain: KeyChain,
    state: wire.KeyFileState,
    ring: KeyRing,
    key_file: bytes,
    auth: bytes,
    reminder: str | None,
    *,
    end_others: bool,
) -> bytes:
    """Store a KeyFile and publish its new keys, use its KeyRing from now on, and return its bytes."""
    records = ring.next_records(chain, now())
    if records:
        # Keep both KeyRings before sending: if the process ends without an answer, either may be current.
        await kept.renew(session.keys.ring, ring)
    unsigned = wire.KeyFileStoring(
        keyFile=key_file,
        generation=ring.generation,
        auth=auth,
        replaces=state.hash,
        reminder=reminder,
        keyRecords=[SignedObject.of(signed) for signed in records],
        endOtherSessions=end_others,
        authorization=_UNSIGNED,
    )
    authorization = await session.order("store-key-file", unsigned.digest)
    message = msgspec.structs.replace(unsigned, authorization=authorization)
    with log_in_again():
        await session.send("PUT", "/v1/key-file", message=message)
    session.keys.replace(ring)
    session.directory.set_own(chain.extend(records, now()))
    keep_mark(session.marks, ring, key_file)
    await kept.renew(ring)
    return key_file


def validate_secret(secret: str) -> str | None:
    """Return what the default policy finds wrong with a password or passphrase, or None.

    At least 8 characters from 3 of 4 classes: lower case, upper case, digits, everything else.
    """
    classes = {
        "lower" if char.islower() else "upper" if char.isupper() else "digit"
        if char.isdigit() else "other"
        for char in secret
    }  # fmt: skip
    if len(secret) < 8:
        return "it has fewer than 8 characters"
    if len(classes) < 3:
        return "it has fewer than 3 of: lower case, upper case, digits, other characters"
    return None


def check_credentials(
    password: str, passphrase: str, reminder: str | None, validator: Validator
) -> None:
    """Raise `InvalidArgumentError` that names the wrong one of new secrets and their reminder."""
    check_new("password", password, validator)
    check_new("passphrase", passphrase, validator)
    check_different(password, passphrase)
    check_reminder(reminder, (password, passphrase))


def check_new(name: str, secret: str, validator: Validator) -> None:
    """Raise `InvalidArgumentError` if the format cannot hold a new secret or the validator refuses it.

    Existing secrets are not held to the policy: one that an older policy accepted must still work.
    """
    checked_secret(secret, name)
    if (fault := validator(secret)) is not None:
        raise errors.InvalidArgumentError(f"The {name} is too weak: {fault}.")


def check_different(password: str, passphrase: str) -> None:
    """Raise `InvalidArgumentError` for new secrets that are the same text, in any Unicode spelling."""
    if checked_secret(password, "password") == checked_secret(passphrase, "passphrase"):
        raise errors.InvalidArgumentError(
            "passphrase must differ from password: an attacker who learns one would have both."
        )


def check_reminder(reminder: str | None, secrets: tuple[str, str]) -> None:
    """Raise `InvalidArgumentError` for a reminder that cannot be stored or contains one of `secrets`."""
    if reminder is None:
        return
    data = reminder.encode(errors="replace")  # changes what UTF-8 cannot have
    if "\0" in reminder or data.decode() != reminder or len(data) > MAX_REMINDER:
        raise errors.InvalidArgumentError(
            f"reminder must have at most {MAX_REMINDER} bytes in UTF-8 and no NUL: shorten it."
        )
    if _contains(reminder, secrets):
        raise errors.InvalidArgumentError(
            "The reminder contains a secret, and the broker can read it."
        )


def _contains(reminder: str, secrets: tuple[str, str]) -> bool:
    return any(_folded(secret) in _folded(reminder) for secret in secrets)


def _folded(text: str) -> str:
    """Return a form that is the same for every Unicode spelling of a text, in either case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
