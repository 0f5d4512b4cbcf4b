"""Show groups with their members; make, accept, change, leave and delete groups."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import scbroker
from scbroker import errors
from scbroker.cli.ui.context import in_text, named, people_of, provider_of, shortened, uuid_of
from scbroker.cli.web.site import ask, done, fields, show
from scbroker.desk.people import (
    People,
    capital,
    contact_in_text,
    counted,
    dropped_text,
    managers_after,
    place_of,
)
from scbroker.desk.rights import PLACES, ROLES
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
    for each in members:
        if each.userId == wanted:
            return each
    raise errors.NotFoundError(f"User {wanted} is not a member of the group.")


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


_GROUP: Final = f"{_GROUPS}/{{id:uuid}}"
_FORMS: Final = {
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
    Route(_GROUPS, _list),
    Route(_GROUP, _show),
    *(Route(path, endpoint, methods=["GET", "POST"]) for path, endpoint in _FORMS.items()),
]
