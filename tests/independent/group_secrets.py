"""Secrets of a group's epochs, their wraps, and infos: docs/spec/groups.md, 3.2 to 3.4."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from tests.independent import encodings as e
from tests.independent.container_records import NOT_IN_TEXT
from tests.independent.encodings import decodes, label, labelled_hash, need, sha256, u8, u32
from tests.independent.keys import (
    DecryptionKey,
    cobblestone_open,
    cobblestone_seal,
    hkdf,
    hpke_open,
    hpke_seal,
)

LINE_FEED = 0x0A


def commitment(group: bytes, epoch: int, secret: bytes) -> bytes:
    return labelled_hash("group-secret", group + u32(epoch) + secret)


def seeds(group: bytes, secret: bytes) -> list[bytes]:
    return [hkdf(secret, label("group-kem") + group + u8(j)) for j in range(3)]


def key_of(group: bytes, secret: bytes) -> DecryptionKey:
    """The private key of the epoch."""
    first, second, third = seeds(group, secret)
    return DecryptionKey(first + second, third)


def check_secret(
    group: bytes, epoch: int, secret: bytes, committed: bytes, public: bytes
) -> DecryptionKey:
    """The private key of an epoch whose Roster has this commitment and public key."""
    check_commitment(group, epoch, secret, committed)
    key = key_of(group, secret)
    need(key.public == public, "a secret of another public key")
    return key


def check_commitment(group: bytes, epoch: int, secret: bytes, committed: bytes) -> None:
    same = hmac.compare_digest(commitment(group, epoch, secret), committed)
    need(same, "a secret with another commitment")


# 3.3 Wraps


@dataclass(frozen=True)
class WrapInfo:
    group: bytes
    epoch: int
    commitment: bytes
    member: bytes
    """The fingerprint."""
    key_index: int

    @property
    def octets(self) -> bytes:
        epoch = u32(self.epoch) + self.commitment
        member = self.member + u32(self.key_index)
        return label("group-wrap") + self.group + epoch + member


def wrap_secret(public: bytes, info: WrapInfo, secret: bytes) -> bytes:
    return hpke_seal(public, info.octets, secret)


def unwrap_secret(private: DecryptionKey, info: WrapInfo, wrap: bytes) -> bytes:
    """The secret, which has still to be checked."""
    decodes(len(wrap) == 1168, "a wrap has 1,168 bytes", "decryption")
    return hpke_open(private, info.octets, wrap)


# 3.4 Info


@dataclass(frozen=True)
class Info(e.Object):
    name: e.Text
    description: e.Text
    secrets: list[e.Hash | None]
    """Those of the epochs before."""


def parse_info(stored: bytes) -> Info:
    info = Info.parse(stored)
    need(len(info.name.encode()) <= 256, "a name too long")
    need(len(info.description.encode()) <= 4096, "a description too long")
    need(info.name.strip() != "", "a name without a character that is shown")
    need(_is_printable(info.name), "a name that moves the cursor or turns the text")
    shown = info.description.replace(chr(LINE_FEED), "")
    need(_is_printable(shown), "a description that moves the cursor or turns the text")
    return info


def _is_printable(text: str) -> bool:
    return all(ord(each) not in NOT_IN_TEXT for each in text)


def seal_info(group: bytes, epoch: int, secret: bytes, info: Info) -> bytes:
    return cobblestone_seal(info_key(group, secret), context(group, epoch), info.stored())


def open_info(group: bytes, epoch: int, secret: bytes, digest: bytes, sealed: bytes) -> Info:
    need(sha256(sealed) == digest, "an info with another hash")
    info = parse_info(cobblestone_open(info_key(group, secret), context(group, epoch), sealed))
    need(len(info.secrets) == epoch, "an info with another number of secrets")
    return info


def check_secrets(group: bytes, info: Info, commitments: Mapping[int, bytes]) -> None:
    """Each older secret, before it is used."""
    for epoch, secret in enumerate(info.secrets):
        if secret is not None and epoch in commitments:
            check_commitment(group, epoch, secret, commitments[epoch])


def info_key(group: bytes, secret: bytes) -> bytes:
    return hkdf(secret, label("group-info-key") + group)


def context(group: bytes, epoch: int) -> bytes:
    return label("group-info") + group + u32(epoch)
