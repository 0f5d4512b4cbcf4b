"""Register and log in: from two secrets to a session, and a user's reminder without one.

The broker learns the public keys, the sealed KeyFile and `auth`, which is derived from the passphrase and
opens nothing. Spec: docs/spec/keyfile.md; docs/spec/protocol.md, section 3.
"""

import uuid
from typing import Final

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http.transport import Transport
from scbroker.client.users.key_files import keep_mark, open_stored
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import FileTrustStore, Marks, TrustStore
from scbroker.crypto.verify import sha256
from scbroker.keys import KeyRing, OpenedKeyFile, PassphraseKeys, seal_key_file
from scbroker.records.key_record import KeyChain
from scbroker.types import now
from scbroker.wire import users as wire
from scbroker.wire.codec import SignedObject

_MARKS: Final = "trust-store"


async def register(
    transport: Transport, store: TrustStore, password: str, passphrase: str, reminder: str | None
) -> tuple[Session, bytes]:
    """Create a user; return the session and the KeyFile."""
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
        raise errors.BrokerFaultError("The broker registered another user than the one asked for.")
    session = _session(transport, store, ring)
    session.directory.set_own(KeyChain.verify(records, now()))
    await session.token.get()
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
    """Fetch the KeyFile with the passphrase, open it, and return a session with its keys."""
    device_pass = _kept_pass(store, user_id)
    key_file, opened = await open_stored(transport, user_id, passphrase, password, device_pass)
    keep_mark(_marks(store, opened.ring), opened)
    session = await log_in_with_ring(transport, store, opened.ring)
    return session, key_file


async def log_in_with_ring(transport: Transport, store: TrustStore, ring: KeyRing) -> Session:
    """Return a session with these keys, which must be the published ones."""
    session = _session(transport, store, ring)
    try:
        chain = await session.directory.latest_own()
    except errors.ChallengeError:
        raise errors.CredentialsError(
            "The broker refused the log-in: it does not know this user's keys, or serverUrl is not "
            "an address that it is configured for."
        ) from None
    ring.check_chain(chain)
    _keep_pass(store, session)
    return session


async def fetch_reminder(transport: Transport, user_id: uuid.UUID) -> str:
    """Return the stored reminder of any user; "" for an unknown user as for one without."""
    answer = await transport.call("GET", f"/v1/users/{user_id}/reminder", wire.ReminderAnswer)
    return answer.reminder


def _session(transport: Transport, store: TrustStore, ring: KeyRing) -> Session:
    # Journals of unfinished transfers are beside the marks if the marks are in files.
    folder = store.directory / "transfers" if isinstance(store, FileTrustStore) else None
    return Session(transport, ring, _marks(store, ring), folder)


def _marks(store: TrustStore, ring: KeyRing) -> Marks:
    return store.open(ring.userId, ring.signing[0].derive(_MARKS))


def _kept_pass(store: TrustStore, user_id: uuid.UUID) -> bytes | None:
    """Return the pass of an earlier session on this device; None if none is kept or its size is wrong."""
    found = store.read_pass(user_id)
    return found if found is not None and len(found) == wire.DEVICE_PASS_SIZE else None


def _keep_pass(store: TrustStore, session: Session) -> None:
    if session.token.device_pass is not None:
        store.keep_pass(session.userId, session.token.device_pass)
