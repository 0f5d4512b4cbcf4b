"""Show contacts, the user's own card, and groups with their members; change them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.ui.session import (
    in_text,
    named,
    of_user,
    path_of,
    people_of,
    provider_of,
    session_of,
    uuid_of,
)
from scbroker.cli.web.site import ask, done, fields, qr_code, show
from scbroker.desk.names import shortened
from scbroker.desk.people import (
    PLACES,
    ROLES,
    People,
    capital,
    contact_in_text,
    counted,
    dropped_text,
    managers_after,
    place_of,
)
from scbroker.vocabulary import GroupRole, MemberRole

_LIST_SECONDS: Final = 10.0
"""Time limit for reading all groups, offered ones included: an offered group can have a long history."""
_GROUPS: Final = "/groups"


async def _list(request: Request) -> Response:
    provider, people = provider_of(request), await people_of(request)
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            found = await provider.getGroups()
        is_late = False
    except TimeoutError:
        found, is_late = await provider.getGroups(offered=False), True
    groups = [each for each in found if isinstance(each, scbroker.Group)]
    groups.sort(key=lambda each: each.name.casefold())
    return show(
        request,
        "groups.html",
        offers=[each for each in groups if not each.accepted],
        groups=[each for each in groups if each.accepted],
        damaged=[each for each in found if isinstance(each, errors.BrokerError)],
        is_late=is_late,
        people=people,
        place_of=place_of,
    )


async def _show(request: Request) -> Response:
    group, people = await _group_of(request), await people_of(request)
    members = await provider_of(request).getGroupMembers(group)
    inside = {each.userId for each in members}
    shown = [(people.user(each.userId), each) for each in members]
    others = [each for each in people.contacts.values() if each.userId not in inside]
    return show(
        request,
        "group.html",
        group=group,
        members=sorted(shown, key=lambda each: (each[0].kind != "you", named(each[0]).casefold())),
        contacts=sorted(others, key=lambda each: each.name),
        roles=ROLES,
        chosen=request.query_params.get("person", ""),
        people=people,
        place_of=place_of,
    )


async def _make(request: Request) -> Response:
    if request.method == "GET":
        return show(request, "new_group.html")
    name = fields(request).get("name", "").strip()
    (await people_of(request)).check_group_name(name)
    made = await provider_of(request).createGroup(name, description=_description(request))
    text = f"The group {made.name!r} is made, and you own it. Add its members now."
    return done(request, text, _path_of(made))


async def _accept(request: Request) -> Response:
    group = await _group_of(request)
    if request.method == "POST":
        group = await provider_of(request).acceptGroup(group)
        text = f"You are a {group.role.name.lower()} of the group {group.name!r} now."
        return done(request, text, _path_of(group))
    creator = (await people_of(request)).user(group.createdBy)
    texts = [
        f"It was created by {in_text(creator)}, and has {counted(group.memberCount, 'member')}.",
        f"You can then {ROLES[group.role.name.lower()]}, as far as the group has access to them.",
    ]
    if creator.kind == "stranger":
        texts.append("Anybody who knows your user id can offer a group, with any name.")
    heading = f"Accept the group {shortened(group.name)}?"
    return ask(request, heading, texts, "Accept", _path_of(group))


async def _decline(request: Request) -> Response:
    """Decline an offer by its id: also that of a group that cannot be read."""
    if request.method == "POST":
        await provider_of(request).declineGroup(request.path_params["id"])
        return done(request, "You have declined the group.", _GROUPS)
    group = await _group_of(request)
    texts = ["A manager of the group can offer it again."]
    heading = f"Decline the group {shortened(group.name)}?"
    return ask(request, heading, texts, "Decline", _path_of(group))


async def _add(request: Request) -> Response:
    people = await people_of(request)
    given = fields(request) if request.method == "POST" else request.query_params
    id = given.get("person", "")
    contact = people.contacts.get(uuid_of(id)) if id else None
    if contact is None:
        raise errors.NotFoundError("Choose one of your contacts: add the person's card first.")
    role, name = _role(given.get("role", "")), contact_in_text(contact.name)
    if request.method == "POST":
        if contact.fingerprint != given.get("fingerprint"):
            raise errors.InvalidArgumentError(
                f"The contact {contact.name!r} has changed since you were asked: start again."
            )
        member = MemberRole(contact, GroupRole[role.capitalize()])
        group = await provider_of(request).addGroupMembers(request.path_params["id"], member)
        text = f"The group is offered to {name}, as a {role}.{_dropped(group, people)}"
        return done(request, text, _path_of(group))
    group = await _group_of(request)
    texts = [
        f"{name} gets an offer. After accepting it, {name} can {ROLES[role]}, as far as the group has access "
        "to them.",
        f"{name} gets the group's key, which opens all that the group could ever read.",
    ]
    if not contact.verified:
        texts.append(
            f"{name} is not verified, so this may be somebody else's card: compare fingerprints first."
        )
    compare = (f"/contacts/{contact.userId}/compare", "Compare fingerprints")
    return ask(
        request,
        f"Add {name} to the group {shortened(group.name)}?",
        texts,
        "Add",
        _path_of(group),
        link=None if contact.verified else compare,
        # The form's handler compares the fingerprint: another device may have replaced the contact meanwhile.
        hidden={"person": id, "fingerprint": contact.fingerprint, "role": role},
    )


async def _change(request: Request) -> Response:
    """Change whether a member manages, and the member's role, as far as the form has new values."""
    provider, group = provider_of(request), await _group_of(request)
    given = fields(request) if request.method == "POST" else request.query_params
    members = await provider.getGroupMembers(group)
    member = _member(members, given.get("user", ""))
    who, now, place_now = (
        (await people_of(request)).user(member.userId),
        member.role.name.lower(),
        place_of(member),
    )
    if request.method == "GET":
        return show(
            request,
            "group_member.html",
            group=group,
            who=who,
            role=now,
            roles=ROLES,
            place=place_now,
            places=PLACES,
        )
    role, place = _role(given.get("role", "")), given.get("place", place_now)
    if place not in PLACES:
        raise errors.InvalidArgumentError(f"Choose one of {', '.join(PLACES)}.")
    if role != now:
        await provider.setGroupRoles(group, MemberRole(member, GroupRole[role.capitalize()]))
    if place != place_now:
        after = managers_after(members, {member.userId: member}, place)
        await provider.setGroupManagers(group, after)
    verb = "are" if who.kind == "you" else "is"
    manages = {"manager": ", and a manager", "owner": ", and an owner"}.get(place, "")
    text = f"{capital(in_text(who))} {verb} a {role}{manages} of the group now."
    return done(request, text, _path_of(group))


