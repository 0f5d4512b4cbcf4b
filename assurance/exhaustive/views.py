"""Serve readers every mixture of the histories in a tree, and check which mixtures they believe.

A tree of histories grows from one container: a few acts, rightful or not, follow each record. The broker
claims that one record is the head. For each version before it the broker serves a record from anywhere in
the tree, as a governing record or as one that changed nothing. Each reader has a mark of any record, or none,
and may believe only what follows from the mark by rightful acts.

`ALONE` is a container whose users act by their own entries: one reader sees the whole access list, the
other one only the entries of authors. `THROUGH` is one that a group can reach, before and after it removed
a member. The broker also serves any history of the group that goes on from what the device has verified: one
that ends before the removal, one that has it, or another record of the same version. Then every two
containers are read one after the other: what the first one has exposed holds for the second one.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final
from unittest import mock

from assurance.exhaustive import acts, chains, rosters
from assurance.exhaustive.acts import SHARER, WRITER, Act, Membership, Right, Rights, World
from assurance.exhaustive.chains import BOX, GROUP, LATE, LISTED, NAMES, Count, History
from assurance.exhaustive.groups import Reader
from assurance.exhaustive.rosters import OWNER, GroupAct
from scbroker.client.core.judging import Evidence, Mark, State, Walk
from scbroker.errors import BrokerError, IntegrityError
from scbroker.records import judge
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.container_record import (
    ContainerRecord,
    Link,
    SaltedEntry,
    bare_body,
    parse_either,
    record_hash,
)
from scbroker.records.judge import InForce, Known
from scbroker.records.key_record import KeyChain, Signed
from scbroker.records.roster import MembershipProof
from scbroker.wire import rosters as wire
from scbroker.wire.containers import GoverningView, ListView, SignedRecord

ALICE, BOB, CAROL = range(3)
_CHAINS: Final[Any] = dict.fromkeys(NAMES, mock.sentinel.chain)
_NO_GROUP: Final = ""
_BEGIN, _REMOVED, _AGAIN, _RENAMED = "with Bob", "without Bob", "without Bob again", "renamed"
Groups = Mapping[str, Reader | None]
"""The histories of the group that a broker can serve, by name."""


@dataclass(frozen=True)
class Scene:
    """A container, those who read it, and what is tried after each record of it."""

    start: Rights
    readers: Sequence[int]
    """The places of the entries by which they read; Carol reads through the group."""
    next: Callable[[World], Iterator[tuple[Act, str]]]
    """Yield acts, and the history of the group that their authors know."""
    groups: Callable[[], Groups]
    continuing: Mapping[str, Sequence[str]]
    """The histories of the group that go on from a verified one: a device refuses all others."""


def _alone(world: World) -> Iterator[tuple[Act, str]]:
    without_bob = Right(acts.EVERYTHING), Right(acts.WRITE), Right(acts.READ)
    for act in (
        Act(ALICE, world.time, content="new"),
        Act(BOB, world.time, content="drop"),
        Act(CAROL, world.time, content="new"),
        Act(BOB, world.time, world.rights),
        Act(ALICE, world.time, without_bob),
        Act(ALICE, world.time, changes_type=True),
        Act(BOB, world.time, changes_type=True),
        Act(ALICE, world.time, deletes=True),
        Act(CAROL, world.time, deletes=True),
    ):
        yield act, _NO_GROUP


def _no_group() -> Groups:
    return {_NO_GROUP: None}


ALONE: Final = Scene(
    (Right(acts.EVERYTHING), Right(acts.WRITE | acts.MODIFY_ACCESS), Right(acts.READ)),
    (BOB, CAROL),
    _alone,
    _no_group,
    {_NO_GROUP: [_NO_GROUP]},
)
_ALL: Final = Right(acts.EVERYTHING)


def _through(_: World) -> Iterator[tuple[Act, str]]:
    with_bob, renewed = (_ALL, _ALL, None, _ALL), (_ALL, None, None, replace(_ALL, index=1))
    yield Act(ALICE, 2, content="new"), _BEGIN
    yield Act(ALICE, 2, renewed), _BEGIN
    yield Act(BOB, 1, content="new", version=1), _BEGIN
    yield Act(BOB, 4, content="new", version=1), _BEGIN
    yield Act(BOB, 2, with_bob, version=1), _BEGIN
    yield Act(BOB, 2, deletes=True, version=1), _BEGIN
    yield Act(CAROL, 2, changes_type=True, version=1), _BEGIN
    yield Act(CAROL, 2, with_bob, version=1), _BEGIN
    yield Act(CAROL, 4, content="new", version=2), _REMOVED
    yield Act(CAROL, 4, content="new", version=2), _AGAIN


def branches() -> Groups:
    """Return the group's histories: before Bob was removed, after it, and with another record instead.

    Alice signs several records of version 2: a broker may keep one that it refused.
    """

    def followed(
        history: rosters.History | None, act: GroupAct, **changes: bytes
    ) -> rosters.History:
        then = rosters.rightful(history.group if history else None, act)
        assert then is not None, act
        proposal = rosters.proposed(history, act, roster=changes)
        after = rosters.followed(history, proposal, then)
        assert after is not None, act
        return after

    sharer, writer = Membership(SHARER), Membership(WRITER)
    everybody = (sharer, sharer, writer)
    begun = followed(None, GroupAct(ALICE, 1, (OWNER, 0, 0), everybody))
    removal = GroupAct(ALICE, 2, None, (sharer, None, writer), is_fresh=True)
    found = {
        _BEGIN: begun,
        _REMOVED: followed(begun, removal),
        _AGAIN: followed(begun, removal, info=bytes(32)),
        _RENAMED: followed(begun, GroupAct(ALICE, 2, None, everybody)),
    }
    return {name: Reader(history) for name, history in found.items()}


THROUGH: Final = Scene(
    (_ALL, None, None, _ALL),
    (ALICE, acts.GROUP),
    _through,
    branches,
    {
        _BEGIN: [_BEGIN, _REMOVED, _AGAIN, _RENAMED],
        **{name: [name] for name in (_REMOVED, _AGAIN, _RENAMED)},
    },
)


# The tree


@dataclass(eq=False)
class Node:
    """A record in a tree, with all that it builds on, whether or not a reader should believe it."""

    record: ContainerRecord
    history: History
    act: Act
    proof: MembershipProof | None = None
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)

    @cached_property
    def body(self) -> bytes:
        return encode_object(self.record)

    @cached_property
    def path(self) -> "list[Node]":
        """The records from the first to this one."""
        return [*(self.parent.path if self.parent else ()), self]

    @property
    def version(self) -> int:
        return self.record.version

    @property
    def governs(self) -> bool:
        return self.record.governing is not None

    @cached_property
    def governing(self) -> "list[Node]":
        return [node for node in self.path if node.governs]

    @property
    def names(self) -> set[bytes]:
        """The names in a list by which its author acted."""
        return {self.record.author} | ({self.record.via.group} if self.record.via else set())

    def may_follow(self, group: Reader | None, *, at_hand: bool) -> bool:
        """Its author may write it, by the group's history and, if the parent is known, after it."""
        if self.parent is None:
            return True
        via, world = self.record.via, self.parent.history.world
        if via is not None and (group is None or group.chain.hash_at(via.version) != via.hash):
            return False
        if not (at_hand or self.parent.governs):
            world = replace(world, time=world.granted_at, epoch=-1)
        groups = () if group is None else group.groups
        return acts.rightful(world, self.act, groups) is not None

    def may_be_passed(self) -> bool:
        """Return whether a reader with an older mark may pass it by, if it changed nothing that governs."""
        assert self.parent is not None
        before = self.parent.history.world
        epoch = self.record.via.epoch if self.record.via else before.epoch
        is_older = self.record.time < before.time or -1 < epoch < before.epoch
        return not (is_older or self.parent.record.tombstone)

    def is_believable(self, group: Reader | None, mark: "Node | None") -> bool:
        """Return whether a reader with this mark, or none, believes all that leads to this record."""
        walked = mark is not None and not self.record.tombstone
        for node in self.path:
            if mark is not None and node.version <= mark.version:
                continue
            if node.governs or node is self:
                if not node.may_follow(group, at_hand=walked):
                    return False
            elif walked and not node.may_be_passed():
                return False
        return True

    def unsettled(self, group: Reader | None, mark: "Node | None") -> Link | None:
        """Return the newest change of access since the mark by somebody who lost the right to make it."""
        found = None
        for node in self.path:
            via = node.record.via
            if mark is None or node.version <= mark.version or via is None or group is None:
                continue
            if node.record.changes_access and via.epoch < group.groups[-1].epoch:
                then = group.groups[via.version - 1].members[node.act.author]
                now = group.groups[-1].members[node.act.author]
                if now is None or (then is not None and now.role < then.role):
                    found = Link(node.version, record_hash(node.body))
        return found


