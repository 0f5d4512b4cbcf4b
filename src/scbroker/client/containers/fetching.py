"""Read containers: fetch them, verify them with `judging`, raise their marks, and open them.

One container and a batch run the same code, except for the request for the views. `judging` asks for what a
view does not contain: further pages, record bodies and authors' keys.
Spec: docs/spec/container.md, sections 3 to 6 and 8; docs/spec/protocol.md, section 5.
"""

import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypedDict, Unpack

from msgspec.structs import replace

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.calls import tasks
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers import sending
from scbroker.client.core import judging
from scbroker.client.core.judging import Evidence, Mark, State, open_container_key, open_type
from scbroker.client.core.sealing import OpenPart
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.http.requests import Query, query_of
from scbroker.client.users.session import Session
from scbroker.crypto.verify import labelled_hash, sha256
from scbroker.errors import BrokerError, DecryptionError, IntegrityError
from scbroker.records import batch, judge
from scbroker.records.canonical import (
    MAX_UINT,
    container_id_of,
    show_fingerprint,
    user_id_of,
    uuid8,
)
from scbroker.records.container_record import (
    OWN_TYPES,
    AccessList,
    ContainerRecord,
    Entry,
    Link,
    Part,
    Role,
    check_segment_hashes,
    parse_either,
)
from scbroker.records.group import GroupChain
from scbroker.records.judge import verify_author
from scbroker.records.key_record import KeyChain
from scbroker.types import Container, Header, SecuredContainer
from scbroker.vocabulary import AccessLevel, Availability, ContainerAccessLevel, NamedGroup
from scbroker.wire import containers
from scbroker.wire.containers import MAX_INLINE, ContainerView
from scbroker.wire.problems import result_of

KIND: Final = "container"
_log = logging.getLogger("scbroker")
_MOST_NUMBERS: Final = 256
"""Most documents of a type that a user can have deleted before the present one."""
_MANY_VIEWS: Final = 32
"""More governing records than this are judged in the thread pool: each needs a signature verified."""
_MANY_SIGNATURES: Final = 16
"""More signatures than this are verified on all cores. The records of a batch share one, verified once."""
ROUNDS: Final = 5
_BUSY: Final = "The container is changed faster than it can be read: try again."
_Marks = Mapping[uuid.UUID, Mark | None]
Vias = Mapping[uuid.UUID, uuid.UUID]
"""The groups through which to read, by container. Without one the broker takes the user's own entry, or that
of a group which the user has accepted."""
_ANY: Final[Vias] = MappingProxyType({})
_Versions = Mapping[uuid.UUID, int]
"""By group: the version that this session had verified before it sent the request for views."""
StoredMarks = Mapping[uuid.UUID, tuple[bytes, Mark]]
"""Marks as they are stored, and decoded."""
Views = Mapping[uuid.UUID, ContainerView | BrokerError]
_Keep = Callable[[uuid.UUID, State, Mark], bool]
"""Raise the device's mark after a state was verified; return False if it was changed meanwhile."""


class Wanted(TypedDict, total=False):
    """The parts of a view that are asked for.

    With `any_keys` a list may name keys that do not exist: a change of access or a deletion mends that.
    """

    header: bool
    content: bool
    recipients: bool
    any_keys: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """A verified state, the view that it was judged from, and the time of the judgement in microseconds."""

    state: State
    view: ContainerView
    time: int
    group: OpenGroup | None
    """The group through which the user reads; None if they read by their own entry."""

    @property
    def container_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.state.container_id)

    @property
    def query(self) -> Query:
        """Return the query of further requests: it names the group through which the user reads, if any."""
        return query_of(self.view.via)


