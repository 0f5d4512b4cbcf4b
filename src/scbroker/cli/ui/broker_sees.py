"""Show what the broker can see of one container, and what it cannot.

Both sides come from the container itself: from the bytes that the broker serves, and from what the user's
keys open. docs/security.md has the list ("What the broker sees").
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from scbroker.cli.ui.container import PATH, container_of, shown_of
from scbroker.cli.ui.known import known, provider_of, shortened
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.site import Shown, View
from scbroker.desk import rights
from scbroker.desk.names import name_of
from scbroker.vocabulary import ContainerAccessLevel

_EXCERPT: Final = 32
"""Bytes of a sealed part that the view shows."""
_FIELDS: Final = 12
_LONGEST: Final = 80


class Sealed(NamedTuple):
    """A part of the container as the broker has it."""

    size: int | None
    """Bytes; None if the answer does not have them."""
    excerpt: str
    """The first bytes in hexadecimal digits."""


def broker_sees(session: Session) -> Part:
    """Return the view of what the broker can see of a container."""
    return Part(views=[View(f"{PATH}/broker", _BrokerSees(session).show)])


class _BrokerSees:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def show(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        container = await container_of(self._session, request)
        stored = await provider.getSecuredContainer(container.id)
        people = await known(provider)
        header = None if container.header is None else container.header.customHeaderObject
        return shown_of(
            "broker_sees.html",
            container,
            {
                "own_name": name_of(container),
                "stored": stored,
                "sealed_header": _sealed(stored.sealedHeader),
                "sealed_content": _sealed(stored.sealedContent),
                "wrap": _sealed(stored.wrap),
                "fields": fields(header),
                "members": [
                    (each, people.holder(each), rights.in_words(each.permissions))
                    for each in container.access or ()
                ],
                "hides_members": container.access is None,
                "may_hide_type": ContainerAccessLevel.ViewType not in people.own_rights(container),
            },
        )


def fields(header: object) -> list[tuple[str, str]]:
    """Return the first fields of a header, each as a short text."""
    items: list[tuple[Any, Any]] = [*header.items()] if isinstance(header, dict) else []
    if header is not None and not items:
        items = [("header", header)]
    shown = [
        (
            shortened(str(key), _LONGEST),
            shortened(each if isinstance(each, str) else json.dumps(each), _LONGEST),
        )
        for key, each in items[:_FIELDS]
    ]
    more = len(items) - len(shown)
    return [*shown, ("…", f"{more} more fields")] if more else shown


def _sealed(octets: bytes | None) -> Sealed:
    if octets is None:
        return Sealed(None, "")
    more = "…" if len(octets) > _EXCERPT else ""
    return Sealed(len(octets), octets[:_EXCERPT].hex(" ", 2) + more)
