"""Show the user's links with their QR codes; make and revoke links."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.ui.container import may
from scbroker.cli.ui.context import container_of, people_of, provider_of, show_of, shown_name
from scbroker.cli.web.site import ask, done, fields, qr_code, show

_DAYS: Final = 7
"""Days that a new link is valid if the person chooses no other end."""
_NAMED: Final = 20
"""The most containers that a link's view names."""


async def _list(request: Request) -> Response:
    return show(request, "links.html", links=await provider_of(request).getLinks())


async def _show(request: Request) -> Response:
    """Show a link. Its URL is a secret, which only this view has."""
    link = await _link_of(request)
    provider, ids = provider_of(request), link.containerIds[:_NAMED]
    found = await provider.getContainers(ids, content=False)
    names = {each.id: shown_name(each) for each in found if isinstance(each, scbroker.Container)}
    return show(
        request,
        "link.html",
        link=link,
        containers=[(each, names.get(each)) for each in ids],
        more=len(link.containerIds) - len(ids),
        code=None if link.expired else qr_code(link.url, "QR code of the link"),
    )


async def _make(request: Request) -> Response:
    """Make a link. The form is a POST, so that the password is in no URL."""
    if request.method == "GET":
        container, people = await container_of(request), await people_of(request)
        return show_of(
            request,
            "new_link.html",
            container,
            links=[each for each in people.links.values() if container.id in each.containerIds],
            may=may(people, container),
            tomorrow=dates.day_after(1),
            proposed=dates.day_after(_DAYS),
        )
    given = fields(request)
    password = given.get("password", "")
    if password != given.get("again", ""):
        raise errors.InvalidArgumentError("The two passwords differ: enter the same one twice.")
    end = dates.end_of(given.get("until", ""), "The end")
    link = await provider_of(request).createLink(
        request.path_params["id"],
        expiresAt=end,
        password=password or None,
        name=given.get("name", "").strip() or None,
    )
    who = "the link and its password" if link.hasPassword else "the link"
    text = f"Anybody with {who} can read until {dates.local(end)}."
    return done(request, text, f"/links/{link.userId}")


async def _revoke(request: Request) -> Response:
    link = await _link_of(request)
    called = str(link.userId) if link.name is None else link.name
    if request.method == "POST":
        await provider_of(request).revokeLink(link)
        return done(request, f"The link {called} opens nothing any more.", "/links")
    return ask(
        request,
        f"Revoke the link {called}?",
        [
            "The link opens nothing any more, also for people who have it already.",
            "They may have kept copies of what they read.",
        ],
        "Revoke this link",
        f"/links/{link.userId}",
        is_dangerous=True,
    )


async def _link_of(request: Request) -> scbroker.Link:
    wanted = request.path_params["id"]
    for each in await provider_of(request).getLinks():
        if each.userId == wanted:
            return each
    raise errors.NotFoundError(f"You have no link {wanted}.")


routes: Final = [
    Route("/links", _list),
    Route("/links/{id:uuid}", _show),
    Route("/links/{id:uuid}/revoke", _revoke, methods=["GET", "POST"]),
    Route("/containers/{id:uuid}/link", _make, methods=["GET", "POST"]),
]
