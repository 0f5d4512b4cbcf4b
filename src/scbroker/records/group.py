"""Judge the chain of a group's records, the members of its roster, and who may act through it.

Conditions C1 to C10 are those of docs/spec/groups.md, section 4, and V2 that of section 6. `judge` has the
rules that a group's records share with all others, and the rest of section 6.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain as chained
from typing import Final, NamedTuple

from scbroker.crypto.verify import sha256
from scbroker.errors import ClockError, ForkError, IntegrityError, RollbackError
from scbroker.records import container_record as records
from scbroker.records import judge, roster
from scbroker.records.canonical import GroupName, group_name_of
from scbroker.records.container_record import AccessList, Via
from scbroker.records.judge import Acting, InForce, Known
from scbroker.records.key_record import READER_TOLERANCE, KeyChain, Signed
from scbroker.records.roster import Member, MembershipProof, Roster
from scbroker.vocabulary import ContainerAccessLevel, KeyType

_FORK: Final = "The broker serves another history of a group than this device has verified."
_MAX_USER_KEY: Final = 255
_BLOCK: Final = 256


@dataclass(frozen=True, slots=True)
class Moment:
    """The fields of a group's governing record that records made through the group depend on."""

    hash: bytes
    time: int
    epoch: int
    members: bytes
    """The root of the tree of the roster in force, and the number of its leaves."""
    count: int


class Moments(Mapping[int, Moment]):
    """The moments of consecutive versions, ascending. Immutable: `adding` returns another.

    All but the last block are shared with it. A dict would be copied whole for each record, so that the work
    for a chain would grow with the square of its length.
    """

    __slots__ = ("_blocks",)

    def __init__(self, blocks: tuple[dict[int, Moment], ...] = ()) -> None:
        self._blocks = blocks

    def adding(self, version: int, moment: Moment) -> Moments:
        """Return these moments and the one of the next version."""
        if not self._blocks or len(self._blocks[-1]) == _BLOCK:
            return Moments((*self._blocks, {version: moment}))
        *full, last = self._blocks
        return Moments((*full, {**last, version: moment}))

    def __getitem__(self, version: int) -> Moment:
        if self._blocks:
            block = (version - next(iter(self))) // _BLOCK
            if 0 <= block < len(self._blocks):
                return self._blocks[block][version]
        raise KeyError(version)

    def __iter__(self) -> Iterator[int]:
        return chained.from_iterable(self._blocks)

    def __reversed__(self) -> Iterator[int]:
        return chained.from_iterable(map(reversed, reversed(self._blocks)))

    def __len__(self) -> int:
        return sum(map(len, self._blocks))


class EpochKey(NamedTuple):
    """The commitment to an epoch's secret, and the SHA-256 of the epoch's public key (3.2)."""

    commitment: bytes
    publicKey: bytes

    @classmethod
    def of(cls, found: Roster) -> EpochKey:
        return cls(found.commitment, sha256(found.publicKey))


@dataclass(frozen=True, slots=True)
class GroupChain:
    """A group's verified chain. Immutable: `extend` returns another."""

    name: GroupName
    head: Known
    in_force: InForce
    """The newest governing record, with the managers' list."""
    roster: Roster
    roster_bytes: bytes
    moments: Moments
    """By version, of every governing record."""
    epochs: tuple[int, ...]
    """The time at which each epoch began, in microseconds since 1970."""
    keys: tuple[EpochKey, ...] = ()
    """The key of each epoch: a member compares it before they open what was wrapped to it."""
    creator: bytes = b""
    """The fingerprint of the author of record 1."""

    @property
    def version(self) -> int:
        return self.head.record.version

    @property
    def ended(self) -> int | None:
        """The time of the tombstone; None if the group is not deleted."""
        return self.head.record.time if self.head.record.tombstone else None

    @property
    def managers(self) -> Mapping[bytes, records.Entry]:
        return self.in_force.access.entries

    def is_owner(self, fingerprint: bytes) -> bool:
        entry = self.managers.get(fingerprint)
        return entry is not None and entry.allows(ContainerAccessLevel.Delete)

    def hash_at(self, version: int) -> bytes | None:
        """Return the hash of the record of a version, which may be the tombstone; None above the head."""
        if version == self.version:
            return self.head.hash
        found = self.moments.get(version)
        return None if found is None else found.hash

    def end_of(self, epoch: int) -> int | None:
        """Return the time at which the epoch after this one began; None for the latest epoch."""
        return self.epochs[epoch + 1] if epoch + 1 < len(self.epochs) else None

    def at(self, via: Via) -> Moment:
        """Return the record that a `via` names (V2).

        Raises `RollbackError` if the chain is shorter, as the broker serves it, and `ForkError` if the
        record is another one.
        """
        if via.group != self.name:
            raise IntegrityError(
                "A record was made through another group than the verified one (V2)."
            )
        if via.version > self.version:
            raise RollbackError(
                "The broker serves an older version of a group than the one in which an author acted."
            )
        found = self.moments.get(via.version)
        if via.hash != (self.head.hash if found is None else found.hash):
            raise ForkError(_FORK)
        if found is None:
            raise IntegrityError(
                "A record names the tombstone of the group for which it was made (V2)."
            )
        return found

    def acting(self, via: Via, author: bytes, proof: MembershipProof | None) -> Acting:
        """Return the group for which an author acts; raise unless their membership is proved (V2)."""
        if proof is None:
            raise IntegrityError(
                "A record was made through a group, and no membership is proved (V2)."
            )
        found = self.at(via)
        if found.epoch != via.epoch:
            raise IntegrityError("A record names another epoch than its group's record has (V2).")
        member = roster.proven(found.members, found.count, proof)
        if member.fingerprint != author:
            raise IntegrityError("A record's author is not the member who was proved (V2).")
        return Acting(via.group, member.role, found.time, self.end_of(via.epoch), self.ended)

    def stands(self, author: bytes, role: int, standing: MembershipProof | None) -> bool:
        """Return whether a proof shows that a user has at least this role in the latest epoch (section 7).

        The broker may have made it for any roster of this epoch: within an epoch nobody loses a leaf, and no
        role falls.
        """
        if standing is None:
            return False
        for version in reversed(self.moments):
            moment = self.moments[version]
            if moment.epoch < self.roster.epoch:
                break
            with contextlib.suppress(IntegrityError):
                member = roster.proven(moment.members, moment.count, standing)
                return member.fingerprint == author and member.role >= role
        return False


