"""Make challenges, and verify what is signed over them: log-ins and orders. Spec: docs/spec/protocol.md, 3.

A nonce contains its expiry and a MAC of this broker; the database keeps only those that were used, until
they expire. Every fault in a signed claim is answered by the same error.
"""

import os
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import equal, sha256
from scbroker.errors import BrokerError, ChallengeError
from scbroker.records.key_record import KeyChain, Signed
from scbroker.server.broker import Broker, Call, refusing
from scbroker.server.storage import statements as sql
from scbroker.vocabulary import KeyType
from scbroker.wire import users as wire

_NONCE_LIFE: Final = 120_000_000
REFUSED: Final = (
    "The signature was refused: the challenge expired, the user is unknown, or the key is not the active "
    "one: log in again."
)


async def challenge(broker: Broker, call: Call, message: wire.ChallengeRequest) -> wire.Challenge:
    """Return a nonce for one log-in or order."""
    del message
    fresh = os.urandom(16) + (call.now + _NONCE_LIFE).to_bytes(8, "big")
    return wire.Challenge(nonce=fresh + broker.keyed("nonce", fresh)[:24])


def check_fresh(broker: Broker, claim: wire.Statement | wire.Order, moment: int) -> None:
    """Raise `ChallengeError` unless the claim is for this broker, over an unexpired nonce of its own."""
    fresh, tag = claim.nonce[:24], claim.nonce[24:]
    if (
        not equal(broker.keyed("nonce", fresh)[:24], tag)
        or int.from_bytes(fresh[16:], "big") <= moment
    ):
        raise ChallengeError(REFUSED)
    check_origin(broker, claim.origin, ChallengeError)


def check_origin(broker: Broker, origin: str, error: type[BrokerError]) -> None:
    """Raise an error that names the origins of this broker, which are not secret, unless this is one."""
    if origin not in broker.origins:
        raise error(
            f"{origin!r:.120} is not an origin of this broker: set serverUrl to one of these, or "
            f"SCBROKER_ORIGINS at the broker: {', '.join(sorted(broker.origins))}"
        )


def check_signed(
    user: Row[Any], chain: KeyChain, claim: wire.Statement | wire.Order, label: str, signed: Signed
) -> None:
    """Raise `ChallengeError` unless the user signed the claim with their latest active signing key."""
    key = chain.latest(KeyType.Signing)
    if (user.fingerprint, key.index) != (claim.fingerprint, claim.keyIndex):
        raise ChallengeError(REFUSED)
    with refusing(REFUSED, ChallengeError):
        # The key's own time, not the broker's: a key may have been introduced by a clock ahead of this one.
        chain.signing_key(key.index, key.introduced).verify(label, *signed)


def use_nonce(connection: Connection, nonce: bytes) -> None:
    """Mark a nonce as used; raise `ChallengeError` if it was used before."""
    expires_at = int.from_bytes(nonce[16:24], "big")
    values = {"nonce_hash": sha256(nonce), "expires_at": expires_at}
    if connection.execute(sql.FIND_NONCE, {"hash": values["nonce_hash"]}).first():
        raise ChallengeError(REFUSED)
    connection.execute(sql.ADD_NONCE, values)


def parse_authorization(message: wire.Authorization) -> tuple[wire.Order, Signed]:
    """Return the order, whose signature is not verified yet."""
    with refusing(REFUSED, ChallengeError):
        order = wire.parse_order(message.order)
    return order, Signed(message.order, message.signature)


def check_ordered(
    user: Row[Any],
    chain: KeyChain,
    order: wire.Order,
    signed: Signed,
    action: wire.Action,
    digest: bytes,
) -> None:
    """Raise `ChallengeError` unless the user signed the order for this action and digest."""
    if (order.action, order.digest) != (action, digest):
        raise ChallengeError(REFUSED)
    check_signed(user, chain, order, wire.ORDER_LABEL, signed)
