"""The chain of a group, its departures, and who acts through it: docs/spec/groups.md, 4, 6 and 9."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.independent import container_records, rosters
from tests.independent import encodings as e
from tests.independent.access_lists import EVERYTHING, MODIFY_ACCESS, AccessList
from tests.independent.container_records import Acting, ContainerRecord, InForce, Judge, Judged, Via
from tests.independent.encodings import RefusedError, UndecodableError, need
from tests.independent.ids import group_name_of
from tests.independent.key_records import ENCRYPTION, MINUTE, KeyChain, Signable, Signed
from tests.independent.keys import check_signature
from tests.independent.rosters import Leaf, Member, Proof, Roster

MANAGER = 239


@dataclass(frozen=True)
class Served:
    """A record of a group, with what the broker serves with it."""

    signed: Signed
    access: AccessList | None
    """The list of a change of access."""
    type: tuple[bytes, str | None] | None
    """Salt and text, where the type is another one than before."""
    roster: bytes | None
    departures: int = 0
    """How many came with the list."""


class Introduced(NamedTuple):
    """A roster, with the version and the time of the record that introduces it."""

    version: int
    time: int
    roster: Roster


@dataclass(frozen=True)
class GroupChain:
    name: bytes
    records: list[Judged | InForce]
    """From version 1 on."""
    rosters: list[Introduced] = field(default_factory=list)

    @property
    def head(self) -> Judged | InForce:
        return self.records[-1]

    @property
    def in_force(self) -> InForce:
        return next(one for one in reversed(self.records) if isinstance(one, InForce))

    @property
    def roster(self) -> Roster:
        return self.rosters[-1].roster

    def roster_at(self, version: int) -> Roster:
        """The newest one that a record of this version or less introduces."""
        return next(one.roster for one in reversed(self.rosters) if one.version <= version)

    def begin_of(self, epoch: int) -> int | None:
        """The time of the record that begins an epoch; None if there is no such epoch."""
        return next((one.time for one in self.rosters if one.roster.epoch == epoch), None)


def judge(judge: Judge, served: Sequence[Served]) -> GroupChain:
    """C1 to C6 of the records from version 1 on."""
    chain = first(judge, served[0])
    for one in served[1:]:
        chain = following(judge, chain, one)
    return chain


def first(judge: Judge, served: Served) -> GroupChain:
    record = container_records.parse(served.signed.body)
    _form(record, served)
    if served.access is None:
        raise UndecodableError("integrity", "the first list is served")
    begun = judge.first(served.signed, served.access)
    name = group_name_of(record.author, record.nonce or b"")
    roster = _introduced(served, record, name)
    need(roster.epoch == 0, "C6: a first roster of a later epoch")
    _managers(begun.access)
    return GroupChain(name, [begun], [Introduced(1, record.time, roster)])


def following(judge: Judge, chain: GroupChain, served: Served) -> GroupChain:
    record, g = container_records.parse(served.signed.body), chain.in_force
    author = g.unexpired(record.time).get(record.author)
    if record.changes_access and author is not None:
        owns = author.permissions & MODIFY_ACCESS
        need(bool(owns), "C4: a manager without ModifyAccess changes the managers")
    if not record.tombstone:
        _form(record, served)
    judged = judge.next(served.signed, g, served.access, chain.head)
    records = [*chain.records, judged]
    if record.governing is None or not isinstance(judged, InForce):
        return replace(chain, records=records)
    introduced = chain.rosters
    if record.governing.type != g.governing.type:
        roster = _introduced(served, record, chain.name)
        _epoch(chain.roster, roster)
        introduced = [*introduced, Introduced(record.version, record.time, roster)]
    _managers(judged.access)
    return GroupChain(chain.name, records, introduced)


def _form(record: ContainerRecord, served: Served) -> None:
    # accessVia needs no check here: it fits the via, which is nil, or G's.
    need((record.header, record.content) == (None, None), "C1: a group's record with a part")
    need(record.via is None, "C1: a group's record with a via")
    need(record.governing is not None, "C1: a group's record that does not govern")
    need(served.departures == 0, "C3: a departure from a list of managers")


def _introduced(served: Served, record: ContainerRecord, name: bytes) -> Roster:
    """C2 and C5."""
    if served.type is None or served.roster is None or record.governing is None:
        raise UndecodableError("integrity", "a type is served with its roster")
    salt, text = served.type
    digest = container_records.type_hash(record.container_id, salt, text)
    need(digest == record.governing.type, "C2: not the type that was signed")
    rosters.check_type(text, served.roster)
    roster = rosters.parse(served.roster)
    need(roster.group == name, "C5: a roster of another group")
    need(roster.version == record.version, "C5: a roster of another version")
    return roster


def _epoch(before: Roster, after: Roster) -> None:
    """C6"""
    need(after.epoch - before.epoch in (0, 1), "C6: neither the epoch before nor the next one")
    public, committed = after.public_key, after.commitment
    if after.epoch == before.epoch:
        need(public == before.public_key, "C6: another public key in one epoch")
        need(committed == before.commitment, "C6: another commitment in one epoch")
    else:
        need(public != before.public_key, "C6: the next epoch with the same public key")
        need(committed != before.commitment, "C6: the next epoch with the same commitment")


def _managers(access: AccessList) -> None:
    """C3"""
    entries = access.entries.values()
    need(access.complete, "C3: a manager who is not disclosed")
    need(len(entries) <= 16, "C3: more than 16 managers")
    need(all(entry.expires_at is None for entry in entries), "C3: a manager with an expiry")
    held = {entry.permissions for entry in entries}
    need(held <= {MANAGER, EVERYTHING}, "C3: a manager with other permissions")
    need(EVERYTHING in held, "C3: no owner")
    need(all(entry.key_index <= e.KEY_INDEX for entry in entries), "C3: a key index above 255")


def check_asked(chain: GroupChain, group_id: bytes) -> None:
    asked = chain.head.record.container_id == group_id
    need(asked, "another group than the one asked for")


def check_pin(chain: GroupChain, name: bytes) -> None:
    need(chain.name == name, "another group for a pinned id", "key-substitution")


def check_mark(chain: GroupChain, version: int, digest: bytes) -> None:
    need(version <= chain.head.record.version, "a chain below the mark", "rollback")
    need(chain.records[version - 1].hash == digest, "another record at the mark", "fork")


# C7 to C10: readers who have all leaves


def check_members(
    chain: GroupChain, leaves: Sequence[Leaf], keys: Mapping[bytes, KeyChain]
) -> dict[bytes, Member]:
    """The members of the roster in force; `keys` are the chains that the device knows."""
    members = rosters.check_leaves(chain.roster, leaves)
    managers = chain.in_force.access.entries.keys()
    need(managers <= members.keys(), "C8: a manager without a leaf")
    for user, member in members.items():
        if user in keys:
            known = keys[user].keys[ENCRYPTION]
            need(member.key_index < len(known), "C10: a member's key that does not exist")
    return members


def check_since(
    before: tuple[Roster, Mapping[bytes, Member]], after: tuple[Roster, Mapping[bytes, Member]]
) -> None:
    """C9: the members against those that the device verified last, of an older roster."""
    (older, old), (newer, new) = before, after
    stay = [(old[user], new[user]) for user in old.keys() & new.keys()]
    risen = newer.epoch - older.epoch
    if risen == 0:
        need(old.keys() <= new.keys(), "C9: a member who is missing in one epoch")
        need(all(a.role <= b.role for a, b in stay), "C9: a lower role in one epoch")
        need(all(a.key_index == b.key_index for a, b in stay), "C9: another key in one epoch")
    if risen == 1:
        need(all(a.key_index <= b.key_index for a, b in stay), "C9: a lower key in the next epoch")
    others = [member for user, member in new.items() if old.get(user) != member]
    fresh = all(member.version > older.version for member in others)
    need(fresh, "C9: another member of an old version")


# 9 Departures


@dataclass(frozen=True)
class GroupDeparture(Signable):
    name = "group-departure"
    group: e.Hash
    version: e.UInt
    """Of the user's leaf."""
    fingerprint: e.Hash
    key_index: e.KeyIndex
    time: e.Time