@dataclass(frozen=True, slots=True)
class Served:
    """A record of a group with what comes with it, parsed; its signature is verified by the caller."""

    known: Known
    access: AccessList | None
    """The new list of managers; None if the record keeps the list."""
    type: tuple[bytes, str | None] | None
    """Salt and text; None if the record keeps the type."""
    roster: bytes | None
    departures: int = 0
    """How many departures came with the list: in a group container none may (C3)."""


def begin(served: Served, now: int) -> GroupChain:
    """Judge the first record of a group (C1 to C6)."""
    record = served.known.record
    if served.access is None:
        raise IntegrityError("The first record of a group came without its list of managers (C3).")
    _check_form(served)
    in_force = judge.judge_first(served.known, served.access, now)
    name = group_name_of(record.author, record.nonce or b"")
    text, found = _roster_of(served, name, None)
    if found.version != 1 or found.epoch != 0:
        raise IntegrityError("A group's first roster is not of version 1 and epoch 0 (C5, C6).")
    _check_managers(served.access)
    moment = Moment(served.known.hash, record.time, 0, found.members, found.count)
    return GroupChain(
        name,
        served.known,
        in_force,
        found,
        text,
        Moments().adding(1, moment),
        (record.time,),
        (EpochKey.of(found),),
        record.author,
    )


def extend(chain: GroupChain, served: Served, now: int) -> GroupChain:
    """Judge the next record of a group (C1 to C6)."""
    record = served.known.record
    if record.version != chain.version + 1:
        raise IntegrityError("A record of a group does not follow the one before it (C4).")
    author = chain.in_force.entry_of(record.author, record.time)
    if (
        record.changes_access
        and author is not None
        and not author.allows(ContainerAccessLevel.ModifyAccess)
    ):
        raise IntegrityError("A manager without ModifyAccess changes the managers of a group (C4).")
    if not record.tombstone:
        _check_form(served)
    in_force = judge.judge_next(served.known, chain.in_force, served.access, chain.head, now)
    if record.tombstone:
        return dataclasses.replace(chain, head=served.known)
    before = chain.in_force.governing.type
    text, found = chain.roster_bytes, chain.roster
    epochs, keys = chain.epochs, chain.keys
    if judge.governing_of(record).type == before:
        if served.roster is not None:
            raise IntegrityError("A record of a group came with a roster and keeps the type (C2).")
    else:
        text, found = _roster_of(served, chain.name, chain.roster)
        if found.version != record.version:
            raise IntegrityError("A roster is not of the record that introduces it (C5).")
        if found.epoch > chain.roster.epoch:
            epochs, keys = (*epochs, record.time), (*keys, EpochKey.of(found))
    _check_managers(in_force.access)
    moment = Moment(served.known.hash, record.time, found.epoch, found.members, found.count)
    moments = chain.moments.adding(record.version, moment)
    return GroupChain(
        chain.name, served.known, in_force, found, text, moments, epochs, keys, chain.creator
    )


def _check_form(served: Served) -> None:
    record = served.known.record
    if record.header is not None or record.content is not None:
        raise IntegrityError("A record of a group has a header or a content (C1).")
    if record.via is not None or judge.governing_of(record).accessVia is not None:
        raise IntegrityError("A record of a group was made through a group (C1).")
    if served.departures:
        raise IntegrityError("Departures came with the list of managers of a group (C3).")


