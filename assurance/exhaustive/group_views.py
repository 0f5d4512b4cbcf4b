"""Serve members every mixture of records and of histories of their group, and check what they believe.

A tree of histories grows from one container that a group can reach: a few acts, rightful or not, follow each
record, before and after the group removed a member. The broker serves any mixture of records, as in `views`,
with any history of the group that goes on from what the device has verified: one that ends before the
removal, one that has it, or another record of the same version. A member may believe only what rightful acts
lead to, by the history of the group that they were served. Then every two containers are read one after the
other: what the first one has exposed holds for the second one.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

from assurance.exhaustive import acts, chains, groups, rosters, views
from assurance.exhaustive.acts import Act, Right
from assurance.exhaustive.chains import BOX, GROUP, LATE, NAMES, Count
from assurance.exhaustive.groups import History, Reader, Through, World
from assurance.exhaustive.rosters import OWNER, SHARER, WRITER, GroupAct, Membership
from scbroker.client.core.judging import Evidence, Mark, State
from scbroker.records.container_record import Link, bare_body, record_hash
from scbroker.records.roster import MembershipProof
from scbroker.wire import rosters as wire
from scbroker.wire.containers import GoverningView, SignedRecord

ALICE, BOB, CAROL = range(3)
_MANAGERS: Final = (OWNER, 0, 0)
_SHARER, _WRITER = Membership(SHARER), Membership(WRITER)
_EVERYTHING: Final = Right(acts.EVERYTHING)
_START: Final = (_EVERYTHING, None, None, _EVERYTHING)
_WITH_BOB: Final = (_EVERYTHING, _EVERYTHING, None, _EVERYTHING)
_RENEWED: Final = (_EVERYTHING, None, None, Right(acts.EVERYTHING, index=1))
_BEGIN, _REMOVED, _AGAIN, _RENAMED = "with Bob", "without Bob", "without Bob again", "renamed"
_KEYS: Final[Any] = dict.fromkeys(NAMES, mock.sentinel.chain)


def branches() -> dict[str, Reader]:
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

    everybody = (_SHARER, _SHARER, _WRITER)
    begun = followed(None, GroupAct(ALICE, 1, _MANAGERS, everybody))
    removal = GroupAct(ALICE, 2, None, (_SHARER, None, _WRITER), is_fresh=True)
    found = {
        _BEGIN: begun,
        _REMOVED: followed(begun, removal),
        _AGAIN: followed(begun, removal, info=bytes(32)),
        _RENAMED: followed(begun, GroupAct(ALICE, 2, None, everybody)),
    }
    return {name: Reader(history) for name, history in found.items()}


@dataclass(eq=False)
class Node(views.Planted):
    history: History
    tried: Through
    proof: MembershipProof | None = None

    @property
    def governs(self) -> bool:
        return self.record.governing is not None

    def may_follow(self, reader: Reader, *, at_hand: bool) -> bool:
        """Whether its author may write it, by the group's history and as far as the parent is at hand."""
        if self.parent is None:
            return True
        via, world = self.record.via, self.parent.history.world
        if via is not None and reader.chain.hash_at(via.version) != via.hash:
            return False
        if not (at_hand or self.parent.governs):
            since = self.parent.history.world.box.granted_at
            world = replace(world, box=replace(world.box, time=since), epoch=-1)
        return groups.rightful(reader.groups, world, self.tried) is not None

    def may_be_passed(self) -> bool:
        """Return whether a reader with an older mark may pass it by, if it changed nothing that governs."""
        assert self.parent is not None
        before = self.parent.history.world
        epoch = self.record.via.epoch if self.record.via else before.epoch
        is_older = self.record.time < before.box.time or -1 < epoch < before.epoch
        return not (is_older or self.parent.record.tombstone)

    def is_believable(self, reader: Reader, mark: "Node | None") -> bool:
        """Return whether a reader with this mark, or none, believes all that leads to this record."""
        seen = mark.version if mark else 0
        walked = mark is not None and not self.record.tombstone
        for node in self.path:
            if node.version <= seen:
                continue
            if node.governs or node is self:
                if not node.may_follow(reader, at_hand=walked):
                    return False
            elif walked and not node.may_be_passed():
                return False
        return True

    def unsettled(self, reader: Reader, mark: "Node | None") -> Link | None:
        """Return the newest change of access since the mark by somebody who lost the right to make it."""
        found = None
        for node in self.path:
            via = node.record.via
            if mark is None or node.version <= mark.version or via is None:
                continue
            if node.record.changes_access and via.epoch < reader.groups[-1].epoch:
                then = reader.groups[via.version - 1].members[node.tried.act.author]
                now = reader.groups[-1].members[node.tried.act.author]
                if now is None or (then is not None and now.role < then.role):
                    found = Link(node.version, record_hash(node.body))
        return found


