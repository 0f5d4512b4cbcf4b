"""The containers as a list and as a gallery: searched, filtered, sorted, and in pages."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli.output import SHORT_ID
from scbroker.cli.ui.known import Known, Somebody, known, offered_groups, provider_of, shortened
from scbroker.cli.ui.part import Container, Part
from scbroker.cli.ui.session import HOME, Session
from scbroker.cli.ui.shelf import Entry, Shelf
from scbroker.cli.web.site import Shown, View
from scbroker.desk.names import name_of

_PAGE: Final = 48
_DIGITS: Final = 6
_LONGEST: Final = 200
_THUMBNAIL_BYTES: Final = 4_194_304
_OPTIONS: Final = 100
"""Types, and people of each kind, that the filters offer. Other users choose what they share."""


class Sort(enum.StrEnum):
    """The field by which the list is sorted."""

    name = "name"
    changed = "changed"
    size = "size"


class Card(NamedTuple):
    """What list and gallery show of a container."""

    id: uuid.UUID
    version: int
    name: str
    type: str | None
    length: int | None
    modified: dt.datetime
    people: list[Somebody] | None
    """The other members; None if the user may not see them."""
    is_image: bool
    """Whether the gallery asks for its picture. The header says so, and the content may differ."""


class Wanted(NamedTuple):
    """What the person looks for."""

    q: str = ""
    type: str = ""
    person: str = ""
    sort: Sort = Sort.name
    show: str = "list"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """Read a query. Raises `InvalidArgumentError` for a value that no link or form of the page has."""
        sort, show, page = (
            query.get("sort", "name"),
            query.get("show", "list"),
            query.get("page", "1"),
        )
        if sort not in list(Sort) or show not in ("list", "gallery"):
            raise errors.InvalidArgumentError("The list has no such order: use its links.")
        if not (page.isascii() and page.isdigit() and 0 < len(page) <= _DIGITS and int(page)):
            raise errors.InvalidArgumentError(f"page must be a number from 1 on, not {page!r:.40}.")
        q, type, person = (
            query.get(name, "").strip()[:_LONGEST] for name in ("q", "type", "person")
        )
        return cls(q, type, person, Sort(sort), show, int(page))

    @property
    def is_narrowed(self) -> bool:
        """Whether it leaves out containers."""
        return bool(self.q or self.type or self.person)

    def link(self, **changed: object) -> str:
        """Return the query of the same list with other values; the page begins anew unless it is given."""
        values = {**self._asdict(), "page": 1, **changed}
        return "?" + urlencode({name: str(value) for name, value in values.items() if value})


def listing(session: Session, shelf: Shelf) -> Part:
    """Return the view of all containers."""

    async def show(request: Request) -> Shown:
        wanted = Wanted.of(request.query_params)
        entries = await shelf.entries()
        provider = await provider_of(session)
        people, offers = await known(provider), len(await offered_groups(provider) or ())
        # In a thread: a search in thousands of containers takes a while.
        return await asyncio.to_thread(_shown, entries, people, wanted, offers)

    return Part(views=[View(HOME, show, "Containers")])


def _shown(entries: list[Entry], people: Known, wanted: Wanted, offers: int) -> Shown:
    damaged = [each for each in entries if isinstance(each, errors.BrokerError)]
    visible = [
        each for each in entries if isinstance(each, scbroker.Container) and not each.isOwnDocument
    ]
    found = [each for each in visible if _is_wanted(each, wanted)]
    found.sort(key=_KEYS[wanted.sort])
    pages = max(1, -(-len(found) // _PAGE))
    page = min(wanted.page, pages)
    return Shown(
        "containers.html",
        {
            "wanted": wanted,
            "cards": [_card(each, people) for each in found[(page - 1) * _PAGE : page * _PAGE]],
            "count": len(found),
            "total": len(visible),
            "page": page,
            "pages": pages,
            "types": sorted({each.type for each in visible if each.type})[:_OPTIONS],
            "holders": _by_kind(people, visible),
            "offers": offers,
            "damaged": damaged,
            "sorts": list(Sort),
        },
    )


def _is_wanted(each: Container, wanted: Wanted) -> bool:
    words = _folded(wanted.q).split()
    text = _folded(f"{name_of(each) or ''} {each.type or ''} {each.id}")
    return (
        all(word in text for word in words)
        and (not wanted.type or each.type == wanted.type)
        and (not wanted.person or wanted.person in map(str, _members(each)))
    )


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text[: _LONGEST * 8]).casefold()


def _members(each: Container) -> set[uuid.UUID]:
    return {each.createdBy, *(level.userId for level in each.access or ())}


def _by_kind(people: Known, visible: Iterable[Container]) -> dict[str, list[Somebody]]:
    """Return who has created or can access a container, by kind, each sorted by name."""
    shown: dict[uuid.UUID, Somebody] = {}
    for each in visible:
        shown.setdefault(each.createdBy, people.user(each.createdBy))
        for level in each.access or ():
            shown.setdefault(level.userId, people.holder(level))
    found: dict[str, list[Somebody]] = {title: [] for title in dict.fromkeys(_TITLES.values())}
    for who in sorted(shown.values(), key=lambda each: each.name.casefold()):
        of_kind = found[_TITLES[who.kind]]
        if len(of_kind) < _OPTIONS:
            of_kind.append(who)
    return found


def _card(each: Container, people: Known) -> Card:
    header = each.header.customHeaderObject if each.header else None
    media_type = header.get("mediaType") if isinstance(header, dict) else None
    is_image = isinstance(media_type, str) and media_type.startswith("image/")
    return Card(
        each.id,
        each.version,
        shortened(name_of(each) or f"({each.id.hex[:SHORT_ID]})"),
        each.type,
        each.length,
        each.modifiedAt,
        people.others(each),
        # Browsers decode pictures of any size: those of strangers are loaded by a click alone.
        is_image and 0 < (each.length or 0) <= _THUMBNAIL_BYTES and people.made(each),
    )


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
_KEYS: Final[dict[Sort, Callable[[Container], Any]]] = {
    Sort.name: lambda each: (name_of(each) is None, (name_of(each) or "").casefold(), each.id),
    Sort.changed: lambda each: (-each.modifiedAt.timestamp(), each.id),
    Sort.size: lambda each: (-(each.length or 0), each.id),
}
