"""Show the containers as a list and as a gallery: searched, filtered, sorted, and in pages."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.output import SHORT_ID
from scbroker.cli.ui.context import Container, named, people_of, shortened
from scbroker.cli.ui.session import HOME, Session, session_of
from scbroker.cli.web.site import show
from scbroker.desk.names import Entry, all_containers, name_of
from scbroker.desk.people import People, Somebody

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
        """Whether a search or filter leaves out containers."""
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
        found = [each for each in entries if isinstance(each, scbroker.Container)]
        session.topics = {each.id: topic for each in found if (topic := _topic(each))}
    return entries


def _topic(container: Container) -> str | None:
    """Return the name for a container in views of events; None without one."""
    if container.isOwnDocument:
        return "Your links" if container.type == "scbroker.links" else "Your contacts"
    return shortened(name_of(container) or "") or None


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


routes: Final = [Route(HOME, _list)]