@dataclass(frozen=True, slots=True)
class Opened(Fetched):
    """A fetched container with its key; None if the reader has no key."""

    container_key: bytes | None
    _parts: dict[Role, OpenPart] = field(default_factory=dict, init=False, repr=False)

    def part(self, role: Role) -> OpenPart | None:
        """Return a part with its key; None if the part is absent or the reader has no key."""
        part = self.state.record.part(role)
        if part is None or self.container_key is None:
            return None
        if role not in self._parts:
            container_id = self.state.container_id
            self._parts[role] = OpenPart.open(container_id, role, part, self.container_key)
        return self._parts[role]

    @property
    def length(self) -> int | None:
        """The number of bytes of the content; None without one, or if its part cannot be opened."""
        # A member can seal an invalid part key: then only the length is unknown, not the rest.
        with contextlib.suppress(DecryptionError):
            if (part := self.part(Role.Content)) is not None:
                return part.length
        return None


Found = dict[uuid.UUID, Fetched | BrokerError]


async def fetch(
    session: Session,
    container_id: uuid.UUID,
    *,
    via: uuid.UUID | None = None,
    **wanted: Unpack[Wanted],
) -> Fetched:
    """Return the container as of now, verified against the rules and against this device's mark.

    `via` is the group through which to read.
    """
    vias = _ANY if via is None else {container_id: via}
    return tasks.raised(*await _fetch_each(session, [container_id], vias, False, **wanted))


async def fetch_many(
    session: Session, ids: Sequence[uuid.UUID], vias: Vias = _ANY, **wanted: Unpack[Wanted]
) -> list[Fetched | BrokerError]:
    """Return each container as `fetch` does, or its error; a request asks for many views."""
    return await _fetch_each(session, ids, vias, True, **wanted)


async def _fetch_each(
    session: Session,
    ids: Sequence[uuid.UUID],
    vias: Vias,
    in_batches: bool,
    **wanted: Unpack[Wanted],
) -> list[Fetched | BrokerError]:
    found: Found = {}
    left = ids
    for _ in range(ROUNDS):
        kept = _KeptMarks(session, left)
        fetched = await _fetch_once(session, kept.marks, vias, in_batches, kept.raise_to, **wanted)
        found |= await session.settled(_settled(kept, fetched))
        # Again those whose mark another operation changed meanwhile.
        left = [each for each in left if each not in found]
        if not left:
            break
    return [found.get(each) or errors.ConflictError(_BUSY) for each in ids]


async def judge_listed(session: Session, served: Views, known: StoredMarks) -> Found:
    """Judge the containers of a page of a list; leave out those that have to be read again.

    The page was requested with the marks in `known`. The broker served every other container whole. If such a
    container has a mark after all, its whole history is judged again, as with a mark that is not complete. An
    error of it is not final: the mark may have been raised above the served version since the request.
    """
    kept = _KeptMarks(session, list(served), known)
    marks = kept.marks
    is_unsure = {each for each, mark in marks.items() if mark and each not in known}
    marks = {
        each: replace(mark, complete=False) if mark and each in is_unsure else mark
        for each, mark in marks.items()
    }
    judged = await _judge_views(session, served, marks, {}, kept.raise_to)
    found = await session.settled(_settled(kept, judged))
    return {
        each: outcome
        for each, outcome in found.items()
        if isinstance(outcome, Fetched) or each not in is_unsure
    }


async def fetch_after(session: Session, container_id: uuid.UUID, mark: Mark | None) -> Fetched:
    """Return the container as of now, verified against a mark other than the device's, which stays."""
    return tasks.raised(*(await _fetch_once(session, {container_id: mark}, _ANY, False)).values())


def mark_of(session: Session, container_id: bytes) -> tuple[bytes | None, Mark | None]:
    """Return the device's mark of a container twice: as stored, and decoded."""
    stored = session.marks.get(KIND, container_id)
    return stored, None if stored is None else Mark.decode(stored)


@contextlib.asynccontextmanager
async def deletion_proved(session: Session, container_id: uuid.UUID) -> AsyncIterator[None]:
    """Pass on a broker's `DeletedError` only if it serves the tombstone; else raise `IntegrityError`."""
    try:
        yield
    except errors.DeletedError:
        await fetch(session, container_id)
        raise _no_tombstone() from None


