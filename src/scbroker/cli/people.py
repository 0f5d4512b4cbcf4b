"""Find people by what a person types: a contact's name, a user id, or a contact card."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Final

import typer

import scbroker
from scbroker.cli.names import LINK_MARK

CARD_PREFIX: Final = "scbroker-contact:"


class People:
    """The user's contacts, read once for each command."""

    def __init__(self, session: scbroker.ServerProvider) -> None:
        self._session = session
        self.book: scbroker.Contacts = scbroker.Contacts(session)

    @cached_property
    def own_id(self) -> uuid.UUID:
        """The user's own id."""
        return self._session.getUserId().result()

    @cached_property
    def _contacts(self) -> dict[uuid.UUID, scbroker.Contact]:
        return {each.userId: each for each in self.book.list().result()}

    def find(self, text: str) -> scbroker.Contact | scbroker.ContactCard | uuid.UUID:
        """Return the person of a contact's name, a user id or a card's text: the contact, if it is one.

        Raises `NotFoundError`, which suggests similar names, for an unknown name.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK in text:
            card = scbroker.ContactCard.parse(text)  # raises for a link, without repeating it
            contact = self._contacts.get(card.userId)
            return card if contact is None or contact.fingerprint != card.fingerprint else contact
        try:
            user_id = uuid.UUID(text)
        except ValueError:
            return self.book.get(text).result()
        return self._contacts.get(user_id, user_id)

    def name_of(self, user_id: uuid.UUID) -> str:
        """Return the contact's name, "you" for the user's own id, or the id of somebody else."""
        if user_id == self.own_id:
            return "you"
        contact = self._contacts.get(user_id)
        return str(user_id) if contact is None else contact.name

    def others(self, container: scbroker.Metadata) -> list[str] | None:
        """Return the names of the container's other members; None if the user may not see them."""
        if container.access is None:
            return None
        return [
            self.name_of(each.userId) for each in container.access if each.userId != self.own_id
        ]


def complete_person(ctx: Any, incomplete: str) -> list[str]:
    """Return the contacts that complete a word on the command line; nothing if they cannot be read."""
    from scbroker.cli.completion import candidates
    from scbroker.cli.output import Output
    from scbroker.cli.run import Run

    def read() -> Iterator[str]:
        with Run(ctx.params.get("profile"), Output(as_json=False, quiet=True)) as run:
            yield from (each.name for each in run.people.book.list().result())

    return candidates(incomplete, read)


PersonArgument = Annotated[
    str,
    typer.Argument(
        metavar="PERSON",
        help="A person: the name of a contact, a user id or a contact card.",
        autocompletion=complete_person,
    ),
]
