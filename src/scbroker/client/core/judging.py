"""Verify what a broker serves of a container, against verified keys, the device's mark and a given time.

A view does not contain everything: further pages, record bodies and authors' keys have to be fetched.
`evidence` is a generator that yields what it needs next; its caller (`containers.fetching`) fetches that and
sends it in. It asks for more records only after members' signatures on the served ones verified: a broker
without a member's keys could otherwise keep a client fetching for ever.

Memory does not grow with the length of a history. After each piece the mark can be raised, so that an
interrupted reading continues from there.

Without I/O and without a clock. Rule numbers and sections are those of docs/spec/container.md.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from scbroker import errors
from scbroker.crypto.verify import equal
from scbroker.errors import ForkError, IntegrityError, RollbackError
from scbroker.records import container_record as records
from scbroker.records import judge
from scbroker.records.canonical import MAX_UINT, decoder, user_id_of, uuid8
from scbroker.records.container_record import AccessList, ContainerRecord, Entry, Link, parse_either
from scbroker.records.departure import Departure, parse_departure
from scbroker.records.group import GroupChain
from scbroker.records.judge import Acting, InForce, Known
from scbroker.records.key_record import KeyChain, Signed
from scbroker.records.roster import cut_entry
from scbroker.types import Head
from scbroker.vocabulary import ContainerAccessLevel, KeyType
from scbroker.wire.containers import MAX_SKIPPED, ContainerView, GoverningView, ListView, TypeText
from scbroker.wire.rosters import Membership

Unwrap = Callable[[int, bytes, bytes], bytes]
"""Open a wrap: from the key index or epoch of the reader's entry, the wrap and its info, return the key."""
_HIDDEN_GOVERNING: Final = "The broker served a governing record as if it changed nothing."
_OTHER_GOVERNING: Final = (
    "The broker served a governing record from which the newest record does not follow."
)
_OTHER_HISTORY: Final = (
    "The broker serves another history of this container than this device has verified. If you trust the "
    "one that it serves, resetContainerMark accepts it."
)


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """The mark that a device keeps of a container for ever (section 8)."""

    version: int
    hash: bytes
    governingVersion: int
    governingHash: bytes
    complete: bool
    """Whether every entry of every list up to here was disclosed; if not, the past is judged again."""
    createdBy: bytes
    createdAt: int
    partial: bool = False
    """Whether a reader without a mark has judged the governing records up to here, and not the head."""
    deleted: bool = False
    """Whether the head is a verified tombstone: then no list has to contain the container."""
    left: bool = False
    """Whether the user left the container by this device: then no list has to contain it."""
    accessTime: int = 0
    """The time of the record that last changed access: no departure from its list is older; 0 if unknown."""
    unsettled: Link | None = None
    """The newest unsettled access (groups.md, 7), until the caller confirms it or makes a whole list."""

    @classmethod
    def decode(cls, data: bytes) -> Mark:
        return cast(Mark, decoder(Mark).decode(data))

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @property
    def head(self) -> Head:
        return Head(self.version, self.hash)