def _no_tombstone() -> errors.IntegrityError:
    return errors.IntegrityError(
        "The broker reports a container as deleted without the tombstone that would prove it."
    )


def _settled(kept: "_KeptMarks", fetched: Found) -> Found:
    """Raise the marks of fetched containers; return the outcomes that need not be fetched again."""
    found: Found = {}
    for each, outcome in fetched.items():
        if isinstance(outcome, Fetched):
            # Not raised if another operation changed the mark meanwhile: then the container is fetched again.
            if kept.raise_to(each, outcome.state, outcome.state.mark):
                is_deleted = outcome.state.record.tombstone
                found[each] = errors.DeletedError() if is_deleted else outcome
        elif not isinstance(outcome, errors.ConflictError):
            found[each] = outcome
        # After a ConflictError it is fetched again: it was changed or deleted between two pages of records.
    return found


class _KeptMarks:
    """The device's marks of some containers, as a reading has found or raised them."""

    def __init__(
        self, session: Session, ids: Sequence[uuid.UUID], known: StoredMarks = MappingProxyType({})
    ) -> None:
        self._session = session
        self._found = {each: known.get(each) or mark_of(session, each.bytes) for each in ids}

    @property
    def marks(self) -> _Marks:
        return {each: mark for each, (_, mark) in self._found.items()}

    def raise_to(self, container_id: uuid.UUID, state: State, mark: Mark) -> bool:
        """Raise a mark, after noting which sent records took effect; False if another operation raised it."""
        (old, before), new = self._found[container_id], mark.encode()
        if new == old:
            return True
        sending.settle(self._session, state, 0 if before is None else before.version)
        if not self._session.marks.swap(KIND, container_id.bytes, old, new):
            return False
        self._found[container_id] = new, mark
        return True


async def _fetch_once(
    session: Session,
    marks: _Marks,
    vias: Vias,
    in_batches: bool,
    keep: _Keep | None = None,
    *,
    any_keys: bool = False,
    **wanted: bool,
) -> Found:
    """Fetch containers and verify each against its mark."""
    versions = {uuid8(name): chain.version for name, chain in session.groups.verified.items()}
    views = await _ask(session, marks, vias, in_batches, **wanted)
    return await _judge_views(session, views, marks, versions, keep, any_keys=any_keys)


async def _judge_views(
    session: Session,
    views: Views,
    marks: _Marks,
    versions: _Versions,
    keep: _Keep | None = None,
    *,
    any_keys: bool = False,
) -> Found:
    """Judge served views against the marks that they were requested with.

    `keep` raises the mark after each piece of a long history.
    """
    if len(views) > 1:
        await _prefetch(session, views, marks)
    found: Found = {}
    group: OpenGroup | None
    given: list[tuple[uuid.UUID, ContainerView, OpenGroup | None, Evidence]] = []
    for each, view in views.items():
        if isinstance(view, BrokerError):
            found[each] = _no_tombstone() if isinstance(view, errors.DeletedError) else view
            continue
        with tasks.alone(partial(found.__setitem__, each)):
            is_new = any(uuid.UUID(each.groupId) not in versions for each in view.groupChains)
            if is_new and len(views) == 1:  # a group that this session has not verified yet
                # The signers' keys first: they are a short answer, and are needed to judge the group.
                async with tasks.all_or_first_error() as both:
                    both.create_task(_prefetch_keys(session, views, marks))
                    reading = both.create_task(_reading_group(session, view, versions))
                group = reading.result()
            else:
                group = await _reading_group(session, view, versions)
            item = await _collect(session, each, marks[each], view, group, keep)
            given.append((each, view, group, item))
    evidence = [item for *_, item in given]
    is_short = len(evidence) <= 1 and all(len(item.views) <= _MANY_VIEWS for item in evidence)
    views_of = [] if is_short else [each for item in evidence for each in item.views]
    signatures = {batch.signature_of(each.record.signature) for each in views_of}
    all_cores = len(signatures) > _MANY_SIGNATURES
    judged = await tasks.each_in_pool(Evidence.judge, evidence, here=is_short, all_cores=all_cores)
    whole = list(zip(given, judged, strict=True))
    named = {
        group
        for (_, view, _, _), state in whole
        if view.groups and not isinstance(state, BrokerError)
        for group in {str(uuid8(name)) for name in state.governing.access.entries} & {*view.groups}
    }
    if named:
        await meet_groups(session, named)
    for (each, view, group, item), state in whole:
        if isinstance(state, BrokerError):
            found[each] = state
            continue
        with tasks.alone(partial(found.__setitem__, each)):
            if not any_keys:
                await check_indices(session, state.governing.access)
            if group is not None and not state.record.tombstone:
                epoch = state.own_entry.keyIndex
                if epoch > group.epoch:  # than when the group was read
                    group = await session.groups.opened(group.group_id, fresh=True)
            found[each] = Fetched(state, view, item.now, group)
    return found


