"""Reading many containers in one round trip: as `fetching.fetch`, for each of them.

The views come together, and the keys of all their authors; each view is judged by its own mark.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scbroker.client.calls.tasks import (
    EVERYTHING,
    MISCOUNTED,
    NEITHER,
    a_few_at_once,
    each_in_pool,
    shown,
)
from scbroker.client.containers import contents, fetching
from scbroker.client.containers.change import no_progress
from scbroker.client.containers.evidence import Evidence, authors_of, collect, since_of
from scbroker.client.containers.fetching import KIND, NO_TOMBSTONE, Fetched, Opened
from scbroker.client.core.judging import Mark
from scbroker.client.users.session import Session
from scbroker.errors import BrokerError, BrokerFaultError, DeletedError, IntegrityError
from scbroker.records.container_record import Role
from scbroker.types import Container, Header, Metadata
from scbroker.wire.batches import MAX_BATCH, ViewOutcome, ViewRequest, ViewsAnswer, ViewsRequest
from scbroker.wire.containers import ContainerView
from scbroker.wire.problems import ItemProblem, error_of_item

OpenHeader = Callable[[bytes | None], Header[Any] | None]
Found = dict[uuid.UUID, Container[Any] | BrokerError]
Marks = Mapping[uuid.UUID, Mark | None]


async def get_each(
    session: Session, ids: Sequence[uuid.UUID], open_header: OpenHeader
) -> list[Container[Any] | BrokerError]:
    """Containers with header and content, or why one could not be read, in the order of the ids."""
    found: Found = {}
    once = list(dict.fromkeys(ids))
    groups = (once[at : at + MAX_BATCH] for at in range(0, len(once), MAX_BATCH))
    await a_few_at_once(_get_some(session, group, open_header, found) for group in groups)
    return [shown(found[container_id]) for container_id in ids]


async def _get_some(
    session: Session, ids: list[uuid.UUID], open_header: OpenHeader, found: Found
) -> None:
    fetched = await _fetch_some(session, ids, found)

    def opened(each: Fetched) -> tuple[Opened, Metadata, Header[Any] | None, bytes | None]:
        opened = fetching.open_fetched(session, each)
        header = open_header(fetching.read_header(session, opened))
        content = fetching.read_part(session, opened, Role.Content)
        return opened, fetching.metadata(session, opened), header, content

    for each, outcome in zip(fetched, await each_in_pool(opened, fetched), strict=True):
        if isinstance(outcome, BrokerError):
            found[each.container_id] = outcome
            continue
        part, shown, header, content = outcome
        try:
            if content is None:  # a large one comes by itself
                content = await contents.read(session, part, no_progress)
            found[each.container_id] = fetching.container(each.state, shown, content, header)
        except EVERYTHING:
            raise
        except BrokerError as error:
            found[each.container_id] = error


async def _fetch_some(session: Session, ids: list[uuid.UUID], found: Found) -> list[Fetched]:
    """What could be verified; what could not has its error in `found`."""
    stored = {each: session.marks.get(KIND, each.bytes) for each in ids}
    marks = {each: None if data is None else Mark.decode(data) for each, data in stored.items()}
    views = await _views(session, marks, found)
    await _look_at_authors(session, views, marks)
    evidence: dict[uuid.UUID, Evidence] = {}
    for each, view in views.items():
        try:
            evidence[each] = await collect(session, each, marks[each], view)
        except EVERYTHING:
            raise
        except BrokerError as error:
            found[each] = error
    states = await each_in_pool(Evidence.state, list(evidence.values()))
    fetched: list[Fetched] = []
    for each, state in zip(evidence, states, strict=True):
        try:
            if isinstance(state, BrokerError):
                raise state
            if fetching.keep_mark(session, stored[each], state):
                state.check_not_deleted()
                fetched.append(Fetched(state, views[each]))
            else:  # somebody else who keeps these marks was quicker
                fetched.append(await fetching.fetch(session, each, header=True, content=True))
        except EVERYTHING:
            raise
        except BrokerError as error:
            found[each] = error
    return fetched


async def _views(session: Session, marks: Marks, found: Found) -> dict[uuid.UUID, ContainerView]:
    """As many requests as it takes: a broker answers for as many as fit."""
    asked = list(marks)
    views: dict[uuid.UUID, ContainerView] = {}
    while asked:
        message = ViewsRequest(views=[_request(each, marks[each]) for each in asked])
        answer = await session.call("POST", "/v1/batches/views", ViewsAnswer, message=message)
        if len(answer.views) > len(asked):
            raise BrokerFaultError(MISCOUNTED)
        for each, outcome in zip(asked, answer.views, strict=False):
            try:
                views[each] = _view(outcome)
            except BrokerError as error:
                found[each] = error
        asked = asked[len(answer.views) :]
    return views


def _request(container_id: uuid.UUID, mark: Mark | None) -> ViewRequest:
    since = since_of(mark)
    return ViewRequest(containerId=str(container_id), since=since, header=True, content=True)


def _view(outcome: ViewOutcome) -> ContainerView:
    match outcome:
        case ViewOutcome(view=ContainerView() as view, problem=None):
            return view
        case ViewOutcome(view=None, problem=ItemProblem() as problem):
            error = error_of_item(problem)
            raise IntegrityError(NO_TOMBSTONE) if isinstance(error, DeletedError) else error
    raise BrokerFaultError(NEITHER)


async def _look_at_authors(
    session: Session, views: Mapping[uuid.UUID, ContainerView], marks: Marks
) -> None:
    """Has the keys of all authors at hand in one question; what fails here, fails where it is needed."""
    authors: dict[uuid.UUID, int] = {}
    for each, view in views.items():
        with contextlib.suppress(BrokerError):
            for user, sequence in authors_of(view, view.governing, marks[each]).items():
                authors[user] = max(sequence, authors.get(user, 0))
    try:
        await session.directory.at_least(authors)
    except BrokerError as error:
        if isinstance(error, EVERYTHING):
            raise
