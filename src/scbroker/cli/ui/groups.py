"""Show groups with their members; make, accept, change, leave and delete groups."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli.groups import counted
from scbroker.cli.ui.known import (
    Known,
    Somebody,
    capital,
    in_text,
    known,
    provider_of,
    shortened,
    uuid_of,
)
from scbroker.cli.ui.part import Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.site import Act, Done, Question, Shown, View
from scbroker.spelling import comparable
from scbroker.vocabulary import GroupManager, GroupRole, MemberRole

ROLES: Final = {
    "reader": "read the containers of the group",
    "writer": "read the containers of the group, and replace content and name",
    "sharer": "read and change the containers of the group, share and delete them",
}
_PLACES: Final = {
    "member": "manages nothing",
    "manager": "adds and removes members, changes their roles, and renames the group",
    "owner": "also changes the managers, and deletes the group",
}
_LIST_SECONDS: Final = 10.0
"""Time limit for reading all groups, offered ones included: an offered group can have a long history."""
_GROUPS: Final = "/groups"


class Row(NamedTuple):
    """A group as the list shows it."""

    group: scbroker.Group
    name: str
    role: str
    place: str
    creator: Somebody


class Member(NamedTuple):
    """A member as the view of a group shows them."""

    who: Somebody
    member: scbroker.GroupMember
    role: str
    place: str
    can_change: bool
    can_remove: bool


def groups(session: Session) -> Part:
    """Return the views and acts of groups."""
    views, group = _Groups(session), f"{_GROUPS}/{{id}}"
    asked = {
        "accept": (views.ask_to_accept, views.accept),
        "decline": (views.ask_to_decline, views.decline),
        "add": (views.ask_to_add, views.add),
        "member": (views.ask_to_change, views.change),
        "remove": (views.ask_to_remove, views.remove),
        "rename": (views.ask_for_name, views.rename),
        "leave": (views.ask_to_leave, views.leave),
        "renew": (views.ask_to_renew, views.renew),
        "delete": (views.ask_to_delete, views.delete),
    }
    return Part(
        views=[
            View(_GROUPS, views.list, "Groups"),
            View(f"{_GROUPS}/new", views.ask_to_make),
            View(group, views.show),
            *(View(f"{group}/{name}", ask) for name, (ask, _) in asked.items()),
        ],
        acts=[
            Act(f"{_GROUPS}/new", views.make),
            *(Act(f"{group}/{name}", do) for name, (_, do) in asked.items()),
        ],
    )


class _Groups:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, request: Request) -> Shown:
        del request
        provider = await provider_of(self._session)
        people = await known(provider)
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                found = await provider.getGroups()
            is_late = False
        except TimeoutError:
            found = await provider.getGroups(offered=False)
            is_late = True
        readable = [each for each in found if isinstance(each, scbroker.Group)]
        rows = sorted(
            (_row(each, people) for each in readable), key=lambda each: each.name.casefold()
        )
        return Shown(
            "groups.html",
            {
                "offers": [each for each in rows if not each.group.accepted],
                "rows": [each for each in rows if each.group.accepted],
                "damaged": [each for each in found if isinstance(each, errors.BrokerError)],
                "is_late": is_late,
            },
        )

    async def show(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        group = await _find(provider, request)
        people = await known(provider)
        members = await provider.getGroupMembers(group)
        inside = {each.userId for each in members}
        return Shown(
            "group.html",
            {
                "group": group,
                "row": _row(group, people),
                "modifier": people.user(group.modifiedBy),
                "members": _members(members, group, people),
                "contacts": sorted(
                    (each for each in people.contacts.values() if each.userId not in inside),
                    key=lambda each: each.name,
                ),
                "roles": ROLES,
                "chosen": request.query_params.get("person", ""),
            },
        )

    async def ask_to_make(self, request: Request) -> Shown:
        del request
        return Shown("new_group.html")

    async def make(self, request: Request, fields: Mapping[str, str]) -> Done:
        del request
        provider = await provider_of(self._session)
        name = fields.get("name", "").strip()
        await _check_name(provider, name)
        made = await provider.createGroup(name, description=_lines(fields))
        return Done(
            f"The group {made.name!r} is made, and you own it. Add its members now.",
            path_of(made.id),
        )

    async def ask_to_accept(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        group, people = await _find(provider, request), await known(provider)
        creator = people.user(group.createdBy)
        texts = [
            f"It was created by {creator.in_text}, and has {counted(group.memberCount, 'member')}.",
            f"You can then {ROLES[_role_of(group)]}, as far as the group has access to them.",
        ]
        if creator.kind == "stranger":
            texts.append("Anybody who knows your user id can offer a group, with any name.")
        return Question(
            heading=f"Accept the group {shortened(group.name)}?",
            texts=texts,
            button="Accept",
            back=path_of(group.id),
        ).shown()

    async def accept(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        provider = await provider_of(self._session)
        done = await provider.acceptGroup(await _find(provider, request))
        text = f"You are a {_role_of(done)} of the group {done.name!r} now."
        return Done(text, path_of(done.id))

    async def ask_to_decline(self, request: Request) -> Shown:
        group = await _find(await provider_of(self._session), request)
        return Question(
            heading=f"Decline the group {shortened(group.name)}?",
            texts=["A manager of the group can offer it again."],
            button="Decline",
            back=path_of(group.id),
        ).shown()

    async def decline(self, request: Request, fields: Mapping[str, str]) -> Done:
        """Decline an offer by its id: also that of a group that cannot be read."""
        del fields
        await (await provider_of(self._session)).declineGroup(_id_of(request))
        return Done("You have declined the group.", _GROUPS)

    async def ask_to_add(self, request: Request) -> Shown:
        provider, query = await provider_of(self._session), request.query_params
        group, people = await _find(provider, request), await known(provider)
        contact = _contact(people, query.get("person", ""))
        role = _role(query.get("role", ""))
        name = in_text(contact.name)
        texts = [
            f"{name} gets an offer. After accepting it, {name} can {ROLES[role]}, as far as the group has "
            "access to them.",
            f"{name} gets the group's key, which opens all that the group could ever read.",
        ]
        if not contact.verified:
            texts.append(
                f"{name} is not verified, so this may be somebody else's card: compare fingerprints first."
            )
        return Question(
            heading=f"Add {name} to the group {shortened(group.name)}?",
            texts=texts,
            link=None
            if contact.verified
            else (f"/contacts/{contact.userId}/compare", "Compare fingerprints"),
            hidden={
                "person": str(contact.userId),
                # The act compares it: another device may have replaced the contact meanwhile.
                "fingerprint": contact.fingerprint,
                "role": role,
            },
            button="Add",
            back=path_of(group.id),
        ).shown()

    async def add(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        people = await known(provider)
        contact = _contact(people, fields.get("person", ""))
        if contact.fingerprint != fields.get("fingerprint"):
            raise errors.InvalidArgumentError(
                f"The contact {contact.name!r} has changed since you were asked: start again."
            )
        role = _role(fields.get("role", ""))
        member = MemberRole(contact, GroupRole[role.capitalize()])
        done = await provider.addGroupMembers(_id_of(request), member)
        text = (
            f"The group is offered to {in_text(contact.name)}, as a {role}.{_dropped(done, people)}"
        )
        return Done(text, path_of(done.id))

    async def ask_to_change(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        group, people = await _find(provider, request), await known(provider)
        member = _member(
            await provider.getGroupMembers(group), request.query_params.get("user", "")
        )
        return Shown(
            "group_member.html",
            {
                "group": group,
                "name": shortened(group.name),
                "who": people.user(member.userId),
                "member": member,
                "role": member.role.name.lower(),
                "roles": ROLES,
                "place": _place_of(member),
                "places": _PLACES,
            },
        )

    async def change(self, request: Request, fields: Mapping[str, str]) -> Done:
        """Change the role and the place of a member, each only if the form has a new value."""
        provider = await provider_of(self._session)
        group, people = await _find(provider, request), await known(provider)
        members = await provider.getGroupMembers(group)
        member = _member(members, fields.get("user", ""))
        who = people.user(member.userId)
        role, place = _role(fields.get("role", "")), fields.get("place", _place_of(member))
        if place not in _PLACES:
            raise errors.InvalidArgumentError(f"Choose one of {', '.join(_PLACES)}.")
        if role != member.role.name.lower():
            await provider.setGroupRoles(group, MemberRole(member, GroupRole[role.capitalize()]))
        if place != _place_of(member):
            await provider.setGroupManagers(group, _managers(members, member, place))
        verb = "are" if who.kind == "you" else "is"
        manages = "" if place == "member" else f", and {_article(place)}"
        text = f"{capital(who.in_text)} {verb} {_article(role)}{manages} of the group now."
        return Done(text, path_of(group.id))

    async def ask_to_remove(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        group, people = await _find(provider, request), await known(provider)
        member = _member(
            await provider.getGroupMembers(group), request.query_params.get("user", "")
        )
        who = people.user(member.userId)
        return Question(
            heading=f"Remove {who.in_text} from the group {shortened(group.name)}?",
            texts=[
                f"{capital(who.in_text)} reaches nothing through the group from then on. The group gets a "
                "new key, and each of its containers when it is changed next.",
                "Copies that were made before stay readable. The person keeps any access of their own.",
            ],
            hidden={"user": str(member.userId)},
            button="Remove from the group",
            is_dangerous=True,
            back=path_of(group.id),
        ).shown()

    async def remove(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        people = await known(provider)
        who = people.user(uuid_of(fields.get("user", "")))
        done = await provider.removeGroupMembers(_id_of(request), who.user_id)
        text = f"Removed: {who.in_text} is not in the group any more.{_dropped(done, people)}"
        return Done(text, path_of(done.id))

    async def ask_for_name(self, request: Request) -> Shown:
        group = await _find(await provider_of(self._session), request)
        return Shown("group_name.html", {"group": group, "name": shortened(group.name)})

    async def rename(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        group, name = await _find(provider, request), fields.get("name", "").strip()
        await _check_name(provider, name, group.id)
        done = await provider.renameGroup(group, name, _lines(fields))
        return Done(f"The group is named {done.name!r} now.", path_of(done.id))

    async def ask_to_leave(self, request: Request) -> Shown:
        group = await _find(await provider_of(self._session), request)
        return Question(
            heading=f"Leave the group {shortened(group.name)}?",
            texts=[
                "You lose its containers, except those to which you have access of your own.",
                "Only a manager of the group can add you again.",
            ],
            button="Leave the group",
            is_dangerous=True,
            back=path_of(group.id),
        ).shown()

    async def leave(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        await (await provider_of(self._session)).leaveGroup(_id_of(request))
        return Done("You are not in the group any more.", _GROUPS)

    async def ask_to_renew(self, request: Request) -> Shown:
        group = await _find(await provider_of(self._session), request)
        return Question(
            heading=f"Give the containers of {shortened(group.name)} new keys?",
            texts=[
                "Former members of the group do not get these keys.",
                "Containers that already have a new key stay as they are.",
                "With many containers this takes a while.",
            ],
            button="Give new keys",
            back=path_of(group.id),
        ).shown()

    async def renew(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        renewal = await (await provider_of(self._session)).renewGroup(_id_of(request))
        verb = "has a new key" if renewal.renewed == 1 else "have new keys"
        failed = f" {len(renewal.failed)} failed: try again." if renewal.failed else ""
        return Done(
            f"{counted(renewal.renewed, 'container')} {verb}.{failed}",
            path_of(_id_of(request)),
            is_fault=bool(renewal.failed),
        )

    async def ask_to_delete(self, request: Request) -> Shown:
        group = await _find(await provider_of(self._session), request)
        return Question(
            heading=f"Delete the group {shortened(group.name)}?",
            texts=[
                "All members lose the containers to which they have no access of their own.",
                "A container to which nobody else has access is deleted too. If the group may share or "
                "delete it, the group is kept, and you read which container it is.",
                "It cannot be undone.",
            ],
            button="Delete for everybody",
            is_dangerous=True,
            back=path_of(group.id),
        ).shown()

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Done:
        del fields
        await (await provider_of(self._session)).deleteGroup(_id_of(request))
        return Done("The group is deleted.", _GROUPS)


def path_of(group_id: uuid.UUID) -> str:
    """Return the path of a group's view."""
    return f"{_GROUPS}/{group_id}"


