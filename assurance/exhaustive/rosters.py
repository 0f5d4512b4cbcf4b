"""Compare `records.group` with an oracle for every history of one group, up to a bound.

An act is one record of the group: other managers, other members, another epoch, or the tombstone. Every act
of every user is tried after each history, and each kind of act with every lie. The conditions C1 to C10 are
those of docs/spec/groups.md, section 4. Signatures are left out, because a dishonest manager can sign
anything: so each act stands for every set of users who act together with the broker.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, cast
from unittest import mock

from msgspec import structs

from assurance.exhaustive import acts, chains
from assurance.exhaustive.acts import READER, SHARER, WRITER, Group, Membership
from assurance.exhaustive.chains import Count, known_of
from scbroker.crypto import verify
from scbroker.errors import BrokerError
from scbroker.records import group, judge, roster
from scbroker.records.canonical import encode_object, encode_value, group_name_of, uuid8
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Entry,
    Governing,
    Link,
    Part,
    SaltedEntry,
    Via,
    list_hash,
    type_hash,
)
from scbroker.records.group import GroupChain, Served
from scbroker.records.key_record import KeyChain, Signed
from scbroker.records.roster import GroupDeparture, Member, Roster, SaltedMember
from scbroker.vocabulary import KeyType

NAMES: Final = chains.NAMES
GROUP: Final = chains.GROUP
ROOM: Final = uuid8(GROUP).bytes
"""The id of the group's container."""
MANAGER, OWNER = 1, 2
Managers = tuple[int, ...]
"""For each user: 0, `MANAGER` or `OWNER`."""
Members = tuple[Membership | None, ...]


@dataclass(frozen=True, slots=True)
class GroupAct:
    """One user's attempt to change a group; a field that is None stays as it is."""

    author: int
    time: int
    managers: Managers | None = None
    members: Members | None = None
    is_fresh: bool = False
    """Whether the record begins an epoch."""
    deletes: bool = False


def rightful(before: Group | None, act: GroupAct, earlier: Sequence[Group] = ()) -> Group | None:
    """Return the group after an act that the guide to groups allows; None if it does not.

    `earlier` are groups of before with which a device compares as well.
    """
    managers = act.managers or (before.managers if before else ())
    members = act.members or (before.members if before else ())
    if before is None:
        return Group(managers, members, act.time) if _is_group(managers, members) else None
    rank = before.managers[act.author]
    needed = OWNER if act.deletes or act.managers is not None else MANAGER
    if before.is_deleted or act.time < before.time or rank < needed:
        return None
    if act.deletes:
        return replace(before, time=act.time, is_deleted=True)
    if not _is_group(managers, members) or not all(
        _may_become(old, new, act.is_fresh)
        for old, new in zip(before.members, members, strict=True)
    ):
        return None
    after = Group(managers, members, act.time, before.epoch + act.is_fresh)
    return None if any(_goes_back(group, after) for group in earlier) else after


def _goes_back(old: Group, new: Group) -> bool:
    """Return whether a member has an older key than in the same epoch or the one before."""
    pairs = zip(old.members, new.members, strict=True)
    return new.epoch - old.epoch < 2 and any(a and b and b.index < a.index for a, b in pairs)


def _is_group(managers: Managers, members: Members) -> bool:
    """Return whether there is an owner, and every manager is a member."""
    return OWNER in managers and all(members[user] for user, rank in enumerate(managers) if rank)


def _may_become(old: Membership | None, new: Membership | None, is_fresh: bool) -> bool:
    """Return whether a member who loses something loses the secret too, and nobody gets an older key."""
    if old is None or (new is None and is_fresh):
        return True
    if new is None or (new.role < old.role and not is_fresh):
        return False
    return new.index >= old.index if is_fresh else new.index == old.index