def tree(length: int, known: Mapping[str, Reader]) -> list[Node]:
    """Return all histories of up to `length` records that the acts of three users lead to."""
    first = Act(ALICE, 1, _START, content="new")
    box = chains.begun(first)
    assert box is not None
    history = History(box, World(box.world, ALICE))
    root = Node(box.head.record, history, Through(first, None))
    return views.grown(root, length, lambda node: _children(node, known))


def _children(node: Node, known: Mapping[str, Reader]) -> Iterator[Node]:
    for act, version, branch in (
        (Act(ALICE, 2, content="new"), None, _BEGIN),
        (Act(ALICE, 2, _RENEWED), None, _BEGIN),
        (Act(BOB, 1, content="new"), 1, _BEGIN),
        (Act(BOB, 4, content="new"), 1, _BEGIN),
        (Act(BOB, 2, _WITH_BOB), 1, _BEGIN),
        (Act(BOB, 2, deletes=True), 1, _BEGIN),
        (Act(CAROL, 2, changes_type=True), 1, _BEGIN),
        (Act(CAROL, 2, _WITH_BOB), 1, _BEGIN),
        (Act(CAROL, 4, content="new"), 2, _REMOVED),
        (Act(CAROL, 4, content="new"), 2, _AGAIN),
    ):
        yield _child(node, Through(act, version), known[branch])


def _child(node: Node, tried: Through, reader: Reader) -> Node:
    """Add a record to the tree that an author drafts who knows this history of the group."""
    before, act = node.history, tried.act
    record, access = reader.drafted(before, tried)
    proof = None if tried.version is None else reader.proof(tried.version, act.author)
    known, in_force = views.forced(before.box, record, access)
    # Acts of different nodes must not make the same record.
    number = before.box.number * 10 + len(node.children) + 1
    world = before.world
    maker = act.author if tried.version is None else groups.GROUP
    box = replace(
        world.box,
        rights=act.rights or world.box.rights,
        granted_by=maker if act.rights else world.box.granted_by,
        granted_at=act.time if record.governing else world.box.granted_at,
        time=act.time,
        is_governing=record.governing is not None,
        has_content=record.content is not None,
        is_deleted=act.deletes,
    )
    epoch = record.via.epoch if record.via else -1
    after = World(box, act.author if act.rights else world.maker, epoch)
    history = History(chains.History(box, known, in_force, number), after)
    child = Node(record, history, tried, proof, parent=node)
    node.children.append(child)
    return child


@dataclass(frozen=True)
class Served:
    """The answer of a broker: records as in `views`, and a history of the group."""

    views: Sequence[Node]
    between: Sequence[Node]
    head: Node
    group: Reader
    proofs: Mapping[Node, MembershipProof | None] = field(default_factory=dict)
    """False ones, in place of the honest ones."""
    standing: bool = True
    """Whether the broker proves who still is a member."""

    def membership(self, node: Node) -> wire.Membership | None:
        proof = self.proofs.get(node, node.proof)
        return None if proof is None else wire.Membership.of(proof)

    def standing_of(self, node: Node) -> wire.Membership | None:
        author = node.tried.act.author
        proof = self.group.proof(len(self.group.groups), author) if self.standing else None
        return None if proof is None else wire.Membership.of(proof)


def believed(reader: int, mark: Mark | None, served: Served) -> State | None:
    """Return what a reader believes of an answer; None if the reader refuses it.

    Alice reads by her own entry, Carol through the group.
    """
    is_deleted = served.head.record.tombstone
    found, lists = list[GoverningView](), set[int]()
    for node in served.views:
        governing = node.record.governing
        if governing is None:
            return None  # a reader refuses it, as `judge.governing_of` raises
        version, listed = governing.accessVersion, None
        if version not in lists:
            lists.add(version)
            listed = views.disclosed(node.history.world.box.rights, chains.LISTED)
        body = bare_body(node.body) if is_deleted else node.body
        found.append(
            GoverningView(
                record=SignedRecord(body=body, signature=node.signed.signature),
                accessList=listed,
                membership=served.membership(node),
                standing=served.standing_of(node),
            )
        )
    head = None if served.views and served.views[-1] is served.head else served.head.signed
    name, role = (NAMES[ALICE], None) if reader == ALICE else (GROUP, WRITER)
    evidence = Evidence(
        BOX, name, found, head, None, _KEYS, mark, LATE, role=role,
        groups={GROUP: served.group.chain}, membership=served.membership(served.head),
    )  # fmt: skip
    nodes = [*served.between, *served.views]
    return views.judged(evidence, mark, nodes, is_deleted=is_deleted)