async def _reading_group(
    session: Session, view: ContainerView, versions: _Versions
) -> OpenGroup | None:
    """Read the groups of a view that have changed; return, opened, the one through which the user reads.

    Raises `RollbackError` if the broker names a group at a lower version than this session had verified
    before the request, and `ConflictError` if others may have changed the group since.
    """
    if not view.groupChains and view.via is None:
        return None
    is_alone = [each.groupId for each in view.groupChains] == [view.via]
    named = {uuid.UUID(view.via)} if is_alone and view.via else groups_named(view)
    stated = {
        group_id: each.version
        for each in view.groupChains
        if (group_id := uuid.UUID(each.groupId)) in named
    }
    group = None
    # Nothing of a deleted container is opened.
    is_deleted = view.head is not None and parse_either(view.head.body).record.tombstone
    if view.via is not None and not is_deleted:
        # This group first: its answer includes the chain, which is then not requested again.
        group_id = uuid.UUID(view.via)
        try:
            group = await session.groups.opened(group_id, version=stated.get(group_id, 0))
        except (
            errors.NotFoundError
        ):  # the user is not a member now, or the broker contradicts itself
            with groups_exist():
                await session.groups.chain(group_id)
            raise
    with groups_exist():
        chains = await session.groups.chains(stated)
    for chain in chains.values():
        version = stated[uuid8(chain.name)]
        if version < versions.get(uuid8(chain.name), 0):
            raise errors.RollbackError(
                f"The broker serves an older version of group {uuid8(chain.name)} than this device has "
                "verified."
            )
        if version < chain.version and uuid8(chain.name) not in versions:
            raise errors.ConflictError(_BUSY)
    return group


def groups_named(view: ContainerView) -> set[uuid.UUID]:
    """Return the groups of the records in a view, and the one by whose entry the broker answered.

    Nothing is verified yet. The broker may name any group beside them, whose history can be long.
    """
    signed = [each.record for each in view.governing]
    if view.head is not None:
        signed.append(view.head)
    vias = (parse_either(each.body).record.via for each in signed)
    found = {uuid8(via.group) for via in vias if via is not None}
    return found if view.via is None else {*found, uuid.UUID(view.via)}


