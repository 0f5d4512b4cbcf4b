"""Statements: docs/spec/protocol.md, 3."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent.encodings import RefusedError, label, need, u64
from tests.independent.key_records import SIGNING, KeyChain, Signable
from tests.independent.keys import check_signature


@dataclass(frozen=True)
class Statement(Signable):
    name = "session"
    origin: e.Origin
    fingerprint: e.Hash
    key_index: e.KeyIndex
    nonce: e.Nonce


parse = Statement.parse


@dataclass(frozen=True)
class Broker:
    """A broker's key, with what it derives from the key."""

    key: bytes

    def mac(self, name: str, octets: bytes) -> bytes:
        return hmac.digest(self.key, label(name) + octets, "sha256")

    def nonce(self, random: bytes, expiry: int) -> bytes:
        fresh = random + u64(expiry)
        return fresh + self.mac("nonce", fresh)[:24]

    def check_nonce(self, nonce: bytes, now: int) -> None:
        expiry = int.from_bytes(nonce[16:24], "big")
        same = hmac.compare_digest(self.nonce(nonce[:16], expiry), nonce)
        need(same, "a nonce of this broker")
        need(now < expiry, "a nonce that has not expired")

    def verifier(self, user_id: bytes, auth: bytes) -> bytes:
        return self.mac("verifier", user_id + auth)

    def device_pass(self, user_id: bytes, device_id: bytes) -> bytes:
        return device_id + self.mac("device-pass", user_id + device_id)


def check_latest(chain: KeyChain, index: int, name: str, body: bytes, signature: bytes) -> None:
    keys = chain.keys[SIGNING]
    need(index == chain.latest_active(SIGNING), "signed with the latest active key")
    check_signature(keys[index].public, name, body, signature)


def judge(
    body: bytes,
    signature: bytes,
    chain: KeyChain,
    origin: str,
    check_nonce: Callable[[bytes], None] = lambda _: None,
) -> Statement:
    """What the broker of that origin finds; of the nonce only where it is checked."""
    need(len(body) <= 1024, "a statement of at most 1,024 bytes", "invalid")
    try:
        statement = parse(body)
        check_nonce(statement.nonce)
        need(statement.origin == origin, "for this origin")
        need(statement.fingerprint == chain.fingerprint, "this user's statement")
        check_latest(chain, statement.key_index, "session", body, signature)
    except RefusedError as error:
        raise error.of_kind("challenge") from None
    return statement
