"""Fetch containers, judge them by `judging`, and keep their marks.

One container and a batch take the same way; they differ in the request for the views. A view leaves further
pages, record bodies and authors' keys to be fetched. Their number is bounded: a broker could answer at once
and without end. Spec: docs/spec/container.md, section 8; docs/spec/protocol.md, section 5.
"""

import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from scbroker import errors
from scbroker.client.arguments import now
from scbroker.client.calls import tasks
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers.opening import Fetched
from scbroker.client.core.judging import Evidence, Mark, Walk
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import parse_bare
from scbroker.wire import containers
from scbroker.wire.containers import ContainerView, GoverningView
from scbroker.wire.problems import result_of

KIND: Final = "container"
_MANY_VIEWS: Final = 32
"""More governing records than this are judged in the pool: each takes a signature's verification."""
_MAX_GOVERNING: Final = 256 * 1_048_576
"""Bytes of governing records and access lists."""
_MAX_WALK: Final = 1_000_000
"""Versions from the mark to the head (section 8)."""
ROUNDS: Final = 5
_Marks = Mapping[uuid.UUID, Mark | None]
_Views = Mapping[uuid.UUID, ContainerView | BrokerError]
_Found = dict[uuid.UUID, Fetched | BrokerError]
_Ask = Callable[[Session, _Marks], Awaitable[_Views]]


async def fetch(
    session: Session,
    container_id: uuid.UUID,
    *,
    header: bool = False,
    content: bool = False,
    recipients: bool = False,
    any_keys: bool = False,
) -> Fetched:
    """Return the container as of now, verified against the rules and against this device's mark.

    With `any_keys` a list may name keys that do not exist: a change of access or a deletion mends that.
    """
    ask = partial(_ask_for_one, header=header, content=content, recipients=recipients)
    return _raised(*await _fetch_each(session, [container_id], ask, any_keys=any_keys))


async def fetch_many(session: Session, ids: Sequence[uuid.UUID]) -> list[Fetched | BrokerError]:
    """Return each container as `fetch` does, with the small parts of both roles, or its error."""
    return await _fetch_each(session, ids, _ask_for_many)


async def fetch_after(session: Session, container_id: uuid.UUID, mark: Mark) -> Fetched:
    """Return the container as of now, verified against a mark other than the device's."""
    return _raised(*(await _fetch_once(session, {container_id: mark}, _ask_for_one)).values())


@contextlib.asynccontextmanager
async def deletion_proved(session: Session, container_id: uuid.UUID) -> AsyncIterator[None]:
    """Pass on a broker's `DeletedError` only if it serves the tombstone; else raise `IntegrityError`."""
    try:
        yield
    except errors.DeletedError:
        await fetch(session, container_id)
        raise _no_tombstone() from None


def _raised(outcome: Fetched | BrokerError) -> Fetched:
    if isinstance(outcome, BrokerError):
        raise outcome.fresh()
    return outcome


def _no_tombstone() -> errors.IntegrityError:
    return errors.IntegrityError(
        "The broker reports a container as deleted without the tombstone that would prove it."
    )


async def _fetch_each(
    session: Session, ids: Sequence[uuid.UUID], ask: _Ask, *, any_keys: bool = False
) -> list[Fetched | BrokerError]:
    """Fetch until each container failed, or was verified against a mark that is still the device's."""
    found: _Found = {}
    left = ids
    for _ in range(ROUNDS):
        stored = {each: session.marks.get(KIND, each.bytes) for each in left}
        marks = {each: None if data is None else Mark.decode(data) for each, data in stored.items()}
        fetched = await _fetch_once(session, marks, ask, any_keys=any_keys)
        for each, outcome in fetched.items():
            if isinstance(outcome, Fetched):
                old, new = stored[each], outcome.state.mark.encode()
                # The swap fails if another operation moved the mark meanwhile.
                if new == old or session.marks.swap(KIND, each.bytes, old, new):
                    is_deleted = outcome.state.record.tombstone
                    found[each] = errors.DeletedError() if is_deleted else outcome
            elif not isinstance(outcome, errors.ConflictError):
                found[each] = outcome
            # Else it was changed or deleted between two pages of its records: read it again.
        left = [each for each in left if each not in found]
        if not left:
            break
    busy = errors.ConflictError("The container is changed faster than it can be read: try again.")
    return [found.get(each, busy) for each in ids]


