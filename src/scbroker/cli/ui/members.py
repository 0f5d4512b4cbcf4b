"""Show who has access to a container and since when; share it with contacts, and revoke access."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request

import scbroker
from scbroker import errors
from scbroker.cli import dates, rights
from scbroker.cli.ui.container import PATH, container_of, id_of, path_of, shown_of
from scbroker.cli.ui.known import (
    Known,
    Somebody,
    first_result,
    known,
    provider_of,
    shown_name,
    uuid_of,
)
from scbroker.cli.ui.part import Container, Panel, Part
from scbroker.cli.ui.session import Session
from scbroker.cli.web.site import Act, Done, Question, Shown, View

MEANINGS: Final = {
    "read": "see content, name, members and type",
    "write": "read, and replace content and name",
    "manage": "write, share, and change the type",
    "owner": "manage, delete, and get an event when somebody reads",
}

_PEOPLE: Final = "/people"


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


def members(session: Session) -> Part:
    """Return the views and acts of a container's members, and the panel that leads to them."""
    views = _Members(session)
    return Part(
        views=[
            View(f"{PATH}/people", views.show),
            View(f"{PATH}/share", views.ask_to_share),
            View(f"{PATH}/revoke", views.ask_to_revoke),
        ],
        acts=[Act(f"{PATH}/share", views.share), Act(f"{PATH}/revoke", views.revoke)],
        panels=[Panel("People", "panel_people.html")],
    )


class _Members:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def show(self, request: Request) -> Shown:
        provider = await provider_of(self._session)
        container = await container_of(self._session, request)
        people = await known(provider)
        events = await provider.getEvents(containerId=container.id)
        own = people.own_rights(container)
        return shown_of(
            "members.html",
            container,
            {
                "members": _members(container, people, own, events),
                "contacts": sorted(people.contacts.values(), key=lambda each: each.name),
                "may": people.may(container),
                "words": {
                    word: MEANINGS[word] for word, each in rights.WORDS.items() if not each & ~own
                },
                "tomorrow": dates.day_after(1),
            },
        )

    async def ask_to_share(self, request: Request) -> Shown:
        query = request.query_params
        container = await container_of(self._session, request)
        people = await known(await provider_of(self._session))
        contact = _contact(people, query.get("person", ""))
        word, permissions = _rights(query.get("can", ""))
        until = query.get("until", "").strip()
        end = _end(until)
        texts = [f"{contact.name} can then {MEANINGS[word]}{_until(end)}."]
        now = _levels(container).get(contact.userId)
        if now is not None:
            texts.append(
                f"This replaces the present access: {rights.in_words(now.permissions)}"
                f"{_until(now.expiresAt)}."
            )
            if now.permissions & ~permissions:
                texts.append(f"{contact.name} loses permissions by this.")
        elif not contact.verified:
            texts.append(
                f"{contact.name} is not verified, so this may be somebody else's card. Compare "
                "fingerprints first: Contacts, then Compare."
            )
        texts.append("Anybody who can read may keep a copy.")
        return Question(
            heading=f"Share {shown_name(container)} with {contact.name}?",
            texts=texts,
            hidden={
                "person": str(contact.userId),
                # The act compares it: another device may have replaced the contact meanwhile.
                "fingerprint": contact.fingerprint,
                "can": word,
                "until": until,
            },
            button="Share",
            back=path_of(container.id, _PEOPLE),
        ).shown()

    async def share(self, request: Request, fields: Mapping[str, str]) -> Done:
        provider = await provider_of(self._session)
        people = await known(provider)
        contact = _contact(people, fields.get("person", ""))
        if contact.fingerprint != fields.get("fingerprint"):
            raise errors.InvalidArgumentError(
                f"The contact {contact.name} has changed since you were asked: start again."
            )
        word, permissions = _rights(fields.get("can", ""))
        end = _end(fields.get("until", "").strip())
        level = scbroker.AccessLevel(contact, permissions, end)
        await first_result(provider.grantAccess([id_of(request)], level))
        return Done(
            f"{contact.name} has access{_until(end)}: {word}.", path_of(id_of(request), _PEOPLE)
        )

    async def ask_to_revoke(self, request: Request) -> Shown:
        container = await container_of(self._session, request)
        people = await known(await provider_of(self._session))
        who = people.user(_other(people, request.query_params.get("user", "")))
        if who.user_id not in _levels(container):
            raise errors.NotFoundError(f"Nothing to revoke: {who.in_text} has no access.")
        return Question(
            heading=f"Revoke the access of {who.in_text}?",
            texts=[
                f"The container {shown_name(container)} gets a new key: {who.in_text} cannot open what is "
                "written from then on.",
                "Copies that were made before stay readable.",
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
            people.user(each.userId),
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


def _contact(people: Known, text: str) -> scbroker.Contact:
    contact = people.contacts.get(uuid_of(text)) if text else None
    if contact is None:
        raise errors.NotFoundError("Choose one of your contacts: add the person's card first.")
    return contact


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
