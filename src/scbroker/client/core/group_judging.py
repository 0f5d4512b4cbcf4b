"""Verify what a broker serves of a group, against verified keys, the device's mark and a given time.

Without I/O and without a clock. Conditions and sections are those of docs/spec/groups.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scbroker.client.core.judging import Mark
from scbroker.errors import ForkError, IntegrityError, KeySubstitutionError, RollbackError
from scbroker.records import group, judge, roster
from scbroker.records.container_record import parse_record
from scbroker.records.group import GroupChain, Served
from scbroker.records.judge import Known
from scbroker.records.key_record import KeyChain
from scbroker.records.roster import Member, SaltedMember
from scbroker.wire.codec import SignedObject
from scbroker.wire.groups import GroupRecord


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
