"""Show the events of the account, or of one container, and those that happen while the view is open.

The account has the user's own events, and those of the groups that the user has accepted.

The script of the view asks for the events after the last one that it has. Each request waits for events at
the broker while the browser waits for its answer, and no longer: a page that was closed waits for nothing.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.commands.events import merged, told
from scbroker.cli.ui.context import (
    container_of,
    named,
    people_of,
    provider_of,
    session_of,
    show_of,
    uuid_of,
)
from scbroker.cli.web.site import show
from scbroker.desk.people import People

ROWS: Final = 200
"""Events of a view, and of an answer."""
WAIT_SECONDS: Final = 20.0
_TOGETHER_SECONDS: Final = 0.1
"""Seconds after the first event in which others still get into the same answer."""
_MOST_WAITING: Final = 8
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
_PLACES: Final = re.compile(r"(?!$)[0-9]{0,16}(;[0-9a-f]{32}:[0-9]{1,16}){0,256}")


class Places(NamedTuple):
    """The id of the last event that a view shows of each log. The view sends them back as `12;GROUP:3`."""

    own: int | None
    """None if the view shows no events of the user's own log."""
    groups: Mapping[uuid.UUID, int]

    def __str__(self) -> str:
        own = "" if self.own is None else str(self.own)
        return ";".join([own, *(f"{each.hex}:{id}" for each, id in self.groups.items())])

    @classmethod
    def of(cls, text: str) -> Places:
        """Parse the text that a view sends back. Raises `InvalidArgumentError` if it is malformed."""
        if not _PLACES.fullmatch(text):
            raise errors.InvalidArgumentError(
                f"after must be the numbers of events, not {text!r:.40}."
            )
        own, *others = text.split(";")
        pairs = (each.split(":") for each in others)
        groups = {uuid.UUID(group): int(id) for group, id in pairs}
        return cls(int(own) if own else None, groups)

    def after(self, events: Iterable[scbroker.ContainerEvent]) -> Places:
        """Return the places with the ids of these events, which the view is about to show."""
        own, groups = self.own, dict(self.groups)
        for each in events:
            if each.groupId is not None:
                groups[each.groupId] = each.id
            elif own is not None:
                own = each.id
        return Places(own, groups)


async def _of_account(request: Request) -> Response:
    people, provider = await people_of(request), provider_of(request)
    logs = await _last_events(request, provider, people)
    own, *others = [log[-1].id if log else 0 for log in logs.values()]
    places = Places(own, dict(zip(people.groups, others, strict=True)))
    rows = _rows(request, merged(logs.values())[-ROWS:], people)
    return show(request, "history.html", rows=rows, after=places)


async def _of_container(request: Request) -> Response:
    container, people = await container_of(request), await people_of(request)
    # A container that is reached through a group alone has its events in the group's log.
    via = container.via
    provider = provider_of(request)
    events = await provider.getEvents(containerId=container.id, groupId=via)
    start = Places(0, {}) if via is None else Places(None, {via: 0})
    rows, after = _rows(request, events[-ROWS:], people), start.after(events)
    return show_of(request, "container_history.html", container, rows=rows, after=after)


async def _new(request: Request) -> Response:
    """Wait for events after one, and return their rows: those of one container if the query names one."""
    provider, query = provider_of(request), request.query_params
    after = Places.of(query.get("after", ""))
    container_id = uuid_of(query["container"]) if "container" in query else None
    session = session_of(request)
    if session.waiting >= _MOST_WAITING:
        raise errors.BrokerUnavailableError(
            f"{_MOST_WAITING} views wait for events already: close some of them."
        )
    session.waiting += 1
    try:
        events = await _while_open(request, _next_events(provider, after))
    finally:
        session.waiting -= 1
    wanted = [each for each in events if container_id in (None, each.containerId)]
    rows = _rows(request, wanted, await people_of(request)) if wanted else []
    return show(
        request,
        "timeline_new.html",
        rows=rows,
        after=after.after(events),
        names=container_id is None,
    )


def _rows(
    request: Request, events: Sequence[scbroker.ContainerEvent], people: People
) -> list[dict[str, Any]]:
    """Return the events as the view shows them, the newest first."""
    found = []
    for each in reversed(events):
        # To read a container now would cause an event: its name is known if the page has read it already.
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
                # Equal for the same event of two logs: the script of the view shows it once.
                "told": "/".join(map(str, told(each))),
            }
        )
    return found


async def _while_open(
    request: Request, work: Coroutine[Any, Any, list[scbroker.ContainerEvent]]
) -> list[scbroker.ContainerEvent]:
    """Return what `work` returns; cancel it, and return nothing, once browser or page has gone."""
    working = asyncio.create_task(work)
    ending = session_of(request).ending
    ends = [asyncio.create_task(each) for each in (_gone(request), ending.wait())]
    try:
        await asyncio.wait([working, *ends], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else []
    finally:
        for task in (working, *ends):
            task.cancel()


async def _last_events(
    request: Request, provider: scbroker.ServerProvider, people: People
) -> dict[uuid.UUID | None, Sequence[scbroker.ContainerEvent]]:
    """Return the last events of each log.

    The first call reads the whole logs, so that the client verifies them.
    """
    ends = session_of(request).log_ends
    logs: dict[uuid.UUID | None, Sequence[scbroker.ContainerEvent]] = {}
    for log in (None, *people.groups):
        end = ends.get(log, 0)
        start = end - ROWS if end > ROWS else None
        try:
            events = await provider.getEvents(startId=start, groupId=log)
        except errors.EventsExpiredError:
            events = await provider.getEvents(groupId=log)
        except errors.NotFoundError:  # the user was removed from the group meanwhile
            events = []
        logs[log] = events[-ROWS:]
        ends[log] = events[-1].id if events else 0
    return logs


async def _next_events(
    provider: scbroker.ServerProvider, after: Places
) -> list[scbroker.ContainerEvent]:
    """Return the next events after these, at most ROWS; none if nothing happens for some seconds."""
    found: list[scbroker.ContainerEvent] = []
    start = None if after.own is None else after.own + 1
    groups = {group: id + 1 for group, id in after.groups.items()}
    async with provider.followEvents(start, groupStartIds=groups) as stream:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                found.append(await anext(stream))
            async with asyncio.timeout(_TOGETHER_SECONDS):
                while len(found) < ROWS:
                    found.append(await anext(stream))
        except TimeoutError:
            pass
    return found


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
    """Return what happened to a group itself."""
    is_own = event.relatedUserId == people.own_id
    if event.eventType == scbroker.ContainerEventType.Added:
        return "made the group" if is_own else "added you to the group"
    if event.eventType == scbroker.ContainerEventType.Deleted:
        return "left or deleted the group" if is_own else "removed you, or deleted the group"
    parts = [_OF_GROUP.get(each, "something") for each in event.changes]
    return f"changed {', '.join(parts) or 'the group'}"


routes: Final = [
    Route("/history", _of_account),
    Route("/history/new", _new),
    Route("/containers/{id:uuid}/history", _of_container),
]