@dataclass(frozen=True)
class State:
    """A verified container: its head, the access in force, and its creator's fingerprint."""

    head: Known
    signed: Signed
    governing: InForce
    complete: bool
    createdBy: bytes
    createdAt: int
    reader: bytes
    """The reader's fingerprint, or the name of the group through which they read."""
    role: int | None = None
    """The reader's role in that group; None if they read by their own entry."""
    follower: bytes | None = None
    """The hash of the record after the mark's, or of record 1 without a mark; None if it was not served."""
    unsettled: Link | None = None
    """The newest unsettled access (groups.md, 7): nothing may be sealed until the caller confirms it."""

    @property
    def record(self) -> ContainerRecord:
        return self.head.record

    @property
    def container_id(self) -> bytes:
        return self.record.containerId

    @property
    def mark(self) -> Mark:
        return Mark(
            self.record.version,
            self.head.hash,
            self.governing.record.version,
            self.governing.known.hash,
            self.complete,
            self.createdBy,
            self.createdAt,
            deleted=self.record.tombstone,
            accessTime=self.governing.since,
            unsettled=self.unsettled,
        )

    @property
    def entry(self) -> Entry | None:
        """Return the entry by which the user reads, expired or not; a group's is cut by the user's role."""
        entry = self.governing.access.entries.get(self.reader)
        return entry if entry is None or self.role is None else cut_entry(entry, self.role)

    @property
    def own_entry(self) -> Entry:
        """Return `entry`; raise `IntegrityError` if the list has none."""
        entry = self.entry
        if entry is None:
            raise IntegrityError(
                "The broker served a container whose access list has no entry for this reader."
            )
        return entry

    def may(self, right: int) -> bool:
        """Return whether the list in force gives the reader a permission."""
        entry = self.entry
        return entry is not None and entry.allows(right)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of what a broker served of a container, with the keys, the mark and the time to judge it by.

    Usually there is one piece. A long history comes in several: `before` is the state after the piece
    before, and `earlier` has the governing records of earlier pieces that are still needed, by version. All
    pieces but the last are judged as if their last governing record were the head.

    `reader` and `role` are those of `State`. The first piece's `views` begin with the first governing
    record, or with the mark's if the mark is complete. `head` is None if the last governing record is the
    head. `walk` has gone from the mark's record to the head. `groups` has the chains, by name, of the groups
    for which authors acted, and `membership` the proof for the author of the head.
    """

    container_id: bytes
    reader: bytes
    views: Sequence[GoverningView]
    head: Signed | None
    walk: Walk | None
    chains: Mapping[bytes, KeyChain]
    mark: Mark | None
    now: int
    before: State | None = None
    earlier: Mapping[int, Known] = field(default_factory=dict)
    is_last: bool = True
    role: int | None = None
    groups: Mapping[bytes, GroupChain] = field(default_factory=dict)
    membership: Membership | None = None

    @property
    def last(self) -> bytes:
        if self.head is None or not self.is_last:
            return self.views[-1].record.body
        return self.head.body

    @property
    def is_deleted(self) -> bool:
        return self.head is not None and records.parse_either(self.head.body).record.tombstone

    def judge(self) -> State:
        """Return the state, by rules 1 to 5 and section 8: signed, following from the mark, all disclosed."""
        mark, walk = self.mark, self.walk
        state = self.judge_signed(None if walk is None else walk.parents)
        # A piece may end before the mark's version if the mark is not complete. A deletion is compared with
        # the mark only after the tombstone was verified, with the last piece: it may be a pretext for serving
        # no other records.
        is_ahead = mark is not None and state.record.version > mark.version
        if mark is not None and (self.is_last or (is_ahead and not self.is_deleted)):
            self._check_mark(state, mark)
        if self.is_last:
            _check_disclosed(state)
        if walk is not None and state.follower is None:
            return dataclasses.replace(state, follower=walk.follower)
        return state

    def served(self) -> dict[int, Known]:
        """Return the governing records of this piece, and those needed of earlier ones, in bare form."""
        known = [Known.parse_bare(view.record.body) for view in self.views]
        return {**self.earlier, **{item.record.version: item for item in known}}

    def judge_signed(self, parents: Mapping[int, Known] | None = None) -> State:
        """Return the state, by rules 1 to 5 alone, whether or not it follows from the mark.

        `parents` are records before those judged, by version, as far as they are at hand (rule 2, *chain*).
        """
        mark, before = self.mark, self.before
        last = records.parse_either(self.last).record
        if self.is_last and mark is not None and last.version < mark.version:
            raise RollbackError(
                "The broker serves an older version of this container than this device has verified. "
                "If you trust its present state, resetContainerMark accepts it."
            )
        # After a deletion the broker keeps the bare form of governing records only (section 10).
        is_deleted = last.tombstone if self.is_last else self.is_deleted
        parse = Known.parse_bare if is_deleted else Known.parse
        at_hand = dict(parents or {})
        judged: InForce | None = None
        complete, unsettled = True, mark.unsettled if mark else None
        if before is not None:
            judged, complete = before.governing, before.complete
            unsettled = before.unsettled
            at_hand[before.record.version] = before.head
        for view in self.views:
            known = parse(view.record.body)
            if known.record.containerId != self.container_id:
                raise IntegrityError("Another container was served than the one asked for.")
            access = _access(view, known.record, judged)
            complete = complete and access.complete
            if judged is None and mark is not None and mark.complete:
                judged = _resume(mark, known, access)
            else:
                self._verify(known, view.record.signature)
                if judged is None:
                    judged = judge.judge_first(known, access, self.now)
                else:
                    given = access if known.record.changes_access else None
                    parent = at_hand.get(known.record.version - 1)
                    acting = self._acting(known.record, view.membership)
                    judged = judge.judge_next(known, judged, given, parent, self.now, acting)
                    if acting is not None and self._is_unsettled(known.record, acting, view):
                        unsettled = Link(known.record.version, known.hash)
            if view.accessList is not None:
                judged = dataclasses.replace(judged, left=self._left(view.accessList, judged))
            at_hand[known.record.version] = known
        if judged is None:
            raise IntegrityError("The broker served a container without a governing record.")
        known, signed = judged.known, self.views[-1].record.signed
        if self.head is not None and self.is_last:
            known, signed = Known.parse(self.head.body), self.head
            if mark is None or mark.partial or known.hash != mark.hash:
                self._verify(known, signed.signature)
                parent = at_hand.get(known.record.version - 1)
                acting = self._acting(known.record, self.membership)
                if judge.judge_next(known, judged, None, parent, self.now, acting) is not judged:
                    raise IntegrityError(_HIDDEN_GOVERNING)
            elif judged.known.hash != mark.governingHash:
                # The head is the mark's, which was judged before: the mark's governing record must be in
                # force.
                raise IntegrityError(_OTHER_GOVERNING)
        if source := mark or before:
            created = source.createdBy, source.createdAt
        else:
            first = records.parse_either(self.views[0].record.body).record
            created = first.author, first.time
        at_hand[known.record.version] = known
        next_one = at_hand.get(1 if mark is None else mark.version + 1)
        follower = None if next_one is None else next_one.hash
        if before is not None and before.follower is not None:
            follower = before.follower
        return State(
            known, signed, judged, complete, *created, self.reader, self.role, follower, unsettled
        )

    def _acting(self, record: ContainerRecord, membership: Membership | None) -> Acting | None:
        """Return the verified membership by which a record's author acts; None without a group (V2)."""
        if record.via is None:
            return None
        chain = self.groups.get(record.via.group)
        if chain is None:
            raise IntegrityError("The broker does not serve the group for which an author acted.")
        return chain.acting(
            record.via, record.author, None if membership is None else membership.proof
        )

    def _is_unsettled(self, record: ContainerRecord, acting: Acting, view: GoverningView) -> bool:
        """Return whether somebody who is not a member any more changed access since the mark (groups.md, 7).

        The proof that the author still is a member comes from the broker. Without one, a device takes the
        author for a former member, and the caller has to confirm a change that may be valid.
        """
        if self.mark is None or self.mark.partial or record.version <= self.mark.version:
            return False
        if not record.changes_access or acting.ended is None:
            return False
        standing = None if view.standing is None else view.standing.proof
        return not self.groups[acting.group].stands(record.author, acting.role, standing)

    def _check_mark(self, state: State, mark: Mark) -> None:
        """Raise unless the head is the mark's record or follows from it without a gap (section 8)."""
        if mark.partial:
            return  # this device has verified no head: there is nothing to compare
        if state.record.version == mark.version:
            if state.head.hash != mark.hash:
                raise ForkError(_OTHER_HISTORY)
            return
        served = self.served()
        if self.is_deleted:
            _check_tombstone(state, served, mark)
            return
        walk = self.walk
        if walk is None or walk.reached != state.head.hash:
            raise ForkError(
                "The broker withholds records after the version that this device has verified."
            )
        judged = {v: known.hash for v, known in served.items() if v > mark.version}
        if judged != walk.governing:
            raise IntegrityError(_HIDDEN_GOVERNING)

    def _left(self, served: ListView, judged: InForce) -> frozenset[bytes]:
        """Verify the departures from a list (section 4.1); return the fingerprints of their users."""
        left = list[bytes]()
        for signed in (item.signed for item in served.departures):
            leaver = parse_departure(signed.body).fingerprint
            if left and leaver <= left[-1]:
                raise IntegrityError("The departures from an access list are out of order.")
            if leaver not in self.chains:
                raise IntegrityError("The broker did not serve the keys of a user who left.")
            judge.verify_departure(signed, judged, self.chains[leaver], self.now)
            left.append(leaver)
        return frozenset(left)

    def _verify(self, known: Known, signature: bytes) -> None:
        """Verify a record's signatures by its author's keys (rule 2, *key*)."""
        chain = self.chains.get(known.record.author)
        if chain is None:
            raise IntegrityError("The broker did not serve the keys of a record's author.")
        judge.verify_author(known, signature, chain)