@dataclass(frozen=True)
class GroupAlphabet:
    """The acts to be tried after each history."""

    users: int = 3
    roles: tuple[int, ...] = (READER, WRITER, SHARER)
    indices: tuple[int, ...] = (0,)
    times: tuple[int, ...] = (1, 2)
    is_owned_by_first: bool = False
    """Whether the first user is the only manager, and a sharer, in every history."""

    @cached_property
    def memberships(self) -> list[Members]:
        each = [Membership(*some) for some in itertools.product(self.roles, self.indices)]
        options: list[tuple[Membership | None, ...]] = [(None, *each)] * self.users
        options += [(None,)] * (len(NAMES) - self.users)
        if self.is_owned_by_first:
            options[0] = (Membership(SHARER),)
        return [members for members in itertools.product(*options) if any(members)]

    @cached_property
    def managers(self) -> list[Managers]:
        if self.is_owned_by_first:
            return [(OWNER, 0, 0)]
        rest = [(0,)] * (len(NAMES) - self.users)
        ranks = [(0, MANAGER, OWNER)] * self.users
        return [found for found in itertools.product(*ranks, *rest) if any(found)]

    def first(self) -> Iterator[GroupAct]:
        for managers, members in itertools.product(self.managers, self.memberships):
            yield GroupAct(0, self.times[0], managers, members)

    def next(self) -> Iterator[GroupAct]:
        lists = [None] if self.is_owned_by_first else [None, *self.managers]
        rosters = [(None, False), *itertools.product(self.memberships, (False, True))]
        for author, at in itertools.product(range(self.users), self.times):
            yield GroupAct(author, at, deletes=True)
            for managers, (members, is_fresh) in itertools.product(lists, rosters):
                if managers or members:
                    yield GroupAct(author, at, managers, members, is_fresh)


@dataclass(frozen=True, slots=True)
class History:
    """A group with the chain and the leaves by which a reader knows it."""

    group: Group
    chain: GroupChain
    leaves: Mapping[bytes, SaltedMember]
    members: Mapping[bytes, Member]
    before: "History | None" = None

    @property
    def sorted_leaves(self) -> list[SaltedMember]:
        return [self.leaves[name] for name in sorted(self.leaves)]

    def line(self) -> "list[History]":
        """Return the histories from the first record to this one."""
        return [*(self.before.line() if self.before else ()), self]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A manager's change as a broker serves it: a record with list, type and roster, and the leaves."""

    served: Served
    leaves: Sequence[SaltedMember]


@cache
def managers_list(managers: Managers, **changes: Any) -> AccessList:
    permissions = {MANAGER: roster.MANAGER, OWNER: roster.OWNER}
    entries = [
        structs.replace(Entry(NAMES[user], 0, permissions[rank], None, bytes(32)), **changes)
        for user, rank in enumerate(managers)
        if rank
    ]
    return AccessList.whole([SaltedEntry(bytes(32), encode_value(entry)) for entry in entries])


def leaf(member: Member) -> SaltedMember:
    return SaltedMember(bytes(32), encode_value(member))


def named(kind: str, number: int, size: int = 32) -> bytes:
    """Return a name in place of a key, or of a hash that nobody opens."""
    return f"{kind} {number}".encode().ljust(size)


def proposed(history: History | None, act: GroupAct, **lies: Any) -> Proposal:
    """Return the record of an act as an honest client would make it, rightful or not, but for some lies.

    `lies` change what is signed: `type`, `roster` and `entries` (by fields), and `leaves` (by a function).
    """
    version = 1 if history is None else history.chain.version + 1
    epoch = 0 if history is None else history.chain.roster.epoch + act.is_fresh
    leaves = history.sorted_leaves if history else []
    data, typed, digest = None, None, b""
    if act.members is not None:
        leaves = _leaves(history, act.members, version)
        leaves = lies.get("leaves", lambda same: same)(leaves)
        made = Roster(
            GROUP, version, epoch, named("key", epoch, verify.ENCRYPTION_KEY_SIZE),
            named("secret", epoch), roster.members_root(leaves), len(leaves), named("info", version),
        )  # fmt: skip
        data = encode_object(structs.replace(made, **lies.get("roster", {})))
        typed = named("salt", version), lies.get("type", roster.group_type(data))
        digest = type_hash(ROOM, *typed)
    elif history is not None:
        digest = history.chain.in_force.governing.type
    return Proposal(_signed(history, act, version, data, typed, digest, lies), leaves)


