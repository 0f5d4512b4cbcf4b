"""Build the query of a page of events, so that an index serves every combination of criteria.

There is one statement for each combination, built when it is first used.
"""

import functools
from typing import Any, Final, get_args

from sqlalchemy import (
    ColumnElement,
    Select,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from scbroker.records.canonical import UserId, parse_uuid
from scbroker.server.storage.tables import events
from scbroker.vocabulary import ContainerEventType
from scbroker.wire.events import EventQuery, EventType

b = bindparam
_KINDS: Final = sorted(get_args(EventType))
# The conditions of the partial indexes. With `id IS NOT NULL` beside a type and a kind, PostgreSQL's generic
# plan would read all events of the kind: it does not know how rare the type is.
_NUMBERED: Final = events.c.id.is_not(None)
_OF_ANY_TYPE: Final = events.c.id > literal_column("0")
_CRITERIA: Final[dict[str, ColumnElement[bool]]] = {
    "container": events.c.container_id == b("container"),
    "type": events.c.container_type == b("type"),
    "previous_type": events.c.previous_type == b("type"),
    "first": events.c.id >= b("first"),
    "last": events.c.id <= b("last"),
    # Beside a container: `coalesce` keeps the planner from using the indexes by type and by kind.
    "its_type": or_(
        func.coalesce(events.c.container_type, events.c.container_type) == b("its_type"),
        func.coalesce(events.c.previous_type, events.c.previous_type) == b("its_type"),
    ),
    "its_kinds": func.coalesce(events.c.event_type, events.c.event_type).in_(
        b("its_kinds", expanding=True)
    ),
}


def events_page(user_id: UserId, query: EventQuery) -> tuple[Select[Any], dict[str, Any]]:
    """Return the statement, with its values, for the first of a user's numbered events that match the query.

    With a container, its events are read and filtered: they are few. Else each kind of event is a subquery
    of its own, because an index over several kinds is not in the order of the ids. Updates that changed the
    type to another one are a further subquery; no event has the same type before and after, so that none is
    found twice.
    """
    values: dict[str, Any] = {"first": query.startId, "last": query.endId}
    kinds = sorted({*query.eventType})
    if query.containerId is not None:
        values["container"] = parse_uuid(query.containerId).bytes
        values["its_type"], values["its_kinds"], kinds = query.containerType, kinds or None, []
    elif query.containerType is not None:
        values["type"], kinds = query.containerType, kinds or _KINDS
    asked = {name: value for name, value in values.items() if value is not None}
    named = {f"kind_{number}": kind for number, kind in enumerate(kinds)}
    statement = _statement(len(kinds), ContainerEventType.Updated in kinds, tuple(sorted(asked)))
    return statement, {"user": user_id, "count": query.limit, **asked, **named}


@functools.cache
def _statement(kinds: int, updated: bool, names: tuple[str, ...]) -> Select[Any]:
    criteria = [_CRITERIA[name] for name in names]
    if not kinds:
        return _first(_NUMBERED, *criteria)
    numbered = _NUMBERED if "type" in names else _OF_ANY_TYPE
    pages = [
        _first(numbered, *criteria, events.c.event_type == b(f"kind_{number}"))
        for number in range(kinds)
    ]
    if updated and "type" in names:
        changed = [_CRITERIA["previous_type" if name == "type" else name] for name in names]
        pages.append(_first(_NUMBERED, *changed))
    if len(pages) == 1:
        return pages[0]
    found = union_all(*(select(page.subquery()) for page in pages)).subquery()
    return select(found).order_by(found.c.id).limit(b("count"))


def _first(*criteria: ColumnElement[bool]) -> Select[Any]:
    own = events.c.user_id == b("user")
    return select(events).where(own, *criteria).order_by(events.c.id).limit(b("count"))
