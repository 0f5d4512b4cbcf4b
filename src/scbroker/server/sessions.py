"""Log-in by challenge, session tokens, and the throttle of guesses. Spec: docs/spec/protocol.md, 2, 3.

Handlers of `POST /v1/session-challenges`, `POST /v1/sessions`, `DELETE /v1/sessions/current`.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from typing import Final

from sqlalchemy import Connection

from scbroker.crypto.verify import equal, sha256
from scbroker.errors import ChallengeError, IntegrityError, NotAuthenticatedError, ThrottledError
from scbroker.records.ids import user_id_of
from scbroker.server import statements as sql
from scbroker.server.broker import Broker, Call, SessionUser, now
from scbroker.vocabulary import KeyType
from scbroker.wire.users import (
    SESSION_LABEL,
    Challenge,
    ChallengeRequest,
    Session,
    SessionRequest,
    Statement,
    parse_statement,
)

_NONCE_LIFE: Final = 120_000_000
_SECOND: Final = 1_000_000
_REFUSED: Final = (
    "The log-in was refused: an old challenge, another broker's address, or another key."
)


async def challenge(broker: Broker, call: Call, message: ChallengeRequest) -> Challenge:
    del call, message
    fresh = os.urandom(16) + (now() + _NONCE_LIFE).to_bytes(8, "big")
    return Challenge(nonce=fresh + broker.keyed("nonce", fresh)[:24])


async def log_in(broker: Broker, call: Call, message: SessionRequest) -> Session:
    """A session for whoever signed a fresh statement made for this broker."""
    del call
    try:
        statement = parse_statement(message.statement)
    except IntegrityError:
        raise ChallengeError(_REFUSED) from None
    _check_statement(broker, statement)
    token = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    expires_at = now() + broker.settings.session_seconds * _SECOND
    user_id = user_id_of(statement.fingerprint).bytes

    def store(connection: Connection) -> None:
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        if user is None or user.deleted_at or user.fingerprint != statement.fingerprint:
            raise ChallengeError(_REFUSED)
        chain = broker.chains.get(connection, user_id, user.chain_length)
        if statement.keyIndex != chain.latest(KeyType.Signing).index:
            raise ChallengeError(_REFUSED)
        try:
            key = chain.signing_key(statement.keyIndex, now())
            key.verify(SESSION_LABEL, message.statement, message.signature)
        except IntegrityError:
            raise ChallengeError(_REFUSED) from None
        _use_nonce(connection, statement.nonce)
        connection.execute(
            sql.ADD_SESSION,
            {"token_hash": sha256(token.encode()), "user_id": user_id, "expires_at": expires_at},
        )

    await broker.database.write(store)
    return Session(token=token, expiresAt=expires_at)


async def log_out(broker: Broker, call: Call, message: None) -> None:
    del message
    token_hash = call.session.token_hash
    await broker.database.write(lambda c: _end(c, token_hash))


async def find_session(broker: Broker, token: str) -> SessionUser:
    """The user of a token; `NotAuthenticatedError` for an unknown, ended or expired one."""
    token_hash = sha256(token.encode())
    row = await broker.database.read(
        lambda c: sql.one(c, sql.FIND_SESSION, token_hash=token_hash, now=now())
    )
    if row is None:
        raise NotAuthenticatedError("The session has ended: log in again.")
    return SessionUser(row.id, row.fingerprint, row.chain_length, token_hash)


async def count_guess(broker: Broker, call: Call, user_id: bytes) -> list[bytes]:
    """Counts a guess at a passphrase before it is looked at; `ThrottledError` if there were too many."""
    settings = broker.settings
    address = address_block(call.address)
    limits = {
        broker.keyed("guess-pair", user_id, address): settings.guesses,
        broker.keyed("guess-user", user_id): settings.guesses_user,
        broker.keyed("guess-address", address): settings.guesses_address,
    }

    def count(connection: Connection) -> None:
        for bucket, limit in sorted(limits.items()):  # one order, no deadlock
            _count(connection, bucket, limit, settings.guess_seconds * _SECOND)

    await broker.database.write(count)
    return list(limits)


async def count_reminder(broker: Broker, call: Call) -> None:
    """Counts the reminders that one address reads; `ThrottledError` if there were too many."""
    settings = broker.settings
    bucket = broker.keyed("reminder-address", address_block(call.address))
    window = settings.guess_seconds * _SECOND
    await broker.database.write(lambda c: _count(c, bucket, settings.reminders_address, window))


async def forgive_guess(broker: Broker, buckets: list[bytes]) -> None:
    """Takes a guess that was right out of the count."""

    def forgive(connection: Connection) -> None:
        for bucket in sorted(buckets):
            row = sql.one(connection, sql.FIND_GUESSES, key=bucket)
            if row is not None and row.guesses:
                connection.execute(sql.SET_GUESSES, {"key": bucket, "guesses": row.guesses - 1})

    await broker.database.write(forgive)


def address_block(address: str) -> bytes:
    """Who counts as one: an IPv4 address, or the 64 bits that one IPv6 subscriber has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return b"unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed.ipv4_mapped.packed if parsed.ipv4_mapped else parsed.packed[:8]
    return parsed.packed


def forget_old(connection: Connection) -> None:
    """Drops what has run out: sessions, nonces, counts of guesses."""
    for statement in (sql.END_OLD_SESSIONS, sql.FORGET_NONCES, sql.FORGET_GUESSES):
        connection.execute(statement, {"now": now()})


def _check_statement(broker: Broker, statement: Statement) -> None:
    fresh, tag = statement.nonce[:24], statement.nonce[24:]
    if (
        not equal(broker.keyed("nonce", fresh)[:24], tag)
        or int.from_bytes(fresh[16:], "big") <= now()
        or statement.origin not in broker.origins
    ):
        raise ChallengeError(_REFUSED)


def _use_nonce(connection: Connection, nonce: bytes) -> None:
    expires_at = int.from_bytes(nonce[16:24], "big")
    values = {"nonce_hash": sha256(nonce), "expires_at": expires_at}
    if connection.execute(sql.FIND_NONCE, {"hash": values["nonce_hash"]}).first():
        raise ChallengeError(_REFUSED)
    connection.execute(sql.ADD_NONCE, values)


def _end(connection: Connection, token_hash: bytes) -> None:
    connection.execute(sql.END_SESSION, {"hash": token_hash})


def _count(connection: Connection, bucket: bytes, limit: int, window: int) -> None:
    row = sql.one(connection, sql.FIND_GUESSES, key=bucket)
    if row is None:
        ends_at = now() + window
        connection.execute(sql.ADD_GUESSES, {"bucket": bucket, "guesses": 1, "ends_at": ends_at})
    elif row.ends_at <= now():
        connection.execute(
            sql.SET_GUESSES, {"key": bucket, "guesses": 1, "ends_at": now() + window}
        )
    elif row.guesses >= limit:
        wait = (row.ends_at - now()) // _SECOND + 1
        raise ThrottledError(f"Too many attempts: wait {wait} seconds.", retryAfter=wait)
    else:
        connection.execute(sql.SET_GUESSES, {"key": bucket, "guesses": row.guesses + 1})
