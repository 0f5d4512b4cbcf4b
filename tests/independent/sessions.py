"""Statements: docs/spec/protocol.md, 3."""

from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent.encodings import need
from tests.independent.key_records import SIGNING, KeyChain, Signed
from tests.independent.keys import SigningKey, check_signature


@dataclass(frozen=True)
class Statement:
    origin: str
    fingerprint: bytes
    key_index: int
    nonce: bytes

    def stored(self) -> bytes:
        return e.store([self.origin, self.fingerprint, self.key_index, self.nonce])

    def signed_by(self, key: SigningKey) -> Signed:
        return Signed(self.stored(), key.sign("session", self.stored()))


def parse(body: bytes) -> Statement:
    fields = e.stored(body, 4)
    return Statement(
        origin=e.text(fields[0]),
        fingerprint=e.octets(fields[1], 32),
        key_index=e.key_index(fields[2]),
        nonce=e.octets(fields[3], 48),
    )


def judge(body: bytes, signature: bytes, chain: KeyChain, origin: str) -> Statement:
    """What the broker of that origin finds, but for the nonce."""
    need(len(body) <= 1024, "a statement too long", "invalid")
    statement = parse(body)
    need(statement.origin == origin, "for another origin")
    need(statement.fingerprint == chain.fingerprint, "another user's")
    latest = chain.latest_active(SIGNING)
    need(statement.key_index == latest, "not the latest active key")
    check_signature(chain.keys[SIGNING][latest].public, "session", body, signature)
    return statement