def _access(view: GoverningView, record: ContainerRecord, judged: InForce | None) -> AccessList:
    """Return a governing record's list, its own or the one that a change of type keeps (rule 2)."""
    if view.accessList is not None:
        access = view.accessList.verified()
    elif judged is not None:
        access = judged.access
    else:
        raise IntegrityError("The broker served a governing record without its access list.")
    judge.check_list(record, access)
    return access


def _resume(mark: Mark, known: Known, access: AccessList) -> InForce:
    """Accept the mark's governing record by its hash: it was judged when the mark was made (section 8)."""
    if (known.record.version, known.hash) != (mark.governingVersion, mark.governingHash):
        raise ForkError(_OTHER_HISTORY)
    since = known.record.time if known.record.changes_access else mark.accessTime
    return InForce(known, access, since)


def _check_disclosed(state: State) -> None:
    """Refuse hidden entries if the reader has ViewAccess and the head is no tombstone (section 8)."""
    if state.record.tombstone:
        return
    if not state.own_entry.allows(ContainerAccessLevel.ViewAccess):
        return
    if not state.complete:
        raise IntegrityError("The broker withholds entries of an access list.")


def open_container_key(state: State, wrap: bytes | None, unwrap: Unwrap) -> bytes | None:
    """Return the container key, checked against the signed commitment; None without Decrypt (section 3)."""
    entry = state.own_entry
    if entry.wrapHash is None:
        if entry.allows(ContainerAccessLevel.Decrypt):
            raise IntegrityError(
                "No container key is wrapped for this reader: ask for access once more."
            )
        return None
    if wrap is None or records.wrap_hash(wrap) != entry.wrapHash:
        raise IntegrityError("The wrap is not the one that was signed for this reader.")
    governing = state.governing.governing
    info = records.wrap_info(state.container_id, governing, state.reader, entry.keyIndex)
    key = unwrap(entry.keyIndex, wrap, info)
    if not equal(records.key_commitment(state.container_id, key), governing.keyCommitment):
        raise IntegrityError("This reader was given another container key than the others.")
    return key