def _leaves(history: History | None, members: Members, version: int) -> list[SaltedMember]:
    leaves = []
    for user, wanted in enumerate(members):
        if wanted is None:
            continue
        old = history.members.get(NAMES[user]) if history else None
        is_kept = old is not None and (old.role, old.keyIndex) == (wanted.role, wanted.index)
        since = old.version if old is not None and is_kept else version
        leaves.append(leaf(Member(NAMES[user], wanted.index, wanted.role, since)))
    return leaves


def _signed(
    history: History | None,
    act: GroupAct,
    version: int,
    data: bytes | None,
    typed: tuple[bytes, str] | None,
    digest: bytes,
    lies: Mapping[str, Any],
) -> Served:
    access, governing, link = None, None, None
    if act.managers is not None:
        access = managers_list(act.managers, **lies.get("entries", {}))
        hashed = list_hash(ROOM, version, access.entryHashes)
        governing = Governing(version, NAMES[act.author], hashed, named("room", version), digest)
    elif history is not None and not act.deletes:
        governing = structs.replace(history.chain.in_force.governing, type=digest)
    if history is not None:
        in_force = history.chain.in_force.known
        link = Link(in_force.record.version, in_force.hash)
    record = ContainerRecord(
        ROOM, chains.GROUP_NONCE if history is None else None, version,
        None if history is None else history.chain.head.hash, NAMES[act.author], 0, act.time,
        link, governing, None, None, act.deletes,
    )  # fmt: skip
    return Served(known_of(record), access, typed, data)


_KEYS: Final = {
    name: cast(KeyChain, mock.Mock(keys={(KeyType.Encryption, index) for index in range(2)}))
    for name in NAMES
}


def followed(history: History | None, proposal: Proposal, then: Group) -> History | None:
    """Return the history that a reader who sees all leaves has then; None if they refuse (C1 to C10)."""
    served = proposal.served
    try:
        if history is None:
            chain = group.begin(served, chains.LATE)
        else:
            chain = group.extend(history.chain, served, chains.LATE)
        members = roster.parse_leaves(chain.roster, proposal.leaves)
        group.check_roster(chain, members)
        older = history
        while older is not None:  # as a device does that has verified no roster since then
            group.check_since((older.chain.roster, older.members), (chain.roster, members))
            older = older.before
        group.check_keys(members, _KEYS)
    except BrokerError:
        return None
    leaves = dict(zip(members, proposal.leaves, strict=True))
    return History(then, chain, leaves, members, history)


Lies = Mapping[str, Proposal | None]


def _signed_lies(history: History | None, act: GroupAct) -> Lies:
    """Return what a manager can sign falsely; None where a lie would change nothing."""
    before, other = history.chain.roster.epoch if history else -1, named("other", 0)
    # A key is kept in the next epoch, or replaced within one.
    stale = before + (not act.is_fresh)

    def signed(applies: bool = True, **lies: Any) -> Proposal | None:
        return proposed(history, act, **lies) if applies and act.members is not None else None

    def epoch(step: int) -> Proposal | None:
        keys = {"publicKey": named("other", 0, 1216), "commitment": other}
        return signed(before + step >= 0, roster={"epoch": before + step, **keys})

    def entries(**changes: int) -> Proposal | None:
        return None if act.managers is None else proposed(history, act, entries=changes)

    def of_first(**changes: int) -> Proposal | None:
        return signed(leaves=lambda leaves: [_changed(leaves[0], **changes), *leaves[1:]])

    members = [member for member in act.members or () if member is not None]
    return {
        "of another group": signed(roster={"group": bytes(32)}),
        "of another version": signed(roster={"version": 99}),
        "an epoch left out": epoch(2),
        "an epoch again": epoch(-1),
        "another key in an epoch, or the same in the next": signed(
            history is not None,
            roster={"publicKey": named("key", stale, verify.ENCRYPTION_KEY_SIZE)},
        ),
        "another secret in an epoch, or the same in the next": signed(
            history is not None, roster={"commitment": named("secret", stale)}
        ),
        "a type of another roster": signed(type=roster.group_type(b"?")),
        "a type of another container": signed(type="photo"),
        "another count": signed(roster={"count": 9}),
        "other members": signed(roster={"members": bytes(32)}),
        "a member twice": signed(leaves=lambda leaves: [leaves[0], *leaves]),
        "a member of a later roster": of_first(version=99),
        "a key that does not exist": of_first(keyIndex=2),
        "members out of order": signed(len(members) > 1, leaves=lambda leaves: leaves[::-1]),
        "a manager's key that does not exist": entries(keyIndex=256),
        "a manager's expiry": entries(expiresAt=chains.LATE),
        "other rights of a manager": entries(permissions=roster.OWNER - acts.DELETE),
    }


