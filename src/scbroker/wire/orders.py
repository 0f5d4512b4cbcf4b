"""Orders: what a stolen token alone must not do is signed for. Spec: docs/spec/protocol.md, section 3."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from scbroker.crypto.verify import HASH_SIZE, SIGNATURE_SIZE, labelled_hash, sha256
from scbroker.records.canonical import Bin32, KeyIndex, Row, decode_object
from scbroker.records.key_record import LABEL as KEY_RECORD_LABEL
from scbroker.wire.codec import Hash, Message, SignedObject
from scbroker.wire.users import KeyFileBytes, Nonce, Origin, Reminder

ORDER_LABEL: Final = "order"
MAX_KEY_RECORDS_STORED: Final = 8
NO_DIGEST: Final = bytes(HASH_SIZE)
"""The digest of an order that says all by its action."""
_MAX_ORDER: Final = 1024

Action = Literal["store-key-file", "delete-key-file", "delete-user"]


class Order(Row, frozen=True):
    """What is to be done, once, at which broker; built by the client alone."""

    origin: Origin
    fingerprint: Bin32
    keyIndex: KeyIndex
    nonce: Nonce
    action: Action
    digest: Bin32


class Authorization(Message, frozen=True, kw_only=True):
    order: Annotated[bytes, Meta(max_length=_MAX_ORDER)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]


class KeyFileStoring(Message, frozen=True, kw_only=True):
    keyFile: KeyFileBytes
    generation: Annotated[int, Meta(ge=1, le=2**53 - 1)]
    auth: Hash
    replaces: Hash | None
    authorization: Authorization
    reminder: Reminder | None = None
    keyRecords: Annotated[list[SignedObject], Meta(max_length=MAX_KEY_RECORDS_STORED)] = []
    endOtherSessions: bool = False

    @property
    def digest(self) -> bytes:
        """What the order has to name: everything but the order itself."""
        reminder, replaces = self.reminder, self.replaces
        return labelled_hash(
            "order-digest",
            sha256(self.keyFile)
            + self.generation.to_bytes(8, "big")
            + self.auth
            + bytes([reminder is not None])
            + sha256((reminder or "").encode())
            + bytes([replaces is not None])
            + (replaces or NO_DIGEST)
            + bytes([self.endOtherSessions])
            + b"".join(labelled_hash(KEY_RECORD_LABEL, item.body) for item in self.keyRecords),
        )


class KeyFileDeletion(Message, frozen=True, kw_only=True):
    authorization: Authorization


class UserDeletion(Message, frozen=True, kw_only=True):
    keyRecord: SignedObject
    """Closes the user's chain (docs/spec/ids.md, K8)."""
    authorization: Authorization

    @property
    def digest(self) -> bytes:
        """Return the hash of the closing record, which the order has to name."""
        return labelled_hash(KEY_RECORD_LABEL, self.keyRecord.body)


def parse_order(data: bytes) -> Order:
    return decode_object(Order, data, _MAX_ORDER)