def open_type(state: State, text: TypeText | None) -> str | None:
    """Return the type, checked against the signed hash; None if it is hidden from the reader (section 5)."""
    if text is None:
        if state.own_entry.allows(ContainerAccessLevel.ViewType):
            raise IntegrityError("The broker withholds the container's type.")
        return None
    records.check_type(text.type)
    if (
        records.type_hash(state.container_id, text.salt, text.type)
        != state.governing.governing.type
    ):
        raise IntegrityError("The type is not the one that was signed.")
    return text.type


class Walk:
    """Every body from the mark's record to the head, each checked against the one before (section 8).

    Rules 2 and 3 are checked as far as they concern structure and time. Only the parents of records that are
    judged in full are kept, so that memory does not depend on the distance.
    """

    def __init__(self, mark: Mark, served: Mapping[int, Known], head: int, now: int) -> None:
        self._mark, self._now = mark, now
        if mark.governingVersion not in served:
            raise ForkError(_OTHER_HISTORY)
        self._in_force = served[mark.governingVersion]
        self._served, self._judged = served.keys(), {*served, head}
        self._last: Known | None = None
        self.governing: dict[int, bytes] = {}
        """Hashes of the governing bodies after the mark, by version."""
        self.follower: bytes | None = None
        """The hash of the body after the mark's."""
        self.parents: dict[int, Known] = {}

    @property
    def next_version(self) -> int:
        return self._mark.version if self._last is None else self._last.record.version + 1

    @property
    def reached(self) -> bytes:
        return b"" if self._last is None else self._last.hash

    def step(self, body: bytes) -> None:
        """Check the body of `next_version`; the first has to be the mark's record."""
        known = Known.parse(body)
        if self._last is None:
            seen = (self._mark.version, self._mark.hash, self._mark.governingHash)
            if (known.record.version, known.hash, self._in_force.hash) != seen:
                raise ForkError(_OTHER_HISTORY)
        else:
            judge.check_skipped(known, self._in_force, self._last, self._now)
            if known.record.governing is not None:
                if known.record.version not in self._served:
                    raise IntegrityError(_HIDDEN_GOVERNING)
                self.governing[known.record.version] = known.hash
                self._in_force = known
            if self.follower is None:
                self.follower = known.hash
        self._last = known
        if known.record.version + 1 in self._judged:
            self.parents[known.record.version] = known