def _changed(salted: SaltedMember, **changes: int) -> SaltedMember:
    return leaf(structs.replace(roster.parse_member(salted.member), **changes))


@cache
def _a_part() -> Part | None:
    box = chains.begun(acts.Act(0, 1, (acts.Right(acts.READ),), content="new"))
    return None if box is None else box.head.record.content


def _served_lies(proposal: Proposal) -> Lies:
    """Return what a broker can serve falsely of a record, and what a record of a group must not have."""
    honest, leaves = proposal.served, proposal.leaves
    made, text, access = honest.known.record, honest.type, honest.access
    own = group_name_of(NAMES[0], bytes(32))

    def served(applies: bool = True, **changes: Any) -> Proposal | None:
        return replace(proposal, served=replace(honest, **changes)) if applies else None

    def record(applies: bool = True, **changes: Any) -> Proposal | None:
        return served(applies, known=known_of(structs.replace(made, **changes)))

    def governing(**changes: Any) -> Proposal | None:
        if made.governing is None:
            return None
        return record(governing=structs.replace(made.governing, **changes))

    def typed(salt: bytes | None, named: str | None) -> Proposal | None:
        return text and served(type=(salt or text[0], named or text[1]))

    def shown(*leaves: SaltedMember) -> Proposal | None:
        return replace(proposal, leaves=leaves) if honest.roster else None

    return {
        "a header": record(header=_a_part()),
        "a content": record(content=_a_part()),
        "made through a group": record(via=Via(own, 0, 1, bytes(32))),
        "access through a group": governing(accessVia=own),
        "a departure from the list": served(not made.tombstone, departures=1),
        "the type withheld": served(text is not None, type=None),
        "the roster withheld": served(honest.roster is not None, roster=None),
        "another salt": typed(bytes(32), None),
        "the type of another roster": typed(None, roster.group_type(b"?")),
        "the type of another container": typed(None, "photo"),
        "another type than was signed": governing(type=bytes(32)),
        "members withheld": shown(*leaves[1:]),
        "another salt of a leaf": shown(structs.replace(leaves[0], salt=b"?" * 32), *leaves[1:]),
        "a list with a hidden entry": (
            served(access=_hidden(access)) if access and len(access.entries) > 1 else None
        ),
        "the list withheld": served(access is not None, access=None),
        "a tombstone as well": record(not made.tombstone, tombstone=True),
        "nothing changed": record(governing=None, tombstone=False),
    }


def _hidden(access: AccessList) -> AccessList:
    [*shown] = access.entries.values()
    salted = [(n, SaltedEntry(bytes(32), encode_value(each))) for n, each in enumerate(shown)]
    return AccessList.disclosed(access.entryHashes, salted[1:])


@contextmanager
def small_times() -> Iterator[None]:
    """Accept names for keys, and records of an ended epoch for one unit of time after its end."""
    with (
        mock.patch.object(roster, "check_encryption_key"),
        mock.patch.object(judge, "READER_TOLERANCE", 1),
        mock.patch.object(group, "READER_TOLERANCE", 1),
    ):
        yield


