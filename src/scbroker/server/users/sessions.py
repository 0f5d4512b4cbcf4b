"""Make challenges, verify what is signed over them, log in and log out. Spec: docs/spec/protocol.md, 2 and 3.

A nonce contains its expiry and a MAC of this broker; the database keeps only those that were used, until
they expire. Every fault in a signed claim, a log-in or an order, is answered by the same error.

Strangers can send claims. The broker verifies one signature, by the user's latest signing key, before it does
anything else for them. It does not verify the user's key chain again, which takes 0.2 s if it is long: each
key record was verified before it was stored.
"""

from __future__ import annotations

import base64
import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import bindparam as b

from scbroker.crypto.verify import VerifyingKey, sha256
from scbroker.errors import BrokerError, ChallengeError, IntegrityError
from scbroker.records.canonical import stored_user_id
from scbroker.records.key_record import KnownKey, Signed, parse_key_record
from scbroker.server import logs, metrics
from scbroker.server.broker import SECOND, Broker, Call, check_active, now, refusing
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.server.users import throttle
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire

_refused: Final = logs.Seldom()
_NONCE_LIFE: Final = 120_000_000
_TAG_SIZE: Final = 24
REFUSED: Final = (
    "The signature was refused, because the challenge expired, the user is unknown, or the key is not the "
    "active one: log in again."
)

FIND_NONCE: Final = sql.find(t.nonces, t.nonces.c.nonce_hash == b("hash"))
_NONCE_GRACE: Final = 60 * SECOND

END_SESSION: Final = sql.drop(t.sessions, t.sessions.c.token_hash == b("hash"))
END_OLD_SESSIONS: Final = sql.drop(t.sessions, t.sessions.c.expires_at <= b("now"))
FORGET_NONCES: Final = sql.drop(t.nonces, t.nonces.c.expires_at <= b("now"))
FORGET_GUESSES: Final = sql.drop(t.guesses, t.guesses.c.ends_at <= b("now"))


async def challenge(broker: Broker, call: Call, message: wire.ChallengeRequest) -> wire.Challenge:
    """Return a nonce for one log-in or order."""
    del message
    fresh = os.urandom(16) + (call.now + _NONCE_LIFE).to_bytes(8, "big")
    return wire.Challenge(nonce=fresh + broker.keyed("nonce", fresh)[:_TAG_SIZE])


def check_fresh(broker: Broker, claim: wire.Statement | wire.Order, moment: int) -> None:
    """Raise `ChallengeError` unless the claim is for this broker, over an unexpired nonce of its own."""
    fresh, tag = claim.nonce[:24], claim.nonce[24:]
    if (
        not broker.keys.is_keyed(tag, "nonce", fresh, size=_TAG_SIZE)
        or int.from_bytes(fresh[16:], "big") <= moment
        or broker.refused_nonces.get(claim.nonce)
    ):
        raise ChallengeError(REFUSED)
    check_origin(broker, claim.origin, ChallengeError)


def check_origin(broker: Broker, origin: str, error: type[BrokerError]) -> None:
    """Raise an error that names the origins of this broker, which are not secret, unless this is one."""
    if origin not in broker.origins:
        raise error(
            f"{origin!r:.120} is not an origin of this broker: set serverUrl to one of its origins "
            f"({', '.join(sorted(broker.origins))}), or add this one to SCBROKER_ORIGINS at the broker."
        )


@dataclass(frozen=True, slots=True)
class Signer:
    """A user who was not deleted, with their latest signing key, which is always active."""

    user: Row
    key: KnownKey

    @classmethod
    def of(cls, connection: Connection, user: Row | None) -> Signer | None:
        """Return the signer; None for an unknown or deleted user."""
        if user is None or user.deleted:
            return None
        [signed] = sql.key_chain(connection, user.id, user.signing_sequence, 1)
        record = parse_key_record(signed)
        key = KnownKey(KeyType.Signing, record.index, record.publicKey, record.time)
        return cls(user, key)


@contextlib.contextmanager
def using_up(broker: Broker, nonce: bytes) -> Iterator[None]:
    """Use a nonce up, in memory, if the block refuses the signature over it.

    The block has to refuse unknown users as well: a nonce that only a known user's claim uses up would tell
    which users exist.
    """
    try:
        yield
    except ChallengeError:
        broker.refused_nonces.keep(nonce, True)
        raise