def _roster_of(served: Served, name: bytes, before: Roster | None) -> tuple[bytes, Roster]:
    """Return a record's new roster, as bytes and parsed; raise `IntegrityError` if it breaks C2, C5 or C6."""
    data, text = served.roster, served.type
    if data is None or text is None:
        raise IntegrityError("A record of a group came without its type or its roster (C2).")
    found = roster.parse_roster(data)
    record = served.known.record
    salt, shown = text
    roster.check_group_type(shown, data)
    if records.type_hash(record.containerId, salt, shown) != judge.governing_of(record).type:
        raise IntegrityError("A group's type is not the one that was signed (C2).")
    if found.group != name:
        raise IntegrityError("A roster is of another group (C5).")
    if before is not None:
        _check_epoch(before, found)
    return data, found


def _check_epoch(before: Roster, after: Roster) -> None:
    kept = before.publicKey == after.publicKey, before.commitment == after.commitment
    if after.epoch == before.epoch:
        if not all(kept):
            raise IntegrityError("A roster has another key in the same epoch (C6).")
    elif after.epoch != before.epoch + 1:
        raise IntegrityError("A roster's epoch is not the one before or the next one (C6).")
    elif any(kept):
        raise IntegrityError("A roster begins an epoch with the key of the one before (C6).")


def _check_managers(access: AccessList) -> None:
    entries = access.entries.values()
    if not access.complete or len(entries) > roster.MAX_MANAGERS:
        raise IntegrityError(
            "A group's list of managers has more than 16 entries, or hides some (C3)."
        )
    for entry in entries:
        if entry.expiresAt is not None or entry.permissions not in (roster.OWNER, roster.MANAGER):
            raise IntegrityError("A manager of a group has an expiry, or other permissions (C3).")
        if entry.keyIndex > _MAX_USER_KEY:
            raise IntegrityError("A manager of a group has a key index above 255 (C3).")
    if not any(entry.permissions == roster.OWNER for entry in entries):
        raise IntegrityError("A group has no owner (C3).")


def check_roster(chain: GroupChain, members: Mapping[bytes, Member]) -> None:
    """Check that every manager is a member (C8). `members` are those of `roster.parse_leaves` (C7)."""
    if chain.managers.keys() - members.keys():
        raise IntegrityError("A manager of a group is missing in its roster (C8).")


def check_since(
    before: tuple[Roster, Mapping[bytes, Member]], after: tuple[Roster, Mapping[bytes, Member]]
) -> None:
    """Compare the members with those of an older roster that this device has verified (C9)."""
    (older, old), (newer, new) = before, after
    for fingerprint, member in old.items():
        found = new.get(fingerprint)
        if newer.epoch == older.epoch and (
            found is None or found.role < member.role or found.keyIndex != member.keyIndex
        ):
            raise IntegrityError(
                "A member of a group is gone, has a lower role or another key in the same epoch (C9)."
            )
        if (
            newer.epoch == older.epoch + 1
            and found is not None
            and found.keyIndex < member.keyIndex
        ):
            raise IntegrityError("A member of a group has an older key than before (C9).")
    for fingerprint, member in new.items():
        if member != old.get(fingerprint) and member.version <= older.version:
            raise IntegrityError("A new or changed member of a group is of an older roster (C9).")


def check_keys(members: Mapping[bytes, Member], chains: Mapping[bytes, KeyChain]) -> None:
    """Refuse a member's key that does not exist, of the users whose chains are known (C10)."""
    for fingerprint, chain in chains.items():
        member = members.get(fingerprint)
        if member is not None and (KeyType.Encryption, member.keyIndex) not in chain.keys:
            raise IntegrityError("A member of a group has a key that does not exist (C10).")


def verify_departure(
    signed: Signed, chain: GroupChain, members: Mapping[bytes, Member], keys: KeyChain, now: int
) -> bytes:
    """Verify that a user signed that they leave the group; return their fingerprint (section 9)."""
    said = roster.parse_group_departure(signed.body)
    if keys.fingerprint != said.fingerprint:
        raise IntegrityError("A departure was served with another user's keys than the leaver's.")
    key = keys.signing_key(said.keyIndex, said.time)
    key.verify(roster.DEPARTURE_LABEL, signed.body, signed.signature)
    member = members.get(said.fingerprint)
    if said.group != chain.name or member is None or said.version != member.version:
        raise IntegrityError("A departure is from another group or membership.")
    since = chain.moments.get(said.version)
    if since is None or said.time < since.time:
        raise IntegrityError("A departure is older than the membership that it ends.")
    if said.time > now + READER_TOLERANCE:
        raise ClockError(
            "A departure's time is more than 15 minutes ahead: check this machine's clock."
        )
    return said.fingerprint
