"""Show a container and what the broker can see of it; rename and delete it."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scbroker.cli.commands.changing import rename
from scbroker.cli.ui.content import preview
from scbroker.cli.ui.context import (
    Container,
    container_of,
    find,
    in_text,
    path_of,
    people_of,
    provider_of,
    shortened,
    show_of,
    shown_name,
)
from scbroker.cli.ui.session import HOME, session_of
from scbroker.cli.web.site import ask, done, fields
from scbroker.desk import rights
from scbroker.desk.names import name_of
from scbroker.desk.paths import relative_path
from scbroker.desk.people import People, modifier_is_member, some
from scbroker.vocabulary import ContainerAccessLevel

_EXCERPT: Final = 32
"""Bytes of each sealed part that the view of the broker's knowledge shows."""
_FIELDS: Final = 12
_LONGEST: Final = 80


class May(NamedTuple):
    """The actions that the user's permissions allow: the page offers no others."""

    rename: bool
    share: bool
    delete: bool


def may(people: People, container: Container) -> May:
    """Return what the user may do. Only Delete is possible without seeing the list of members."""
    own = people.rights(container)
    return May(
        rename=rights.WRITE in own,
        share=rights.SHARE in own,
        delete=ContainerAccessLevel.Delete in own or container.access is None,
    )


async def _show(request: Request) -> Response:
    container = await container_of(request)
    people = await people_of(request)
    return show_of(
        request,
        "container.html",
        container,
        people=people,
        may=may(people, container),
        content=await session_of(request).do(lambda run: preview(run, container)),
        is_member=await session_of(request).do(
            lambda run: modifier_is_member(run.session, container)
        ),
    )


async def _rename(request: Request) -> Response:
    if request.method == "GET":
        container = await container_of(request)
        return show_of(request, "rename.html", container, own_name=name_of(container) or "")
    id, new = request.path_params["id"], str(relative_path(fields(request).get("name", "").strip()))
    await session_of(request).do(lambda run: rename(run, find(run, id), new))
    return done(request, f"The container is named {new!r} now.", path_of(id))


async def _delete(request: Request) -> Response:
    container = await container_of(request)
    if request.method == "POST":
        await provider_of(request).deleteContainer(container.id)
        return done(request, f"{shown_name(container)!r} is deleted.", HOME)
    others = (await people_of(request)).others(container)
    if others is None:
        also = "Members whom you cannot see lose it too."
    elif others:
        also = f"Others lose it too: {some(map(in_text, others))}."
    else:
        also = "Nobody else has access to it."
    return ask(
        request,
        f"Delete {shown_name(container)}?",
        [also, "It cannot be undone."],
        "Delete for everybody",
        path_of(container.id),
        is_dangerous=True,
    )


async def _broker(request: Request) -> Response:
    """Show what the broker can see of a container, and what it cannot.

    Both sides come from the container itself: from the bytes that the broker serves, and from what the user's
    keys open. docs/what-the-broker-sees.md has the whole list.
    """
    container, people = await container_of(request), await people_of(request)
    stored = await provider_of(request).getSecuredContainer(container.id)
    header = None if container.header is None else container.header.customHeaderObject
    return show_of(
        request,
        "broker_sees.html",
        container,
        own_name=name_of(container),
        stored=stored,
        sealed_header=_sealed(stored.sealedHeader),
        sealed_content=_sealed(stored.sealedContent),
        wrap=_sealed(stored.wrap),
        fields=_shown_fields(header),
        members=[
            (each, people.holder(each), rights.in_words(each.permissions))
            for each in container.access or ()
        ],
        hides_members=container.access is None,
        may_hide_type=ContainerAccessLevel.ViewType not in people.rights(container),
    )


def _shown_fields(header: object) -> list[tuple[str, str]]:
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


def _sealed(octets: bytes | None) -> dict[str, object]:
    """Return a sealed part's size and first bytes at the broker; the size is None without a part."""
    if octets is None:
        return {"size": None, "excerpt": ""}
    more = "…" if len(octets) > _EXCERPT else ""
    return {"size": len(octets), "excerpt": octets[:_EXCERPT].hex(" ", 2) + more}


_PATH: Final = "/containers/{id:uuid}"
routes: Final = [
    Route(_PATH, _show),
    Route(f"{_PATH}/rename", _rename, methods=["GET", "POST"]),
    Route(f"{_PATH}/delete", _delete, methods=["GET", "POST"]),
    Route(f"{_PATH}/broker", _broker),
]