async def _remove(request: Request) -> Response:
    provider, people = provider_of(request), await people_of(request)
    if request.method == "POST":
        who = people.user(uuid_of(fields(request).get("user", "")))
        group = await provider.removeGroupMembers(request.path_params["id"], who.id)
        text = f"Removed: {in_text(who)} is not in the group any more.{_dropped(group, people)}"
        return done(request, text, _path_of(group))
    group = await _group_of(request)
    member = _member(await provider.getGroupMembers(group), request.query_params.get("user", ""))
    name = in_text(people.user(member.userId))
    return ask(
        request,
        f"Remove {name} from the group {shortened(group.name)}?",
        [
            f"{capital(name)} reaches nothing through the group from then on. The group gets a new key, and "
            "each of its containers when it is changed next.",
            "Copies that were made before stay readable. The person keeps any access of their own.",
        ],
        "Remove from the group",
        _path_of(group),
        is_dangerous=True,
        hidden={"user": str(member.userId)},
    )


async def _rename(request: Request) -> Response:
    group = await _group_of(request)
    if request.method == "GET":
        return show(request, "group_name.html", group=group)
    name = fields(request).get("name", "").strip()
    (await people_of(request)).check_group_name(name, group.id)
    group = await provider_of(request).renameGroup(group, name, _description(request))
    return done(request, f"The group is named {group.name!r} now.", _path_of(group))


async def _leave(request: Request) -> Response:
    if request.method == "POST":
        await provider_of(request).leaveGroup(request.path_params["id"])
        return done(request, "You are not in the group any more.", _GROUPS)
    group = await _group_of(request)
    texts = [
        "You lose its containers, except those to which you have access of your own.",
        "Only a manager of the group can add you again.",
    ]
    heading, back = f"Leave the group {shortened(group.name)}?", _path_of(group)
    return ask(request, heading, texts, "Leave the group", back, is_dangerous=True)


async def _renew(request: Request) -> Response:
    group = await _group_of(request)
    if request.method == "POST":
        renewal = await provider_of(request).renewGroup(group.id)
        verb = "has a new key" if renewal.renewed == 1 else "have new keys"
        failed = f" {len(renewal.failed)} failed: try again." if renewal.failed else ""
        text = f"{counted(renewal.renewed, 'container')} {verb}.{failed}"
        return done(request, text, _path_of(group), is_fault=bool(renewal.failed))
    texts = [
        "Former members of the group do not get these keys.",
        "Containers that already have a new key stay as they are.",
        "With many containers this takes a while.",
    ]
    heading = f"Give the containers of {shortened(group.name)} new keys?"
    return ask(request, heading, texts, "Give new keys", _path_of(group))


