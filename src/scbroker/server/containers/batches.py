"""Append several records, or read several containers, in one request. Spec: docs/spec/protocol.md, section 5.

Each item is judged as it would be alone, and has an answer or a problem of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.errors import BrokerError, TooLargeError
from scbroker.records.canonical import ContainerId, parse_uuid
from scbroker.records.container_record import Role
from scbroker.server.broker import Broker, Call, check_unexpired
from scbroker.server.containers import views
from scbroker.server.containers.appending import append_each, sweep_after
from scbroker.server.containers.incoming import Incoming, parse_incoming
from scbroker.server.events import log
from scbroker.server.storage import statements as sql
from scbroker.wire import containers as wire
from scbroker.wire.containers import PAGE_BYTES
from scbroker.wire.problems import item_problem_of

_READ_AT_ONCE: Final = 16
"""Containers whose rows are in memory at once."""


async def append_records(
    broker: Broker, call: Call, message: wire.RecordsRequest
) -> wire.RecordsAnswer:
    """Append records in order, in one transaction; a refused record does not affect the others."""
    if sum(len(item.accessList or ()) for item in message.records) > wire.MAX_BATCH_ENTRIES:
        raise TooLargeError(f"A batch has at most {wire.MAX_BATCH_ENTRIES} access entries in all.")

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
            answers.append(wire.RecordOutcome(receipt=item.receipt, problem=None))
        elif isinstance(outcome, BrokerError):
            answers.append(wire.RecordOutcome(receipt=None, problem=item_problem_of(outcome)))
    return wire.RecordsAnswer(records=answers)


async def read_views(broker: Broker, call: Call, message: wire.ViewsRequest) -> wire.ViewsAnswer:
    """Return the first of the containers, at least one and about PAGE_BYTES in all."""
    answers = await broker.database.read(lambda c: _views(c, call, message.views), large=True)
    for asked, answer in zip(message.views, answers, strict=False):
        view = answer.view
        if view is not None and (view.header is not None or view.content is not None):
            log.note_access(broker, call, _id(asked))
    return wire.ViewsAnswer(views=answers)


def _views(
    connection: Connection, call: Call, asked: Sequence[wire.ViewRequest]
) -> list[wire.ViewOutcome]:
    answers: list[wire.ViewOutcome] = []
    size, prefetched = 0, views.Prefetched()
    for start in range(0, len(asked), _READ_AT_ONCE):
        some = asked[start : start + _READ_AT_ONCE]
        rows = _prefetch(connection, call, some, prefetched)
        for item in some:
            try:
                row = check_unexpired(rows.get(_id(item)), call.now)
                view = views.view_of(
                    connection, row, call.session, item.since, _wanted(item), prefetched
                )
            except BrokerError as error:
                answers.append(wire.ViewOutcome(view=None, problem=item_problem_of(error)))
                continue
            answers.append(wire.ViewOutcome(view=view, problem=None))
            size += views.size_of(view)
            if size > PAGE_BYTES:
                return answers
    return answers


def _prefetch(
    connection: Connection,
    call: Call,
    some: Sequence[wire.ViewRequest],
    prefetched: views.Prefetched,
) -> Mapping[bytes, Row[Any]]:
    """Return the containers' rows by id; prefetch their present access lists and the wanted parts."""
    values = {"some": [_id(item) for item in some], "user": call.session.id}
    found = {row.id: row for row in connection.execute(sql.CONTAINERS_AND_MEMBER, values)}
    prefetched.lists, prefetched.inline = {}, {}
    if found:
        for row in connection.execute(sql.LISTS_IN_FORCE, {"some": list(found)}):
            prefetched.lists[row.container_id, row.access_version] = row.entries
    wanted: set[bytes] = set()
    for item in some:
        container = found.get(_id(item))
        if container is not None:
            wanted |= views.parts_to_serve(container, _wanted(item)).keys()
    if wanted:
        for row in connection.execute(sql.PARTS_INLINE, {"some": list(wanted)}):
            prefetched.inline[row.part_id] = row.inline
    return found


def _id(item: wire.ViewRequest) -> ContainerId:
    return ContainerId(parse_uuid(item.containerId).bytes)


def _wanted(item: wire.ViewRequest) -> set[Role]:
    return views.wanted_parts(header=item.header, content=item.content)
