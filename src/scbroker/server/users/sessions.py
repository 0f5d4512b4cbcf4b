"""Log-in and session tokens. Spec: docs/spec/protocol.md, sections 2 and 3."""

from __future__ import annotations

import base64
import os
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.errors import ChallengeError, IntegrityError, NotAuthenticatedError
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain, Signed
from scbroker.server.broker import Broker, Call, SessionUser, now
from scbroker.server.storage import statements as sql
from scbroker.server.users import challenges, device_passes
from scbroker.wire.users import SESSION_LABEL, Session, SessionRequest, parse_statement

_SECOND: Final = 1_000_000
_WAIT: Final = 60 * _SECOND


async def log_in(broker: Broker, call: Call, message: SessionRequest) -> Session:
    """A session for whoever signed a fresh statement made for this broker."""
    del call
    signed = Signed(message.statement, message.signature)
    try:
        statement = parse_statement(signed.body)
    except IntegrityError:
        raise ChallengeError(challenges.REFUSED) from None
    challenges.check_fresh(broker, statement)
    token = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    expires_at = now() + broker.settings.session_seconds * _SECOND
    user_id = user_id_of(statement.fingerprint).bytes

    def find(connection: Connection) -> tuple[Row[Any], KeyChain]:
        user = sql.one(connection, sql.FIND_USER, id=user_id)
        if user is None or user.deleted:
            raise ChallengeError(challenges.REFUSED)
        return user, broker.chains.get(connection, user_id, user.chain_length)

    # What anybody can send is verified before it may take the writer's time.
    user, chain = await broker.database.read(find, large=True)
    challenges.check_signed(user, chain, statement, SESSION_LABEL, signed)

    def store(connection: Connection) -> None:
        held = sql.the(connection, sql.SHARE_USERS, ids=[user_id])
        if held.deleted or held.chain_length != user.chain_length:
            raise ChallengeError(challenges.REFUSED)
        challenges.use_nonce(connection, statement.nonce)
        connection.execute(
            sql.ADD_SESSION,
            {"token_hash": sha256(token.encode()), "user_id": user_id, "expires_at": expires_at},
        )

    await broker.database.write(store)
    device_pass = device_passes.new_pass(broker, user_id)
    return Session(token=token, expiresAt=expires_at, devicePass=device_pass)


async def log_out(broker: Broker, call: Call, message: None) -> None:
    del message
    token_hash = call.session.token_hash
    await broker.database.write(lambda c: _end(c, token_hash))


async def find_session(broker: Broker, token: str) -> SessionUser:
    """The user of a token; `NotAuthenticatedError` for an unknown, ended or expired one."""
    token_hash = sha256(token.encode())
    version = broker.database.version()
    row = broker.sessions.get(version, token_hash)
    if row is None:
        row = await broker.database.query(
            lambda c: sql.one(c, sql.FIND_SESSION, token_hash=token_hash)
        )
        if row is not None:
            broker.sessions.keep(version, token_hash, row)
    if row is None or row.expires_at <= now():
        raise NotAuthenticatedError("The session has ended: log in again.")
    return SessionUser(row.id, row.fingerprint, row.chain_length, token_hash)


def forget_old(connection: Connection) -> None:
    """Drops what has run out: sessions, counts of guesses, and a minute later nonces.

    A request whose nonce was still good when it came may wait for its turn to spend it.
    """
    for statement in (sql.END_OLD_SESSIONS, sql.FORGET_GUESSES):
        connection.execute(statement, {"now": now()})
    connection.execute(sql.FORGET_NONCES, {"now": now() - _WAIT})


def _end(connection: Connection, token_hash: bytes) -> None:
    connection.execute(sql.END_SESSION, {"hash": token_hash})