def _check_tombstone(state: State, served: Mapping[int, Known], mark: Mark) -> None:
    """Raise `ForkError` unless a deletion follows from the mark, as far as the kept records show (section 8).

    The mark's governing record must be served, no record may govern between it and the mark, and the record
    after the mark, if it is kept, must name the mark's hash as its parent.
    """
    in_force = served.get(mark.governingVersion)
    if in_force is None or in_force.hash != mark.governingHash:
        raise ForkError(_OTHER_HISTORY)
    if any(mark.governingVersion < version <= mark.version for version in served):
        raise ForkError(_OTHER_HISTORY)
    following = {**served, state.record.version: state.head}.get(mark.version + 1)
    if following is not None and following.record.parent != mark.hash:
        raise ForkError(_OTHER_HISTORY)


PIECE_SIGNERS: Final = 32
"""Users whose signatures a piece has. Their key chains are in memory at once, of up to 1,024 records each."""
_MAX_WALK: Final = 1_000_000
"""Most versions between the mark and the head that a client fetches (section 8)."""


class Keys(NamedTuple):
    """Needs `Proofs`: the key chains and groups by which a piece is judged."""

    signers: Mapping[uuid.UUID, int]
    """The sequence of the key chain that is needed of each."""
    authors: Collection[uuid.UUID]
    """Those whose whole chains are needed."""
    departed: Mapping[bytes, set[tuple[int, int]]]
    """By fingerprint, the keys that signed departures: of users who are no authors, only these are needed."""
    groups: Mapping[uuid.UUID, int]
    """The version that is needed of each."""


class Proofs(NamedTuple):
    """The key chains by fingerprint, the groups by name, and the time to judge by in microseconds."""

    chains: Mapping[bytes, KeyChain]
    groups: Mapping[bytes, GroupChain]
    now: int


class Page(NamedTuple):
    """Needs governing records from the version `first` on: a sequence of `GoverningView`."""

    first: int
    to: int


class Bodies(NamedTuple):
    """Needs this number of record bodies, from the version `first` on: a sequence of bytes."""

    first: int
    number: int


class Raise(NamedTuple):
    """Offers to raise the device's mark after a piece; the caller sends in whether it did."""

    state: State
    mark: Mark


Need = Keys | Page | Bodies | Raise
History = Generator[Need, Any, Evidence]


def evidence(
    container_id: bytes, reader: bytes, role: int | None, mark: Mark | None, view: ContainerView
) -> History:
    """Ask for what a view leaves to be fetched; return its last piece, which is left to be judged.

    `reader` and `role` are those of `State`. After each other piece the mark is raised, and stored if all
    entries so far were disclosed: otherwise the past has to be judged again anyhow (section 8). The mark
    stays if the head is a tombstone, which is verified with the last piece.
    """
    head = view.head.signed if view.head is not None else None
    is_fresh = mark is None or mark.partial
    before: State | None = None
    earlier: dict[int, Known] = {}
    pieces = _pieces(view.governing)
    while True:
        views = pieces.pop(0)
        last = _version(views[-1])
        is_last = not pieces and last >= view.lastGoverning
        resumed = before is None and since_of(mark) is not None
        proofs: Proofs = yield keys_needed(view, views, resumed=resumed, is_last=is_last)
        found = Evidence(
            container_id, reader, views, head, None, proofs.chains, mark, proofs.now, before,
            earlier, is_last, role, proofs.groups, view.headMembership,
        )  # fmt: skip
        found = dataclasses.replace(found, walk=(yield from _walked(found, view)))
        if is_last:
            return found
        before = found.judge()
        is_ahead = (mark is None or last > mark.version) and not found.is_deleted
        if is_ahead and before.complete:
            is_raised: bool = yield Raise(before, replace(before.mark, partial=is_fresh))
            if is_raised:
                before = dataclasses.replace(before, follower=None)
        if is_ahead and not is_fresh:
            mark = before.mark
        first_needed, last_needed = (
            (mark.governingVersion, mark.version + 1) if mark is not None else (last, last)
        )
        earlier = {
            version: known
            for version, known in found.served().items()
            if first_needed <= version <= last_needed or version == last
        }
        pieces = pieces or _pieces((yield from _next_page(view, last)))


def since_of(mark: Mark | None) -> int | None:
    """Return the version from which a reader with this mark needs records; None if it needs all."""
    return mark.version if mark is not None and mark.complete else None


