"""Show the user's links with their QR codes; make and revoke links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.ui.container import PATH, container_of, id_of, shown_of
from scbroker.cli.ui.known import known, provider_of, shown_name, uuid_of
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.qr import qr_code
from scbroker.cli.web.site import Act, Done, Question, Shown, View

_DAYS: Final = 7
"""Days that a new link is valid if the person chooses no other end."""
_NAMED: Final = 20
"""Containers whose names a link's view shows."""


def links(session: Session) -> Part:
    """Return the views and acts of links."""
    views, link = _Links(session), "/links/{id}"
    return Part(
        views=[
            View("/links", views.list, "Links"),
            View(link, views.show),
            View(f"{link}/revoke", views.ask_to_revoke),
            View(f"{PATH}/link", views.ask_to_make),
        ],
        acts=[Act(f"{link}/revoke", views.revoke), Act(f"{PATH}/link", views.make)],
    )


class _Links:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, request: Request) -> Shown:
        del request
        return Shown("links.html", {"links": await (await provider_of(self._session)).getLinks()})

    async def show(self, request: Request) -> Shown:
        """Show a link. Its URL is a secret, which only this view has."""
        provider = await provider_of(self._session)
        link = await _find(provider, request)
        found = await provider.getContainers(link.containerIds[:_NAMED], content=False)
        names = {
            each.id: shown_name(each) for each in found if isinstance(each, scbroker.Container)
        }
        return Shown(
            "link.html",
            {
                "link": link,
                "containers": [(each, names.get(each)) for each in link.containerIds[:_NAMED]],
                "more": max(0, len(link.containerIds) - _NAMED),
                "code": None if link.expired else qr_code(link.url, "QR code of the link"),
            },
        )

    async def ask_to_make(self, request: Request) -> Shown:
        container = await container_of(self._session, request)
        people = await known(await provider_of(self._session))
        values = {
            "links": [each for each in people.links.values() if container.id in each.containerIds],
            "may": people.may(container),
            "tomorrow": dates.day_after(1),
            "proposed": dates.day_after(_DAYS),
        }
        return shown_of("new_link.html", container, values)

    async def make(self, request: Request, fields: Mapping[str, str]) -> Done:
        """Make a link. A form sends the password: it is in no URL."""
        password, again = fields.get("password", ""), fields.get("again", "")
        if password != again:
            raise errors.InvalidArgumentError("The two passwords differ: enter the same one twice.")
        end = dates.end_of(fields.get("until", ""), "The end")
        name = fields.get("name", "").strip() or None
        link = await (await provider_of(self._session)).createLink(
            id_of(request), expiresAt=end, password=password or None, name=name
        )
        who = "the link and its password" if link.hasPassword else "the link"
        return Done(
            f"Anybody with {who} can read until {dates.local(end)}.", f"/links/{link.userId}"
        )

    async def ask_to_revoke(self, request: Request) -> Shown:
        link = await _find(await provider_of(self._session), request)
        return Question(
            heading=f"Revoke the link {called(link)}?",
            texts=[
                "The link opens nothing any more, also for people who have it already.",
                "They may have kept copies of what they read.",
            ],
            button="Revoke this link",
            is_dangerous=True,
            back=f"/links/{link.userId}",
        ).shown()

    async def revoke(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        provider = await provider_of(self._session)
        link = await _find(provider, request)
        await provider.revokeLink(link)
        return Done(f"The link {called(link)} opens nothing any more.", "/links")


def called(link: scbroker.Link) -> str:
    return str(link.userId) if link.name is None else link.name


async def _find(provider: scbroker.ServerProvider, request: Request) -> scbroker.Link:
    wanted = uuid_of(request.path_params["id"])
    for each in await provider.getLinks():
        if each.userId == wanted:
            return each
    raise errors.NotFoundError(f"You have no link {wanted}.")