async def _fetch_once(
    session: Session, marks: _Marks, ask: _Ask, *, any_keys: bool = False
) -> _Found:
    """Fetch containers and judge each by its mark; see `fetch` for `any_keys`."""
    views = await ask(session, marks)
    if len(views) > 1:
        await _prefetch_authors(session, views, marks)
    found: _Found = {}
    given: list[tuple[uuid.UUID, ContainerView, Evidence]] = []
    for each, view in views.items():
        if isinstance(view, BrokerError):
            found[each] = _no_tombstone() if isinstance(view, errors.DeletedError) else view
            continue
        with tasks.alone(partial(found.__setitem__, each)):
            given.append((each, view, await _collect(session, each, marks[each], view)))
    evidence = [item for _, _, item in given]
    is_short = len(evidence) <= 1 and all(len(item.views) <= _MANY_VIEWS for item in evidence)
    judged = await tasks.each_in_pool(Evidence.judge, evidence, here=is_short)
    for (each, view, item), state in zip(given, judged, strict=True):
        if isinstance(state, BrokerError):
            found[each] = state
            continue
        with tasks.alone(partial(found.__setitem__, each)):
            if not any_keys:
                await session.directory.check_key_indices(state.governing.access)
            found[each] = Fetched(state, view, item.now)
    return found


async def _ask_for_one(session: Session, marks: _Marks, **wanted: bool) -> _Views:
    """Request the view of the only container, with what is wanted of header, content and recipients."""
    [(container_id, mark)] = marks.items()
    query = {name: "1" for name, is_wanted in wanted.items() if is_wanted}
    if (since := _since(mark)) is not None:
        query["since"] = str(since)
    path = f"/v1/containers/{container_id}"
    try:
        return {container_id: await session.call("GET", path, ContainerView, query=query)}
    except BrokerError as error:
        return {container_id: error}


async def _ask_for_many(session: Session, marks: _Marks) -> _Views:
    """Request views until the broker has answered for each: an answer holds as many as fit."""
    asked = [
        containers.ViewRequest(containerId=str(each), since=_since(mark), header=True, content=True)
        for each, mark in marks.items()
    ]
    outcomes: list[ContainerView | BrokerError] = []
    while len(outcomes) < len(asked):
        left = asked[len(outcomes) :]
        message = containers.ViewsRequest(views=left)
        answer = await session.call(
            "POST", "/v1/batches/views", containers.ViewsAnswer, message=message
        )
        if len(answer.views) > len(left):
            raise errors.BrokerFaultError(tasks.MISCOUNTED)
        outcomes += [result_of(item.view, item.problem) for item in answer.views]
    return dict(zip(marks, outcomes, strict=True))


async def _prefetch_authors(session: Session, views: _Views, marks: _Marks) -> None:
    """Fetch the keys of all authors by one request. A failure is repeated where the key is needed."""
    authors: dict[uuid.UUID, int] = {}
    for each, view in views.items():
        with contextlib.suppress(BrokerError):
            if isinstance(view, ContainerView):
                for user, sequence in _authors(view, view.governing, marks[each]).items():
                    authors[user] = max(sequence, authors.get(user, 0))
    with tasks.alone(lambda _: None):
        await session.directory.at_least(authors)


def _since(mark: Mark | None) -> int | None:
    """Return the version from which on a reader with this mark needs records; None for all of them."""
    return mark.version if mark is not None and mark.complete else None


async def _collect(
    session: Session, container_id: uuid.UUID, mark: Mark | None, view: ContainerView
) -> Evidence:
    """Fetch what a view leaves to be fetched: further pages, and the keys of authors."""
    views = await _all_governing(session, container_id, view)
    head = view.head.signed if view.head is not None else None
    try:
        chains = await session.directory.at_least(_authors(view, views, mark))
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker serves a record and does not know the record's author."
        ) from None
    by_fingerprint = {chain.fingerprint: chain for chain in chains.values()}
    found = Evidence(
        container_id.bytes, session.fingerprint, views, head, None, by_fingerprint, mark, now()
    )
    return dataclasses.replace(found, walk=await _walk(session, found, view.skipped))


