"""Fetch a container, judge it by `judging`, and keep its mark.

A view leaves further pages, record bodies and authors' keys to be fetched. Their number is bounded: a broker
could answer at once and without end.
Spec: docs/spec/container.md, section 8.
"""

import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from scbroker import errors
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.containers.opening import Fetched
from scbroker.client.core.judging import Evidence, Mark, State, Walk
from scbroker.client.users.session import Session
from scbroker.records.container_record import parse_bare
from scbroker.records.ids import user_id_of
from scbroker.records.key_record import KeyChain
from scbroker.types import now
from scbroker.wire.containers import (
    MAX_SKIPPED,
    Bodies,
    ContainerView,
    GoverningPage,
    GoverningView,
)

KIND: Final = "container"
NO_TOMBSTONE: Final = (
    "The broker reports a container as deleted without the tombstone that would prove it."
)
_MANY_VIEWS: Final = 32
"""More governing records than this are judged in the pool."""
_MAX_GOVERNING: Final = 256 * 1_048_576
"""Bytes of governing records and access lists."""
_MAX_WALK: Final = 1_000_000
"""Versions from the mark to the head (section 8)."""
_ROUNDS: Final = 5


async def fetch(
    session: Session, container_id: uuid.UUID, *, header: bool = False, content: bool = False
) -> Fetched:
    """Return the container as of now, verified against the rules and against this device's mark."""
    for _ in range(_ROUNDS):
        stored = session.marks.get(KIND, container_id.bytes)
        mark = None if stored is None else Mark.decode(stored)
        try:
            fetched = await _fetch_once(session, container_id, mark, header=header, content=content)
        except errors.ConflictError:  # changed or deleted between two pages of its records
            continue
        if keep_mark(session, stored, fetched.state):
            fetched.state.check_not_deleted()
            return fetched
    raise errors.ConflictError("The container is changed faster than it can be read: try again.")


@contextlib.asynccontextmanager
async def deletion_proved(session: Session, container_id: uuid.UUID) -> AsyncIterator[None]:
    """Pass on a broker's `DeletedError` only if it serves the tombstone; else raise `IntegrityError`."""
    try:
        yield
    except errors.DeletedError:
        await fetch(session, container_id)
        raise errors.IntegrityError(NO_TOMBSTONE) from None


def keep_mark(session: Session, stored: bytes | None, state: State) -> bool:
    """Raise the mark to a verified state; return False if it was changed since `stored` was read."""
    new = state.mark.encode()
    return new == stored or session.marks.swap(KIND, state.container_id, stored, new)


async def keep_own(session: Session, before: State | None, own: State) -> None:
    """Raise the mark to a record of one's own, which the broker stored after `before`.

    Other operations and programs may share the marks and have read the container meanwhile:

    | the mark by now                       | what follows                                             |
    |---------------------------------------|----------------------------------------------------------|
    | none, or the record before            | Raise it to the own record; if it moved, begin again.    |
    | the own record                        | Done.                                                    |
    | another record of no later version    | `ForkError`: the broker showed another history.          |
    | a record of a later version           | Fetch the head twice: it must follow from the own record |
    |                                       | and from the mark. `ForkError` if the two heads differ;  |
    |                                       | if the head moved in between, begin again.               |

    Raises `ConflictError` if others change the container faster than this can be told. The change is stored
    in every case.
    """
    container_id = uuid.UUID(bytes=own.container_id)
    for _ in range(_ROUNDS):
        stored = session.marks.get(KIND, own.container_id)
        mark = None if stored is None else Mark.decode(stored)
        if mark is None or (before is not None and mark.hash == before.head.hash):
            is_done = keep_mark(session, stored, own)
        elif mark.version <= own.record.version:
            if mark.hash != own.head.hash:
                raise _fork()
            is_done = True
        else:
            ours = (await _fetch_once(session, container_id, own.mark)).state
            theirs = (await _fetch_once(session, container_id, mark)).state
            is_done = ours.record.version == theirs.record.version
            if is_done and ours.head.hash != theirs.head.hash:
                raise _fork()
        if is_done:
            return
    raise errors.ConflictError(
        "The change is stored, but others change the container faster than it can be read: read it again."
    )


