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

import scbroker
from scbroker import errors
from scbroker.cli.event_logs import merged, told
from scbroker.cli.output import SHORT_ID
from scbroker.cli.ui.container import PATH, container_of, shown_of
from scbroker.cli.ui.known import Known, Somebody, known, provider_of, shortened, uuid_of
from scbroker.cli.ui.part import Container, Part
from scbroker.cli.ui.session import Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.web.site import Shown, View
from scbroker.desk.names import name_of

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


class Happened(NamedTuple):
    """An event as the view shows it."""

    event: scbroker.ContainerEvent
    who: Somebody | None
    what: str
    name: str | None
    """The name of the container, if the page has read it already: to read it now would cause an event."""
    short_id: str
    group: Somebody | None
    """The group in whose log the event is."""
    told: str
    """Equal for the same event of two logs: the script of the view shows it once."""


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


def timeline(session: Session, shelf: Shelf) -> Part:
    """Return the views of events."""
    views = _Timeline(session, shelf)
    return Part(
        views=[
            View("/history", views.of_account, "History"),
            View("/history/new", views.new),
            View(f"{PATH}/history", views.of_container),
        ]
    )


class _Timeline:
    def __init__(self, session: Session, shelf: Shelf) -> None:
        self._session, self._shelf = session, shelf
        self._ends: dict[uuid.UUID | None, int] = {}
        """The id of the last event of each log when the history was last shown: the next view reads on."""
        self._waiting = 0
        session.at_lock.append(self._forget)

    def _forget(self) -> None:
        self._ends = {}  # another user has other logs

    async def of_account(self, request: Request) -> Shown:
        del request
        provider = await provider_of(self._session)
        people = await known(provider)
        logs = await self._last_events(provider, people)
        own, *others = [log[-1].id if log else 0 for log in logs.values()]
        places = Places(own, dict(zip(people.groups, others, strict=True)))
        rows = self._rows(merged(logs.values())[-ROWS:], people)
        return Shown("history.html", {"rows": rows, "after": places})

    async def of_container(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        container = await container_of(self._session, request)
        people = await known(provider)
        # A container that is reached through a group alone has its events in the group's log.
        via = container.via
        events = await provider.getEvents(containerId=container.id, groupId=via)
        start = Places(0, {}) if via is None else Places(None, {via: 0})
        values = {"rows": self._rows(events[-ROWS:], people), "after": start.after(events)}
        return shown_of("container_history.html", container, values)

    async def new(self, request: Request) -> Shown:
        """Wait for events after one, and return their rows: those of one container if the query names one."""
        provider, query = await provider_of(self._session), request.query_params
        after = Places.of(query.get("after", ""))
        container_id = uuid_of(query["container"]) if "container" in query else None
        if self._waiting >= _MOST_WAITING:
            raise errors.BrokerUnavailableError(
                f"{_MOST_WAITING} views wait for events already: close some of them."
            )
        self._waiting += 1
        try:
            events = await self._while_open(request, _next_events(provider, after))
        finally:
            self._waiting -= 1
        wanted = [each for each in events if container_id in (None, each.containerId)]
        rows = self._rows(wanted, await known(provider)) if wanted else []
        values = {"rows": rows, "after": after.after(events), "names": container_id is None}
        return Shown("timeline_new.html", values)

    def _rows(self, events: Sequence[scbroker.ContainerEvent], people: Known) -> list[Happened]:
        """Return the events as the view shows them, the newest first."""
        found = []
        for each in reversed(events):
            container = self._shelf.known(each.containerId)
            name = None if container is None else _topic(container)
            if each.isOfGroup and each.containerId in people.groups:
                name = people.group(each.containerId).name
            found.append(
                Happened(
                    each,
                    None if each.relatedUserId is None else people.user(each.relatedUserId),
                    _what_of_group(each, people) if each.isOfGroup else _what(each, people),
                    name,
                    each.containerId.hex[:SHORT_ID],
                    None if each.groupId is None else people.group(each.groupId),
                    "/".join(map(str, told(each))),
                )
            )
        return found

    async def _while_open(
        self, request: Request, work: Coroutine[Any, Any, list[scbroker.ContainerEvent]]
    ) -> list[scbroker.ContainerEvent]:
        """Return what `work` returns; cancel it, and return nothing, once browser or page has gone."""
        working = asyncio.create_task(work)
        ends = [asyncio.create_task(each) for each in (_gone(request), self._session.ending.wait())]
        try:
            await asyncio.wait([working, *ends], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else []
        finally:
            for task in (working, *ends):
                task.cancel()

    async def _last_events(
        self, provider: scbroker.ServerProvider, people: Known
    ) -> Mapping[uuid.UUID | None, Sequence[scbroker.ContainerEvent]]:
        """Return the last events of each log.

        The first call reads the whole logs, so that the client verifies them.
        """
        logs: dict[uuid.UUID | None, Sequence[scbroker.ContainerEvent]] = {}
        for log in (None, *people.groups):
            end = self._ends.get(log, 0)
            start = end - ROWS if end > ROWS else None
            try:
                events = await provider.getEvents(startId=start, groupId=log)
            except errors.EventsExpiredError:
                events = await provider.getEvents(groupId=log)
            except errors.NotFoundError:  # the user was removed from the group meanwhile
                events = []
            logs[log] = events[-ROWS:]
            self._ends[log] = events[-1].id if events else 0
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


def _topic(container: Container) -> str | None:
    """Return the name of a container that the page has read; None without one."""
    if container.isOwnDocument:
        return "Your links" if container.type == "scbroker.links" else "Your contacts"
    name = name_of(container)
    return None if name is None else shortened(name)


def _what(event: scbroker.ContainerEvent, people: Known) -> str:
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


def _what_of_group(event: scbroker.ContainerEvent, people: Known) -> str:
    """Return what happened to a group itself."""
    is_own = event.relatedUserId == people.own_id
    if event.eventType == scbroker.ContainerEventType.Added:
        return "made the group" if is_own else "added you to the group"
    if event.eventType == scbroker.ContainerEventType.Deleted:
        return "left or deleted the group" if is_own else "removed you, or deleted the group"
    parts = [_OF_GROUP.get(each, "something") for each in event.changes]
    return f"changed {', '.join(parts) or 'the group'}"
