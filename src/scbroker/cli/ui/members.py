"""Show who has access to a container and since when; share it with contacts and groups, and revoke access."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli import dates
from scbroker.cli.groups import counted
from scbroker.cli.ui.container import PATH, container_of, id_of, path_of, shown_of
from scbroker.cli.ui.known import (
    Known,
    Somebody,
    capital,
    first_result,
    in_text,
    known,
    provider_of,
    shown_name,
    uuid_of,
)
from scbroker.cli.ui.part import Container, Panel, Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.site import Act, Done, Question, Shown, View
from scbroker.desk import rights

MEANINGS: Final = {
    "read": "see content, name, members and type",
    "write": "read, and replace content and name",
    "manage": "write, share, and change the type",
    "owner": "manage, delete, and get an event when somebody reads",
}

_PEOPLE: Final = "/people"
_HASH: Final = re.compile("[0-9a-f]{64}")


class Since(NamedTuple):
    """The time since which somebody has access: one time, or a time between two."""

    earliest: dt.datetime
    latest: dt.datetime


class Member(NamedTuple):
    who: Somebody
    rights: str
    ends: dt.datetime | None
    has_ended: bool
    since: Since
    can_be_revoked: bool


class Chosen(NamedTuple):
    """The contact or the group with which a container is to be shared."""

    ref: scbroker.Contact | scbroker.Group
    id: uuid.UUID
    in_text: str
    """Its name for a sentence."""
    is_verified: bool


class Unsettled(NamedTuple):
    """A change of access by a former member of a group, with the lists before and after it."""

    head: str
    who: Somebody
    group: Somebody
    time: dt.datetime
    before: list[tuple[Somebody, str]] | None
    after: list[tuple[Somebody, str]] | None


def members(session: Session) -> Part:
    """Return the views and acts of a container's members, and the panel that leads to them."""
    views = _Members(session)
    return Part(
        views=[
            View(f"{PATH}/people", views.show),
            View(f"{PATH}/share", views.ask_to_share),
            View(f"{PATH}/revoke", views.ask_to_revoke),
        ],
        acts=[
            Act(f"{PATH}/share", views.share),
            Act(f"{PATH}/revoke", views.revoke),
            Act(f"{PATH}/people", views.confirm),
        ],
        panels=[Panel("People", "panel_people.html")],
    )


