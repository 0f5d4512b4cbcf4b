"""Many records, or many views, in one request. Spec: docs/spec/protocol.md, section 5.

Each item is judged as it would be alone, and answered alone: with what it asked for or with a problem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import BrokerError, TooLargeError
from scbroker.records.container_record import Role
from scbroker.records.ids import parse_uuid
from scbroker.server.broker import Broker, Call, SessionUser
from scbroker.server.containers import views
from scbroker.server.containers.appending import append_each, sweep_after
from scbroker.server.containers.incoming import Incoming, parse_incoming
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.wire.batches import (
    MAX_BATCH_ENTRIES,
    RecordOutcome,
    RecordsAnswer,
    RecordsRequest,
    ViewOutcome,
    ViewRequest,
    ViewsAnswer,
    ViewsRequest,
)
from scbroker.wire.containers import PAGE_BYTES
from scbroker.wire.problems import item_problem_of

_READ_AT_ONCE: Final = 16
"""Views whose rows are in memory at once."""


async def append_records(broker: Broker, call: Call, message: RecordsRequest) -> RecordsAnswer:
    """Appends records in order, all that are taken in one transaction."""
    if sum(len(item.accessList or ()) for item in message.records) > MAX_BATCH_ENTRIES:
        raise TooLargeError(f"A batch has at most {MAX_BATCH_ENTRIES} access entries in all.")

    def parse() -> list[Incoming | BrokerError]:
        found: list[Incoming | BrokerError] = []
        for item in message.records:
            try:
                found.append(parse_incoming(broker.settings, call, item))
            except BrokerError as error:
                found.append(error)
        return found

    parsed = await asyncio.to_thread(parse)
    good = [item for item in parsed if isinstance(item, Incoming)]
    outcomes = iter(await append_each(broker, good) if good else ())
    await sweep_after(broker, good)
    answers = []
    for item in parsed:
        outcome = next(outcomes) if isinstance(item, Incoming) else item
        if isinstance(item, Incoming) and not isinstance(outcome, BrokerError):
            answers.append(RecordOutcome(receipt=item.receipt, problem=None))
        elif isinstance(outcome, BrokerError):
            answers.append(RecordOutcome(receipt=None, problem=item_problem_of(outcome)))
    return RecordsAnswer(records=answers)


async def read_views(broker: Broker, call: Call, message: ViewsRequest) -> ViewsAnswer:
    """The containers as their reader may see them: the first of them, about PAGE_BYTES, at least one."""
    user = call.session
    answers = await broker.database.read(lambda c: _views(c, user, message.views), large=True)
    for asked, answer in zip(message.views, answers, strict=False):
        view = answer.view
        if view is not None and (view.header is not None or view.content is not None):
            log.note_access(broker, call, _id(asked))
    return ViewsAnswer(views=answers)


def _views(
    connection: Connection, user: SessionUser, asked: Sequence[ViewRequest]
) -> list[ViewOutcome]:
    answers: list[ViewOutcome] = []
    size, ahead = 0, views.Ahead()
    for start in range(0, len(asked), _READ_AT_ONCE):
        some = asked[start : start + _READ_AT_ONCE]
        rows = _look_ahead(connection, user, some, ahead)
        for item in some:
            answer = _view(connection, user, item, rows, ahead)
            answers.append(answer)
            size += 0 if answer.view is None else views.size_of(answer.view)
            if size > PAGE_BYTES:
                return answers
    return answers


def _look_ahead(
    connection: Connection, user: SessionUser, some: Sequence[ViewRequest], ahead: views.Ahead
) -> dict[bytes, Row[Any]]:
    """The containers' rows by id; ahead are the lists in force, and the parts that are wanted."""
    values = {"some": [_id(item) for item in some], "user": user.id}
    found = {row.id: row for row in connection.execute(sql.CONTAINERS_AND_MEMBER, values)}
    ahead.lists, ahead.inline = {}, {}
    if found:
        for row in connection.execute(sql.LISTS_IN_FORCE, {"some": list(found)}):
            ahead.lists[row.container_id, row.access_version] = row.entries
    wanted: set[bytes] = set()
    for item in some:
        container = found.get(_id(item))
        if container is not None:
            wanted |= views.parts_to_serve(container, _wanted(item)).keys()
    if wanted:
        for row in connection.execute(sql.PARTS_INLINE, {"some": list(wanted)}):
            ahead.inline[row.part_id] = row.inline
    return found


def _view(
    connection: Connection,
    user: SessionUser,
    item: ViewRequest,
    rows: Mapping[bytes, Row[Any]],
    ahead: views.Ahead,
) -> ViewOutcome:
    try:
        row = views.check_readable(rows.get(_id(item)))
        view = views.view_of(connection, row, user, item.since, _wanted(item), ahead)
    except BrokerError as error:
        return ViewOutcome(view=None, problem=item_problem_of(error))
    return ViewOutcome(view=view, problem=None)


def _id(item: ViewRequest) -> bytes:
    return parse_uuid(item.containerId).bytes


def _wanted(item: ViewRequest) -> set[Role]:
    return views.wanted_parts(header=item.header, content=item.content)
