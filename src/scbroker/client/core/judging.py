"""From what a broker serves of a container to what may be believed of it.

Fed bytes, verified key chains, the device's mark and a time, it decides; it fetches nothing.
Spec: docs/spec/container.md, sections 7 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scbroker.crypto.verify import equal
from scbroker.errors import DeletedError, ForkError, IntegrityError, RollbackError
from scbroker.records.access_list import AccessList, Entry, wrap_hash
from scbroker.records.container_record import (
    ContainerRecord,
    key_commitment,
    parse_bare,
    type_hash,
    wrap_info,
)
from scbroker.records.judge import (
    InForce,
    Known,
    check_list,
    check_skipped,
    judge_first,
    judge_next,
    verify_author,
)
from scbroker.records.key_record import KeyChain, Signed
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import GoverningView, ListView, TypeText

Unwrap = Callable[[int, bytes, bytes], bytes]
"""Opens, with the reader's encryption key of this index, a wrap that was made with this info."""
_AS_IF_NONE: Final = "A governing record was served as if it were none."
_OTHER_HISTORY: Final = "Another history of this container was seen before on this device."


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """What this device has seen of a container, for ever."""

    version: int
    hash: bytes
    governingVersion: int
    governingHash: bytes
    complete: bool
    """Whether every entry of every list up to here was seen; if not, the past is judged again."""
    createdBy: bytes
    createdAt: int

    @classmethod
    def decode(cls, data: bytes) -> Mark:
        return msgspec.msgpack.decode(data, type=cls)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


@dataclass(frozen=True, slots=True)
class State:
    """A container as verified: the head, what is in force, and who began it."""

    head: Known
    signed: Signed
    governing: InForce
    complete: bool
    createdBy: bytes
    createdAt: int

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
        )

    def own_entry(self, fingerprint: bytes) -> Entry:
        """The reader's entry, expired or not; `IntegrityError` where the list has none."""
        entry = self.governing.access.entries.get(fingerprint)
        if entry is None:
            raise IntegrityError("A container is served to somebody who is not in its list.")
        return entry

    def check_not_deleted(self) -> None:
        if self.record.tombstone:
            raise DeletedError()


def judge_view(
    container_id: bytes,
    reader: bytes,
    views: Sequence[GoverningView],
    head: Signed | None,
    walk: Walk | None,
    chains: Mapping[bytes, KeyChain],
    mark: Mark | None,
    now: int,
) -> State:
    """Judges everything that was served against the rules and against the mark.

    `reader` is the reader's fingerprint. `views` begin with the first governing record, or with the
    mark's where the mark is complete; `walk` has gone from the mark's record to the head.
    """
    parents = None if walk is None else walk.parents
    state = judge_signed(container_id, views, head, parents, chains, mark, now)
    if mark is not None:
        _check_mark(state, views, walk, mark)
    _check_disclosed(state, reader, [view.accessList for view in views])
    return state


def judge_signed(
    container_id: bytes,
    views: Sequence[GoverningView],
    head: Signed | None,
    parents: Mapping[int, Known] | None,
    chains: Mapping[bytes, KeyChain],
    mark: Mark | None,
    now: int,
) -> State:
    """Judges what was signed, each by whoever had the right to; that it follows from the mark is left.

    `parents` are the records before those judged, by version; None where no walk has met them yet.
    """
    last = parse_bare((head or views[-1].record).body)
    if mark is not None and last.version < mark.version:
        raise RollbackError("A newer version of this container was seen before on this device.")
    parse = Known.parse_bare if last.tombstone else Known.parse
    resumed = mark is not None and mark.complete
    at_hand = dict(parents or {})

    def before(known: Known) -> Known | None:
        return at_hand.get(known.record.version - 1)

    judged: InForce | None = None
    complete = True
    for view in views:
        known = parse(view.record.body)
        if known.record.containerId != container_id:
            raise IntegrityError("Another container was served than the one asked for.")
        access = _access(view, known.record, judged)
        complete = complete and access.complete
        if judged is None and mark is not None and resumed:
            judged = _resume(mark, known, access)
        else:
            _verify(view.record.signed, known, chains)
            if judged is None:
                judged = judge_first(known, access, now)
            else:
                given, parent = access if known.record.changes_access else None, before(known)
                judged = judge_next(known, judged, given, parent, now)
        at_hand[known.record.version] = known
    if judged is None:
        raise IntegrityError("A container without a governing record.")
    known, signed = judged.known, views[-1].record.signed
    if head is not None:
        known, signed = Known.parse(head.body), head
        if mark is None or known.hash != mark.hash:
            _verify(head, known, chains)
        after = judge_next(known, judged, None, before(known), now)
        if after is not judged:
            raise IntegrityError(_AS_IF_NONE)
    first = parse_bare(views[0].record.body)
    created = (mark.createdBy, mark.createdAt) if mark else (first.author, first.time)
    complete = complete and (mark.complete if mark and resumed else True)
    return State(known, signed, judged, complete, *created)


def _check_disclosed(state: State, reader: bytes, lists: Sequence[ListView | None]) -> None:
    """With ViewAccess a reader is shown every entry; the broker may not hide any to be judged less."""
    if state.record.tombstone:
        return
    if not state.own_entry(reader).allows(ContainerAccessLevel.ViewAccess):
        return
    if any(view is not None and not view.discloses_all for view in lists):
        raise IntegrityError("The broker withholds entries of an access list.")


