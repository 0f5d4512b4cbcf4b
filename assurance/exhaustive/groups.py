"""Compare the judge with an oracle for every small history of a container in whose list a group stands.

Every history of a group is combined with every history of a container. Each act of each user is tried by
the user's own entry and through every version of the group, and each kind of act with every lie about the
group. V1 to V7 are those of docs/spec/groups.md, section 6. A reader may have verified a part of the
group's history only: that part is a history of its own here.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec import structs

from assurance.exhaustive import acts, chains, rosters
from assurance.exhaustive.acts import FOREVER, Act, Right, Rights
from assurance.exhaustive.chains import Count
from assurance.exhaustive.rosters import Group, GroupAlphabet
from scbroker.errors import BrokerError
from scbroker.records import judge, roster
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    Governing,
    Via,
    record_hash,
)
from scbroker.records.judge import Known
from scbroker.records.roster import MembershipProof, SaltedMember
from scbroker.vocabulary import ContainerAccessLevel as Bit

GROUP: Final = len(acts.USERS)
"""The place of the group among the rights."""
_READ: Final = acts.READ | acts.VIEW_ACCESS | int(Bit.ViewType | Bit.ReceiveAccessEvents)
_WRITE: Final = _READ | acts.UPLOAD | acts.MODIFY_TYPE
_ROLES: Final = {rosters.READER: _READ, rosters.WRITER: _WRITE, rosters.SHARER: acts.EVERYTHING}


@dataclass(frozen=True, slots=True)
class World:
    """A container after some acts, and what groups add to it."""

    box: acts.World
    maker: int
    """The user who made the list in force, alone or through the group."""
    epoch: int = -1
    """That in which the newest record was made; -1 if its author acted alone."""


@dataclass(frozen=True, slots=True)
class Through:
    """An act, by the author's own entry or by that of the group, as of a version of the group."""

    act: Act
    version: int | None


def mine(groups: Sequence[Group], world: World, tried: Through) -> Right | None:
    """Return what the author of an act may do: by their own entry, or as the member that they were."""
    act, version = tried.act, tried.version
    if version is None:
        return world.box.alive(act.author, act.time)
    then, entry = groups[version - 1], world.box.alive(GROUP, act.time)
    membership = then.members[act.author]
    if entry is None or membership is None or then.is_deleted:
        return None
    ends = [each.time for each in groups[version:] if each.is_deleted or each.epoch > then.epoch]
    if act.time < then.time or (ends and act.time > ends[0]):
        return None
    if then.epoch < max(entry.index, world.epoch):  # somebody has acted who knew that it had ended
        return None
    return dataclasses.replace(entry, bits=entry.bits & _ROLES[membership.role])


def rightful(groups: Sequence[Group], world: World, tried: Through) -> World | None:
    """Return the world after an act that the guide to groups allows; None if it does not."""
    act, epoch = tried.act, -1
    if tried.version is not None:
        epoch = groups[tried.version - 1].epoch
        named = act.rights[GROUP] if act.rights else None
        if named is not None and named.index != epoch:
            return None  # a former member could wrap to the key of those who stayed
    entry = act.author if tried.version is None else GROUP
    box = acts.permitted(world.box, act, mine(groups, world, tried), entry)
    maker = world.maker if act.rights is None else act.author
    return None if box is None else World(box, maker, epoch)


def key_holders(groups: Sequence[Group], world: World) -> set[int]:
    """Return everybody who could have the container key: its maker, and those whom it was wrapped for."""
    holders = {world.maker}
    for name, right in enumerate(world.box.rights):
        if right is None or not right.bits & acts.DECRYPT:
            continue
        # The members of later epochs get the secrets of all earlier ones.
        epochs = [group for group in groups if group.epoch >= right.index]
        holders |= {name} if name != GROUP else set().union(*map(_members, epochs))
    return holders


def members(groups: Sequence[Group], world: World, at: int) -> set[int]:
    """Return everybody who may decrypt at a time."""
    alive = [world.box.alive(name, at) for name in range(GROUP + 1)]
    named = {name for name, right in enumerate(alive) if right and right.bits & acts.DECRYPT}
    return named - {GROUP} | (_members(groups[-1]) if GROUP in named else set())


def _members(group: Group) -> set[int]:
    return {user for user, membership in enumerate(group.members) if membership is not None}