def search(alphabet: GroupAlphabet, length: int, *, remembers: bool = False) -> Count:
    """Try all histories of up to `length` records; raise `AssertionError` where code and oracle differ.

    If two histories lead to the same group, only one of them is continued. A search that `remembers` also
    continues the other one if the group was another one record before: for devices that compare rosters
    across several records (C9).
    """
    count, started = Count(), time.monotonic()  # about time
    seen: set[tuple[Group, ...]] = set()
    with small_times():
        kept = 2 if remembers else 1
        layer = list(_new(seen, kept, _tried(count, None, alphabet.first())))
        for _ in range(1, length):
            layer = [
                after
                for history in layer
                for after in _new(seen, kept, _tried(count, history, alphabet.next()))
            ]
    count.worlds, count.seconds = len(seen), time.monotonic() - started  # about time
    return count


def _new(seen: set[tuple[Group, ...]], kept: int, found: Iterator[History]) -> Iterator[History]:
    """Yield the histories that lead to groups which no other led to, but for the names of the users."""
    for history in found:
        last = [each.group for each in history.line()[-kept:]]
        orders = list(itertools.permutations(range(len(NAMES))))
        named = min(
            (tuple(_renamed(each, order) for each in last) for order in orders),
            key=lambda groups: [_order(each) for each in groups],
        )
        if named not in seen:
            seen.add(named)
            yield history


def _renamed(world: Group, order: tuple[int, ...]) -> Group:
    managers = tuple(world.managers[user] for user in order)
    members = tuple(world.members[user] for user in order)
    return replace(world, managers=managers, members=members, epoch=0)


def _order(world: Group) -> tuple[object, ...]:
    return world.managers, tuple(each or Membership(-1) for each in world.members)


def _tried(count: Count, history: History | None, some: Iterator[GroupAct]) -> Iterator[History]:
    """Try acts after a history, each kind with every lie; yield the histories that they lead to."""
    told: set[GroupAct] = set()
    for act in some:
        count.acts += 1
        line = [each.group for each in history.line()] if history else []
        then = rightful(history.group if history else None, act, line)
        proposal = proposed(history, act)
        after = followed(history, proposal, then or Group((), (), 0))
        assert (after is not None) == (then is not None), (history and history.group, act)
        if after is None:
            continue
        count.accepted += 1
        kind = dataclasses.replace(
            act, managers=act.managers and (), members=act.members and (), time=0
        )
        if kind not in told:
            told.add(kind)
            _lie(count, history, act, proposal)
            _depart(count, after)
        yield after


def _lie(count: Count, history: History | None, act: GroupAct, proposal: Proposal) -> None:
    false = {**_signed_lies(history, act), **_served_lies(proposal)}
    if history is not None:
        known = chains.History(_ANY, history.chain.head, history.chain.in_force)
        for name, record in chains.lies(known, proposal.served.known.record).items():
            if record is not None:
                served = replace(proposal.served, known=known_of(record))
                false[name] = replace(proposal, served=served)
    for name, each in false.items():
        if each is not None and each != proposal:
            count.lies += 1
            after = followed(history, each, Group((), (), 0))
            assert after is None, f"{name}: {history and history.group}: {act}"


_ANY: Final = cast(acts.World, None)


def _depart(count: Count, history: History) -> None:
    """Check that exactly those leave who have a leaf, and only by a departure from that leaf."""
    for user, name in enumerate(NAMES):
        member = history.members.get(name)
        version = member.version if member else 1
        at = history.chain.moments[version].time
        said = GroupDeparture(GROUP, version, name, 0, at)
        count.acts += 1
        assert _is_departure(history, user, said) == (member is not None), (history.group, user)
        count.accepted += member is not None
        for changes in (
            {"group": bytes(32)}, {"version": version + 1}, {"fingerprint": bytes(32)},
            {"time": at - 1}, {"time": 2**50},
        ):  # fmt: skip
            count.lies += 1
            false = structs.replace(said, **changes)
            assert not _is_departure(history, user, false), (history.group, false)


def _is_departure(history: History, user: int, said: GroupDeparture) -> bool:
    keys = cast(KeyChain, chains.AnyKeys(user))
    try:
        signed = Signed(encode_object(said), b"")
        group.verify_departure(signed, history.chain, history.members, keys, chains.LATE)
    except BrokerError:
        return False
    return True