def tree(scene: Scene, length: int, known: Groups) -> list[Node]:
    """Return all histories of up to `length` records that the acts of three users lead to."""
    first = Act(ALICE, 1, scene.start, content="new")
    history = chains.begun(first)
    assert history is not None
    found = layer = [Node(history.head.record, history, first)]
    for _ in range(1, length):
        layer = [
            _child(node, act, known[name])
            for node in layer
            if not node.record.tombstone
            for act, name in scene.next(node.history.world)
        ]
        found = found + layer
    return found


def _child(node: Node, act: Act, group: Reader | None) -> Node:
    """Add a record to the tree that an author drafts who knows this history of the group."""
    before = node.history
    record, access = chains.drafted(before, act, group)
    proof = None
    if group is not None and act.version is not None:
        proof = group.proof(act.version, act.author)
    known, in_force = chains.known_of(record), before.in_force
    if record.governing is not None:
        since = in_force.since if access is None else record.time
        in_force = InForce(known, access or in_force.access, since)
    # Acts of different nodes must not make the same record.
    number = before.number * 10 + len(node.children) + 1
    after = acts.imposed(before.world, act, () if group is None else group.groups)
    child = Node(record, History(after, known, in_force, number), act, proof, node)
    node.children.append(child)
    return child


# Served views


