"""Registration and log-in: from two secrets to a session. Spec: docs/spec/keyfile.md, protocol.md 3.

What the broker learns: the public keys, the sealed KeyFile, and what the passphrase was stretched to
for it (`auth`), which opens nothing.
"""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scbroker.client.directory import now
from scbroker.client.io_thread import io_thread
from scbroker.client.key_files import keep_mark
from scbroker.client.session import Session
from scbroker.client.transport import Transport
from scbroker.client.trust_store import FileTrustStore, Marks, TrustStore
from scbroker.crypto.verify import sha256
from scbroker.errors import (
    BrokerFaultError,
    ChallengeError,
    CredentialsError,
    InvalidArgumentError,
)
from scbroker.keys import (
    KeyRing,
    OpenedKeyFile,
    PassphraseKeys,
    checked_secret,
    open_key_file,
    seal_key_file,
)
from scbroker.records.key_record import KeyChain
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject

Validator = Callable[[str], str | None]
_MARKS: Final = "trust-store"
_MIN_LENGTH: Final = 8
_MIN_CLASSES: Final = 3


def validate_secret(secret: str) -> str | None:
    """The default policy: what is wrong with a password or passphrase, or None.

    At least 8 characters from 3 of 4 classes: lower case, upper case, digits, everything else.
    """
    classes = {
        "lower" if char.islower() else "upper" if char.isupper() else "digit"
        if char.isdigit() else "other"
        for char in secret
    }  # fmt: skip
    if len(secret) < _MIN_LENGTH:
        return f"it has fewer than {_MIN_LENGTH} characters"
    if len(classes) < _MIN_CLASSES:
        return "it has fewer than 3 of: lower case, upper case, digits, other characters"
    return None


def checked_credentials(
    password: object, passphrase: object, reminder: object, validator: Validator
) -> tuple[str, str, str | None]:
    """New secrets and their reminder; `InvalidArgumentError` says which is wrong and why."""
    secrets = (
        _checked_new("password", password, validator),
        _checked_new("passphrase", passphrase, validator),
    )
    return *secrets, checked_reminder(reminder, secrets)


def checked_secrets(password: object, passphrase: object) -> tuple[str, str]:
    """Secrets that exist already: what was good enough once is, whatever the policy says today."""
    return checked_one("password", password), checked_one("passphrase", passphrase)


def checked_reminder(reminder: object, secrets: tuple[str, str]) -> str | None:
    if reminder is None:
        return None
    if not isinstance(reminder, str) or not _can_be_kept(reminder):
        raise InvalidArgumentError("reminder is text of at most 1,024 bytes, or None.")
    if any(_folded(secret) in _folded(reminder) for secret in secrets):
        raise InvalidArgumentError("The reminder contains a secret, and the broker can read it.")
    return reminder


def _folded(text: str) -> str:
    """The same for every spelling of a secret, and in either case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _can_be_kept(reminder: str) -> bool:
    try:
        return "\0" not in reminder and len(reminder.encode()) <= wire.MAX_REMINDER
    except UnicodeEncodeError:
        return False


def checked_one(name: str, secret: object) -> str:
    """Return a secret that the format can hold; `InvalidArgumentError` for any other, also an empty one."""
    if not isinstance(secret, str):
        raise InvalidArgumentError(f"{name} must be a str, not {type(secret).__name__}.")
    checked_secret(secret, name)
    return secret


def _checked_new(name: str, given: object, validator: Validator) -> str:
    secret = checked_one(name, given)
    if (fault := validator(secret)) is not None:
        raise InvalidArgumentError(f"The {name} is too weak: {fault}.")
    return secret


async def register(
    transport: Transport, store: TrustStore, password: str, passphrase: str, reminder: str | None
) -> tuple[Session, bytes]:
    """Makes a user; gives the session and the KeyFile."""
    ring = KeyRing.generate()
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, ring.userId)
    key_file = await io_thread.in_pool(seal_key_file, ring, password, keys)
    records = ring.first_records(now())
    answer = await transport.call(
        "POST",
        "/v1/users",
        wire.Registered,
        message=wire.Registration(
            keyRecords=[SignedObject.of(signed) for signed in records],
            keyFile=key_file,
            auth=keys.auth,
            reminder=reminder,
        ),
    )
    if answer.userId != str(ring.userId):
        raise BrokerFaultError("The broker registered another user than the one asked for.")
    session = Session(transport, ring, _marks(store, ring), _folder(store))
    session.directory.set_own(KeyChain.verify(records, now()))
    await session.token()
    keep_mark(session.marks, OpenedKeyFile(ring, sha256(key_file)))
    return session, key_file


async def log_in_with_key_file(
    transport: Transport,
    store: TrustStore,
    user_id: uuid.UUID,
    password: str | None,
    passphrase: str,
) -> tuple[Session, bytes]:
    """Fetches the KeyFile with the passphrase alone, opens it, and begins a session with its keys."""
    keys = await io_thread.in_pool(PassphraseKeys.derive, passphrase, user_id)
    answer = await transport.call(
        "POST",
        f"/v1/users/{user_id}/key-file/open",
        wire.KeyFileAnswer,
        message=wire.KeyFileOpening(auth=keys.auth),
    )
    opened = await io_thread.in_pool(open_key_file, answer.keyFile, user_id, keys, password)
    keep_mark(_marks(store, opened.ring), opened)
    session = await log_in_with_ring(transport, store, opened.ring)
    return session, answer.keyFile


async def log_in_with_ring(transport: Transport, store: TrustStore, ring: KeyRing) -> Session:
    """Begins a session with keys that are there already; they have to be the published ones."""
    session = Session(transport, ring, _marks(store, ring), _folder(store))
    try:
        chains = await session.directory.latest([ring.userId])
    except ChallengeError:
        raise CredentialsError(
            "The broker refused the log-in: it does not know this user's keys, or serverUrl is not "
            "an address that it is configured for."
        ) from None
    ring.check_chain(chains[ring.userId])
    return session


async def reminder(transport: Transport, user_id: uuid.UUID) -> str:
    answer = await transport.call("GET", f"/v1/users/{user_id}/reminder", wire.ReminderAnswer)
    return answer.reminder


def _marks(store: TrustStore, ring: KeyRing) -> Marks:
    return store.open(ring.userId, ring.signing[0].derive(_MARKS))


def _folder(store: TrustStore) -> Path | None:
    """Where this device remembers unfinished transfers: beside the marks, where those are files."""
    return store.directory / "transfers" if isinstance(store, FileTrustStore) else None