async def _all_governing(
    session: Session, container_id: uuid.UUID, view: ContainerView
) -> list[GoverningView]:
    views = list(view.governing)
    to = view.lastGoverning if view.head is None else parse_bare(view.head.body).version
    size = 0
    while (last := _version(views[-1])) < view.lastGoverning:
        path = f"/v1/containers/{container_id}/governing"
        query = {"from": str(last + 1), "to": str(to)}
        page = await session.call("GET", path, containers.GoverningPage, query=query)
        if not page.governing or _version(page.governing[-1]) <= last:
            raise errors.IntegrityError("The broker withholds governing records.")
        views += page.governing
        size += sum(_size(item) for item in page.governing)
        if size > _MAX_GOVERNING:
            raise errors.TooLargeError(
                "The container's access was changed too often to be judged: have a member create it anew."
            )
    return views


def _size(view: GoverningView) -> int:
    listed = view.accessList
    lists = 0 if listed is None else len(listed.entryHashes) + 256 * len(listed.disclosed)
    return len(view.record.body) + len(view.record.signature) + lists


def _version(view: GoverningView) -> int:
    return parse_bare(view.record.body).version


async def _walk(session: Session, found: Evidence, skipped: Sequence[bytes]) -> Walk | None:
    """Verify every body from the mark's record to the head, from the view and from further pages.

    None without a mark, if the head is not newer than the mark, or if the head is a tombstone: the broker
    then keeps only the bodies of governing records.
    """
    mark, last = found.mark, parse_bare(found.last)
    head = last.version
    if mark is None or head <= mark.version or last.tombstone:
        return None
    bodies = [item.record.body for item in found.views] + [*skipped, found.last]
    served = {parse_bare(body).version: body for body in bodies}
    walk = Walk(mark, found.views, head, found.now)
    is_checked = False
    while walk.next_version <= head:
        if walk.next_version in served:
            walk.step(served[walk.next_version])
            continue
        # Only after all signatures verified: otherwise a broker alone could make a client fetch for ever.
        if not is_checked:
            await _check_far(found, head - mark.version)
            is_checked = True
        for body in await _page(session, found.container_id, walk.next_version, head):
            walk.step(body)
    return walk


async def _check_far(found: Evidence, distance: int) -> None:
    """Raise unless members signed the head, and it is no further from the mark than is fetched."""
    if len(found.views) > _MANY_VIEWS:
        await io_thread.in_pool(found.judge_signed)
    else:
        found.judge_signed()
    if distance > _MAX_WALK:
        raise errors.TooLargeError(
            f"The container was changed more than {_MAX_WALK} times since this device read it, and "
            "so many records are not fetched: read it on a device without a mark of it."
        )


async def _page(session: Session, container_id: bytes, first: int, head: int) -> Sequence[bytes]:
    """Fetch the bodies from `first` on, up to the one before the head, which the view has."""
    count = min(containers.MAX_SKIPPED, head - first)
    path = f"/v1/containers/{uuid.UUID(bytes=container_id)}/records"
    query = {"from": str(first), "count": str(count)}
    page = await session.call("GET", path, containers.Bodies, query=query)
    if len(page.bodies) != count or parse_bare(page.bodies[0]).version != first:
        raise errors.ForkError(
            "The broker withholds the records between the version seen before and this one."
        )
    return page.bodies


def _authors(
    view: ContainerView, views: Sequence[GoverningView], mark: Mark | None
) -> dict[uuid.UUID, int]:
    """Return the authors whose records are judged, with the sequence that the broker names for their keys."""
    bodies = [item.record.body for item in views[0 if _since(mark) is None else 1 :]]
    if view.head is not None:
        bodies.append(view.head.body)
    known = {item.userId: item.sequence for item in view.keyChains}
    authors = {user_id_of(parse_bare(body).author) for body in bodies}
    return {user: known.get(str(user), 0) for user in authors}