def note_refusal(kind: Literal["signature", "passphrase"], user_id: bytes) -> None:
    """Count and log a log-in that is refused because the user proved nothing."""
    metrics.LOG_INS_REFUSED.labels(kind).inc()
    _refused.info("log-in refused", kind=kind, user=str(uuid.UUID(bytes=user_id)))


def check_signed(
    signer: Signer | None, claim: wire.Statement | wire.Order, label: str, signed: Signed
) -> Signer:
    """Return the signer; raise `ChallengeError` unless this user signed the claim with this key."""
    names = claim.fingerprint, claim.keyIndex
    if signer is not None and (signer.user.fingerprint, signer.key.index) == names:
        with contextlib.suppress(IntegrityError):
            VerifyingKey(signer.key.public).verify(label, *signed)
            return signer
    raise ChallengeError(REFUSED)


def use_nonce(connection: Connection, nonce: bytes) -> None:
    """Mark a nonce as used; raise `ChallengeError` if it was used before."""
    expires_at = int.from_bytes(nonce[16:24], "big")
    values = {"nonce_hash": sha256(nonce), "expires_at": expires_at}
    if connection.execute(FIND_NONCE, {"hash": values["nonce_hash"]}).first():
        raise ChallengeError(REFUSED)
    connection.add(t.nonces, values)


def parse_authorization(message: wire.Authorization) -> tuple[wire.Order, Signed]:
    """Return the order, whose signature is not verified yet."""
    with refusing(REFUSED, ChallengeError):
        order = wire.parse_order(message.order)
    return order, Signed(message.order, message.signature)


def check_purpose(order: wire.Order, action: wire.Action, digest: bytes) -> None:
    """Raise `ChallengeError` unless the order is for this action and digest."""
    if (order.action, order.digest) != (action, digest):
        raise ChallengeError(REFUSED)


async def log_in(broker: Broker, call: Call, message: wire.SessionRequest) -> wire.Session:
    """Start a session for the user who signed a fresh statement for this broker.

    Only a request that the user's key has signed discloses that the user is suspended. A suspension either
    waits for the lock of the user's row, and then ends the session, or this request waits and is refused.
    """
    signed = Signed(message.statement, message.signature)
    with refusing(REFUSED, ChallengeError):
        statement = wire.parse_statement(signed.body)
    check_fresh(broker, statement, call.now)
    token = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    expires_at = call.now + broker.settings.session_seconds * SECOND
    user_id = stored_user_id(statement.fingerprint)

    # A stranger can send this: it is verified before it may occupy the writer.
    found = await broker.database.read(
        lambda c: Signer.of(c, sql.one(c, sql.FIND_USER, id=user_id))
    )
    with using_up(broker, statement.nonce):
        try:
            user = check_signed(found, statement, wire.SESSION_LABEL, signed).user
        except ChallengeError:
            note_refusal("signature", user_id)
            raise
    check_active(user)

    def store(connection: Connection) -> None:
        locked = sql.the(connection, sql.SHARE_USERS, ids=[user_id])
        if locked.deleted or locked.chain_length != user.chain_length:
            raise ChallengeError(REFUSED)
        check_active(locked)
        use_nonce(connection, statement.nonce)
        row = {"token_hash": sha256(token.encode()), "user_id": user_id, "expires_at": expires_at}
        connection.add(t.sessions, row)

    await broker.database.write(store)
    device_pass = throttle.new_pass(broker, user_id)
    return wire.Session(token=token, expiresAt=expires_at, devicePass=device_pass)


async def log_out(broker: Broker, call: Call) -> None:
    """End the caller's session."""

    def end(connection: Connection) -> None:
        connection.execute(END_SESSION, {"hash": call.session.token_hash})
        connection.woken.add(call.session.id)

    await broker.database.write(end)


def delete_expired(connection: Connection) -> None:
    """Delete expired sessions and counters, and nonces that expired a minute ago.

    A request may wait for up to a minute between the check that its nonce is unexpired and its use.
    """
    moment = now()
    connection.execute(END_OLD_SESSIONS, {"now": moment})
    connection.execute(FORGET_GUESSES, {"now": moment})
    connection.execute(FORGET_NONCES, {"now": moment - _NONCE_GRACE})