@dataclass(frozen=True)
class Served:
    """The answer of a broker: governing records, the bodies between mark and head, the head, and a group."""

    views: Sequence[Node]
    between: Sequence[Node]
    head: Node
    group: Reader | None
    proofs: Mapping[Node, MembershipProof | None] = field(default_factory=dict)
    """False ones, in place of the honest ones."""
    hides_entries: bool = False
    standing: bool = True
    """The broker proves who is still a member."""

    def membership(self, node: Node) -> wire.Membership | None:
        return _sent(self.proofs.get(node, node.proof))

    def standing_of(self, node: Node) -> wire.Membership | None:
        if self.group is None or not self.standing:
            return None
        return _sent(self.group.proof(len(self.group.groups), node.act.author))

    def disclosed(self, node: Node, reader: int) -> ListView:
        """Return the list of a record as it is disclosed to a reader."""
        rights = node.history.world.rights
        names = set[bytes]().union(*(each.names for each in (*self.views, self.head)))
        own = None if self.head.record.tombstone else rights[reader]
        if own is not None:
            sees_all = own.bits & acts.VIEW_ACCESS and not self.hides_entries
            names |= {*LISTED} if sees_all else {LISTED[reader]}
        entries = chains.list_of(rights).entries
        salted = [SaltedEntry(bytes(32), encode_value(entry)) for entry in entries.values()]
        return ListView.of(salted, [n for n, name in enumerate(entries) if name in names])


def _sent(proof: MembershipProof | None) -> wire.Membership | None:
    return None if proof is None else wire.Membership.of(proof)


def honest(node: Node, mark: Mark | None, group: Reader | None) -> Served:
    """Return what an honest broker serves of a head: the governing records, and the bodies before it."""
    governing = node.governing
    if mark is not None and mark.complete:
        last = max(each.version for each in governing if each.version <= mark.version)
        governing = [each for each in governing if each.version >= last]
    between = [] if mark is None else [n for n in node.path if n.version >= mark.version]
    return Served(governing, between, node, group)


