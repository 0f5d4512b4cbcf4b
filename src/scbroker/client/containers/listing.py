"""List the containers that the session's user has access to, and verify each as a single read does.

The broker serves pages of views in the order of container ids. A request names the next containers
after the cursor that this device has verified, with their versions: the broker then sends only newer records.
If a page lacks a container that this device has verified, the client requests it by its id.
Spec: docs/spec/protocol.md, section 5.
"""

import asyncio
import datetime as dt
import itertools
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scbroker import errors
from scbroker.client.arguments import moment, now
from scbroker.client.calls import tasks
from scbroker.client.containers import fetching, opening
from scbroker.client.containers.contents import OpenHeader
from scbroker.client.containers.history import since_of
from scbroker.client.containers.opening import Fetched
from scbroker.client.core.judging import Mark
from scbroker.client.users.session import Session
from scbroker.client.users.trust_store import each_mark
from scbroker.errors import BrokerError
from scbroker.records.container_record import Role
from scbroker.types import Container, ContainerPage
from scbroker.wire import containers as wire
from scbroker.wire.problems import result_of

_MISORDERED: Final = (
    "The broker's list is not in the order of ids, does not continue after the last page, or has more "
    "containers than requested."
)
_DENIED: Final = (errors.NotFoundError, errors.UnreachableError)
"""Errors that put a container into `leftOut`: the broker denies the container, or the cache lacks it."""
LEFT_OUT: Final = (
    "The broker leaves out containers that this device has read: %d, the first is %s. listContainers names "
    "them in leftOut."
)
_log = logging.getLogger("scbroker")
Entry = Container[Any] | BrokerError


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of a list that are the same for all of its pages."""

    type: str | None
    limit: int
    open_header: OpenHeader | None
    """None if headers are not asked for."""


@dataclass(frozen=True, slots=True)
class _Served:
    """A page as the broker served it, in order and not verified."""

    views: fetching.Views
    known: fetching.StoredMarks
    """The marks that the page was requested with."""
    missing: Sequence[uuid.UUID]
    """Containers of the page's range that have a mark, and that the page does not have."""
    next: uuid.UUID | None


async def page(session: Session, wanted: Wanted, after: uuid.UUID | None) -> ContainerPage[Any]:
    """Return the page after an id: at most `wanted.limit` containers, and those that the broker left out."""
    return await _verified(session, wanted, await _request(session, wanted, after))


async def pages(
    session: Session, wanted: Wanted, after: uuid.UUID | None
) -> AsyncGenerator[Sequence[Entry], None]:
    """Yield the entries of each page; the next page is requested while one is verified."""
    upcoming: asyncio.Task[_Served] | None = _begun(session, wanted, after)
    try:
        while upcoming is not None:
            served = await upcoming
            upcoming = None if served.next is None else _begun(session, wanted, served.next)
            found = await session.hold(_verified(session, wanted, served))
            if found.leftOut and not session.is_offline:
                _log.warning(LEFT_OUT, len(found.leftOut), found.leftOut[0])
            yield found.containers
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


def _begun(session: Session, wanted: Wanted, after: uuid.UUID | None) -> asyncio.Task[_Served]:
    """Start the request of a page."""

    async def request() -> _Served:
        # `hold` counts the request as under way: call it in the task, which may be cancelled before it runs.
        return await session.hold(_request(session, wanted, after))

    return asyncio.create_task(request())


async def _request(session: Session, wanted: Wanted, after: uuid.UUID | None) -> _Served:
    """Request a page; name in the request the first marks after the cursor.

    The marks are read before the request, so that a container that this device creates meanwhile does not
    count as missing. If `limit` marks were found, there may be more after them: then a page of all types is
    cut at the last of them, so that at most `limit` containers are missing. Marks have no type, so a page of
    one type has no missing containers.
    """
    known = _marks_after(session, after, wanted.limit)
    if session.is_offline:
        return _of_marks(known, after, wanted.limit)
    message = wire.ListRequest(
        after=None if after is None else str(after),
        limit=wanted.limit,
        type=wanted.type,
        header=wanted.open_header is not None,
        known=[
            wire.KnownContainer(containerId=str(each), since=since)
            for each, (_, mark) in known.items()
            if (since := since_of(mark)) is not None
        ],
    )
    answer = await session.call("POST", "/v1/containers/list", wire.ContainerList, message=message)
    views = {
        uuid.UUID(item.containerId): result_of(item.view, item.problem)
        for item in answer.containers
    }
    following = None if answer.next is None else uuid.UUID(answer.next)
    _check_order(answer, after, wanted.limit)
    if wanted.type is not None:
        return _Served(views, known, (), following)
    if len(known) == wanted.limit:
        last = max(known)
        following = last if following is None else min(following, last)
        views = {each: view for each, view in views.items() if each <= following}
    missing = [
        each for each in known if each not in views and (following is None or each <= following)
    ]
    return _Served(views, known, missing, following)