def open_container_key(
    state: State, wrap: bytes | None, fingerprint: bytes, unwrap: Unwrap
) -> bytes | None:
    """The container key, checked against the signed commitment; None without Decrypt."""
    entry = state.own_entry(fingerprint)
    if entry.wrapHash is None:
        if entry.allows(ContainerAccessLevel.Decrypt):
            raise IntegrityError(
                "This reader may decrypt and was given no key: have a writer change the access again."
            )
        return None
    if wrap is None or wrap_hash(wrap) != entry.wrapHash:
        raise IntegrityError("The wrap is not the one that was signed for this reader.")
    governing = state.governing.governing
    info = wrap_info(state.container_id, governing, fingerprint, entry.keyIndex)
    key = unwrap(entry.keyIndex, wrap, info)
    if not equal(key_commitment(state.container_id, key), governing.keyCommitment):
        raise IntegrityError("This reader was given another container key than the others.")
    return key


def open_type(state: State, text: TypeText | None, reader: bytes) -> str | None:
    """The type, checked against the signed hash; None where it is hidden from the reader."""
    if text is None:
        if state.own_entry(reader).allows(ContainerAccessLevel.ViewType):
            raise IntegrityError("The broker withholds the container's type.")
        return None
    if type_hash(state.container_id, text.salt, text.type) != state.governing.governing.type:
        raise IntegrityError("The type is not the one that was signed.")
    return text.type


def _access(view: GoverningView, record: ContainerRecord, judged: InForce | None) -> AccessList:
    """The list of a governing record: its own, or the one that a change of type keeps."""
    if view.accessList is not None:
        access = view.accessList.verified()
    elif judged is not None:
        access = judged.access
    else:
        raise IntegrityError("A governing record without its access list.")
    check_list(record, access)
    return access


def _verify(signed: Signed, known: Known, chains: Mapping[bytes, KeyChain]) -> None:
    chain = chains.get(known.record.author)
    if chain is None:
        raise IntegrityError("The keys of a record's author are not to be had.")
    verify_author(signed, known.record, chain)


def _resume(mark: Mark, known: Known, access: AccessList) -> InForce:
    """What was in force at the mark: proved by the mark's hash, judged when the mark was made."""
    if (known.record.version, known.hash) != (mark.governingVersion, mark.governingHash):
        raise ForkError(_OTHER_HISTORY)
    return InForce(known, access)


def _by_version(views: Sequence[GoverningView]) -> dict[int, Known]:
    """Return the served governing records, without their parts, by version."""
    known = [Known.parse_bare(view.record.body) for view in views]
    return {item.record.version: item for item in known}


class Walk:
    """From the record of a mark to the head, body by body, each checked to follow the one before it.

    Keeps of the bodies only the parents of what is judged in full, so that the length does not matter.
    """

    def __init__(self, mark: Mark, views: Sequence[GoverningView], head: int, now: int) -> None:
        self._mark, self._now = mark, now
        served = _by_version(views)
        if mark.governingVersion not in served:
            raise ForkError(_OTHER_HISTORY)
        self._in_force = served[mark.governingVersion]
        self._served, self._judged = served.keys(), {*served, head}
        self._last: Known | None = None
        self.governing: dict[int, bytes] = {}
        self.parents: dict[int, Known] = {}

    @property
    def next_version(self) -> int:
        return self._mark.version if self._last is None else self._last.record.version + 1

    @property
    def reached(self) -> bytes:
        """The hash of the last body."""
        return b"" if self._last is None else self._last.hash

    def step(self, body: bytes) -> None:
        known = Known.parse(body)
        if self._last is None:
            seen = (self._mark.version, self._mark.hash, self._mark.governingHash)
            if (known.record.version, known.hash, self._in_force.hash) != seen:
                raise ForkError(_OTHER_HISTORY)
        else:
            check_skipped(known, self._in_force, self._last, self._now)
            if known.record.governing is not None:
                if known.record.version not in self._served:
                    raise IntegrityError(_AS_IF_NONE)
                self.governing[known.record.version] = known.hash
                self._in_force = known
        self._last = known
        if known.record.version + 1 in self._judged:
            self.parents[known.record.version] = known


def _check_mark(
    state: State, views: Sequence[GoverningView], walk: Walk | None, mark: Mark
) -> None:
    """The head is what was seen, or follows from it without a gap."""
    if state.record.version == mark.version:
        if state.head.hash != mark.hash:
            raise ForkError(_OTHER_HISTORY)
        return
    if state.record.tombstone:
        _check_tombstone(state, views, mark)
        return
    if walk is None or walk.reached != state.head.hash:
        raise ForkError("The broker withholds what leads from the version seen before to this one.")
    judged = {v: known.hash for v, known in _by_version(views).items() if v > mark.version}
    if judged != walk.governing:
        raise IntegrityError(_AS_IF_NONE)


def _check_tombstone(state: State, views: Sequence[GoverningView], mark: Mark) -> None:
    """Raise `ForkError` unless the deletion follows from the mark, as far as the kept records show.

    Their chain has to lead through the governing record that was in force at the mark, and none of them may
    govern between that one and the mark. The record after the mark, where it is kept, names the mark's as
    its parent. Section 8 says what a member with Delete and the broker can still leave out.
    """
    served = _by_version(views)
    in_force = served.get(mark.governingVersion)
    if in_force is None or in_force.hash != mark.governingHash:
        raise ForkError(_OTHER_HISTORY)
    if any(mark.governingVersion < version <= mark.version for version in served):
        raise ForkError(_OTHER_HISTORY)
    following = {**served, state.record.version: state.head}.get(mark.version + 1)
    if following is not None and following.record.parent != mark.hash:
        raise ForkError(_OTHER_HISTORY)
