"""Orders and the digest of a storing: docs/spec/protocol.md, 3."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent import key_records
from tests.independent.encodings import RefusedError, labelled_hash, need, sha256, u8, u64
from tests.independent.key_records import KeyChain, Signable
from tests.independent.sessions import check_latest

STORE, DELETE_KEY_FILE, DELETE_USER = "store-key-file", "delete-key-file", "delete-user"
NO_DIGEST = bytes(32)


@dataclass(frozen=True)
class Storing:
    key_file: bytes
    generation: int
    auth: bytes
    reminder: str | None
    replaces: bytes | None
    end_other_sessions: bool
    key_records: Sequence[bytes]
    """Their bodies."""

    @property
    def digest(self) -> bytes:
        reminder = sha256((self.reminder or "").encode())
        return labelled_hash(
            "order-digest",
            sha256(self.key_file)
            + u64(self.generation)
            + self.auth
            + u8(self.reminder is not None)
            + reminder
            + u8(self.replaces is not None)
            + (self.replaces or bytes(32))
            + u8(self.end_other_sessions)
            + b"".join(map(key_records.record_hash, self.key_records)),
        )


@dataclass(frozen=True)
class Order(Signable):
    name = "order"
    origin: e.Origin
    fingerprint: e.Hash
    key_index: e.KeyIndex
    nonce: e.Nonce
    action: e.Text
    """The broker compares it with the request's, which exists."""
    digest: e.Hash


parse = Order.parse


def judge(
    body: bytes, signature: bytes, chain: KeyChain, origin: str, action: str, digest: bytes
) -> Order:
    """What the broker of that origin finds, but for the nonce."""
    need(len(body) <= 1024, "an order of at most 1,024 bytes", "invalid")
    try:
        order = parse(body)
        need(order.origin == origin, "an order for this origin")
        need(order.fingerprint == chain.fingerprint, "this user's order")
        need(order.action == action, "an order for this action")
        need(order.digest == digest, "an order with this digest")
        check_latest(chain, order.key_index, "order", body, signature)
    except RefusedError as error:
        raise error.of_kind("challenge") from None
    return order