def _id_of(request: Request) -> uuid.UUID:
    return uuid_of(request.path_params["id"])


async def _find(provider: scbroker.ServerProvider, request: Request) -> scbroker.Group:
    """Return the group of the request's path. Offers are read last, because their history can be long."""
    wanted = _id_of(request)
    for is_offered in (False, True):
        for each in await provider.getGroups(offered=is_offered):
            if isinstance(each, scbroker.Group):
                if each.id == wanted:
                    return each
            elif each.containerId == wanted:
                raise each
    raise errors.NotFoundError(f"You are not a member of the group {wanted}.")


async def _check_name(
    provider: scbroker.ServerProvider, name: str, own: uuid.UUID | None = None
) -> None:
    """Raise `AlreadyExistsError` for the name of another group: a person could not tell the two apart."""
    for each in await provider.getGroups(offered=False):
        if (
            isinstance(each, scbroker.Group)
            and comparable(each.name) == comparable(name)
            and each.id != own
        ):
            raise errors.AlreadyExistsError(
                f"You have a group named {name!r} already: choose another name."
            )


def _row(group: scbroker.Group, people: Known) -> Row:
    creator = people.user(group.createdBy)
    return Row(group, shortened(group.name), _role_of(group), _place_of(group), creator)


def _members(
    members: Sequence[scbroker.GroupMember], group: scbroker.Group, people: Known
) -> list[Member]:
    """Return the members, the user first, with what the user may change."""
    found = [
        Member(
            people.user(each.userId),
            each,
            each.role.name.lower(),
            _place_of(each),
            can_change=group.accepted and group.isManager,
            can_remove=group.accepted
            and group.isManager
            and each.userId != people.own_id
            and (group.isOwner or not each.isManager),
        )
        for each in members
    ]
    return sorted(found, key=lambda each: (each.who.kind != "you", each.who.name.casefold()))


