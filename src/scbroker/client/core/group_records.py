"""Verify what a broker serves of a group, make its next roster, and derive and open its keys.

Served records are verified against verified keys, the device's mark and a given time. A group's key of an
epoch is derived from the epoch's secret, which is wrapped to each member. The info has a group's name, its
description and the secrets of earlier epochs.
Without I/O and without a clock. Conditions and sections are those of docs/spec/groups.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from scbroker.client.core.judging import Mark
from scbroker.client.core.sealing import Recipient
from scbroker.crypto.seal import (
    KEY_SIZE,
    DecryptionKey,
    derive_key,
    random_bytes,
    seal,
    unseal,
    wrap_key,
)
from scbroker.crypto.verify import HASH_SIZE, sha256
from scbroker.errors import ForkError, IntegrityError, KeySubstitutionError, RollbackError
from scbroker.records import group, judge, roster
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.container_record import parse_record
from scbroker.records.group import EpochKey, GroupChain, Served
from scbroker.records.judge import Known
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Info, Member, Roster, SaltedMember
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupRecord
from scbroker.wire.rosters import Leaf, MemberWrap, RosterRequest


def _older(group_id: bytes) -> str:
    return (
        f"The broker serves an older version of group {uuid.UUID(bytes=group_id)} than this device has "
        "verified. If you trust its present state, resetContainerMark accepts it: pass the id of the group."
    )


def _other_history(group_id: bytes) -> str:
    return (
        f"The broker serves another history of group {uuid.UUID(bytes=group_id)} than this device has "
        "verified. If you trust the one that it serves, resetContainerMark accepts it: pass the id of the "
        "group."
    )


@dataclass(frozen=True, slots=True)
class Basis:
    """This device's knowledge of a group before it reads the next page of records."""

    group_id: bytes
    chain: GroupChain | None
    """The chain up to where it was read; None if the page begins with version 1."""
    mark: Mark | None
    name: bytes | None
    """The pinned name."""

    @property
    def proved(self) -> int:
        """Return the version up to which the hash of the mark proves the records, without signatures."""
        return 0 if self.mark is None else self.mark.version

    def following(self, records: Sequence[GroupRecord]) -> Sequence[GroupRecord]:
        """Return the records of a page that follow the chain; refuse a page that begins elsewhere."""
        first = parse_record(records[0].record.body)
        if first.containerId != self.group_id:
            raise IntegrityError("The broker served another group than the requested one.")
        if self.chain is None:
            return records
        if first.version < self.chain.version:
            raise RollbackError(_older(self.group_id))
        if first.version > self.chain.version:
            raise IntegrityError("The broker withholds records of a group.")
        if Known.parse(records[0].record.body).hash != self.chain.head.hash:
            raise ForkError(_other_history(self.group_id))
        return records[1:]

    def authors(self, records: Sequence[GroupRecord]) -> set[bytes]:
        """Return the fingerprints of the authors whose signatures have to be verified."""
        parsed = (parse_record(item.record.body) for item in records)
        return {record.author for record in parsed if record.version > self.proved}

    def judge(
        self, records: Sequence[GroupRecord], chains: Mapping[bytes, KeyChain], now: int
    ) -> GroupChain:
        """Judge records that follow the chain (C1 to C6); return the chain with them."""
        chain = self.chain
        for item in records:
            known = Known.parse(item.record.body)
            if known.record.version > self.proved:
                keys = chains.get(known.record.author)
                if keys is None:
                    raise IntegrityError("The broker did not serve the keys of a record's author.")
                judge.verify_author(known, item.record.signature, keys)
            served = _served(item, known)
            chain = group.begin(served, now) if chain is None else group.extend(chain, served, now)
            if self.name is not None and chain.name != self.name:
                raise KeySubstitutionError(
                    "The broker serves another group for this id than this device has pinned."
                )
            if self.mark is not None and known.record.version == self.mark.version:
                self._check_mark(chain)
        if chain is None:
            raise IntegrityError("The broker served a group without a record.")
        return chain

    def _check_mark(self, chain: GroupChain) -> None:
        if self.mark is not None and chain.hash_at(self.mark.version) != self.mark.hash:
            raise ForkError(_other_history(self.group_id))

    def check_end(self, chain: GroupChain, last: int) -> None:
        """Raise `RollbackError` if the group ends below the mark: then no record had the mark's hash."""
        if last < chain.version or chain.version < self.proved:
            raise RollbackError(_older(self.group_id))


def _served(item: GroupRecord, known: Known) -> Served:
    listed = item.accessList
    access = listed.verified() if listed is not None and known.record.changes_access else None
    text = None if item.type is None else (item.type.salt, item.type.type)
    departures = 0 if listed is None else len(listed.departures)
    return Served(known, access, text, item.roster, departures)


def mark_of(chain: GroupChain, *, partial: bool = False) -> Mark:
    """Return the mark of a device that has verified this chain. It is always complete (section 4)."""
    in_force = chain.in_force
    first = chain.moments[1]
    return Mark(
        chain.version,
        chain.head.hash,
        in_force.record.version,
        in_force.known.hash,
        True,
        chain.creator,
        first.time,
        partial=partial,
        deleted=chain.ended is not None,
        accessTime=in_force.since,
    )


def check_follows(chain: GroupChain, mark: Mark) -> None:
    """Raise `ForkError` unless a mark, of no later version than the chain's end, is part of the chain."""
    if chain.hash_at(mark.version) != mark.hash:
        raise ForkError(_other_history(chain.head.record.containerId))


def judge_members(chain: GroupChain, leaves: Sequence[SaltedMember]) -> dict[bytes, Member]:
    """Return the members of the roster in force by fingerprint (C7, C8)."""
    members = roster.parse_leaves(chain.roster, leaves)
    group.check_roster(chain, members)
    return members


def judge_departures(
    departures: Sequence[SignedObject],
    chain: GroupChain,
    members: Mapping[bytes, Member],
    keys: Mapping[bytes, KeyChain],
    now: int,
) -> frozenset[bytes]:
    """Return the fingerprints of the members who have left (section 9)."""
    left = list[bytes]()
    for signed in (item.signed for item in departures):
        leaver = roster.parse_group_departure(signed.body).fingerprint
        if left and leaver <= left[-1]:
            raise IntegrityError("The departures from a group are out of order.")
        if leaver not in keys:
            raise IntegrityError("The broker did not serve the keys of a user who left a group.")
        left.append(group.verify_departure(signed, chain, members, keys[leaver], now))
    return frozenset(left)


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
            wrap = wrap_secret(group, secret.epoch, secret.secret, name, index, public)
            wraps.append(MemberWrap(fingerprint=name, wrap=wrap))
    if texts is not None:
        sealed = seal_info(group, secret.secret, texts.name, texts.description, secret.earlier)
    else:
        sealed = b"" if before is None else before.sealed_info
    made = Roster(
        group=group,
        version=version,
        epoch=secret.epoch,
        publicKey=epoch_key(group, secret.secret).public,
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
