"""Registration and log-in: from two secrets to a session. Spec: docs/spec/keyfile.md, protocol.md 3.

What the broker learns: the public keys, the sealed KeyFile, and what the passphrase was stretched to
for it (`auth`), which opens nothing.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http.transport import Transport
from scbroker.client.users.directory import now
from scbroker.client.users.key_files import keep_mark
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import FileTrustStore, Marks, TrustStore
from scbroker.crypto.verify import sha256
from scbroker.errors import (
    BrokerFaultError,
    ChallengeError,
    CredentialsError,
)
from scbroker.keys import (
    KeyRing,
    OpenedKeyFile,
    PassphraseKeys,
    open_key_file,
    seal_key_file,
)
from scbroker.records.key_record import KeyChain
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject

_MARKS: Final = "trust-store"


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
    _keep_pass(store, session)
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
        message=wire.KeyFileOpening(auth=keys.auth, devicePass=_kept_pass(store, user_id)),
    )
    opened = await io_thread.in_pool(open_key_file, answer.keyFile, user_id, keys, password)
    keep_mark(_marks(store, opened.ring), opened)
    session = await log_in_with_ring(transport, store, opened.ring)
    return session, answer.keyFile


async def log_in_with_ring(transport: Transport, store: TrustStore, ring: KeyRing) -> Session:
    """Begins a session with keys that are there already; they have to be the published ones."""
    session = Session(transport, ring, _marks(store, ring), _folder(store))
    try:
        chain = await session.directory.latest_own()
    except ChallengeError:
        raise CredentialsError(
            "The broker refused the log-in: it does not know this user's keys, or serverUrl is not "
            "an address that it is configured for."
        ) from None
    ring.check_chain(chain)
    _keep_pass(store, session)
    return session


def _marks(store: TrustStore, ring: KeyRing) -> Marks:
    return store.open(ring.userId, ring.signing[0].derive(_MARKS))


def _kept_pass(store: TrustStore, user_id: uuid.UUID) -> bytes | None:
    """Return the pass of an earlier session on this device; None if none is kept or its size is wrong."""
    found = store.read_pass(user_id)
    return found if found is not None and len(found) == wire.DEVICE_PASS_SIZE else None


def _keep_pass(store: TrustStore, session: Session) -> None:
    if session.device_pass is not None:
        store.keep_pass(session.userId, session.device_pass)


def _folder(store: TrustStore) -> Path | None:
    """Where this device remembers unfinished transfers: beside the marks, where those are files."""
    return store.directory / "transfers" if isinstance(store, FileTrustStore) else None