async def _ask(
    session: Session, marks: _Marks, vias: Vias, in_batches: bool, **wanted: bool
) -> Views:
    """Request views with the wanted ones of header, content and recipients.

    Batches are sent until the broker has answered for each: an answer holds as many as fit.
    """
    outcomes: list[ContainerView | BrokerError] = []
    if not in_batches or session.is_offline:  # a cache answers each request at once
        for each, mark in marks.items():
            query = {**query_of(vias.get(each)), **{name: "1" for name in wanted if wanted[name]}}
            if (since := judging.since_of(mark)) is not None:
                query["since"] = str(since)
            try:
                path = f"/v1/containers/{each}"
                outcomes.append(await session.call("GET", path, ContainerView, query=query))
            except BrokerError as error:
                outcomes.append(error)
    else:
        asked = [
            containers.ViewRequest(
                containerId=str(each),
                since=judging.since_of(mark),
                via=None if (via := vias.get(each)) is None else str(via),
                **wanted,
            )
            for each, mark in marks.items()
        ]
        while left := asked[len(outcomes) :][: containers.MAX_BATCH]:
            message = containers.ViewsRequest(views=left)
            answer = await session.call(
                "POST", "/v1/batches/views", containers.ViewsAnswer, message=message
            )
            if len(answer.views) > len(left):
                raise errors.BrokerFaultError(tasks.MISCOUNTED)
            outcomes += [result_of(item.view, item.problem) for item in answer.views]
    views = dict(zip(marks, outcomes, strict=True))
    for each, via in vias.items():
        if isinstance(view := views.get(each), ContainerView) and view.via != str(via):
            views[each] = errors.IntegrityError(
                "The broker answered through another group than was requested."
            )
    return views


async def _prefetch(session: Session, served: Views, marks: _Marks) -> None:
    """Fetch the keys of all signers by one request, and the groups for which they acted by another.

    If a request fails, it is repeated where the key or group is needed. The group through which the user
    reads is left out: it is fetched later, together with its members.
    """
    await _prefetch_keys(session, served, marks)
    groups = dict[uuid.UUID, int]()
    for view in served.values():
        with contextlib.suppress(BrokerError):
            if isinstance(view, ContainerView):
                named = {str(group) for group in groups_named(view)} - {view.via}
                for state in view.groupChains:
                    if state.groupId in named:
                        group = uuid.UUID(state.groupId)
                        groups[group] = max(state.version, groups.get(group, 0))
    if groups:
        with tasks.alone(lambda _: None):
            await session.groups.chains(groups)


async def _prefetch_keys(session: Session, served: Views, marks: _Marks) -> None:
    """Fetch the keys of all signers by one request. A failure is repeated where a key is needed."""
    signers = dict[uuid.UUID, int]()
    for each, view in served.items():
        with contextlib.suppress(BrokerError):
            if isinstance(view, ContainerView):
                resumed = judging.since_of(marks[each]) is not None
                keys = judging.keys_needed(view, view.governing, resumed=resumed, is_last=True)
                for user, sequence in keys.signers.items():
                    signers[user] = max(sequence, signers.get(user, 0))
    with tasks.alone(lambda _: None):
        await session.directory.at_least(signers)


async def _collect(
    session: Session,
    container_id: uuid.UUID,
    mark: Mark | None,
    view: ContainerView,
    group: OpenGroup | None,
    keep: _Keep | None,
) -> Evidence:
    """Fetch the pages, bodies and keys that a view lacks; return the last piece, for the caller to judge.

    `keep` raises the mark after each other piece.
    """
    reader = session.fingerprint if group is None else group.chain.name
    role = None if group is None else group.role
    pending = judging.evidence(container_id.bytes, reader, role, mark, view)
    answer: object = None
    many = len(view.governing) > _MANY_VIEWS

    def step() -> judging.Need | Evidence:
        try:
            return pending.send(answer)
        except StopIteration as end:
            last: Evidence = end.value
            return last

    while True:
        match need := await io_thread.in_pool(step) if many else step():
            case Evidence():
                return need
            case judging.Keys():
                chains, groups = await _chains_of(session, need), dict[bytes, GroupChain]()
                if need.groups:
                    with groups_exist():
                        groups |= await session.groups.chains(need.groups)
                answer = judging.Proofs(chains, groups, now())
            case judging.Page():
                path = f"/v1/containers/{container_id}/governing"
                query = {**query_of(view.via), "from": str(need.first), "to": str(need.to)}
                page = await session.call("GET", path, containers.GoverningPage, query=query)
                answer = page.governing
                many = many or len(page.governing) > _MANY_VIEWS
            case judging.Bodies():
                path = f"/v1/containers/{container_id}/records"
                query = {
                    **query_of(view.via), "from": str(need.first), "count": str(need.number)
                }  # fmt: skip
                answer = (await session.call("GET", path, containers.Bodies, query=query)).bodies
            case judging.Raise():
                answer = keep is not None and keep(container_id, need.state, need.mark)
                if keep is not None and not answer:
                    raise errors.ConflictError(_BUSY)