class _Members:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def show(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        container = await container_of(self._session, request)
        people = await known(provider)
        # A container that is reached through a group has its events in the group's log.
        events = await provider.getEvents(containerId=container.id, groupId=container.via)
        own = people.own_rights(container)
        return shown_of(
            "members.html",
            container,
            {
                "members": _members(container, people, own, events),
                "contacts": sorted(people.contacts.values(), key=lambda each: each.name),
                "groups": sorted(people.groups.values(), key=lambda each: each.name),
                "unsettled": await _unsettled(provider, container, people),
                "may": people.may(container),
                "words": {
                    word: MEANINGS[word] for word, each in rights.WORDS.items() if not each & ~own
                },
                "tomorrow": dates.day_after(1),
                "chosen": request.query_params.get("person", ""),
            },
        )

    async def ask_to_share(self, request: Request) -> Shown:
        query = request.query_params
        container = await container_of(self._session, request)
        people = await known(await provider_of(self._session))
        chosen = _chosen(people, query.get("person", ""))
        name = chosen.in_text
        word, permissions = _rights(query.get("can", ""))
        until = query.get("until", "").strip()
        end = _end(until)
        texts = [f"{capital(name)} can then {MEANINGS[word]}{_until(end)}."]
        if isinstance(chosen.ref, scbroker.Group):
            number = counted(chosen.ref.memberCount, "member")
            texts = [
                f"{capital(name)} has {number}. Each can then {MEANINGS[word]}{_until(end)}, as far as "
                "their role in the group allows it."
            ]
            if not chosen.ref.isManager:
                texts.append("The managers of the group can add others.")
        now = _levels(container).get(chosen.id)
        if now is not None:
            texts.append(
                f"This replaces the present access: {rights.in_words(now.permissions)}"
                f"{_until(now.expiresAt)}."
            )
            if now.permissions & ~permissions:
                texts.append(f"{capital(name)} loses permissions by this.")
        elif not chosen.is_verified:
            texts.append(
                f"{name} is not verified, so this may be somebody else's card: compare fingerprints first."
            )
        texts.append("Anybody who can read may keep a copy.")
        return Question(
            heading=f"Share {shown_name(container)} with {name}?",
            texts=texts,
            link=None
            if chosen.is_verified
            else (
                f"/contacts/{chosen.id}/compare?share={container.id}",
                "Compare fingerprints, then share",
            ),
            hidden={
                "person": str(chosen.id),
                # The act compares it: another device may have replaced the contact meanwhile.
                "fingerprint": chosen.ref.fingerprint,
                "can": word,
                "until": until,
            },
            button="Share",
            back=path_of(container.id, _PEOPLE),
        ).shown()

    async def share(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        people = await known(provider)
        chosen = _chosen(people, fields.get("person", ""))
        if chosen.ref.fingerprint != fields.get("fingerprint"):
            raise errors.InvalidArgumentError(
                f"The contact {chosen.ref.name!r} has changed since you were asked: start again."
            )
        word, permissions = _rights(fields.get("can", ""))
        end = _end(fields.get("until", "").strip())
        level = scbroker.AccessLevel(chosen.ref, permissions, end)
        await first_result(provider.grantAccess([id_of(request)], level))
        return Done(
            f"{capital(chosen.in_text)} has access{_until(end)}: {word}.",
            path_of(id_of(request), _PEOPLE),
        )

    async def ask_to_revoke(self, request: Request) -> Shown:
        container = await container_of(self._session, request)
        people = await known(await provider_of(self._session))
        levels = _levels(container)
        user_id = _other(people, request.query_params.get("user", ""))
        who = people.holder(levels[user_id]) if user_id in levels else people.user(user_id)
        if user_id not in levels:
            raise errors.NotFoundError(f"Nothing to revoke: {who.in_text} has no access.")
        return Question(
            heading=f"Revoke the access of {who.in_text}?",
            texts=[
                f"The container {shown_name(container)} gets a new key: {who.in_text} cannot open what is "
                "written from then on.",
                "Copies that were made before stay readable.",
                *await self._also_reached(container, people, who),
            ],
            hidden={"user": str(who.user_id)},
            button="Revoke access",
            is_dangerous=True,
            back=path_of(container.id, _PEOPLE),
        ).shown()

    async def revoke(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        people = await known(provider)
        who = people.user(_other(people, fields.get("user", "")))
        await first_result(provider.revokeAccess([id_of(request)], who.user_id))
        text = f"Revoked: {who.in_text} has no access any more."
        return Done(text, path_of(id_of(request), _PEOPLE))

    async def confirm(self, request: Request, fields: Mapping[str, str]) -> Done:
        """Accept a change of access by a former member of a group, if it is the one that the view showed."""
        provider = await provider_of(self._session)
        version, _, digest = fields.get("head", "").partition(":")
        if not (version.isascii() and version.isdigit() and _HASH.fullmatch(digest)):
            raise errors.InvalidArgumentError("The view has no such change of access.")
        head = scbroker.Head(int(version[:20]), bytes.fromhex(digest))
        await provider.confirmAccess(id_of(request), head)
        return Done("The change of access is accepted.", path_of(id_of(request), _PEOPLE))

    async def _also_reached(self, container: Container, people: Known, who: Somebody) -> list[str]:
        """Return a sentence for each of the user's groups that has access and of which `who` is a member."""
        provider = await provider_of(self._session)
        found = []
        for each in container.access or ():
            group = people.groups.get(each.userId)
            if group is not None and group.id != who.user_id:
                members = await provider.getGroupMembers(group)
                if any(member.userId == who.user_id for member in members):
                    name = people.group(group.id).in_text
                    found.append(f"{capital(who.in_text)} is in {name}, which keeps its access.")
        return found


async def _unsettled(
    provider: scbroker.ServerProvider, container: Container, people: Known
) -> Unsettled | None:
    """Return the change of access that has to be confirmed before the user can write, or None."""
    found = await provider.confirmAccess(container.id)
    if found is None:
        return None
    lists = [
        None
        if levels is None
        else [(people.holder(each), rights.in_words(each.permissions)) for each in levels]
        for levels in (found.before, found.after)
    ]
    head = f"{found.head.version}:{found.head.hash.hex()}"
    who, group = people.user(found.changedBy), people.group(found.changedVia)
    return Unsettled(head, who, group, found.changedAt, lists[0], lists[1])


def since(
    container: Container,
    events: Sequence[scbroker.ContainerEvent],
    user_id: uuid.UUID,
    people: Known,
) -> Since:
    """Return since when a user in the signed list has access, as far as the event log tells it.

    An event says that the list was changed, not whose entry. So somebody else's access began at one of the
    changes, or when the container was created.
    """
    added = [each.date for each in events if each.eventType == "Added"]
    if user_id == people.own_id and added:
        return Since(added[-1], added[-1])
    if (link := people.links.get(user_id)) is not None:
        return Since(link.createdAt, link.createdAt)
    changes = [each.date for each in events if "access" in each.changes]
    if changes:
        latest = changes[-1]
    elif not added:  # the broker has dropped the event, and others perhaps
        latest = container.modifiedAt
    else:  # the log lacks what happened before the user's own access
        latest = container.createdAt if container.createdBy == people.own_id else added[-1]
    return Since(container.createdAt, latest)


def _members(
    container: Container, people: Known, own: int, events: Sequence[scbroker.ContainerEvent]
) -> list[Member] | None:
    """Return the members, the user first; None without ViewAccess."""
    if container.access is None:
        return None
    now = dt.datetime.now(dt.UTC)
    found = [
        Member(
            people.holder(each),
            rights.in_words(each.permissions),
            each.expiresAt,
            each.expiresAt is not None and each.expiresAt <= now,
            since(container, events, each.userId, people),
            bool(own & rights.SHARE)
            and each.userId != people.own_id
            and not each.permissions & ~own,
        )
        for each in container.access
    ]
    return sorted(found, key=lambda each: (each.who.kind != "you", each.who.name))


def _levels(container: Container) -> dict[uuid.UUID, scbroker.AccessLevel]:
    return {each.userId: each for each in container.access or ()}


def _chosen(people: Known, text: str) -> Chosen:
    id = uuid_of(text) if text else None
    if id is not None and (group := people.groups.get(id)) is not None:
        return Chosen(group, id, people.group(id).in_text, is_verified=True)
    contact = people.contacts.get(id) if id is not None else None
    if contact is None:
        raise errors.NotFoundError("Choose one of your contacts: add the person's card first.")
    return Chosen(contact, contact.userId, in_text(contact.name), is_verified=contact.verified)


def _other(people: Known, text: str) -> uuid.UUID:
    user_id = uuid_of(text)
    if user_id == people.own_id:
        raise errors.InvalidArgumentError("This is you: choose another member.")
    return user_id


def _rights(word: str) -> tuple[str, scbroker.ContainerAccessLevel]:
    found = rights.WORDS.get(word)
    if found is None:
        raise errors.InvalidArgumentError(f"Choose one of {', '.join(rights.WORDS)}.")
    return word, found


def _end(text: str) -> dt.datetime | None:
    return dates.end_of(text, "The end") if text else None


def _until(end: dt.datetime | None) -> str:
    return "" if end is None else f" until {dates.local(end)}"
