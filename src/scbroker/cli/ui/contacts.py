"""Show the user's contacts and own card; add, compare, rename and remove contacts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli.run import Run
from scbroker.cli.ui.container import path_of
from scbroker.cli.ui.known import in_text, provider_of, uuid_of
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.qr import qr_code
from scbroker.cli.web.site import Act, Done, Question, Shown, View


class Side(NamedTuple):
    """One of the two people who compare, and the fingerprint that this person reads out."""

    name: str
    is_own: bool
    rows: list[list[str]]
    """Four groups of digits in each row."""


def contacts(session: Session) -> Part:
    """Return the views and acts of the address book."""
    views, contact = _Contacts(session), "/contacts/{id}"
    return Part(
        views=[
            View("/contacts", views.list, "Contacts"),
            View("/contacts/add", views.ask_to_add),
            View(contact, views.show),
            View(f"{contact}/compare", views.compare),
            View(f"{contact}/different", views.say_different),
            View(f"{contact}/rename", views.ask_for_name),
            View(f"{contact}/remove", views.ask_to_remove),
        ],
        acts=[
            Act("/contacts/add", views.add),
            Act(f"{contact}/compare", views.confirm),
            Act(f"{contact}/rename", views.rename),
            Act(f"{contact}/remove", views.remove),
        ],
    )


class _Contacts:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, request: Request) -> Shown:
        del request
        card = await self._session.do(_own_card)
        return Shown(
            "contacts.html",
            {
                "contacts": await (await self._book()).list(),
                "card": card,
                "code": _code(card, "QR code of your contact card"),
            },
        )

    async def show(self, request: Request) -> Shown:
        contact = await self._find(request)
        card = scbroker.ContactCard(contact.fingerprint, contact.serverUrl, contact.name)
        return Shown(
            "contact.html",
            {
                "contact": contact,
                "card": card,
                "code": _code(card, f"QR code of the contact card of {contact.name}"),
            },
        )

    async def ask_to_add(self, request: Request) -> Shown:
        del request
        return Shown("new_contact.html")

    async def add(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request
        provider = await provider_of(self._session)
        card = scbroker.ContactCard.parse(fields.get("card", ""))
        if card.userId == await provider.getUserId():
            raise errors.InvalidArgumentError(
                "This is your own card: give it to others, and add theirs."
            )
        name = fields.get("name", "").strip() or None
        contact = await scbroker.Contacts(provider).add(card, name)
        return Done(
            f"{in_text(contact.name)} is in your contacts. Anybody can make a card with any name: compare "
            "fingerprints now.",
            f"/contacts/{contact.userId}/compare",
        )

    async def compare(self, request: Request) -> Shown:
        """Show both fingerprints, in the same order on the screens of both people."""
        contact = await self._find(request)
        own = (await self._session.do(_own_card)).fingerprint
        sides = [_side("You", own, is_own=True), _side(contact.name, contact.fingerprint)]
        share = request.query_params.get("share", "")
        return Shown(
            "compare.html",
            {
                "contact": contact,
                "called": in_text(contact.name),
                "sides": sorted(sides, key=lambda each: each.rows),
                "share": share,
                "back": _back(contact, share),
            },
        )

    async def confirm(self, request: Request, fields: Mapping[str, str]) -> Done:
        """Mark the contact as verified, if the fingerprint is still the one that the view showed."""
        contact = await self._find(request)
        if fields.get("compared") != "yes":
            raise errors.InvalidArgumentError(
                "Nothing was confirmed: compare all groups of digits with the person first."
            )
        book = await self._book()
        found = await book.verify(contact.name, fields.get("fingerprint", ""))
        return Done(f"{in_text(found.name)} is verified.", _back(found, fields.get("share", "")))

    async def say_different(self, request: Request) -> Shown:
        contact = await self._find(request)
        share = request.query_params.get("share", "")
        values = {"contact": contact, "share": share, "back": _back(contact, share)}
        return Shown("different.html", values)

    async def ask_for_name(self, request: Request) -> Shown:
        contact = await self._find(request)
        return Question(
            heading=f"Rename {in_text(contact.name)}?",
            texts=["Only you see the names of your contacts. A verified contact stays verified."],
            asks=("name", "New name"),
            button="Rename",
            back=f"/contacts/{contact.userId}",
        ).shown()

    async def rename(self, request: Request, fields: Mapping[str, str]) -> Done:
        contact = await self._find(request)
        book = await self._book()
        new = await book.rename(contact.name, fields.get("name", "").strip())
        return Done(f"The contact is named {new.name} now.", f"/contacts/{new.userId}")

    async def ask_to_remove(self, request: Request) -> Shown:
        contact = await self._find(request)
        return Question(
            heading=f"Remove {in_text(contact.name)} from your contacts?",
            texts=[
                f"{in_text(contact.name)} keeps the access to your containers: revoke it at each container."
            ],
            button="Remove this contact",
            is_dangerous=True,
            back=f"/contacts/{contact.userId}",
        ).shown()

    async def remove(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        contact = await self._find(request)
        await (await self._book()).remove(contact.name)
        return Done(f"{in_text(contact.name)} is not in your contacts any more.", "/contacts")

    async def _book(self) -> scbroker.Contacts:
        return scbroker.Contacts(await provider_of(self._session))

    async def _find(self, request: Request) -> scbroker.Contact:
        wanted = uuid_of(request.path_params["id"])
        for each in await (await self._book()).list():
            if each.userId == wanted:
                return each
        raise errors.NotFoundError(f"You have no contact {wanted}.")


def _back(contact: scbroker.Contact, share: str) -> str:
    """Return the path that a comparison returns to: the contact, or the container that is to be shared."""
    if not share:
        return f"/contacts/{contact.userId}"
    return path_of(uuid_of(share), f"/people?person={contact.userId}")


def _own_card(run: Run) -> scbroker.ContactCard:
    return run.profile.card


def _side(name: str, fingerprint: str, *, is_own: bool = False) -> Side:
    groups = fingerprint.split()
    rows = [groups[at : at + 4] for at in range(0, len(groups), 4)]
    return Side(name, is_own, rows)


def _code(card: scbroker.ContactCard, label: str) -> str:
    # Upper case fits into the QR code's alphanumeric mode, which takes 5.5 bits a character.
    return qr_code(card.text.upper(), label)
