"""Serve readers every mixture of the histories in a tree, and check which mixtures they believe.

A tree of histories grows from one container: a few acts, rightful or not, follow each record. The broker
claims that one record is the head. For each version before it the broker serves a record from anywhere in
the tree, as a governing record or as one that changed nothing. One reader sees the whole access list, the
other one only the entries of authors; each has a mark of any record, or none. A reader may believe only
what follows from the mark by rightful acts.
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Self, TypeVar
from unittest import mock

from assurance.exhaustive import acts
from assurance.exhaustive.acts import Act, Right
from assurance.exhaustive.chains import BOX, LATE, NAMES, Count, History, begun, drafted, list_of
from scbroker.client.core.judging import Evidence, Mark, State, Walk
from scbroker.errors import BrokerError, IntegrityError
from scbroker.records import judge
from scbroker.records.canonical import encode_object, encode_value
from scbroker.records.container_record import (
    AccessList,
    ContainerRecord,
    SaltedEntry,
    bare_body,
    parse_either,
    record_hash,
)
from scbroker.records.judge import InForce, Known
from scbroker.records.key_record import KeyChain, Signed
from scbroker.wire.containers import GoverningView, ListView, SignedRecord

OWNER, WRITER, READER = range(3)
_START: Final = (Right(acts.EVERYTHING), Right(acts.WRITE | acts.MODIFY_ACCESS), Right(acts.READ))
_WITHOUT_WRITER: Final = (Right(acts.EVERYTHING), Right(acts.WRITE), Right(acts.READ))


@dataclass(eq=False)
class Planted:
    """A record in a tree, with all that it builds on, whether or not a reader should believe it."""

    record: ContainerRecord
    parent: Self | None = field(default=None, kw_only=True)
    children: list[Self] = field(default_factory=list, kw_only=True)

    @cached_property
    def body(self) -> bytes:
        return encode_object(self.record)

    @cached_property
    def signed(self) -> Signed:
        return Signed(self.body, self.record.author)

    @cached_property
    def path(self) -> list[Self]:
        """The records from the first to this one."""
        return [*(self.parent.path if self.parent else ()), self]

    @property
    def version(self) -> int:
        return self.record.version

    @cached_property
    def governing(self) -> list[Self]:
        return [node for node in self.path if node.record.governing is not None]


P = TypeVar("P", bound=Planted)


def grown(root: P, length: int, children: Callable[[P], Iterable[P]]) -> list[P]:
    """Return all records of a tree of histories of up to `length` records."""
    found = layer = [root]
    for _ in range(1, length):
        layer = [child for node in layer if not node.record.tombstone for child in children(node)]
        found = found + layer
    return found


def forced(
    before: History, record: ContainerRecord, access: AccessList | None
) -> tuple[Known, InForce]:
    """Return a record with what it puts in force, if it were valid."""
    known, in_force = Known(record, record_hash(encode_object(record))), before.in_force
    if record.governing is not None:
        since = in_force.since if access is None else record.time
        in_force = InForce(known, access or in_force.access, since)
    return known, in_force


def honest_records(node: P, mark: Mark | None) -> tuple[list[P], list[P]]:
    """Return what an honest broker serves of a head: the governing records, and the bodies before it."""
    governing = node.governing
    if mark is not None and mark.complete:
        last = max(each.version for each in governing if each.version <= mark.version)
        governing = [each for each in governing if each.version >= last]
    return governing, [] if mark is None else [n for n in node.path if n.version >= mark.version]


def mixtures(
    mark: Mark | None, head: P, nodes: Sequence[P]
) -> Iterator[tuple[list[P], Sequence[P]]]:
    """Yield every choice of a body for each version before the head, and of which are served as governing."""
    begin = 1 if mark is None or not mark.complete else mark.governingVersion
    versions = [[node for node in nodes if node.version == n] for n in range(begin, head.version)]
    for chosen in itertools.product(*versions):
        for flags in itertools.product((False, True), repeat=len(chosen) + 1):
            views = [n for n, is_view in zip([*chosen, head], flags, strict=True) if is_view]
            if views:
                yield views, chosen


def judged(
    evidence: Evidence, mark: Mark | None, nodes: Sequence[Planted], *, is_deleted: bool
) -> State | None:
    """Return what a reader believes who walks over the bodies of these records; None for nothing."""
    try:
        version = parse_either(evidence.last).record.version
        if mark is not None and version > mark.version and not is_deleted:
            walk = Walk(mark, evidence.served(), version, LATE)
            bodies = {node.version: node.body for node in nodes} | {version: evidence.last}
            while walk.next_version <= version:
                walk.step(bodies[walk.next_version])
            evidence = replace(evidence, walk=walk)
        return evidence.judge()
    except (BrokerError, KeyError):
        return None


def disclosed(rights: acts.Rights, names: Collection[bytes]) -> ListView:
    entries = list_of(rights).entries
    salted = [SaltedEntry(bytes(32), encode_value(entry)) for entry in entries.values()]
    return ListView.of(salted, [n for n, name in enumerate(entries) if name in names])


@dataclass(eq=False)
class Node(Planted):
    history: History
    may_follow: bool
    """True if the governing record before it allows this change by its author."""

    @cached_property
    def is_believable(self) -> bool:
        """Return whether all is rightful that a reader without a mark can see."""
        return self.may_follow and all(node.may_follow for node in self.governing)


def tree(length: int) -> list[Node]:
    """Return all histories of up to `length` records that the acts of three users lead to."""
    first = Act(OWNER, 1, _START, content="new")
    history = begun(first)
    assert history is not None
    return grown(Node(history.head.record, history, may_follow=True), length, _children)


def _children(node: Node) -> Iterator[Node]:
    world = node.history.world
    for act in (
        Act(OWNER, world.time, content="new"),
        Act(WRITER, world.time, content="drop"),
        Act(READER, world.time, content="new"),
        Act(WRITER, world.time, world.rights),
        Act(OWNER, world.time, _WITHOUT_WRITER),
        Act(OWNER, world.time, changes_type=True),
        Act(WRITER, world.time, changes_type=True),
        Act(OWNER, world.time, deletes=True),
        Act(READER, world.time, deletes=True),
    ):
        record, access = drafted(node.history, act)
        after = acts.rightful(world, act)
        known, in_force = forced(node.history, record, access)
        # Acts of different nodes must not make the same record.
        number = node.history.number * 10 + len(node.children) + 1
        imposed = after or replace(
            world,
            rights=act.rights or world.rights,
            granted_by=act.author if act.rights else world.granted_by,
        )
        history = History(imposed, known, in_force, number)
        child = Node(record, history, may_follow=after is not None, parent=node)
        node.children.append(child)
        yield child


@contextmanager
def names_for_signatures() -> Iterator[None]:
    """Take the name of a record's author for its signature: so nobody can sign for others."""

    def verify(known: Known, signature: bytes, chain: KeyChain) -> None:
        del chain
        if signature != known.record.author:
            raise IntegrityError("Not the author's signature.")

    with mock.patch.object(judge, "verify_author", verify):
        yield