@dataclass(frozen=True)
class Alphabet:
    """The acts to be tried after each history of the container."""

    bits: tuple[int, ...]
    """The permissions to try for the group."""
    own: tuple[tuple[int, ...], ...]
    """The permissions to try for each user, besides none; a user beyond these has none."""
    ends: tuple[int, ...] = (FOREVER,)
    indices: tuple[int, ...] = (0, 1)
    times: tuple[int, ...] = (1, 2)
    users: int = 2
    retypes: bool = False

    @cached_property
    def lists(self) -> list[Rights]:
        """Every access list of these rights, but the empty one."""
        options: list[tuple[Right | None, ...]] = [
            (None, *(Right(bits) for bits in some)) for some in self.own
        ]
        options += [(None,)] * (GROUP - len(self.own))
        options.append(
            (
                None,
                *(Right(*some) for some in itertools.product(self.bits, self.ends, self.indices)),
            )
        )
        return [rights for rights in itertools.product(*options) if any(rights)]

    def first(self) -> Iterator[Act]:
        for rights in self.lists:
            yield Act(0, self.times[0], rights, content="new")

    def next(self, versions: int) -> Iterator[Through]:
        """Yield every act after a history, rightful or not."""
        through = [None, *range(1, versions + 1)]
        users, contents = range(self.users), ("keep", "new", "drop")
        for author, at, version in itertools.product(users, self.times, through):
            yield Through(Act(author, at, deletes=True), version)
            for changes_type, content in itertools.product((False, True), contents):
                yield Through(Act(author, at, None, changes_type, content), version)
            for rights, changes_type in itertools.product(self.lists, {False, self.retypes}):
                yield Through(Act(author, at, rights, changes_type), version)


@dataclass(frozen=True, slots=True)
class History:
    """A container with the records by which the judge knows it, and what groups add to it."""

    box: chains.History
    world: World


class Reader:
    """A reader who has verified a group's history: judges records that were made through it."""

    def __init__(self, history: rosters.History) -> None:
        line = history.line()
        self.chain = history.chain
        self.groups = [each.group for each in line]
        self._leaves = [each.sorted_leaves for each in line]
        self._acting: dict[tuple[int, int], judge.Acting | None] = {}

    def via(self, version: int) -> Via:
        """Return how an honest author names a version of the group."""
        moment = self.chain.moments.get(version)
        if moment is None:  # the tombstone
            return Via(chains.GROUP, self.chain.roster.epoch, version, self.chain.head.hash)
        return Via(chains.GROUP, moment.epoch, version, moment.hash)

    def proof(self, version: int, author: int) -> MembershipProof | None:
        """Return the proof of a membership; None if the user is not a member."""
        leaves = self._leaves[version - 1]
        names = [roster.parse_member(each.member).fingerprint for each in leaves]
        if chains.NAMES[author] not in names:
            return None
        return roster.prove(leaves, [names.index(chains.NAMES[author])])[0]

    def drafted(
        self, history: History, tried: Through
    ) -> tuple[ContainerRecord, AccessList | None]:
        """Return the record of an act as an honest client of the author would make it, rightful or not."""
        record, access = chains.drafted(history.box, tried.act)
        if tried.version is None:
            return record, access
        governing = record.governing
        if governing is not None and access is not None:
            governing = structs.replace(governing, accessVia=chains.GROUP)
        return structs.replace(record, via=self.via(tried.version), governing=governing), access

    def is_valid(
        self,
        history: History,
        record: ContainerRecord,
        access: AccessList | None,
        proof: MembershipProof | None,
    ) -> bool:
        """Return whether a reader accepts a record that comes with this proof."""
        acting = None
        try:
            if record.via is not None:
                acting = self.chain.acting(record.via, record.author, proof)
            _judged(history, Known(record, b"?" * 32), access, acting)
        except BrokerError:
            return False
        return True

    def acting(self, version: int, author: int) -> judge.Acting | None:
        """Return for whom an honest author acts; None if they were not a member."""
        if (version, author) not in self._acting:
            proof, name = self.proof(version, author), chains.NAMES[author]
            try:
                found = self.chain.acting(self.via(version), name, proof)
            except BrokerError:
                found = None
            self._acting[version, author] = found
        return self._acting[version, author]


def _judged(
    history: History, known: Known, access: AccessList | None, acting: judge.Acting | None
) -> judge.InForce:
    box = history.box
    return judge.judge_next(known, box.in_force, access, box.head, chains.LATE, acting)


