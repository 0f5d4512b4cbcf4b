"""Read many containers with a few requests: each is judged and opened as it would be alone.

Spec: docs/spec/protocol.md, section 5.
"""

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from scbroker.client.calls.tasks import (
    EVERYTHING,
    MISCOUNTED,
    NEITHER,
    a_few_at_once,
    alone,
    each_in_pool,
    shown,
)
from scbroker.client.containers import contents, fetching, opening
from scbroker.client.containers.change import no_progress
from scbroker.client.containers.opening import Fetched, Opened
from scbroker.client.core.judging import Evidence, Mark
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
    """Return containers with header and content, or why one was not read, in the order of the ids."""
    found: Found = {}
    once = list(dict.fromkeys(ids))
    groups = (once[at : at + MAX_BATCH] for at in range(0, len(once), MAX_BATCH))
    await a_few_at_once(_get_some(session, group, open_header, found) for group in groups)
    return [shown(found[container_id]) for container_id in ids]


async def _get_some(
    session: Session, ids: list[uuid.UUID], open_header: OpenHeader, found: Found
) -> None:
    fetched = await _fetch_some(session, ids, found)

    def open_one(each: Fetched) -> tuple[Opened, Metadata, Header[Any] | None, bytes | None]:
        opened = opening.open_fetched(session, each)
        header = open_header(opening.read_part(session, opened, Role.Header))
        content = opening.read_part(session, opened, Role.Content)
        return opened, opening.metadata(session, opened), header, content

    for each, outcome in zip(fetched, await each_in_pool(open_one, fetched), strict=True):
        if isinstance(outcome, BrokerError):
            found[each.container_id] = outcome
            continue
        opened, known, header, content = outcome
        with alone(partial(found.__setitem__, each.container_id)):
            if content is None:  # absent, or large
                content = await contents.read(session, opened, no_progress)
            found[each.container_id] = opening.container(each.state, known, content, header)


async def _fetch_some(session: Session, ids: list[uuid.UUID], found: Found) -> list[Fetched]:
    """Return the containers that verify; put the errors of the others into `found`."""
    stored = {each: session.marks.get(fetching.KIND, each.bytes) for each in ids}
    marks = {each: None if data is None else Mark.decode(data) for each, data in stored.items()}
    views = await _views(session, marks, found)
    await _prefetch_authors(session, views, marks)
    evidence: dict[uuid.UUID, Evidence] = {}
    for each, view in views.items():
        with alone(partial(found.__setitem__, each)):
            evidence[each] = await fetching.collect(session, each, marks[each], view)
    fetched: list[Fetched] = []
    judged = await each_in_pool(Evidence.judge, list(evidence.values()))
    for each, outcome in zip(evidence, judged, strict=True):
        with alone(partial(found.__setitem__, each)):
            if isinstance(outcome, BrokerError):
                raise outcome
            if fetching.keep_mark(session, stored[each], outcome):
                outcome.check_not_deleted()
                fetched.append(Fetched(outcome, views[each], evidence[each].now))
            else:  # another operation moved the mark meanwhile
                fetched.append(await fetching.fetch(session, each, header=True, content=True))
    return fetched


async def _views(session: Session, marks: Marks, found: Found) -> dict[uuid.UUID, ContainerView]:
    """Request views until the broker has answered for each: an answer holds as many as fit."""
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
    since = fetching.since_of(mark)
    return ViewRequest(containerId=str(container_id), since=since, header=True, content=True)


def _view(outcome: ViewOutcome) -> ContainerView:
    match outcome:
        case ViewOutcome(view=ContainerView() as view, problem=None):
            return view
        case ViewOutcome(view=None, problem=ItemProblem() as problem):
            error = error_of_item(problem)
            raise (
                IntegrityError(fetching.NO_TOMBSTONE) if isinstance(error, DeletedError) else error
            )
    raise BrokerFaultError(NEITHER)


async def _prefetch_authors(
    session: Session, views: Mapping[uuid.UUID, ContainerView], marks: Marks
) -> None:
    """Fetch the keys of all authors by one request. A failure is repeated where the key is needed."""
    authors: dict[uuid.UUID, int] = {}
    for each, view in views.items():
        with contextlib.suppress(BrokerError):
            for user, sequence in fetching.authors_of(view, view.governing, marks[each]).items():
                authors[user] = max(sequence, authors.get(user, 0))
    try:
        await session.directory.at_least(authors)
    except BrokerError as error:
        if isinstance(error, EVERYTHING):
            raise