def mixtures(
    mark: Mark | None, head: Node, nodes: Sequence[Node], group: Reader | None
) -> Iterator[Served]:
    """Yield every choice of a body for each version before the head, and of which are served as governing."""
    begin = 1 if mark is None or not mark.complete else mark.governingVersion
    versions = [[node for node in nodes if node.version == n] for n in range(begin, head.version)]
    for chosen in itertools.product(*versions):
        for flags in itertools.product((False, True), repeat=len(chosen) + 1):
            views = [n for n, is_view in zip([*chosen, head], flags, strict=True) if is_view]
            if views:
                yield Served(views, chosen, head, group)


@contextmanager
def names_for_signatures() -> Iterator[None]:
    """Take the name of a record's author for its signature: so nobody can sign for others."""

    def verify(known: Known, signature: bytes, chain: KeyChain) -> None:
        del chain
        if signature != known.record.author:
            raise IntegrityError("Not the author's signature.")

    with mock.patch.object(judge, "verify_author", verify):
        yield


def believed(reader: int, mark: Mark | None, served: Served) -> State | None:
    """Return what a reader believes of an answer; None if the reader refuses it."""
    head = served.head
    is_deleted = head.record.tombstone
    views, lists = list[GoverningView](), set[int]()
    for node in served.views:
        governing = node.record.governing
        if governing is None:
            return None  # a reader refuses it, as `judge.governing_of` raises
        version, listed = governing.accessVersion, None
        if version not in lists:
            lists.add(version)
            listed = served.disclosed(node, reader)
        body = bare_body(node.body) if is_deleted else node.body
        views.append(
            GoverningView(
                record=SignedRecord(body=body, signature=node.record.author),
                accessList=listed,
                membership=served.membership(node),
                standing=served.standing_of(node),
            )
        )
    last = None
    if not served.views or served.views[-1] is not head:
        last = Signed(head.body, head.record.author)
    evidence = Evidence(
        BOX, LISTED[reader], views, last, None, _CHAINS, mark, LATE,
        role=WRITER if reader == acts.GROUP else None,
        groups={} if served.group is None else {GROUP: served.group.chain},
        membership=served.membership(head),
    )  # fmt: skip
    try:
        version = parse_either(evidence.last).record.version
        if mark is not None and version > mark.version and not is_deleted:
            walk = Walk(mark, evidence.served(), version, LATE)
            bodies = {node.version: node.body for node in (*served.between, *served.views)}
            bodies[version] = evidence.last
            while walk.next_version <= version:
                walk.step(bodies[walk.next_version])
            evidence = replace(evidence, walk=walk)
        return evidence.judge()
    except (BrokerError, KeyError):
        return None


# The search


Marked = tuple[Node | None, Mark | None, str]
"""The mark of a device, and the history of the group that it has verified."""


def search(scene: Scene, length: int) -> Count:
    """Serve all mixtures; raise `AssertionError` where a reader believes what does not follow."""
    count, started = Count(), time.monotonic()  # about time
    with rosters.small_times(), names_for_signatures():
        known = scene.groups()
        nodes = tree(scene, length, known)
        count.worlds = len(nodes)
        for reader in scene.readers:
            marked = list(_marked(count, reader, nodes, known))
            for (at, mark, verified), head in itertools.product(marked, nodes):
                for name in scene.continuing[verified]:
                    _check_honest(count, reader, (at, mark, name), head, known[name])
                    for served in mixtures(mark, head, nodes, known[name]):
                        count.acts += 1
                        state = believed(reader, mark, served)
                        if state is not None:
                            count.accepted += 1
                            _check_believed(at, served, state)
        if scene == THROUGH:
            _check_two_containers(count, nodes, known)
    count.seconds = time.monotonic() - started  # about time
    return count


