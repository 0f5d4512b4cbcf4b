"""Derive a group's key of an epoch from the epoch's secret; wrap and open secrets; seal and open infos.

An info has a group's name, its description and the secrets of earlier epochs. Without I/O and without a
clock.
Spec: docs/spec/groups.md, 3.2 to 3.4.
"""

from collections.abc import Callable, Sequence
from typing import Final

from scbroker.crypto.seal import (
    KEY_SIZE,
    DecryptionKey,
    derive_key,
    random_bytes,
    seal,
    unseal,
    wrap_key,
)
from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records import roster
from scbroker.records.canonical import encode_object
from scbroker.records.group import EpochKey
from scbroker.records.roster import Info, Member

_SEEDS: Final = 3
_MISMATCH: Final = (
    "The secret of a group's epoch is not the one that its manager signed: ask another manager to replace "
    "the group's key."
)


def new_secret() -> bytes:
    """Return a fresh secret. Each attempt to begin an epoch needs its own (3.2)."""
    return random_bytes(KEY_SIZE)


def epoch_key(group: bytes, secret: bytes) -> DecryptionKey:
    """Return the private key of the epoch with this secret."""
    first, second, third = (
        derive_key(secret, "group-kem", group + bytes([number])) for number in range(_SEEDS)
    )
    return DecryptionKey(first + second, third)


def is_committed(group: bytes, epoch: int, secret: bytes, signed: EpochKey) -> bool:
    """Return whether a secret is the one to which the epoch's roster commits."""
    return roster.commitment_of(group, epoch, secret) == signed.commitment


def checked_key(group: bytes, epoch: int, secret: bytes, signed: EpochKey) -> DecryptionKey:
    """Return an epoch's private key; `IntegrityError` unless commitment and public key match (3.2)."""
    if not is_committed(group, epoch, secret, signed):
        raise IntegrityError(_MISMATCH)
    key = epoch_key(group, secret)
    if sha256(key.public) != signed.publicKey:
        raise IntegrityError(_MISMATCH)
    return key


def wrap_secret(
    group: bytes, epoch: int, secret: bytes, fingerprint: bytes, key_index: int, public_key: bytes
) -> bytes:
    """Wrap an epoch's secret to a member's public encryption key (3.3)."""
    commitment = roster.commitment_of(group, epoch, secret)
    info = roster.wrap_info(group, epoch, commitment, fingerprint, key_index)
    return wrap_key(public_key, info, secret)


def open_secret(
    group: bytes,
    epoch: int,
    signed: EpochKey,
    member: Member,
    wrap: bytes,
    unwrap: Callable[[int, bytes, bytes], bytes],
) -> tuple[bytes, DecryptionKey]:
    """Open a member's wrap with `unwrap`, which has the member's keys; check the secret (3.2, 3.3).

    Returns the secret, and the private key of the epoch.
    """
    info = roster.wrap_info(group, epoch, signed.commitment, member.fingerprint, member.keyIndex)
    secret = unwrap(member.keyIndex, wrap, info)
    return secret, checked_key(group, epoch, secret, signed)


def seal_info(
    group: bytes, secret: bytes, name: str, description: str, earlier: Sequence[bytes | None]
) -> bytes:
    """Seal the info of the epoch with this secret; `earlier` are the secrets of all epochs before it."""
    info = encode_object(Info(name, description, list(earlier)))
    return seal(_info_key(group, secret), roster.info_context(group, len(earlier)), info)


def open_info(group: bytes, epoch: int, digest: bytes, secret: bytes, sealed: bytes) -> Info:
    """Open the info of an epoch, whose roster names `digest` (3.4)."""
    if sha256(sealed) != digest:
        raise IntegrityError("The info of a group is not the one that was signed.")
    opened = unseal(_info_key(group, secret), roster.info_context(group, epoch), sealed)
    return roster.parse_info(opened, epoch)


def _info_key(group: bytes, secret: bytes) -> bytes:
    return derive_key(secret, "group-info-key", group)
