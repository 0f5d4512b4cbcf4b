"""Make a group's next roster: its members as Merkle leaves, the wraps of its secret, and its sealed info.

The group's key is derived from the secret; each epoch has a fresh one. The info is the group's name and
description, with the secrets of the epochs before.

Without I/O and without a clock; the inputs are verified already. Spec: docs/spec/groups.md, 3 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scbroker.client.core import group_keys
from scbroker.client.core.sealing import Recipient
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.records import roster
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.roster import Member, Roster, SaltedMember
from scbroker.wire.rosters import Leaf, MemberWrap, RosterRequest


class Seat(NamedTuple):
    """A member of the next roster."""

    role: int
    key: Recipient | None
    """The key that the secret is wrapped to; None for a member who gets no wrap."""
    is_new: bool = False
    """True for a user who had left and is added again: the leaf is new even with the same role and key."""


@dataclass(frozen=True, slots=True, repr=False)
class Texts:
    """Name and description of a group."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """The secret of the next roster's epoch."""

    epoch: int
    secret: bytes
    earlier: Sequence[bytes | None]
    """The secrets of all epochs before it; None for one that the author lacks."""


@dataclass(frozen=True, slots=True, repr=False)
class Present:
    """The roster in force, with the leaves and the sealed info that the next one may keep."""

    roster: Roster
    leaves: Sequence[SaltedMember]
    members: Mapping[bytes, Member]
    sealed_info: bytes


@dataclass(frozen=True, slots=True, repr=False)
class NewRoster:
    """A new roster, not in a record yet, with the data that is sent with it."""

    roster: Roster
    data: bytes
    leaves: Sequence[SaltedMember]
    members: Mapping[bytes, Member]
    sealed_info: bytes
    own_wrap: bytes | None
    """The author's own wrap, if one was made."""
    request: RosterRequest


def make_roster(
    group: bytes,
    version: int,
    author: bytes,
    seats: Mapping[bytes, Seat],
    secret: Secret,
    texts: Texts | None,
    before: Present | None,
) -> NewRoster:
    """Return the roster of the record of this version, for members by fingerprint.

    `texts` is None if the info stays as it is.
    """
    old = {} if before is None else dict(zip(before.members, before.leaves, strict=True))
    members, leaves = dict[bytes, Member](), list[SaltedMember]()
    changed, wraps = list[Leaf](), list[MemberWrap]()
    for name in sorted(seats):
        seat = seats[name]
        stays = None if before is None else before.members.get(name)
        member = _member(name, seat, stays, version)
        leaf = old[name] if member == stays else _leaf(member)
        members[name] = member
        leaves.append(leaf)
        if member != stays:
            changed.append(Leaf.of(leaf))
        if seat.key is not None:
            _, index, public = seat.key
            wrap = group_keys.wrap_secret(group, secret.epoch, secret.secret, name, index, public)
            wraps.append(MemberWrap(fingerprint=name, wrap=wrap))
    if texts is not None:
        sealed = group_keys.seal_info(
            group, secret.secret, texts.name, texts.description, secret.earlier
        )
    else:
        sealed = b"" if before is None else before.sealed_info
    made = Roster(
        group=group,
        version=version,
        epoch=secret.epoch,
        publicKey=group_keys.epoch_key(group, secret.secret).public,
        commitment=roster.commitment_of(group, secret.epoch, secret.secret),
        members=roster.members_root(leaves),
        count=len(leaves),
        info=sha256(sealed),
    )
    data = encode_object(made)
    request = RosterRequest(
        roster=data,
        removed=sorted(old.keys() - seats.keys()),
        leaves=changed,
        wraps=wraps,
        info=None if texts is None else sealed,
    )
    own = next((each.wrap for each in wraps if each.fingerprint == author), None)
    return NewRoster(made, data, leaves, members, sealed, own, request)


def _member(name: bytes, seat: Seat, stays: Member | None, version: int) -> Member:
    """Return the present leaf if role and key stay and the user had not left; otherwise a new one."""
    if seat.key is not None:
        _, index, _ = seat.key
    else:
        index = 0 if stays is None else stays.keyIndex
    if stays is not None and not seat.is_new and (index, seat.role) == (stays.keyIndex, stays.role):
        return stays
    return Member(name, index, seat.role, version)


def _leaf(member: Member) -> SaltedMember:
    return SaltedMember(random_bytes(HASH_SIZE), encode_value(member))