def _of_marks(known: fetching.StoredMarks, after: uuid.UUID | None, limit: int) -> _Served:
    """Return a page offline: a cache cannot list, so request each container with a mark by its id."""
    if not known and after is None:
        raise errors.OfflineError(
            "The cache has no container, and the broker is away: list again when it is back."
        )
    return _Served({}, {}, list(known), max(known) if len(known) == limit else None)


def _check_order(answer: wire.ContainerList, after: uuid.UUID | None, limit: int) -> None:
    """Raise unless the ids rise from the cursor on and the next cursor is the last of them or None."""
    ids = [item.containerId for item in answer.containers]
    cursor = [] if after is None else [str(after)]
    rises = all(one < other for one, other in itertools.pairwise([*cursor, *ids]))
    if len(ids) > limit or not rises or answer.next not in (None, *ids[-1:]):
        raise errors.BrokerFaultError(_MISORDERED)


def _marks_after(
    session: Session, after: uuid.UUID | None, count: int
) -> dict[uuid.UUID, tuple[bytes, Mark]]:
    """Return the first marks after an id, by id.

    Leaves out containers that were proved to be deleted, or that the user has left.
    """
    found: dict[uuid.UUID, tuple[bytes, Mark]] = {}
    first = b"" if after is None else after.bytes
    for key, stored in each_mark(session.marks, fetching.KIND, first, size=count):
        mark = Mark.decode(stored)
        if not (mark.deleted or mark.left):
            found[uuid.UUID(bytes=key)] = stored, mark
        if len(found) == count:
            break
    return found


async def _verified(session: Session, wanted: Wanted, served: _Served) -> ContainerPage[Any]:
    """Verify and open the containers of a page; fetch those that the broker left out."""
    fetched = await fetching.judge_listed(session, served.views, served.known)
    again = [each for each in served.views if each not in fetched]
    fetched |= await _fetch(session, wanted, [*again, *served.missing])
    denied = [each for each in served.missing if isinstance(fetched[each], _DENIED)]
    ids = sorted(fetched.keys() - set(denied))

    def open_one(container_id: uuid.UUID) -> Container[Any]:
        return _open(session, wanted, fetched[container_id])

    entries: list[Entry] = []
    for each, outcome in zip(ids, await tasks.each_in_pool(open_one, ids), strict=True):
        if isinstance(outcome, errors.DeletedError):
            continue
        if isinstance(outcome, BrokerError):
            outcome = outcome.fresh()
            outcome.containerId = each
        elif session.is_offline and wanted.type is not None and outcome.type != wanted.type:
            continue
        elif each in served.missing and not session.is_offline:
            _log.warning("The broker's list leaves out container %s, which it serves.", each)
        entries.append(outcome)
    # Marks have no type, so a list of one type cannot be checked for missing containers.
    left_out = denied if wanted.type is None else []
    return ContainerPage(entries, served.next, left_out, _as_of(session, entries))


def _as_of(session: Session, entries: Sequence[Entry]) -> dt.datetime | None:
    """Return when the broker served the oldest copy of the page; None if the page is not from the cache."""
    if not session.is_offline:
        return None
    times = [each.asOf for each in entries if isinstance(each, Container) and each.asOf is not None]
    return min(times, default=moment(now()))


async def _fetch(session: Session, wanted: Wanted, ids: Sequence[uuid.UUID]) -> fetching.Found:
    """Fetch containers that the page does not have, or that were changed since it was requested."""
    found: fetching.Found = {}
    header = wanted.open_header is not None
    for at in range(0, len(ids), wire.MAX_BATCH):
        some = ids[at : at + wire.MAX_BATCH]
        outcomes = await fetching.fetch_many(session, some, header=header, content=False)
        found |= zip(some, outcomes, strict=True)
    return found


def _open(session: Session, wanted: Wanted, fetched: Fetched | BrokerError) -> Container[Any]:
    """Return a container without content; raise its error, or `IntegrityError` for another type."""
    if isinstance(fetched, BrokerError):
        raise fetched
    opened = opening.open_fetched(session, fetched)
    header = None
    if wanted.open_header is not None:
        header = wanted.open_header(opening.read_part(opened, Role.Header))
    asked = () if wanted.open_header is None else (Role.Header,)
    found = opening.container(session, opened, None, header, asked=asked)
    if wanted.type is not None and found.type != wanted.type and not session.is_offline:
        raise errors.IntegrityError(
            "The broker lists a container of another type than the one that was asked for."
        )
    return found
