"""Show the user's contacts and own card; add, compare, rename and remove contacts."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.ui.context import path_of, provider_of, uuid_of
from scbroker.cli.ui.session import session_of
from scbroker.cli.web.site import ask, done, fields, qr_code, show
from scbroker.desk.people import contact_in_text


async def _list(request: Request) -> Response:
    card = await _own_card(request)
    return show(
        request,
        "contacts.html",
        contacts=await _book(request).list(),
        card=card,
        code=_code(card, "QR code of your contact card"),
    )


async def _show(request: Request) -> Response:
    contact = await _contact_of(request)
    card = scbroker.ContactCard(contact.fingerprint, contact.serverUrl, contact.name)
    code = _code(card, f"QR code of the contact card of {contact.name}")
    return show(request, "contact.html", contact=contact, card=card, code=code)


async def _add(request: Request) -> Response:
    if request.method == "GET":
        return show(request, "new_contact.html")
    provider = provider_of(request)
    card = scbroker.ContactCard.parse(fields(request).get("card", ""))
    if card.userId == await provider.getUserId():
        raise errors.InvalidArgumentError(
            "This is your own card: give it to others, and add theirs."
        )
    name = fields(request).get("name", "").strip() or None
    contact = await scbroker.Contacts(provider).add(card, name)
    return done(
        request,
        f"{contact_in_text(contact.name)} is in your contacts. Anybody can make a card with any name: "
        "compare fingerprints now.",
        f"/contacts/{contact.userId}/compare",
    )


async def _compare(request: Request) -> Response:
    """Show both fingerprints, in the same order on both people's screens; a POST marks the contact verified.

    The form sends the fingerprint that the view showed: the contact may have been replaced meanwhile.
    """
    contact = await _contact_of(request)
    if request.method == "POST":
        given = fields(request)
        if given.get("compared") != "yes":
            raise errors.InvalidArgumentError(
                "Nothing was confirmed: compare all groups of digits with the person first."
            )
        book = _book(request)
        found = await book.verify(contact.name, given.get("fingerprint", ""))
        text = f"{contact_in_text(found.name)} is verified."
        return done(request, text, _back(found, given.get("share", "")))
    own = (await _own_card(request)).fingerprint
    sides = [_side("You", own, is_own=True), _side(contact.name, contact.fingerprint)]
    share = request.query_params.get("share", "")
    return show(
        request,
        "compare.html",
        contact=contact,
        called=contact_in_text(contact.name),
        sides=sorted(sides, key=lambda each: each["rows"]),
        share=share,
        back=_back(contact, share),
    )


async def _different(request: Request) -> Response:
    contact, share = await _contact_of(request), request.query_params.get("share", "")
    back = _back(contact, share)
    return show(request, "different.html", contact=contact, share=share, back=back)


async def _rename(request: Request) -> Response:
    contact = await _contact_of(request)
    if request.method == "POST":
        book, name = _book(request), fields(request).get("name", "").strip()
        new = await book.rename(contact.name, name)
        text = f"The contact is named {new.name} now."
        return done(request, text, f"/contacts/{new.userId}")
    return ask(
        request,
        f"Rename {contact_in_text(contact.name)}?",
        ["Only you see the names of your contacts. A verified contact stays verified."],
        "Rename",
        f"/contacts/{contact.userId}",
        field=("name", "New name"),
    )


async def _remove(request: Request) -> Response:
    contact = await _contact_of(request)
    called = contact_in_text(contact.name)
    if request.method == "POST":
        await _book(request).remove(contact.name)
        return done(request, f"{called} is not in your contacts any more.", "/contacts")
    return ask(
        request,
        f"Remove {called} from your contacts?",
        [f"{called} keeps the access to your containers: revoke it at each container."],
        "Remove this contact",
        f"/contacts/{contact.userId}",
        is_dangerous=True,
    )


def _book(request: Request) -> scbroker.Contacts:
    return scbroker.Contacts(provider_of(request))


async def _contact_of(request: Request) -> scbroker.Contact:
    wanted = request.path_params["id"]
    for each in await _book(request).list():
        if each.userId == wanted:
            return each
    raise errors.NotFoundError(f"You have no contact {wanted}.")


def _back(contact: scbroker.Contact, share: str) -> str:
    """Return the path to open after a comparison: the contact, or the container to share."""
    if not share:
        return f"/contacts/{contact.userId}"
    return path_of(uuid_of(share), f"/people?person={contact.userId}")


async def _own_card(request: Request) -> scbroker.ContactCard:
    return await session_of(request).do(lambda run: run.profile.card)


def _side(name: str, fingerprint: str, *, is_own: bool = False) -> dict[str, Any]:
    """Return one person's side of a comparison: the name, and the fingerprint in rows of four groups."""
    groups = fingerprint.split()
    rows = [groups[at : at + 4] for at in range(0, len(groups), 4)]
    return {"name": name, "is_own": is_own, "rows": rows}


def _code(card: scbroker.ContactCard, label: str) -> str:
    # Upper case fits into the QR code's alphanumeric mode, which takes 5.5 bits a character.
    return qr_code(card.text.upper(), label)


_CONTACT: Final = "/contacts/{id:uuid}"
routes: Final = [
    Route("/contacts", _list),
    Route("/contacts/add", _add, methods=["GET", "POST"]),
    Route(_CONTACT, _show),
    Route(f"{_CONTACT}/compare", _compare, methods=["GET", "POST"]),
    Route(f"{_CONTACT}/different", _different),
    Route(f"{_CONTACT}/rename", _rename, methods=["GET", "POST"]),
    Route(f"{_CONTACT}/remove", _remove, methods=["GET", "POST"]),
]
