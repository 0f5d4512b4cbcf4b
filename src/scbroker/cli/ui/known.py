"""Say who is who on the page: you, your contacts, your groups, your links, and users whom you do not know."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, Final, NamedTuple

import scbroker
from scbroker import errors
from scbroker.cli.names import label_of
from scbroker.cli.ui.part import Container
from scbroker.cli.ui.session import Session
from scbroker.desk.people import DAMAGED
from scbroker.spelling import comparable

_RESERVED: Final = ("you", "the link ", "the user ", "the contact ", "the group ")
"""Beginnings of the page's own words for users and groups. A contact's name may have the same beginning."""
_OFFER_SECONDS: Final = 2.0
_LONGEST: Final = 120
"""Characters of a name on the page. Other users choose the names of what they share."""


class Somebody(NamedTuple):
    """A user or a group as the page shows them. Only the page writes `kind`: a name cannot imitate it."""

    user_id: uuid.UUID
    kind: str
    """you, verified, contact, group, link or stranger; other-group for a group that the user is not in."""
    name: str

    @property
    def in_text(self) -> str:
        """The words for the user in a sentence, which has no elements."""
        words = {
            "you": "you",
            "link": f"the link {self.name}",
            "stranger": f"the user {self.name}",
            "group": f"the group {self.name}",
            "other-group": f"the group {self.name}",
        }
        return words.get(self.kind) or in_text(self.name)


def in_text(name: str) -> str:
    """Return the words for a contact in a sentence: one named "You" is not the user.

    The name on a card is what its maker chose, and the user may have kept it.
    """
    plain = comparable(name)
    is_reserved = plain == _RESERVED[0] or plain.startswith(_RESERVED[1:])
    return f'the contact "{name}"' if is_reserved else name


def capital(words: str) -> str:
    """Return the words for somebody at the beginning of a sentence."""
    if words == "you" or words.startswith("the "):
        return words[0].upper() + words[1:]
    return words


class May(NamedTuple):
    """The acts that the user's permissions on a container allow: the page offers no others."""

    rename: bool
    share: bool
    delete: bool


class Known:
    """The people whom the user knows, and the groups that the user has accepted, as they are now."""

    def __init__(
        self,
        own_id: uuid.UUID,
        contacts: Mapping[uuid.UUID, scbroker.Contact],
        links: Mapping[uuid.UUID, scbroker.Link],
        groups: Mapping[uuid.UUID, scbroker.Group] = {},
    ) -> None:
        self.own_id: uuid.UUID = own_id
        self.contacts: Mapping[uuid.UUID, scbroker.Contact] = contacts
        self.links: Mapping[uuid.UUID, scbroker.Link] = links
        self.groups: Mapping[uuid.UUID, scbroker.Group] = groups

    def user(self, user_id: uuid.UUID) -> Somebody:
        """Return how the page shows a user."""
        if user_id == self.own_id:
            return Somebody(user_id, "you", "You")
        if (contact := self.contacts.get(user_id)) is not None:
            kind = "verified" if contact.verified else "contact"
            return Somebody(user_id, kind, contact.name)
        if (link := self.links.get(user_id)) is not None:
            return Somebody(user_id, "link", link.name or "without a name")
        if user_id in self.groups:
            return self.group(user_id)
        return Somebody(user_id, "stranger", str(user_id))

    def group(self, group_id: uuid.UUID) -> Somebody:
        """Return how the page shows a group."""
        group = self.groups.get(group_id)
        if group is None:
            return Somebody(group_id, "other-group", str(group_id))
        return Somebody(group_id, "group", shortened(group.name))

    def holder(self, level: scbroker.AccessLevel) -> Somebody:
        """Return how the page shows the user or the group that an access level names."""
        return self.group(level.userId) if level.isGroup else self.user(level.userId)

    def made(self, container: Container) -> bool:
        """Return whether the user and contacts alone have created and changed a container."""
        authors = {
            container.createdBy,
            container.modifiedBy,
            container.contentBy,
            container.headerBy,
        }
        return authors - {None} <= {self.own_id, *self.contacts}

    def others(self, container: Container) -> list[Somebody] | None:
        """Return the container's other members; None if the user may not see them."""
        if container.access is None:
            return None
        return [self.holder(each) for each in container.access if each.userId != self.own_id]

    def own_rights(self, container: Container) -> scbroker.ContainerAccessLevel:
        """Return what the user may do, alone or through groups, as far as the list of members shows it."""
        found = scbroker.ContainerAccessLevel(0)
        for each in container.access or ():
            if each.userId == self.own_id:
                found |= each.permissions
            elif (group := self.groups.get(each.userId)) is not None:
                found |= each.permissions & group.role.permissions
        return found

    def may(self, container: Container) -> May:
        """Return what the user may do. Only Delete is possible without seeing the list of members."""
        own, level = self.own_rights(container), scbroker.ContainerAccessLevel
        return May(
            rename=level.Upload in own,
            share=level.ModifyAccess in own,
            delete=level.Delete in own or container.access is None,
        )


async def known(provider: scbroker.ServerProvider) -> Known:
    """Read the user's contacts, links and groups. If a list cannot be read, the page shows it as empty."""
    contacts = await scbroker.Contacts(provider).list()
    try:
        links = await provider.getLinks()
    except DAMAGED:  # /links says what is wrong; the containers are still of use
        links = []
    return Known(
        await provider.getUserId(),
        {each.userId: each for each in contacts},
        {each.userId: each for each in links},
        {each.id: each for each in await accepted_groups(provider)},
    )


async def accepted_groups(provider: scbroker.ServerProvider) -> list[scbroker.Group]:
    """Return the groups that the user has accepted and that can be read."""
    try:
        found = await provider.getGroups(offered=False)
    except errors.UntrustedError:  # /groups says what is wrong
        return []
    return [each for each in found if isinstance(each, scbroker.Group)]


async def offered_groups(provider: scbroker.ServerProvider) -> list[scbroker.Group] | None:
    """Return the groups that are offered to the user; None if they cannot be read within two seconds.

    Everybody can offer a group, and its history can be long.
    """
    try:
        async with asyncio.timeout(_OFFER_SECONDS):
            found = await provider.getGroups()
    except (TimeoutError, errors.UntrustedError):
        return None
    return [each for each in found if isinstance(each, scbroker.Group) and not each.accepted]


async def provider_of(session: Session) -> scbroker.ServerProvider:
    """Return the provider of the open session. Raises `NotAuthenticatedError` for a locked page."""
    return await session.do(lambda run: run.session)  # the first use of a run's session may wait


def uuid_of(text: str) -> uuid.UUID:
    """Return the id of a text as the page writes it; raise `InvalidArgumentError` for any other text."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise errors.InvalidArgumentError(f"{text!r:.80} is not an id.")
    return found


def shown_name(container: Container) -> str:
    """Return a container's name, or its id, short enough for a page."""
    return shortened(label_of(container))


def shortened(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


async def first_result(batch: Awaitable[list[Any]]) -> Any:
    """Return the only result of a batch; raise it if it is an error."""
    [result] = await batch
    if isinstance(result, errors.BrokerError):
        raise result
    return result
