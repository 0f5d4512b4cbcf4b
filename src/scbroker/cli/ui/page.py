"""Assemble the user's page, and show the containers and events: searched, filtered, sorted, and in pages."""

from __future__ import annotations

import asyncio
import datetime as dt
import mimetypes
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

import scbroker
from scbroker import errors
from scbroker.cli.commands.checking import merged
from scbroker.cli.output import SHORT_ID
from scbroker.cli.ui import container, groups, members
from scbroker.cli.ui import session as sessions
from scbroker.cli.ui.session import (
    HOME,
    START,
    Container,
    Gate,
    Session,
    container_of,
    in_text,
    named,
    path_of,
    people_of,
    provider_of,
    session_of,
    show_of,
)
from scbroker.cli.web.access import Access
from scbroker.cli.web.site import Site, fault, show
from scbroker.desk.names import Entry, all_containers, name_of, shortened
from scbroker.desk.people import People, Somebody

_NAVIGATION = {
    "/containers": "Containers",
    "/groups": "Groups",
    "/links": "Links",
    "/contacts": "Contacts",
    "/history": "History",
}


_PAGE: Final = 48
_PAGE_NUMBER: Final = re.compile("[1-9][0-9]{0,5}")
_LONGEST: Final = 200
_THUMBNAIL_BYTES: Final = 4_194_304
_OPTIONS: Final = 100
"""Maximum types, and people of each kind, that the filters offer: other users could share any number."""
_SORTS: Final[dict[str, Callable[[Container], Any]]] = {
    "name": lambda each: (name_of(each) is None, (name_of(each) or "").casefold(), each.id),
    "changed": lambda each: (-each.modifiedAt.timestamp(), each.id),
    "size": lambda each: (-(each.length or 0), each.id),
}
_TITLES: Final = {
    "you": "",
    "verified": "Contacts",
    "contact": "Contacts",
    "group": "Groups",
    "link": "Links",
    "stranger": "Not in your contacts",
    "other-group": "Groups that you are not in",
}
"""The heading in the filter by person, for each kind."""


class Wanted(NamedTuple):
    """A search, filter, order and page of the list, as the query has them."""

    q: str
    type: str
    person: str
    sort: str
    show: str
    page: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """Read a query; a value that no link or form of the page has counts as left out."""
        q, type, person, sort, show, page = (
            query.get(name, "").strip()[:_LONGEST] for name in cls._fields
        )
        return cls(
            q,
            type,
            person,
            sort if sort in _SORTS else "name",
            show if show == "gallery" else "list",
            int(page) if _PAGE_NUMBER.fullmatch(page) else 1,
        )

    @property
    def is_narrowed(self) -> bool:
        """True if a search or filter leaves out containers."""
        return bool(self.q or self.type or self.person)

    def link(self, **changed: object) -> str:
        """Return this list's query with changed values; it starts at page 1 unless `page` is given."""
        values = {**self._asdict(), "page": 1, **changed}
        return "?" + urlencode({name: str(value) for name, value in values.items() if value})

    def fits(self, each: Container) -> bool:
        """Return whether a container matches the search and the filters."""
        words = _folded(self.q).split()
        text = _folded(f"{name_of(each) or ''} {each.type or ''} {each.id}")
        ids = {each.createdBy, *(level.userId for level in each.access or ())}
        return (
            all(word in text for word in words)
            and (not self.type or each.type == self.type)
            and (not self.person or self.person in map(str, ids))
        )