async def _chains_of(session: Session, need: judging.Keys) -> Mapping[bytes, KeyChain]:
    """Return the key chains of signers by fingerprint.

    The departures from one list may come from a thousand users with long chains. Unless these users are
    authors too, only the keys that signed departures are kept, and only a few whole chains are in memory at
    once.
    """
    leavers = [user for user in need.signers if user not in need.authors]
    found: dict[bytes, KeyChain] = {}
    size = judging.PIECE_SIGNERS
    for start in range(0, len(leavers), size):
        some = {user: need.signers[user] for user in leavers[start : start + size]}
        for name, chain in (await _chains(session, some)).items():
            found[name] = chain.with_keys(need.departed.get(name, ()))
    authors = {user: need.signers[user] for user in need.authors}
    return {**found, **await _chains(session, authors)}


async def _chains(session: Session, signers: Mapping[uuid.UUID, int]) -> Mapping[bytes, KeyChain]:
    """Return the key chains of signers by fingerprint; `IntegrityError` if the broker does not know one."""
    try:
        chains = await session.directory.at_least(signers)
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker serves a record or a departure and does not know the user who signed it."
        ) from None
    return {chain.fingerprint: chain for chain in chains.values()}


async def governing_at(
    session: Session, fetched: Fetched, link: Link
) -> tuple[ContainerRecord, AccessList]:
    """Return a governing record of a container that was read, and its list.

    Raises `ForkError` for another record than that of the link's hash.
    """
    path = f"/v1/containers/{fetched.container_id}/governing"
    query = {
        **fetched.query, "from": str(link.version), "to": str(fetched.state.record.version),
    }  # fmt: skip
    page = await session.call("GET", path, containers.GoverningPage, query=query)
    first = page.governing[0] if page.governing else None
    if first is not None and first.accessList is not None:
        parsed = parse_either(first.record.body)
        if parsed.hash == link.hash:
            access = first.accessList.verified()
            judge.check_list(parsed.record, access)
            return parsed.record, access
    raise errors.ForkError(
        "The broker serves another governing record than this device has verified."
    )


async def check_indices(session: Session, access: AccessList) -> None:
    """Raise `IntegrityError` if a list names a key or an epoch that does not exist, as far as it is known."""
    await session.directory.check_key_indices(access)
    ahead = [entry for entry in access.entries.values() if _is_ahead(session, entry)]
    if not ahead:
        return
    with groups_exist():
        await session.groups.chains({uuid8(entry.fingerprint): MAX_UINT for entry in ahead})
    for entry in ahead:
        if _is_ahead(session, entry):
            raise errors.IntegrityError(
                f"An access list names epoch {entry.keyIndex} of group {uuid8(entry.fingerprint)}, which "
                "does not exist: have a member with ModifyAccess, who does not act for this group, set the "
                "access levels again."
            )


def _is_ahead(session: Session, entry: Entry) -> bool:
    """Return whether an entry names an epoch after the latest one of a group that this device knows."""
    epoch = epoch_of(session, entry, whole=True) if entry.keyIndex else None
    return epoch is not None and entry.keyIndex > epoch


def epoch_of(session: Session, entry: Entry, *, whole: bool = False) -> int | None:
    """Return the latest epoch of the group of an entry, as this device knows it; None for a user.

    It is known from the device's pin, even if this program has not read the group yet. With
    `whole`, None also for a group of which this device may know an old epoch only.
    """
    if session.directory.knows(uuid8(entry.fingerprint)):
        return None
    return session.groups.epoch_of(entry.fingerprint, whole=whole)