def honest(node: Node, mark: Mark | None, group: Reader) -> Served:
    return Served(*views.honest_records(node, mark), node, group)


Marked = tuple[Node | None, Mark | None, str]
"""The mark of a device, and the history of the group that it has verified."""


def search(length: int) -> Count:
    """Serve all mixtures; raise `AssertionError` where a reader believes what does not follow."""
    count, started = Count(), time.monotonic()  # about time
    with rosters.small_times(), views.names_for_signatures():
        known = branches()
        nodes = tree(length, known)
        count.worlds = len(nodes)
        for reader in (ALICE, CAROL):
            marked = list(_marked(count, reader, nodes, known))
            for (at, mark, verified), head in itertools.product(marked, nodes):
                for name in _continuing(verified):
                    _check_honest(count, reader, (at, mark, name), head, known[name])
                    for some, chosen in views.mixtures(mark, head, nodes):
                        served = Served(some, chosen, head, known[name])
                        count.acts += 1
                        state = believed(reader, mark, served)
                        if state is not None:
                            count.accepted += 1
                            _check_believed(at, served, state)
        _check_two_containers(count, nodes, known)
    count.seconds = time.monotonic() - started  # about time
    return count


def _continuing(verified: str) -> list[str]:
    """Return the histories of the group that go on from a verified one: a device refuses all others."""
    return [_BEGIN, _REMOVED, _AGAIN, _RENAMED] if verified == _BEGIN else [verified]


def _marked(
    count: Count, reader: int, nodes: Sequence[Node], known: Mapping[str, Reader]
) -> Iterator[Marked]:
    yield None, None, _BEGIN
    for node, (name, group) in itertools.product(nodes, known.items()):
        count.acts += 1
        state = believed(reader, None, honest(node, None, group))
        is_served = node.is_believable(group, None) and _is_listed(reader, node)
        assert (state is not None) == is_served, (reader, name, node.record)
        if state is not None:
            yield node, state.mark, name


def _is_listed(reader: int, node: Node) -> bool:
    rights = node.history.world.box.rights[ALICE if reader == ALICE else groups.GROUP]
    return node.record.tombstone or rights is not None


def _check_honest(count: Count, reader: int, marked: Marked, head: Node, group: Reader) -> None:
    """Check that a reader believes an honest broker exactly if the head follows from the mark.

    No judged record is believed with the proof of another membership, or without one.
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
    for node in {*served.views, head}:
        is_judged = at is None or node.version > at.version
        if node.record.via is None or not is_judged:
            continue
        for author in (None, ALICE, CAROL, BOB):
            if author == node.tried.act.author:
                continue
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
    head, group = served.head, served.group
    assert state.governing.known.hash == head.governing[-1].history.box.head.hash, (
        "another governing record"
    )
    if at is head:
        return
    assert head.is_believable(group, at), "a record that its author may not write"
    if at is None:
        return
    if head.record.tombstone:
        # A deletion may leave out changes of content alone: container.md, section 8.
        assert at.governing[-1] in head.governing, "a deletion that leaves out a governing record"
    else:
        assert at in head.path, "a history without the mark's record"


def _check_two_containers(count: Count, nodes: Sequence[Node], known: Mapping[str, Reader]) -> None:
    """Check that a removal which one container has exposed holds in every other one.

    Both containers have the same tree here: an act in one does not depend on the other.
    """
    first = {
        (node, name)
        for node, (name, group) in itertools.product(nodes, known.items())
        if believed(CAROL, None, honest(node, None, group)) is not None
    }
    for (one, verified), other in itertools.product(first, nodes):
        named = _second_records(one)
        assert not named or verified != _BEGIN, "a version of the group that was not served"
        for name in _continuing(verified):
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
    return any(node.tried.act.author == BOB and node.record.time > 3 for node in judged)
