"""The query of a page of events: there is an index for whatever criteria are asked for together.

Unlike `statements` it is built for each call, of the criteria that there are.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from sqlalchemy import ColumnElement, Select, func, select, union_all

from scbroker.records.ids import parse_uuid
from scbroker.server.tables import events
from scbroker.wire.events import EventQuery, EventType

_KINDS: Final = get_args(EventType)


def events_page(user_id: bytes, query: EventQuery) -> Select[Any]:
    """The first of a user's numbered events that match all criteria, as an index has them in order.

    A container's events are few, whatever else is asked of them. Else each kind of event is a query of
    its own: over several kinds an index has no order.
    """
    if query.containerId is not None:
        return _of_container(user_id, parse_uuid(query.containerId).bytes, query)
    if query.containerType is None and not query.eventType:
        return _first(user_id, query)
    of_type = (
        [] if query.containerType is None else [events.c.container_type == query.containerType]
    )
    kinds = sorted({*query.eventType}) or _KINDS
    pages = [_first(user_id, query, *of_type, events.c.event_type == kind) for kind in kinds]
    if len(pages) == 1:
        return pages[0]
    found = union_all(*(select(page.subquery()) for page in pages)).subquery()
    return select(found).order_by(found.c.id).limit(query.limit)


def _of_container(user_id: bytes, container_id: bytes, query: EventQuery) -> Select[Any]:
    criteria = [events.c.container_id == container_id]
    if query.eventType:
        criteria.append(_unindexed(events.c.event_type).in_(query.eventType))
    if query.containerType is not None:
        criteria.append(_unindexed(events.c.container_type) == query.containerType)
    return _first(user_id, query, *criteria)


def _unindexed(column: ColumnElement[str]) -> ColumnElement[str]:
    """The same text, and no index of it."""
    return func.coalesce(column, column)


def _first(user_id: bytes, query: EventQuery, *more: ColumnElement[bool]) -> Select[Any]:
    criteria = [events.c.user_id == user_id, events.c.id.is_not(None), *more]
    if query.startId is not None:
        criteria.append(events.c.id >= query.startId)
    if query.endId is not None:
        criteria.append(events.c.id <= query.endId)
    return select(events).where(*criteria).order_by(events.c.id).limit(query.limit)
