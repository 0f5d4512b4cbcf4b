"""Find people and groups by what a person types: a contact's name, a user id, a contact card, a group."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import typer

import scbroker
from scbroker import errors
from scbroker.cli import with_message
from scbroker.cli.completion import complete_person
from scbroker.cli.groups import Groups, not_accepted
from scbroker.cli.names import LINK_MARK
from scbroker.cli.output import SHORT_ID
from scbroker.desk import people as desk
from scbroker.desk.people import Somebody, contact_in_text, quoted

if TYPE_CHECKING:
    from scbroker.cli.run import Run

CARD_PREFIX: Final = "scbroker-contact:"
Who: TypeAlias = "scbroker.Contact | scbroker.ContactCard | uuid.UUID"
AnyHolder: TypeAlias = "Holder[Any]"
"""A person or a group."""
W = TypeVar("W", bound="Who | scbroker.Group")


class Holder(NamedTuple, Generic[W]):
    """A person or a group that a command line names, with a name for messages."""

    who: W
    id: uuid.UUID
    name: str

    @property
    def is_group(self) -> bool:
        """Whether this is a group."""
        return isinstance(self.who, scbroker.Group)

    @property
    def label(self) -> str:
        """The name as lists show it."""
        return f"group {self.who.name}" if isinstance(self.who, scbroker.Group) else self.name


def holder_of(who: W) -> Holder[W]:
    """Return a person or a group with its name for messages."""
    if isinstance(who, uuid.UUID):
        return Holder(who, who, str(who))
    if isinstance(who, scbroker.Group):
        return Holder(who, who.id, f"the group {who.name!r}")
    return Holder(who, who.userId, contact_in_text(who.name))


def joined(names: Sequence[str]) -> str:
    """Return names with commas, and with "and" before the last one."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def capital(name: str) -> str:
    """Return a name for the beginning of a sentence: "the group" becomes "The group"."""
    return f"T{name[1:]}" if name.startswith(("the group ", "the contact ")) else name


def warning_of(holder: AnyHolder) -> str | None:
    """Return a warning that says how to make sure who a person is; None for a verified contact."""
    if isinstance(holder.who, scbroker.Contact):
        if holder.who.verified:
            return None
        return (
            f"Warning: {holder.name} is not verified, so this may be somebody else's card. Compare "
            f"fingerprints with `scbroker contacts verify {shlex.quote(holder.who.name)}`."
        )
    if isinstance(holder.who, scbroker.ContactCard):
        return (
            f"Warning: anybody can make a card that says {holder.who.name!r}. Add it with `scbroker contacts "
            "add`, and compare fingerprints with `scbroker contacts verify`."
        )
    return (
        f"Warning: an id alone does not say who the user {holder.id} is. Add the person's card with "
        "`scbroker contacts add`, and compare fingerprints with `scbroker contacts verify`."
    )


def warn(run: Run, people: Sequence[AnyHolder]) -> None:
    """Say how to make sure who these people are, except for verified contacts."""
    for each in people:
        if (text := warning_of(each)) is not None:
            run.out.say(text)


def check_others(run: Run, people: Sequence[AnyHolder], what_to_do: str) -> None:
    """Raise `InvalidArgumentError` if the user is one of these people."""
    if any(each.id == run.people.own_id for each in people):
        raise errors.InvalidArgumentError(f"You are the user {run.people.own_id}. {what_to_do}")


def named_in(error: errors.BrokerError, holders: Sequence[AnyHolder]) -> errors.BrokerError:
    """Return an error whose message has the names of people and groups in place of their ids."""
    text = error.message
    for each in holders:
        if not isinstance(each.who, uuid.UUID):
            for word in ("user", "User", "group", "Group"):
                text = text.replace(f"{word} {each.id}", each.name)
    return with_message(error, text)


@contextmanager
def naming(holders: Sequence[AnyHolder]) -> Iterator[None]:
    """In the message of an error, put names of these people in place of their ids."""
    try:
        yield
    except errors.BrokerError as error:
        raise named_in(error, holders) from None