parse_departure = GroupDeparture.parse


def departed(
    judge: Judge, chain: GroupChain, members: Mapping[bytes, Member], served: Sequence[Signed]
) -> set[bytes]:
    """The users who have left the group, by the departures that the broker serves."""
    said = [parse_departure(signed.body) for signed in served]
    users = [departure.fingerprint for departure in said]
    need(users == sorted(set(users)), "group departures that do not ascend")
    for signed, departure in zip(served, said, strict=True):
        need(departure.group == chain.name, "a departure from another group")
        member = members.get(departure.fingerprint)
        named = member is not None and member.version == departure.version
        need(named, "a departure from another leaf")
        keys = judge.chains[departure.fingerprint]
        public = keys.signing_key(departure.key_index, departure.time)
        if signed.signature is not None:
            check_signature(public, "group-departure", signed.body, signed.signature)
        made = chain.records[departure.version - 1].record.time
        need(departure.time >= made, "a departure before its leaf was made")
        need(departure.time <= judge.now + 15 * MINUTE, "a group departure of the future", "clock")
    return set(users)


# 6 Acting through a group


def acting(chain: GroupChain, record: ContainerRecord, proof: Proof | None) -> Acting:
    """V2, but for the entry: what a reader has to know of the group of a record's via."""
    via = record.via
    assert via is not None
    if proof is None:
        raise UndecodableError("integrity", "a via comes with a membership proof")
    named = _named(chain, via)
    roster = chain.roster_at(via.version)
    need(roster.epoch == via.epoch, "V2: an epoch that its record does not have")
    member = rosters.proven(roster.members, roster.count, proof)
    need(member.fingerprint == record.author, "V2: a membership of another user")
    head = chain.head.record
    return Acting(
        member.role,
        named.record.time,
        chain.begin_of(via.epoch + 1),
        head.time if head.tombstone else None,
    )


def stands(chain: GroupChain, author: bytes, role: int, proof: Proof) -> bool:
    """7: whether a proof for a roster of the latest epoch shows the author, with this role at least."""
    for introduced in chain.rosters:
        roster = introduced.roster
        if roster.epoch == chain.roster.epoch:
            try:
                member = rosters.proven(roster.members, roster.count, proof)
            except RefusedError:
                continue
            return member.fingerprint == author and member.role >= role
    return False


def _named(chain: GroupChain, via: Via) -> Judged | InForce:
    served = via.version <= chain.head.record.version
    need(served, "V2: a group's record that is not served", "rollback")
    found = chain.records[via.version - 1]
    need(found.hash == via.hash, "V2: another record of the group", "fork")
    need(found.record.governing is not None, "V2: a record of the group that does not govern")
    return found
