"""Container keys: their commitment and wraps. docs/spec/container.md, 3."""

import hmac
from dataclasses import dataclass

from tests.independent.encodings import decodes, label, labelled_hash, need, u32, u64
from tests.independent.keys import DecryptionKey, hpke_open, hpke_seal


def key_commitment(container_id: bytes, container_key: bytes) -> bytes:
    return labelled_hash("container-key", container_id + container_key)


def wrap_hash(wrap: bytes) -> bytes:
    return labelled_hash("wrap-hash", wrap)


@dataclass(frozen=True)
class WrapInfo:
    """What a wrap is for."""

    container_id: bytes
    access_version: int
    access_author: bytes
    recipient: bytes
    key_index: int

    @property
    def octets(self) -> bytes:
        access = u64(self.access_version) + self.access_author
        recipient = self.recipient + u32(self.key_index)
        return label("wrap") + self.container_id + access + recipient


def wrap_key(public: bytes, info: WrapInfo, container_key: bytes) -> bytes:
    return hpke_seal(public, info.octets, container_key)


def unwrap_key(private: DecryptionKey, info: WrapInfo, wrap: bytes) -> bytes:
    """The key, of which the commitment has still to be checked."""
    decodes(len(wrap) == 1168, "a wrap has 1,168 bytes", "decryption")
    return hpke_open(private, info.octets, wrap)


def check_commitment(container_id: bytes, container_key: bytes, commitment: bytes) -> None:
    same = hmac.compare_digest(key_commitment(container_id, container_key), commitment)
    need(same, "another container key")