def histories(alphabet: GroupAlphabet, length: int) -> list[rosters.History]:
    """Return all histories of a group that differ in what concerns records made through it."""
    found = dict[tuple[Group, ...], rosters.History]()
    layer: list[rosters.History | None] = [None]
    for depth in range(length):
        after = dict[tuple[Group, ...], rosters.History]()
        for history in layer:
            some = alphabet.next() if depth else alphabet.first()
            for act in some:
                then = rosters.rightful(history.group if history else None, act)
                if then is None:
                    continue
                line = (*(each.group for each in (history.line() if history else ())), then)
                if line not in after:
                    made = rosters.followed(history, rosters.proposed(history, act), then)
                    assert made is not None, (history, act)
                    after[line] = made
        found |= after
        layer = list(after.values())
    return list(found.values())


Forged = tuple[ContainerRecord, MembershipProof | None]
"""A record, and the proof that is served with it."""
Lie = Callable[[Reader, Through, ContainerRecord], Forged | None]


def _lies() -> dict[str, Lie]:
    """Return what can be false in an act through a group; a lie is None where it would change nothing."""

    def proof_of(reader: Reader, tried: Through) -> MembershipProof | None:
        return reader.proof(tried.version or 1, tried.act.author)

    def via(**changes: Callable[[Reader, Via], object]) -> Lie:
        def lie(reader: Reader, tried: Through, record: ContainerRecord) -> Forged | None:
            assert record.via is not None
            changed = {name: change(reader, record.via) for name, change in changes.items()}
            if None in changed.values():
                return None
            false = structs.replace(record.via, **changed)
            return structs.replace(record, via=false), proof_of(reader, tried)

        return lie

    def proof(change: Callable[[MembershipProof], MembershipProof | None]) -> Lie:
        def lie(reader: Reader, tried: Through, record: ContainerRecord) -> Forged | None:
            honest = proof_of(reader, tried)
            assert honest is not None
            return record, change(honest)

        return lie

    def governing(change: Callable[[Governing], bytes | None]) -> Lie:
        def lie(reader: Reader, tried: Through, record: ContainerRecord) -> Forged | None:
            if record.governing is None:
                return None
            false = structs.replace(record.governing, accessVia=change(record.governing))
            return structs.replace(record, governing=false), proof_of(reader, tried)

        return lie

    def another_members(reader: Reader, tried: Through, record: ContainerRecord) -> Forged | None:
        others = [user for user in range(GROUP) if user != tried.act.author]
        found = [reader.proof(tried.version or 1, user) for user in others]
        return next(((record, each) for each in found if each is not None), None)

    def another_versions(reader: Reader, tried: Through, record: ContainerRecord) -> Forged | None:
        moments = reader.chain.moments
        for version, moment in moments.items():
            found = reader.proof(version, tried.act.author)
            if found is not None and moment.members != moments[tried.version or 1].members:
                return record, found
        return None

    return {
        "another record of the group": via(hash=lambda *_: bytes(32)),
        "a version that is not served": via(version=lambda *_: 99),
        "a later epoch": via(epoch=lambda _, v: v.epoch + 1),
        "an earlier epoch": via(epoch=lambda _, v: v.epoch - 1 if v.epoch else None),
        "another group": via(group=lambda *_: bytes(32)),
        "another version's hash": via(
            version=lambda r, v: next((n for n in r.chain.moments if n != v.version), None)
        ),
        "no proof": proof(lambda _: None),
        "another salt": proof(lambda p: p._replace(leaf=SaltedMember(b"?" * 32, p.leaf.member))),
        "another position": proof(lambda p: p._replace(position=p.position + 1)),
        "a longer path": proof(lambda p: p._replace(path=p.path + bytes(32))),
        "another role": proof(_with_role),
        "another member's proof": another_members,
        "a proof of another version": another_versions,
        "access by nobody's group": governing(lambda _: bytes(32)),
        "access through the group, or not": governing(
            lambda g: None if g.accessVia else chains.GROUP
        ),
    }


def _with_role(proof: MembershipProof) -> MembershipProof:
    member = roster.parse_member(proof.leaf.member)
    raised = structs.replace(member, role=(member.role + 1) % 3)
    return proof._replace(leaf=rosters.leaf(raised))


_LIES: Final = _lies()


def search(kept: "Kept", length: int) -> Count:
    """Try all histories; raise `AssertionError` where judge and oracle differ."""
    count, started = Count(), time.monotonic()  # about time
    with rosters.small_times():
        for history in histories(kept.group, kept.versions):
            _search(count, Reader(history), kept.box, length)
    count.seconds = time.monotonic() - started  # about time
    return count