def _fork() -> errors.ForkError:
    return errors.ForkError(
        "The broker served another history than the one of the change that it stored."
    )


async def _fetch_once(
    session: Session,
    container_id: uuid.UUID,
    mark: Mark | None,
    *,
    header: bool = False,
    content: bool = False,
) -> Fetched:
    query = {name: "1" for name, wanted in (("header", header), ("content", content)) if wanted}
    if (since := since_of(mark)) is not None:
        query["since"] = str(since)
    path = f"/v1/containers/{container_id}"
    try:
        view = await session.call("GET", path, ContainerView, query=query)
    except errors.DeletedError:
        raise errors.IntegrityError(NO_TOMBSTONE) from None
    evidence = await collect(session, container_id, mark, view)
    state = await _judged(evidence, evidence.judge)
    return Fetched(state, view, evidence.now)


async def _judged(evidence: Evidence, judge: Callable[[], State]) -> State:
    """Judge in the pool if there are many records: each takes a signature's verification."""
    return await io_thread.in_pool(judge) if len(evidence.views) > _MANY_VIEWS else judge()


def since_of(mark: Mark | None) -> int | None:
    """Return the version from which on a reader with this mark needs records; None for all of them."""
    return mark.version if mark is not None and mark.complete else None


async def collect(
    session: Session, container_id: uuid.UUID, mark: Mark | None, view: ContainerView
) -> Evidence:
    """Fetch what a view leaves to be fetched: further pages, and the keys of authors."""
    views = await _all_governing(session, container_id, view)
    head = view.head.signed if view.head is not None else None
    chains = await _chains(session, authors_of(view, views, mark))
    found = Evidence(
        container_id.bytes, session.fingerprint, views, head, None, chains, mark, now()
    )
    return dataclasses.replace(found, walk=await _walk(session, found, view.skipped))


async def _all_governing(
    session: Session, container_id: uuid.UUID, view: ContainerView
) -> list[GoverningView]:
    views = list(view.governing)
    to = view.lastGoverning if view.head is None else parse_bare(view.head.body).version
    size = 0
    while (last := _version(views[-1])) < view.lastGoverning:
        page = await session.call(
            "GET",
            f"/v1/containers/{container_id}/governing",
            GoverningPage,
            query={"from": str(last + 1), "to": str(to)},
        )
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
    await _judged(found, found.judge_signed)
    if distance > _MAX_WALK:
        raise errors.TooLargeError(
            f"The container was changed more than {_MAX_WALK} times since this device read it, and "
            "so many records are not fetched: read it on a device that never read it."
        )


async def _page(session: Session, container_id: bytes, first: int, head: int) -> Sequence[bytes]:
    """Fetch the bodies from `first` on, up to the one before the head, which the view has."""
    count = min(MAX_SKIPPED, head - first)
    page = await session.call(
        "GET",
        f"/v1/containers/{uuid.UUID(bytes=container_id)}/records",
        Bodies,
        query={"from": str(first), "count": str(count)},
    )
    if len(page.bodies) != count or parse_bare(page.bodies[0]).version != first:
        raise errors.ForkError(
            "The broker withholds the records between the version seen before and this one."
        )
    return page.bodies


def authors_of(
    view: ContainerView, views: Sequence[GoverningView], mark: Mark | None
) -> dict[uuid.UUID, int]:
    """Return the authors whose records are judged, with the sequence that the broker names for their keys."""
    has_resumed = since_of(mark) is not None
    judged = [parse_bare(item.record.body) for item in views[1 if has_resumed else 0 :]]
    if view.head is not None:
        judged.append(parse_bare(view.head.body))
    known = {item.userId: item.sequence for item in view.keyChains}
    authors = {user_id_of(record.author) for record in judged}
    return {user: known.get(str(user), 0) for user in authors}


async def _chains(session: Session, authors: Mapping[uuid.UUID, int]) -> dict[bytes, KeyChain]:
    try:
        chains = await session.directory.at_least(authors)
    except errors.NotFoundError:
        raise errors.IntegrityError(
            "The broker serves a record and does not know the record's author."
        ) from None
    return {chain.fingerprint: chain for chain in chains.values()}
