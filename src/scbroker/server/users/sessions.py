"""Log in and log out. Spec: docs/spec/protocol.md, sections 2 and 3."""

import base64
import os
from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.crypto.verify import sha256
from scbroker.errors import ChallengeError
from scbroker.records.canonical import stored_user_id
from scbroker.records.key_record import Signed
from scbroker.server.broker import SECOND, Broker, Call, check_active, now, refusing
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import wake_after_commit
from scbroker.server.storage.driver import Connection
from scbroker.server.users import challenges, throttle
from scbroker.server.users.challenges import Signer
from scbroker.wire.codec import NoQuery
from scbroker.wire.users import SESSION_LABEL, Session, SessionRequest, parse_statement

_NONCE_GRACE: Final = 60 * SECOND

ADD_SESSION: Final = sa.insert(t.sessions)
END_SESSION: Final = sa.delete(t.sessions).where(t.sessions.c.token_hash == b("hash"))
END_OLD_SESSIONS: Final = sa.delete(t.sessions).where(t.sessions.c.expires_at <= b("now"))
FORGET_NONCES: Final = sa.delete(t.nonces).where(t.nonces.c.expires_at <= b("now"))
FORGET_GUESSES: Final = sa.delete(t.guesses).where(t.guesses.c.ends_at <= b("now"))


async def log_in(broker: Broker, call: Call, message: SessionRequest) -> Session:
    """Start a session for the user who signed a fresh statement for this broker.

    Only a request that the user's key has signed discloses that the user is suspended. A suspension either
    waits for the lock of the user's row, and then ends the session, or this request waits and is refused.
    """
    signed = Signed(message.statement, message.signature)
    with refusing(challenges.REFUSED, ChallengeError):
        statement = parse_statement(signed.body)
    challenges.check_fresh(broker, statement, call.now)
    token = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    expires_at = call.now + broker.settings.session_seconds * SECOND
    user_id = stored_user_id(statement.fingerprint)

    def find(connection: Connection) -> Signer | None:
        return Signer.of(connection, sql.one(connection, sql.FIND_USER, id=user_id))

    # A stranger can send this: it is verified before it may occupy the writer.
    found = await broker.database.read(find)
    with challenges.using_up(broker, statement.nonce):
        try:
            user = challenges.check_signed(found, statement, SESSION_LABEL, signed).user
        except ChallengeError:
            challenges.note_refusal("signature", user_id)
            raise
    check_active(user)

    def store(connection: Connection) -> None:
        locked = sql.the(connection, sql.SHARE_USERS, ids=[user_id])
        if locked.deleted or locked.chain_length != user.chain_length:
            raise ChallengeError(challenges.REFUSED)
        check_active(locked)
        challenges.use_nonce(connection, statement.nonce)
        row = {"token_hash": sha256(token.encode()), "user_id": user_id, "expires_at": expires_at}
        connection.execute(ADD_SESSION, row)

    await broker.database.write(store)
    device_pass = throttle.new_pass(broker, user_id)
    return Session(token=token, expiresAt=expires_at, devicePass=device_pass)


async def log_out(broker: Broker, call: Call, query: NoQuery) -> None:
    """End the caller's session."""
    del query

    def end(connection: Connection) -> None:
        connection.execute(END_SESSION, {"hash": call.session.token_hash})
        wake_after_commit(connection, [call.session.id])

    await broker.database.write(end)


def delete_expired(connection: Connection) -> None:
    """Delete expired sessions and counters, and nonces that expired a minute ago.

    A request may wait for up to a minute between the check that its nonce is unexpired and its use.
    """
    moment = now()
    for statement in (END_OLD_SESSIONS, FORGET_GUESSES):
        connection.execute(statement, {"now": moment})
    connection.execute(FORGET_NONCES, {"now": moment - _NONCE_GRACE})
