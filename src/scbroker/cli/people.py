"""Find people by what a person types: a contact's name, a user id, or a contact card."""

from __future__ import annotations

import uuid
from functools import cached_property
from typing import Annotated, Any

import typer

import scbroker
from scbroker import errors

CARD_PREFIX = "scbroker-contact:"


class People:
    """The user's contacts, read once for each command."""

    def __init__(self, session: scbroker.ServerProvider) -> None:
        self._session = session
        self.book: scbroker.Contacts = scbroker.Contacts(session)

    @cached_property
    def _names(self) -> dict[uuid.UUID, str]:
        return {each.userId: each.name for each in self.book.list().result()}

    def find(self, text: str) -> scbroker.Contact | scbroker.ContactCard | uuid.UUID:
        """Return whom a contact's name, a user id or the text of a card means.

        Raises `NotFoundError`, which suggests similar names, for an unknown name.
        """
        if text.lower().startswith(CARD_PREFIX):
            return scbroker.ContactCard.parse(text)
        try:
            return uuid.UUID(text)
        except ValueError:
            return self.book.get(text).result()

    def name_of(self, user_id: uuid.UUID) -> str:
        """Return the contact's name, "you" for the user's own id, or the id of somebody else."""
        if user_id == self._session.getUserId().result():
            return "you"
        return self._names.get(user_id, str(user_id))


def complete_person(ctx: Any, incomplete: str) -> list[str]:
    """Return the contacts that complete a word on the command line; nothing if they cannot be read."""
    from scbroker.cli.output import Output, printable
    from scbroker.cli.run import Run

    try:
        with Run(ctx.params.get("profile"), Output(as_json=False, quiet=True)) as run:
            names = [each.name for each in run.people.book.list().result()]
            return [
                each for each in names if each.startswith(incomplete) and each == printable(each)
            ]
    except errors.BrokerError:
        return []


PersonArgument = Annotated[
    str,
    typer.Argument(
        metavar="PERSON",
        help="A person: the name of a contact, a user id or a contact card.",
        autocompletion=complete_person,
    ),
]