_CHAINS: Final[Any] = dict.fromkeys(NAMES, mock.sentinel.chain)


@dataclass(frozen=True)
class Served:
    """What a broker serves: governing records, the bodies between mark and head, and the head."""

    views: Sequence[Node]
    between: Sequence[Node]
    head: Node


def believed(
    reader: int, mark: Mark | None, served: Served, *, hides_entries: bool = False
) -> State | None:
    """Return what a reader believes of an answer; None if the reader refuses it."""
    is_deleted = served.head.record.tombstone
    shown = {node.record.author for node in [*served.views, served.head]}
    views, lists = [], set[int]()
    for node in served.views:
        governing = node.record.governing
        if governing is None:
            return None  # a reader refuses it, as `judge.governing_of` raises
        version = governing.accessVersion
        listed = None
        if version not in lists:
            lists.add(version)
            rights = node.history.world.rights
            own = rights[reader] if not is_deleted else None
            names = {*shown, NAMES[reader]} if own is not None else shown
            if own is not None and own.bits & acts.VIEW_ACCESS and not hides_entries:
                names = {*NAMES}
            listed = disclosed(rights, names)
        body = bare_body(node.body) if is_deleted else node.body
        views.append(
            GoverningView(
                record=SignedRecord(body=body, signature=node.signed.signature), accessList=listed
            )
        )
    head = None if served.views and served.views[-1] is served.head else served.head.signed
    evidence = Evidence(BOX, NAMES[reader], views, head, None, _CHAINS, mark, LATE)
    return judged(evidence, mark, [*served.between, *served.views], is_deleted=is_deleted)


def honest(node: Node, mark: Mark | None) -> Served:
    return Served(*honest_records(node, mark), node)


def search(length: int) -> Count:
    """Serve all mixtures; raise `AssertionError` where a reader believes what does not follow."""
    count, started = Count(), time.monotonic()  # about time
    nodes = tree(length)
    count.worlds = len(nodes)
    with names_for_signatures():
        for reader in (WRITER, READER):
            marked: list[tuple[Node | None, Mark | None]] = [(None, None)]
            for node in nodes:
                state = believed(reader, None, honest(node, None))
                assert (state is not None) == _is_served(node, reader), node.record
                if state is not None:
                    marked.append((node, state.mark))
            for (at, mark), head in itertools.product(marked, nodes):
                _check_honest(reader, at, mark, head)
                for some, chosen in mixtures(mark, head, nodes):
                    served = Served(some, chosen, head)
                    count.acts += 1
                    state = believed(reader, mark, served)
                    if state is not None:
                        count.accepted += 1
                        _check_believed(at, served, state)
    count.seconds = time.monotonic() - started  # about time
    return count


def _check_honest(reader: int, at: Node | None, mark: Mark | None, head: Node) -> None:
    """Check that a reader believes an honest broker exactly if the head follows from the mark."""
    if _is_served(head, reader) and (at is None or at in head.path):
        served = honest(head, mark)
        assert believed(reader, mark, served) is not None, (reader, mark, head.record)
        if reader == WRITER and at is not head and not head.record.tombstone:
            # The owner's and the writer's entries are disclosed anyway; the reader's may be.
            names = {node.record.author for node in [*served.views, head]}
            is_hidden = believed(reader, mark, served, hides_entries=True) is None
            assert is_hidden == (not names >= {NAMES[OWNER], NAMES[READER]}), head.record


def _check_believed(at: Node | None, served: Served, state: State) -> None:
    """Check that what a reader believes follows from the mark, and that nothing in force was hidden."""
    head = served.head
    assert state.governing.known.hash == head.governing[-1].history.head.hash, (
        "another governing record"
    )
    assert head.is_believable, "a record that its author may not write"
    if at is None:
        return
    if head.record.tombstone and at is not head:
        # A deletion may leave out changes of content alone: container.md, section 8.
        assert at.governing[-1] in head.governing, "a deletion that leaves out a governing record"
    else:
        assert at in head.path, "a history without the mark's record"


def _is_served(node: Node, reader: int) -> bool:
    """Return whether an honest broker serves this head to the reader, who believes it."""
    return node.is_believable and (
        node.record.tombstone or node.history.world.rights[reader] is not None
    )