async def _delete(request: Request) -> Response:
    if request.method == "POST":
        await provider_of(request).deleteGroup(request.path_params["id"])
        return done(request, "The group is deleted.", _GROUPS)
    group = await _group_of(request)
    texts = [
        "All members lose the containers to which they have no access of their own.",
        "A container to which nobody else has access is deleted too. If the group may share or delete it, "
        "the group is kept, and you read which container it is.",
        "It cannot be undone.",
    ]
    heading, back = f"Delete the group {shortened(group.name)}?", _path_of(group)
    return ask(request, heading, texts, "Delete for everybody", back, is_dangerous=True)


async def _group_of(request: Request) -> scbroker.Group:
    """Return the group of the request's path. Offers are read last, because their history can be long."""
    provider, wanted = provider_of(request), request.path_params["id"]
    for is_offered in (False, True):
        for each in await provider.getGroups(offered=is_offered):
            if isinstance(each, scbroker.Group):
                if each.id == wanted:
                    return each
            elif each.containerId == wanted:
                raise each
    raise errors.NotFoundError(f"You are not a member of the group {wanted}.")


def _path_of(group: scbroker.Group) -> str:
    return f"{_GROUPS}/{group.id}"


def _member(members: list[scbroker.GroupMember], text: str) -> scbroker.GroupMember:
    wanted = uuid_of(text)
    return of_user(members, wanted, f"User {wanted} is not a member of the group.")


def _role(word: str) -> str:
    if word not in ROLES:
        raise errors.InvalidArgumentError(f"Choose one of {', '.join(ROLES)}.")
    return word


def _description(request: Request) -> str:
    """Return the description with "\\n" at the ends of lines, where a browser sends "\\r\\n"."""
    return fields(request).get("description", "").replace("\r\n", "\n").strip()


def _dropped(group: scbroker.Group, people: People) -> str:
    text = dropped_text(group, lambda each: in_text(people.user(each)))
    return f" {text}" if text else ""


async def _contacts(request: Request) -> Response:
    card = await _own_card(request)
    return show(
        request,
        "contacts.html",
        contacts=await _book(request).list(),
        card=card,
        code=_code(card, "QR code of your contact card"),
    )


async def _show_contact(request: Request) -> Response:
    contact = await _contact_of(request)
    card = scbroker.ContactCard(contact.fingerprint, contact.serverUrl, contact.name)
    code = _code(card, f"QR code of the contact card of {contact.name}")
    return show(request, "contact.html", contact=contact, card=card, code=code)


async def _add_contact(request: Request) -> Response:
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
    sides: list[dict[str, Any]] = [
        {"name": name, "is_own": is_own, "rows": [groups[at : at + 4] for at in range(0, 16, 4)]}
        for name, is_own, groups in (
            ("You", True, own.split()),
            (contact.name, False, contact.fingerprint.split()),
        )
    ]
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


async def _rename_contact(request: Request) -> Response:
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


async def _remove_contact(request: Request) -> Response:
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
    return of_user(await _book(request).list(), wanted, f"You have no contact {wanted}.")


def _back(contact: scbroker.Contact, share: str) -> str:
    """Return the path to open after a comparison: the contact, or the container to share."""
    if not share:
        return f"/contacts/{contact.userId}"
    return path_of(uuid_of(share), f"/people?person={contact.userId}")


async def _own_card(request: Request) -> scbroker.ContactCard:
    return await session_of(request).do(lambda run: run.profile.card)


def _code(card: scbroker.ContactCard, label: str) -> str:
    # Upper case fits into the QR code's alphanumeric mode, which takes 5.5 bits a character.
    return qr_code(card.text.upper(), label)


_CONTACT: Final = "/contacts/{id:uuid}"
_GROUP: Final = f"{_GROUPS}/{{id:uuid}}"
_FORMS: Final = {
    "/contacts/add": _add_contact,
    f"{_CONTACT}/compare": _compare,
    f"{_CONTACT}/rename": _rename_contact,
    f"{_CONTACT}/remove": _remove_contact,
    f"{_GROUPS}/new": _make,
    f"{_GROUP}/accept": _accept,
    f"{_GROUP}/decline": _decline,
    f"{_GROUP}/add": _add,
    f"{_GROUP}/member": _change,
    f"{_GROUP}/remove": _remove,
    f"{_GROUP}/rename": _rename,
    f"{_GROUP}/leave": _leave,
    f"{_GROUP}/renew": _renew,
    f"{_GROUP}/delete": _delete,
}
routes: Final = [
    Route("/contacts", _contacts),
    Route(_CONTACT, _show_contact),
    Route(f"{_CONTACT}/different", _different),
    Route(_GROUPS, _list),
    Route(_GROUP, _show),
    *(Route(path, endpoint, methods=["GET", "POST"]) for path, endpoint in _FORMS.items()),
]
