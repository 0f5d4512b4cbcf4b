"""Say who is who on the page: you, your contacts, your links, and users whom you do not know."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Mapping
from typing import Any, Final, NamedTuple

import scbroker
from scbroker import errors
from scbroker.cli.names import label_of
from scbroker.cli.ui.part import Container
from scbroker.cli.ui.session import Session

_LONGEST: Final = 120
"""Characters of a name on the page. Other users choose the names of what they share."""


class Somebody(NamedTuple):
    """A user as the page shows them. Only the page itself writes `kind`: a name cannot imitate it."""

    user_id: uuid.UUID
    kind: str
    """you, verified, contact, link or stranger."""
    name: str

    @property
    def in_text(self) -> str:
        """The words for the user in a sentence, which has no elements."""
        words = {"you": "you", "link": f"the link {self.name}", "stranger": f"the user {self.name}"}
        return words.get(self.kind, self.name)


class May(NamedTuple):
    """The acts that the user's permissions on a container allow: the page offers no others."""

    rename: bool
    share: bool
    delete: bool


class Known:
    """The people whom the user knows, as they are now."""

    def __init__(
        self,
        own_id: uuid.UUID,
        contacts: Mapping[uuid.UUID, scbroker.Contact],
        links: Mapping[uuid.UUID, scbroker.Link],
    ) -> None:
        self.own_id: uuid.UUID = own_id
        self.contacts: Mapping[uuid.UUID, scbroker.Contact] = contacts
        self.links: Mapping[uuid.UUID, scbroker.Link] = links

    def user(self, user_id: uuid.UUID) -> Somebody:
        """Return how the page shows a user."""
        if user_id == self.own_id:
            return Somebody(user_id, "you", "You")
        if (contact := self.contacts.get(user_id)) is not None:
            kind = "verified" if contact.verified else "contact"
            return Somebody(user_id, kind, contact.name)
        if (link := self.links.get(user_id)) is not None:
            return Somebody(user_id, "link", link.name or "without a name")
        return Somebody(user_id, "stranger", str(user_id))

    def made(self, container: Container) -> bool:
        """Return whether the user and contacts alone have created and changed a container."""
        authors = {container.createdBy, container.modifiedBy, container.contentBy or self.own_id}
        return authors <= {self.own_id, *self.contacts}

    def others(self, container: Container) -> list[Somebody] | None:
        """Return the container's other members; None if the user may not see them."""
        if container.access is None:
            return None
        ids = [each.userId for each in container.access]
        return [self.user(each) for each in ids if each != self.own_id]

    def own_rights(self, container: Container) -> scbroker.ContainerAccessLevel:
        """Return the user's own permissions, as far as the list of members shows them."""
        own = (each.permissions for each in container.access or () if each.userId == self.own_id)
        return next(own, scbroker.ContainerAccessLevel(0))

    def may(self, container: Container) -> May:
        """Return what the user may do. Only Delete is possible without seeing the list of members."""
        own, level = self.own_rights(container), scbroker.ContainerAccessLevel
        return May(
            rename=level.Upload in own,
            share=level.ModifyAccess in own,
            delete=level.Delete in own or container.access is None,
        )


async def known(provider: scbroker.ServerProvider) -> Known:
    """Read the user's contacts and links."""
    contacts = await scbroker.Contacts(provider).list()
    links = await provider.getLinks()
    return Known(
        await provider.getUserId(),
        {each.userId: each for each in contacts},
        {each.userId: each for each in links},
    )


async def provider_of(session: Session) -> scbroker.ServerProvider:
    """Return the provider of the open session. Raises `NotAuthenticatedError` for a locked page."""
    return await session.do(lambda run: run.session)  # the first use of a run's session may wait


def uuid_of(text: str) -> uuid.UUID:
    """Return the id that a text is; raise `InvalidArgumentError` for any other text."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise errors.InvalidArgumentError(f"{text!r:.80} is not an id.") from None


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
