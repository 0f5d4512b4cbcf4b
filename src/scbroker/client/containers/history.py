"""Verify a container's history, piece by piece as a broker serves it, without I/O and without a clock.

A view does not contain everything: further pages, record bodies and authors' keys have to be fetched.
`evidence` is a generator that yields what it needs next; its caller (`fetching`) fetches that and sends it
in. It asks for more records only after members' signatures on the served ones verified: a broker without a
member's keys could otherwise keep a client fetching for ever.

Memory does not grow with the length of a history. After each piece the mark can be raised, so that an
interrupted reading continues from there. Spec: docs/spec/container.md, section 8.
"""

import dataclasses
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.core.judging import Evidence, Mark, State, Walk
from scbroker.records.canonical import MAX_UINT, user_id_of, uuid8
from scbroker.records.container_record import ContainerRecord, parse_either
from scbroker.records.departure import Departure, parse_departure
from scbroker.records.group import GroupChain
from scbroker.records.judge import Known
from scbroker.records.key_record import KeyChain
from scbroker.vocabulary import KeyType
from scbroker.wire.containers import MAX_SKIPPED, ContainerView, GoverningView

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


class Judgement(NamedTuple):
    """Needs the `State` that `judge` returns; `size` is about how many signatures the call verifies."""

    judge: Callable[[], State]
    size: int


class Raise(NamedTuple):
    """Offers to raise the device's mark after a piece; the caller sends in whether it did."""

    state: State
    mark: Mark


Need = Keys | Page | Bodies | Judgement | Raise
History = Generator[Need, Any, Evidence]


class Reader(NamedTuple):
    """The user's fingerprint, or the name of the group through which they read with the user's role in it."""

    name: bytes
    role: int | None


def evidence(
    container_id: bytes, reader: Reader, mark: Mark | None, view: ContainerView
) -> History:
    """Ask for what a view leaves to be fetched; return its last piece, which is left to be judged.

    After each other piece the mark is raised, and stored if all entries so far were disclosed: otherwise the
    past has to be judged again anyhow (section 8). The mark stays if the head is a tombstone, which is
    verified with the last piece.
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
        proofs: Proofs = yield _keys(view, views, resumed=resumed, is_last=is_last)
        found = Evidence(
            container_id, reader.name, views, head, None, proofs.chains, mark, proofs.now, before,
            earlier, is_last, reader.role, proofs.groups, view.headMembership,
        )  # fmt: skip
        found = dataclasses.replace(found, walk=(yield from _walked(found, view)))
        if is_last:
            return found
        judged: State = yield Judgement(found.judge, len(views))
        before = judged
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


def first_keys(view: ContainerView, mark: Mark | None) -> Keys:
    """Return the keys that the whole view needs, so that one request can fetch those of several views."""
    return _keys(view, view.governing, resumed=since_of(mark) is not None, is_last=True)


def since_of(mark: Mark | None) -> int | None:
    """Return the version from which a reader with this mark needs records; None if it needs all."""
    return mark.version if mark is not None and mark.complete else None


def _keys(
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
            yield Judgement(found.judge_signed, len(found.views))
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
