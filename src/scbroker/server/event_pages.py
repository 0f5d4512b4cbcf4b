"""The query of a page of events: what its criteria have in common is that an index serves each.

Unlike `statements` it is built for each call, of the criteria that there are.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, true, union_all

from scbroker.records.ids import parse_uuid
from scbroker.server.tables import events
from scbroker.wire.events import EventQuery


def events_page(user_id: bytes, query: EventQuery) -> Select[Any]:
    """The first of a user's numbered events that match all criteria, by the index of one of them.

    A container's events are few, whatever else is asked of them. Else each kind of event is a query of
    its own, of which an index gives the first in order: over several kinds there is no order to be read.
    """
    if query.containerId is not None:
        of_container = events.c.container_id == parse_uuid(query.containerId).bytes
        kinds = _unindexed(events.c.event_type).in_(query.eventType) if query.eventType else true()
        return _events_of(user_id, query, _unindexed(events.c.container_type), of_container, kinds)
    column = events.c.container_type
    if not query.eventType:
        return _events_of(user_id, query, column)
    wanted = [events.c.event_type == kind for kind in sorted({*query.eventType})]
    pages = [_events_of(user_id, query, column, kind) for kind in wanted]
    if len(pages) == 1:
        return pages[0]
    found = union_all(*(select(page.subquery()) for page in pages)).subquery()
    return select(found).order_by(found.c.id).limit(query.limit)


def _unindexed(column: ColumnElement[str]) -> ColumnElement[str]:
    """The same text, and no index of it."""
    return func.coalesce(column, column)


def _events_of(
    user_id: bytes, query: EventQuery, type_column: ColumnElement[str], *more: ColumnElement[bool]
) -> Select[Any]:
    criteria = [events.c.user_id == user_id, events.c.id.is_not(None), *more]
    if query.containerType is not None:
        criteria.append(type_column == query.containerType)
    if query.startId is not None:
        criteria.append(events.c.id >= query.startId)
    if query.endId is not None:
        criteria.append(events.c.id <= query.endId)
    return select(events).where(*criteria).order_by(events.c.id).limit(query.limit)
