"""Show the events of the account, or of one container.

The account has the user's own events, and those of the groups that the user has accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.commands.events import merged
from scbroker.cli.ui.context import container_of, named, people_of, provider_of, show_of
from scbroker.cli.ui.session import session_of
from scbroker.cli.web.site import show
from scbroker.desk.people import People

ROWS: Final = 200
"""Events of a view."""
_PARTS: Final = {
    "header": "name and details",
    "content": "content",
    "access": "who has access",
    "type": "type",
}
_OF_GROUP: Final = {
    "access": "who manages the group",
    "type": "the members or the name of the group",
}


async def _of_account(request: Request) -> Response:
    people = await people_of(request)
    logs = await _last_events(request, people)
    return show(request, "history.html", rows=_rows(request, merged(logs)[-ROWS:], people))


async def _of_container(request: Request) -> Response:
    container, people = await container_of(request), await people_of(request)
    # A container that is reached through a group alone has its events in the group's log.
    reading = provider_of(request).getEvents(containerId=container.id, groupId=container.via)
    rows = _rows(request, (await reading)[-ROWS:], people)
    return show_of(request, "container_history.html", container, rows=rows)


def _rows(
    request: Request, events: Sequence[scbroker.ContainerEvent], people: People
) -> list[dict[str, Any]]:
    """Return the events as the view shows them, the newest first."""
    found = []
    for each in reversed(events):
        # Use a name only if the page has read it already: reading the container now would cause an event.
        name = session_of(request).topics.get(each.containerId)
        if each.isOfGroup and each.containerId in people.groups:
            name = named(people.group(each.containerId))
        found.append(
            {
                "event": each,
                "who": None if each.relatedUserId is None else people.user(each.relatedUserId),
                "what": _what_of_group(each, people) if each.isOfGroup else _what(each, people),
                "name": name,
                "group": None if each.groupId is None else people.group(each.groupId),
            }
        )
    return found


async def _last_events(request: Request, people: People) -> list[Sequence[scbroker.ContainerEvent]]:
    """Return the last events of each log, the user's own first.

    The first call reads the whole logs, so that the client verifies them.
    """
    ends, provider = session_of(request).log_ends, provider_of(request)
    logs: list[Sequence[scbroker.ContainerEvent]] = []
    for log in (None, *people.groups):
        end = ends.get(log, 0)
        start = end - ROWS if end > ROWS else None
        try:
            events = await provider.getEvents(startId=start, groupId=log)
        except errors.EventsExpiredError:
            events = await provider.getEvents(groupId=log)
        except errors.NotFoundError:  # removed from the group meanwhile
            events = []
        logs.append(events[-ROWS:])
        ends[log] = events[-1].id if events else 0
    return logs


def _what(event: scbroker.ContainerEvent, people: People) -> str:
    is_own = event.relatedUserId == people.own_id
    whose, whom = ("your", "you") if event.groupId is None else ("the group's", "the group")
    if event.eventType == scbroker.ContainerEventType.Added:
        return "created it" if is_own else f"gave {whom} access"
    if event.eventType == scbroker.ContainerEventType.Accessed:
        return "read it"
    if event.eventType == scbroker.ContainerEventType.Deleted:
        if event.relatedUserId is None:
            return f"It was deleted, or {whose} access ended"
        if is_own:
            return "deleted it, or gave up access"
        return f"deleted it, or ended {whose} access"
    parts = [_PARTS.get(each, "something") for each in event.changes]
    return f"changed {', '.join(parts) or 'it'}"


def _what_of_group(event: scbroker.ContainerEvent, people: People) -> str:
    """Return in words what happened to a group itself."""
    is_own = event.relatedUserId == people.own_id
    if event.eventType == scbroker.ContainerEventType.Added:
        return "made the group" if is_own else "added you to the group"
    if event.eventType == scbroker.ContainerEventType.Deleted:
        return "left or deleted the group" if is_own else "removed you, or deleted the group"
    parts = [_OF_GROUP.get(each, "something") for each in event.changes]
    return f"changed {', '.join(parts) or 'the group'}"


routes: Final = [
    Route("/history", _of_account),
    Route("/containers/{id:uuid}/history", _of_container),
]