@contextlib.contextmanager
def groups_exist() -> Iterator[None]:
    """Raise `IntegrityError` if the broker does not know a group of a container that it served."""
    try:
        yield
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker does not know a group of a container that it served: it contradicts itself."
        ) from None


async def meet_groups(session: Session, named: Collection[str]) -> None:
    """Verify the names of groups that the broker names in lists, so that they can be shown as groups.

    A name whose group cannot be verified is shown as that of a user, and nothing is wrapped to it.
    """
    unknown = [each for each in map(uuid.UUID, named) if session.groups.known(each) is None]
    if unknown:
        for error in await session.groups.meet(unknown):
            _log.warning("A group of a list is refused: %s", error)


def open_fetched(session: Session, fetched: Fetched) -> Opened:
    """Open the container key with the wrap of the reader, or of the group through which they read."""
    state, view, group = fetched.state, fetched.view, fetched.group
    unwrap = session.keys.unwrap if group is None else partial(_unwrap_by, session, group)
    key = open_container_key(state, view.wrap, unwrap)
    return Opened(state, view, fetched.time, group, key)


def _unwrap_by(session: Session, group: OpenGroup, epoch: int, wrap: bytes, info: bytes) -> bytes:
    return session.keys.unwrap_by(group.key(epoch), wrap, info)


def read_part(opened: Opened, role: Role) -> bytes | None:
    """Return the plaintext of a part that came with the view.

    None if the part is absent, if it is a large content, or if this reader may not read it.
    """
    part = opened.part(role)
    sealed = sealed_part(opened, role)
    if part is None or sealed is None:
        return None
    return part.open_segment(0, sealed, sha256(sealed))


def sealed_part(fetched: Fetched, role: Role) -> bytes | None:
    """Return a sealed part of the view, verified against the record; None if the view has none.

    Raises `IntegrityError` if the view lacks a part and the reader has Download. A large content never
    comes with a view.
    """
    part = fetched.state.record.part(role)
    if part is None or (role is Role.Content and part.paddedLength > MAX_INLINE):
        return None
    sealed = fetched.view.header if role is Role.Header else fetched.view.content
    if sealed is not None:
        check_segment_hashes(part, sha256(sealed))
    elif fetched.state.own_entry.allows(ContainerAccessLevel.Download):
        raise IntegrityError(f"The broker withholds the container's {role.name.lower()}.")
    return sealed


def container(
    session: Session,
    opened: Opened,
    content: bytes | None,
    header: Header[Any] | None,
    *,
    asked: Collection[Role] = tuple(Role),
) -> Container[Any]:
    """Return the opened container; `asked` are the parts that the caller wants."""
    state, record = opened.state, opened.state.record
    text = open_type(state, opened.view.type)
    return Container(
        **_metadata(session, state, opened.group, opened.length, text),
        headerAvailability=_availability(record.header, header, hidden=Role.Header in asked),
        contentAvailability=_availability(record.content, content, hidden=Role.Content in asked),
        content=content,
        header=header,
        contentBy=None if record.content is None else user_id_of(record.content.author),
        headerBy=None if record.header is None else user_id_of(record.header.author),
        asOf=session.as_of(opened.container_id),
        isOwnDocument=is_own_document(session.fingerprint, text, opened.container_id),
    )


async def secured(
    session: Session, fetched: Fetched, *, asked: Collection[Role] = tuple(Role)
) -> SecuredContainer:
    """Return the container with the sealed parts that were asked for, without opening them.

    The caller gets the signature and the sealed parts themselves, so both are verified here. The signature is
    not covered by the mark's hash: a head that was accepted by its mark may come with any signature.
    """
    state, view = fetched.state, fetched.view
    author = user_id_of(state.record.author)
    chains = await session.directory.at_least({author: 0})
    verify_author(state.head, state.signed.signature, chains[author])
    length = open_fetched(session, fetched).length
    text = open_type(state, view.type)
    sealed = {role: sealed_part(fetched, role) for role in asked}
    return secured_of(session, state, fetched.group, length, text, view.wrap, sealed)