async def _list(request: Request) -> Response:
    wanted = Wanted.of(request.query_params)
    entries = await read(session_of(request))
    people = await people_of(request)
    offers = await session_of(request).do(lambda run: len(run.people.offers() or []))
    damaged = [each for each in entries if isinstance(each, errors.BrokerError)]
    visible = [
        each for each in entries if isinstance(each, scbroker.Container) and not each.isOwnDocument
    ]

    def search() -> list[Container]:
        return sorted(filter(wanted.fits, visible), key=_SORTS[wanted.sort])

    found = await asyncio.to_thread(search)  # thousands of containers take a while
    pages = max(1, -(-len(found) // _PAGE))
    page = min(wanted.page, pages)
    return show(
        request,
        "containers.html",
        wanted=wanted,
        containers=found[(page - 1) * _PAGE : page * _PAGE],
        called=lambda each: shortened(name_of(each) or f"({each.id.hex[:SHORT_ID]})"),
        is_image=_is_image,
        people=people,
        count=len(found),
        total=len(visible),
        page=page,
        pages=pages,
        types=sorted({each.type for each in visible if each.type})[:_OPTIONS],
        holders=_by_kind(people, visible),
        offers=offers,
        damaged=damaged,
        sorts=list(_SORTS),
    )


async def read(session: Session) -> list[Entry]:
    """Return all containers with their names, and errors in place of damaged ones."""
    run = session.run
    entries = await session.do(lambda run: [*all_containers(run.session)])
    if session.holds(run):  # unless the page was locked meanwhile
        session.topics.clear()
        for each in entries:
            if isinstance(each, scbroker.Container):
                name = shortened(name_of(each) or "")
                if each.isOwnDocument:
                    name = "Your links" if each.type == "scbroker.links" else "Your contacts"
                session.topics[each.id] = name
    return entries


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text[: _LONGEST * 8]).casefold()


def _by_kind(people: People, visible: Iterable[Container]) -> dict[str, list[Somebody]]:
    """Return the users and groups that created or can access a container, by heading, sorted by name."""
    shown: dict[uuid.UUID, Somebody] = {}
    for each in visible:
        shown.setdefault(each.createdBy, people.user(each.createdBy))
        for level in each.access or ():
            shown.setdefault(level.userId, people.holder(level))
    found: dict[str, list[Somebody]] = {title: [] for title in dict.fromkeys(_TITLES.values())}
    for who in sorted(shown.values(), key=lambda each: named(each).casefold()):
        of_kind = found[_TITLES[who.kind]]
        if len(of_kind) < _OPTIONS:
            of_kind.append(who)
    return found


def _is_image(each: Container, people: People) -> bool:
    """Return whether the gallery loads a content as a thumbnail: by its name a picture, and not too large.

    The user or contacts must have written every part of it, because a browser decodes pictures of any width
    and height. Pictures of other people are loaded after a click.
    """
    media_type, _ = mimetypes.guess_type(name_of(each) or "")
    authors = {each.createdBy, each.modifiedBy, each.contentBy, each.headerBy} - {None}
    return (
        (media_type or "").startswith("image/")
        and 0 < (each.length or 0) <= _THUMBNAIL_BYTES
        and authors <= {people.own_id, *people.contacts}
    )


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
                "what": _what(each, people),
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
    """Return in words what happened to a container, or to a group itself."""
    kind, is_own = event.eventType, event.relatedUserId == people.own_id
    if event.isOfGroup:
        added = "made the group" if is_own else "added you to the group"
        deleted = "left or deleted the group" if is_own else "removed you, or deleted the group"
        parts, everything = _OF_GROUP, "the group"
    else:
        whose, whom = ("your", "you") if event.groupId is None else ("the group's", "the group")
        added = "created it" if is_own else f"gave {whom} access"
        deleted = f"deleted it, or {'gave up' if is_own else f'ended {whose}'} access"
        if event.relatedUserId is None:
            deleted = f"It was deleted, or {whose} access ended"
        parts, everything = _PARTS, "it"
    if kind == scbroker.ContainerEventType.Added:
        return added
    if kind == scbroker.ContainerEventType.Accessed:
        return "read it"
    if kind == scbroker.ContainerEventType.Deleted:
        return deleted
    changed = ", ".join(parts.get(each, "something") for each in event.changes)
    return f"changed {changed or everything}"


_ROUTES: Final = [
    Route(HOME, _list),
    Route("/history", _of_account),
    Route("/containers/{id:uuid}/history", _of_container),
]


def users_page(session: Session, access: Access, ends: dt.datetime) -> ASGIApp:
    """Return the application of a session's page."""
    site = Site(access, "scbroker.cli.ui", _NAVIGATION, ends, is_open=lambda: session.is_open)
    site.styles, site.modules = ["ui.css", "sharing.css"], ["upload.js", "copy.js"]
    site.templates.env.globals["session"] = session
    site.templates.env.filters.update(in_text=in_text, named=named, shortened=shortened)
    session.at_lock.append(site.forget)

    async def ended(request: Request, error: errors.NotAuthenticatedError) -> Response:
        """Lock the page when the session has ended, as after `scbroker logout`."""
        session.lock()
        return fault(request, error, START)

    async def unsettled(request: Request, error: errors.UnsettledAccessError) -> Response:
        """Redirect to the view of the change of access that has to be confirmed."""
        id = error.containerId
        return fault(request, error, HOME if id is None else path_of(id, "/people"))

    parts = (container, members, groups, sessions)
    return site.application(
        [*_ROUTES, *(route for part in parts for route in part.routes)],
        [Middleware(Gate, session=session, root=access.root)],
        {errors.NotAuthenticatedError: ended, errors.UnsettledAccessError: unsettled},
        session=session,
    )