def _managers(
    members: Sequence[scbroker.GroupMember], changed: scbroker.GroupMember, place: str
) -> list[GroupManager]:
    """Return the whole list of managers after one member's place has changed."""
    kept = [
        GroupManager(each, each.isOwner)
        for each in members
        if each.isManager and each.userId != changed.userId
    ]
    after = kept if place == "member" else [*kept, GroupManager(changed, place == "owner")]
    if not any(each.owner for each in after):
        raise errors.InvalidArgumentError(
            "The group would have no owner: make somebody else an owner first."
        )
    return after


def _member(members: Sequence[scbroker.GroupMember], text: str) -> scbroker.GroupMember:
    wanted = uuid_of(text)
    for each in members:
        if each.userId == wanted:
            return each
    raise errors.NotFoundError(f"User {wanted} is not a member of the group.")


def _contact(people: Known, text: str) -> scbroker.Contact:
    contact = people.contacts.get(uuid_of(text)) if text else None
    if contact is None:
        raise errors.NotFoundError("Choose one of your contacts: add the person's card first.")
    return contact


def _role(word: str) -> str:
    if word not in ROLES:
        raise errors.InvalidArgumentError(f"Choose one of {', '.join(ROLES)}.")
    return word


def _role_of(group: scbroker.Group) -> str:
    return group.role.name.lower()


def _place_of(each: scbroker.Group | scbroker.GroupMember) -> str:
    return "owner" if each.isOwner else "manager" if each.isManager else "member"


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _lines(fields: Mapping[str, str]) -> str:
    """Return the description with "\\n" at the ends of lines, where a browser sends "\\r\\n"."""
    return fields.get("description", "").replace("\r\n", "\n").strip()


def _dropped(group: scbroker.Group, people: Known) -> str:
    """Return a sentence that names the members whom a change removed by the broker's word alone; else ""."""
    if not group.dropped:
        return ""
    names = ", ".join(people.user(each).in_text for each in group.dropped)
    return (
        " Removed as well, because the broker says, without a proof, that their accounts were deleted: "
        f"{names}."
    )