def _marked(count: Count, reader: int, nodes: Sequence[Node], known: Groups) -> Iterator[Marked]:
    yield None, None, next(iter(known))
    for node, (name, group) in itertools.product(nodes, known.items()):
        count.acts += 1
        state = believed(reader, None, honest(node, None, group))
        is_served = node.is_believable(group, None) and _is_listed(reader, node)
        assert (state is not None) == is_served, (reader, name, node.record)
        if state is not None:
            yield node, state.mark, name


def _is_listed(reader: int, node: Node) -> bool:
    return node.record.tombstone or node.history.world.rights[reader] is not None


def _check_honest(
    count: Count, reader: int, marked: Marked, head: Node, group: Reader | None
) -> None:
    """Check that a reader believes an honest broker exactly if the head follows from the mark.

    No judged record is believed with the proof of another membership, or without one. No entry may be hidden
    from a reader who may see them all.
    """
    at, mark, _ = marked
    if not _is_listed(reader, head) or (at is not None and at not in head.path):
        return
    served = honest(head, mark, group)
    state = believed(reader, mark, served)
    is_believable = head.is_believable(group, at)
    assert (state is not None) == is_believable, (marked, head.record)
    if state is None:
        return
    assert state.unsettled == head.unsettled(group, at), (marked, head.record)
    if group is None:
        if reader == BOB and at is not head and not head.record.tombstone:
            # Alice's and Bob's own entries are disclosed anyway; Carol's may be.
            names = set[bytes]().union(*(node.names for node in (*served.views, head)))
            is_hidden = believed(reader, mark, replace(served, hides_entries=True)) is None
            assert is_hidden == (not names >= {NAMES[ALICE], NAMES[CAROL]}), head.record
        return
    for node in {*served.views, head}:
        is_judged = at is None or node.version > at.version
        if node.record.via is None or not is_judged:
            continue
        for author in {None, ALICE, CAROL, BOB} - {node.act.author}:
            proof = None if author is None else group.proof(node.record.via.version, author)
            count.lies += 1
            false = replace(served, proofs={node: proof})
            assert believed(reader, mark, false) is None, (marked, head.record, author)
    count.lies += 1
    silent = believed(reader, mark, replace(served, standing=False))
    assert silent is not None, head.record
    assert silent.unsettled or not state.unsettled, "an unsettled access that the broker settles"


def _check_believed(at: Node | None, served: Served, state: State) -> None:
    """Check that what a reader believes follows from the mark, and that nothing in force was hidden."""
    head = served.head
    assert state.governing.known.hash == head.governing[-1].history.head.hash, (
        "another governing record"
    )
    if at is head:
        return
    assert head.is_believable(served.group, at), "a record that its author may not write"
    if at is None:
        return
    if head.record.tombstone:
        # A deletion may leave out changes of content alone: container.md, section 8.
        assert at.governing[-1] in head.governing, "a deletion that leaves out a governing record"
    else:
        assert at in head.path, "a history without the mark's record"


def _check_two_containers(count: Count, nodes: Sequence[Node], known: Groups) -> None:
    """Check that a removal which one container has exposed holds in every other one.

    Both containers have the same tree here: an act in one does not depend on the other.
    """
    first = {
        (node, name)
        for node, (name, group) in itertools.product(nodes, known.items())
        if believed(acts.GROUP, None, honest(node, None, group)) is not None
    }
    for (one, verified), other in itertools.product(first, nodes):
        named = _second_records(one)
        assert not named or verified != _BEGIN, "a version of the group that was not served"
        for name in THROUGH.continuing[verified]:
            count.acts += 1
            if (other, name) not in first:
                continue
            count.accepted += 1
            assert len(named | _second_records(other)) < 2, (
                "two records of the group in one version"
            )
            if named and name != _RENAMED:
                assert not _is_late(other), (one.record, other.record)


def _second_records(head: Node) -> set[bytes]:
    """Return the hashes of the group's version 2 that judged records name."""
    vias = [node.record.via for node in [*head.governing, head]]
    return {via.hash for via in vias if via is not None and via.version == 2}


def _is_late(head: Node) -> bool:
    """Return whether a judged record is by Bob, and later than a record of an ended epoch may be."""
    judged = [*head.governing, head]
    return any(node.act.author == BOB and node.record.time > 3 for node in judged)