def secured_of(
    session: Session,
    state: State,
    group: OpenGroup | None,
    length: int | None,
    text: str | None,
    wrap: bytes | None,
    sealed: Mapping[Role, bytes | None],
) -> SecuredContainer:
    """Return the container as it is stored, without what the reader's entry does not allow.

    `group` is the one through which the user reads; `length` that of the content, for a reader with the
    container key.
    """
    record, may_download = state.record, state.may(ContainerAccessLevel.Download)
    header, content = (
        sealed.get(role) if may_download else None for role in (Role.Header, Role.Content)
    )
    return SecuredContainer(
        **_metadata(session, state, group, length, text),
        headerAvailability=_availability(record.header, header, hidden=not may_download),
        contentAvailability=_availability(record.content, content, hidden=not may_download),
        record=state.signed.body,
        signature=state.signed.signature,
        wrap=wrap,
        sealedHeader=header,
        sealedContent=content,
    )


def _metadata(
    session: Session, state: State, group: OpenGroup | None, length: int | None, text: str | None
) -> dict[str, Any]:
    """Return the fields of `Metadata`, which every kind of container has."""
    record = state.record
    return {
        "id": uuid.UUID(bytes=state.container_id),
        "type": text if state.may(ContainerAccessLevel.ViewType) else None,
        "access": shown(session, state, state.governing.access),
        "version": record.version,
        "length": length,
        "createdAt": moment(state.createdAt),
        "createdBy": user_id_of(state.createdBy),
        "modifiedAt": moment(record.time),
        "modifiedBy": user_id_of(record.author),
        "modifiedVia": None if record.via is None else uuid8(record.via.group),
        "modifierIsMember": _is_member(session, record, group),
        "via": None if group is None else group.group_id,
    }


def shown(session: Session, state: State, access: AccessList) -> tuple[AccessLevel, ...] | None:
    """Return a list for the caller, without users who have left; None if the reader may not see all of it.

    A name that this device has verified as a group's is shown as one; any other as a user's.
    """
    if not access.complete or not state.may(ContainerAccessLevel.ViewAccess):
        return None
    left = state.governing.left if access is state.governing.access else frozenset[bytes]()
    return tuple(
        AccessLevel(
            NamedGroup(uuid8(name), show_fingerprint(name))
            if name in session.groups.names
            else user_id_of(name),
            ContainerAccessLevel(entry.permissions),
            None if entry.expiresAt is None else moment(entry.expiresAt),
        )
        for name, entry in access.entries.items()
        if name not in left
    )


def _is_member(session: Session, record: ContainerRecord, group: OpenGroup | None) -> bool | None:
    """Return whether a record's author still is a member of the group they acted for; None if not known.

    Nobody loses a membership within an epoch. Once the epoch has ended, only members know the others.
    """
    via = record.via
    chain = None if via is None else session.groups.verified.get(via.group)
    if via is None or chain is None:
        return None
    if group is not None and group.chain.name == via.group:
        return record.author in group.members.keys() - group.left
    return True if chain.roster.epoch == via.epoch and chain.ended is None else None


def _availability(part: Part | None, found: object, *, hidden: bool) -> Availability:
    """Return whether a result has a part; with `hidden`, a missing one is due to the reader's permissions."""
    if part is None:
        return Availability.Absent
    if found is not None:
        return Availability.Available
    return Availability.Hidden if hidden else Availability.NotIncluded


def own_nonce(type: str, number: int) -> bytes:
    """Return the nonce of the user's own document of a type after so many deletions (container.md, 5)."""
    return labelled_hash("own-document", number.to_bytes(4, "big"), type.encode())


def is_own_document(fingerprint: bytes, type: str | None, container_id: uuid.UUID) -> bool:
    """Return whether a container is a document of the user's own, which no other user can have created."""
    return (type or "").startswith(OWN_TYPES) and any(
        container_id_of(fingerprint, own_nonce(type or "", number)) == container_id
        for number in range(_MOST_NUMBERS)
    )