def keys_needed(
    view: ContainerView, views: Sequence[GoverningView], *, resumed: bool, is_last: bool
) -> Keys:
    """Return the keys that are needed to verify a piece of the history.

    If `resumed`, the mark proves the piece's first record, so the keys of its author are not needed; but
    departures from its list may be newer than the mark. The newest chain of a user who left is needed, unless
    the view states the user's latest key record.
    """
    bodies = [item.record.body for item in views[resumed:]]
    if view.head is not None and is_last:
        bodies.append(view.head.body)
    records = [parse_either(body).record for body in bodies]
    authors = {user_id_of(record.author) for record in records}
    departed: dict[bytes, set[tuple[int, int]]] = {}
    for departure in _departures(views):
        used = departed.setdefault(departure.fingerprint, set())
        used.add((KeyType.Signing, departure.keyIndex))
    leavers = set(map(user_id_of, departed))
    named = {item.userId: item.sequence for item in view.keyChains}
    signers = {
        user: named.get(str(user), MAX_UINT if user in leavers else 0)
        for user in leavers.union(authors)
    }
    return Keys(signers, authors, departed, _groups(records))


def _groups(records: Iterable[ContainerRecord]) -> dict[uuid.UUID, int]:
    """Return the groups for which the authors of records acted, with the versions that the records name."""
    wanted: dict[uuid.UUID, int] = {}
    for via in (record.via for record in records if record.via is not None):
        wanted[uuid8(via.group)] = max(via.version, wanted.get(uuid8(via.group), 0))
    return wanted


def _pieces(views: Sequence[GoverningView]) -> list[Sequence[GoverningView]]:
    """Cut a page into pieces with few signers each; departures from its list can give one record many."""
    starts, signers = [0], set[bytes]()
    for position, view in enumerate(views):
        leavers = {departure.fingerprint for departure in _departures([view])}
        added = {parse_either(view.record.body).record.author, *leavers}
        if signers and len(signers | added) > PIECE_SIGNERS:
            starts.append(position)
            signers = set()
        signers |= added
    return [views[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def _next_page(
    view: ContainerView, last: int
) -> Generator[Need, Sequence[GoverningView], Sequence[GoverningView]]:
    """Ask for the governing records after the version `last`, as far as they fit on a page."""
    to = view.lastGoverning if view.head is None else parse_either(view.head.body).record.version
    found = yield Page(last + 1, to)
    if not found or _version(found[-1]) <= last:
        raise errors.IntegrityError("The broker withholds governing records.")
    return found


def _walked(found: Evidence, view: ContainerView) -> Generator[Need, Any, Walk | None]:
    """Verify that the bodies from the mark's record to the head form a chain; ask for missing ones.

    None without a mark, if the head is not newer than the mark, or if the head is a tombstone: the broker
    then keeps only the bodies of governing records.
    """
    mark, head = found.mark, parse_either(found.last).record.version
    if mark is None or mark.partial or head <= mark.version or found.is_deleted:
        return None
    bodies = [item.record.body for item in found.views] + [*view.skipped, found.last]
    if found.before is not None:
        bodies.append(found.before.signed.body)
    served = {parse_either(body).record.version: body for body in bodies}
    walk = Walk(mark, found.served(), head, found.now)
    is_checked = False
    while walk.next_version <= head:
        if walk.next_version in served:
            walk.step(served[walk.next_version])
            continue
        # Only after all signatures verified: otherwise a broker alone could make a client fetch for ever.
        if not is_checked:
            found.judge_signed()
            _check_distance(head - mark.version)
            is_checked = True
        count = min(MAX_SKIPPED, head - walk.next_version)
        page: Sequence[bytes] = yield Bodies(walk.next_version, count)
        if len(page) != count or parse_either(page[0]).record.version != walk.next_version:
            raise errors.ForkError(
                "The broker withholds the records between the version seen before and this one."
            )
        for body in page:
            walk.step(body)
    return walk


def _check_distance(versions: int) -> None:
    if versions > _MAX_WALK:
        raise errors.TooLargeError(
            f"The container was changed more than {_MAX_WALK} times since this device read it, and "
            "the client does not fetch so many records: if you trust its present state, "
            "resetContainerMark accepts it."
        )


def _version(view: GoverningView) -> int:
    return parse_either(view.record.body).record.version


def _departures(views: Iterable[GoverningView]) -> list[Departure]:
    """Return the departures that are served with lists; nothing in them is verified yet."""
    return [
        parse_departure(item.body)
        for view in views
        if view.accessList is not None
        for item in view.accessList.departures
    ]
