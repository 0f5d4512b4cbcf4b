"""Show the events of the account, or of one container, and those that happen while the view is open.

The script of the view asks for the events after the last one that it has. Each request waits for events at
the broker while the browser waits for its answer, and no longer: a page that was closed waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli.commands.listing import is_own_document
from scbroker.cli.names import name_of
from scbroker.cli.output import SHORT_ID
from scbroker.cli.ui.container import PATH, container_of, shown_of
from scbroker.cli.ui.known import Known, Somebody, known, provider_of, shortened, uuid_of
from scbroker.cli.ui.part import Container, Part
from scbroker.cli.ui.session import Session
from scbroker.cli.ui.shelf import Shelf
from scbroker.cli.web.site import Shown, View

ROWS: Final = 200
"""Events of a view, and of an answer."""
WAIT_SECONDS: Final = 20.0
_TOGETHER_SECONDS: Final = 0.1
"""Seconds after the first event in which others still get into the same answer."""
_MOST_WAITING: Final = 8
_DIGITS: Final = 16
_PARTS: Final = {
    "header": "name and details",
    "content": "content",
    "access": "who has access",
    "type": "type",
}


class Happened(NamedTuple):
    """An event as the view shows it."""

    event: scbroker.ContainerEvent
    who: Somebody | None
    what: str
    name: str | None
    """The container's name, if the page has read it: to read it now would be an event again."""
    short_id: str


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
        self._end = 0
        """The last event that a view of the account had, so that the next view begins near it."""
        self._waiting = 0
        session.at_lock.append(self._forget)

    def _forget(self) -> None:
        self._end = 0  # another user has another log

    async def of_account(self, request: Request) -> Shown:
        del request
        provider = await provider_of(self._session)
        people = await known(provider)
        events = await self._last_events(provider)
        return Shown("history.html", {"rows": self._rows(events, people), "after": _after(events)})

    async def of_container(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        container = await container_of(self._session, request)
        people = await known(provider)
        events = await provider.getEvents(containerId=container.id)
        values = {"rows": self._rows(events[-ROWS:], people), "after": _after(events)}
        return shown_of("container_history.html", container, values)

    async def new(self, request: Request) -> Shown:
        """Wait for events after one, and return their rows: those of one container if the query names one."""
        provider, query = await provider_of(self._session), request.query_params
        after = _number(query.get("after", ""))
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
        values = {"rows": rows, "after": _after(events, after), "names": container_id is None}
        return Shown("timeline_new.html", values)

    def _rows(self, events: Sequence[scbroker.ContainerEvent], people: Known) -> list[Happened]:
        """Return the events as the view shows them, the newest first."""
        found = []
        for each in reversed(events):
            container = self._shelf.known(each.containerId)
            found.append(
                Happened(
                    each,
                    None if each.relatedUserId is None else people.user(each.relatedUserId),
                    _what(each, people),
                    None if container is None else _topic(container, people),
                    each.containerId.hex[:SHORT_ID],
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
        self, provider: scbroker.ServerProvider
    ) -> Sequence[scbroker.ContainerEvent]:
        """Return the last events. The first time this reads the whole log, which the client checks."""
        start = self._end - ROWS if self._end > ROWS else None
        try:
            events = await provider.getEvents(startId=start)
        except errors.EventsExpiredError:
            events = await provider.getEvents()
        self._end = _after(events)
        return events[-ROWS:]


async def _next_events(
    provider: scbroker.ServerProvider, after: int
) -> list[scbroker.ContainerEvent]:
    """Return the next events after an id, at most ROWS; none if nothing happens for some seconds."""
    found: list[scbroker.ContainerEvent] = []
    async with provider.followEvents(after + 1) as stream:
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


def _topic(container: Container, people: Known) -> str | None:
    """Return the name of a container that the page has read; None without one."""
    if container.createdBy == people.own_id and is_own_document(container):
        return "Your links" if container.type == "scbroker.links" else "Your contacts"
    name = name_of(container)
    return None if name is None else shortened(name)


def _what(event: scbroker.ContainerEvent, people: Known) -> str:
    is_own = event.relatedUserId == people.own_id
    if event.eventType == scbroker.ContainerEventType.Added:
        return "created it" if is_own else "gave you access"
    if event.eventType == scbroker.ContainerEventType.Accessed:
        return "read it"
    if event.eventType == scbroker.ContainerEventType.Deleted:
        if event.relatedUserId is None:
            return "It was deleted, or your access ended"
        return "deleted it, or gave up access" if is_own else "deleted it, or ended your access"
    parts = [_PARTS.get(each, "something") for each in event.changes]
    return f"changed {', '.join(parts) or 'it'}"


def _after(events: Sequence[scbroker.ContainerEvent], before: int = 0) -> int:
    """Return the id after which the next events are to be asked for."""
    return events[-1].id if events else before


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise errors.InvalidArgumentError(
            f"after must be the number of an event, not {text!r:.40}."
        )
    return int(text)