def _search(count: Count, reader: Reader, alphabet: Alphabet, length: int) -> None:
    seen, told, layer = set[World](), set[tuple[object, ...]](), list[History]()
    for act in alphabet.first():
        box = chains.begun(act)
        assert box is not None, act
        layer.append(History(box, World(box.world, 0)))
        seen.add(layer[-1].world)
    for depth in range(2, length + 1):
        before, layer = layer, []
        for history in before:
            for tried in alphabet.next(len(reader.groups)):
                world = _try(count, reader, history, tried)
                if world is None:
                    continue
                kind = _kind(history.world, tried)
                if tried.version is not None and kind not in told:
                    told.add(kind)
                    _lie(count, reader, history, tried)
                if depth < length and world not in seen:
                    layer.append(_followed(reader, history, tried, world))
                seen.add(world)
    count.worlds += len(seen)


def _kind(world: World, tried: Through) -> tuple[object, ...]:
    """Return all that may decide whether a lie about the group in an act is noticed."""
    act, listed = tried.act, world.box.rights[GROUP]
    changes = act.rights is not None, act.changes_type, act.content, act.deletes
    return act.author, tried.version, changes, world.epoch, listed and listed.index


def _try(count: Count, reader: Reader, history: History, tried: Through) -> World | None:
    """Return the world after an act, on which judge and oracle must agree; None if they refuse it."""
    count.acts += 1
    try:
        _judged(history, *_record(reader, history, tried))
        is_accepted = True
    except BrokerError:
        is_accepted = False
    world = rightful(reader.groups, history.world, tried)
    assert is_accepted == (world is not None), (reader.groups, history.world, tried)
    if world is not None:
        count.accepted += 1
        _check_key(reader, history, tried)
    return world


def _record(
    reader: Reader, history: History, tried: Through
) -> tuple[Known, AccessList | None, judge.Acting | None]:
    record, access = reader.drafted(history, tried)
    version = tried.version
    acting = None if version is None else reader.acting(version, tried.act.author)
    return Known(record, b"?" * 32), access, acting


def _followed(reader: Reader, history: History, tried: Through, world: World) -> History:
    nameless, access, acting = _record(reader, history, tried)
    record = nameless.record
    known = Known(record, record_hash(encode_object(record)))
    in_force = _judged(history, known, access, acting)
    return History(chains.History(world.box, known, in_force, history.box.number + 1), world)


def _check_key(reader: Reader, history: History, tried: Through) -> None:
    """Check that new content, by a writer who renews where needed, is for members alone (section 7)."""
    listed = history.world.box.rights[GROUP]
    is_old = listed is not None and listed.index != reader.groups[-1].epoch
    if tried.act.content != "new" or is_old or history.box.in_force.needs_renewal(tried.act.time):
        return
    may = members(reader.groups, history.world, tried.act.time)
    assert key_holders(reader.groups, history.world) <= may, (reader.groups, history.world, tried)


def _lie(count: Count, reader: Reader, history: History, tried: Through) -> None:
    record, access = reader.drafted(history, tried)
    for name, lie in _LIES.items():
        false = lie(reader, tried, record)
        if false is not None:
            count.lies += 1
            is_accepted = reader.is_valid(history, false[0], access, false[1])
            assert not is_accepted, f"{name}: {reader.groups}: {history.world}: {tried}"


@dataclass(frozen=True)
class Kept:
    """A search: the histories of the group, up to so many records, and the acts on the container."""

    group: GroupAlphabet
    versions: int
    box: Alphabet


_ROLES_THAT_WRITE: Final = (rosters.WRITER, rosters.SHARER)
_SHARE: Final = _WRITE | acts.MODIFY_ACCESS
_OWNER: Final = (acts.EVERYTHING,)
KEPT: Final[Mapping[str, Kept]] = {
    "short": Kept(
        GroupAlphabet(users=2, roles=_ROLES_THAT_WRITE, times=(1,), is_owned_by_first=True),
        2,
        Alphabet((_SHARE, acts.EVERYTHING), (_OWNER,), times=(0, 1, 2)),
    ),
    "two users": Kept(
        GroupAlphabet(users=2, is_owned_by_first=True),
        3,
        Alphabet((_SHARE, acts.EVERYTHING), (_OWNER,), ends=(FOREVER, 2), times=(0, 1, 2, 3)),
    ),
    "three users": Kept(
        GroupAlphabet(roles=_ROLES_THAT_WRITE, times=(1,), is_owned_by_first=True),
        2,
        Alphabet((acts.EVERYTHING,), (_OWNER,), times=(0, 1, 2), users=3),
    ),
}