class People:
    """The user's contacts, links and groups, read once for each command."""

    def __init__(self, session: scbroker.ServerProvider) -> None:
        self.known: desk.People = desk.People(session)
        self.book: scbroker.Contacts = scbroker.Contacts(session)
        self.groups: Groups = Groups(session, self.known, self.name_of)

    @property
    def own_id(self) -> uuid.UUID:
        """The user's own id."""
        return self.known.own_id

    def find(self, text: str) -> Who:
        """Return the person of a contact's name, a user id or a card's text: the contact, if it is one.

        Raises `NotFoundError`, which suggests similar names, for an unknown name.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            card = scbroker.ContactCard.parse(text)  # raises for a link, without repeating it
            contact = self.known.contacts.get(card.userId)
            return card if contact is None or contact.fingerprint != card.fingerprint else contact
        try:
            user_id = uuid.UUID(text)
        except ValueError:
            return self.book.get(text).result()
        return self.known.contacts.get(user_id, user_id)

    def holder(self, text: str) -> AnyHolder:
        """Return the person or the accepted group of a text.

        Raises `InvalidArgumentError` if it means both a contact and a group, `NotFoundError` if neither.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            return holder_of(self.find(text))
        group = self.groups.get(text)
        try:
            person = holder_of(self.find(text))
        except errors.NotFoundError as error:
            if group is None:
                raise self._unknown(text, error) from None
            return holder_of(group.readable())
        if group is None:
            return person
        if isinstance(person.who, uuid.UUID):  # a whole id, which is that of the group
            return holder_of(group.readable())
        raise errors.InvalidArgumentError(
            f"{text!r} is a contact and a group: use the id, {person.id} for the contact or {group.id} for "
            "the group."
        )

    def _unknown(self, text: str, error: errors.BrokerError) -> errors.BrokerError:
        if self.groups.is_offered(text):
            return errors.NotFoundError(not_accepted(text))
        return errors.NotFoundError(f"{error.message} No group of yours is named {text!r} either.")

    def name_of(self, user_id: uuid.UUID, *, is_short: bool = False) -> str:
        """Return the contact's name, "you" for the user's own id, "link NAME" for the user of one of the
        user's links, "group NAME" for a group that the user has accepted, or the id of somebody else; if
        `is_short`, the first digits of the id.
        """
        return _label(self.known.user(user_id), is_short=is_short)

    def of_level(self, level: scbroker.AccessLevel, *, is_short: bool = False) -> str:
        """Return the name of the user or of the group that an access level names."""
        return _label(self.known.holder(level), is_short=is_short)

    def group_of(self, group_id: uuid.UUID, *, is_short: bool = False) -> str:
        """Return "group NAME" for a group that the user has accepted, "group ID" for any other."""
        return _label(self.known.group(group_id), is_short=is_short)

    def is_of_group(self, container: scbroker.Container[Any]) -> bool:
        """Return whether the user also reaches a container through a group that they have accepted."""
        ids = [each.userId for each in container.access or ()]
        return container.via is not None or any(each in self.known.groups for each in ids)

    def others(self, container: scbroker.Container[Any]) -> list[str] | None:
        """Return the names of the container's other members; None if the user may not see them."""
        others = self.known.others(container)
        return None if others is None else [_label(each) for each in others]


def _label(who: Somebody, *, is_short: bool = False) -> str:
    if who.kind == "you":
        return "you"
    shown = who.name or (who.id.hex[:SHORT_ID] if is_short else str(who.id))
    before = {"link": "link ", "group": "group ", "other-group": "group "}
    if who.kind in before:
        return before[who.kind] + (quoted(shown) if "," in shown else shown)
    return shown if who.name is None else contact_in_text(shown)


PersonArgument = Annotated[
    str,
    typer.Argument(
        metavar="PERSON",
        help="A person: the name of a contact, a user id or a contact card.",
        autocompletion=complete_person,
    ),
]
