"""Find people and groups by what a person types: a contact's name, a user id, a contact card, a group.

Everybody can offer a group, with any name. So a name means an accepted group. Only the commands about offers
also find offered groups.
"""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors
from scbroker.cli import with_message
from scbroker.cli.completion import complete_group, complete_offer, complete_person
from scbroker.cli.names import LINK_MARK
from scbroker.cli.output import SHORT_ID
from scbroker.desk import people as desk
from scbroker.desk.people import Somebody, contact_in_text, counted, is_id, meant, quoted

if TYPE_CHECKING:
    from scbroker.cli.run import Run

CARD_PREFIX: Final = "scbroker-contact:"
_OFFER_SECONDS: Final = 2.0
"""Time limit for reading offers, which only add a hint: the history of an offered group can be long."""
_MOST_LISTED: Final = 10
Who: TypeAlias = "scbroker.Contact | scbroker.ContactCard | uuid.UUID"
GroupRef: TypeAlias = "scbroker.Group | uuid.UUID"
"""A group, or its id if it cannot be read. The library verifies a group's whole fingerprint, not an id's."""


class Holder(NamedTuple):
    """A person or a group that a command line names, with a name for messages."""

    who: Any
    """A `Who`, or a group."""
    id: uuid.UUID
    name: str

    @property
    def is_group(self) -> bool:
        return isinstance(self.who, scbroker.Group)

    @property
    def label(self) -> str:
        """The name as lists show it."""
        return f"group {self.who.name}" if self.is_group else self.name


def holder_of(who: Who | scbroker.Group) -> Holder:
    """Return a person or a group with its name for messages."""
    if isinstance(who, uuid.UUID):
        return Holder(who, who, str(who))
    if isinstance(who, scbroker.Group):
        return Holder(who, who.id, f"the group {who.name!r}")
    return Holder(who, who.userId, contact_in_text(who.name))


def named_and_id(group: GroupRef) -> tuple[str, uuid.UUID]:
    """Return the name and the id of a group; the id for both if the group cannot be read."""
    return (str(group), group) if isinstance(group, uuid.UUID) else (group.name, group.id)


def warning_of(holder: Holder) -> str | None:
    """Return a warning that says how to verify a person; None for a verified contact."""
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


def warn(run: Run, people: Sequence[Holder]) -> None:
    """Say how to verify these people, except for verified contacts."""
    for each in people:
        if (text := warning_of(each)) is not None:
            run.out.say(text)


def check_others(run: Run, people: Sequence[Holder], what_to_do: str) -> None:
    """Raise `InvalidArgumentError` if the user is one of these people."""
    if any(each.id == run.people.own_id for each in people):
        raise errors.InvalidArgumentError(f"You are the user {run.people.own_id}. {what_to_do}")


def named_in(error: errors.BrokerError, holders: Sequence[Holder]) -> errors.BrokerError:
    """Return an error whose message has the names of people and groups in place of their ids."""
    text = error.message
    for each in holders:
        if not isinstance(each.who, uuid.UUID):
            for word in ("user", "User", "group", "Group"):
                text = text.replace(f"{word} {each.id}", each.name)
    return with_message(error, text)


@contextmanager
def naming(holders: Sequence[Holder]) -> Iterator[None]:
    """Replace the ids of these people by their names in the messages of the block's errors."""
    try:
        yield
    except errors.BrokerError as error:
        raise named_in(error, holders) from None


class People(desk.People):
    """The user's contacts, links and groups, found by what a person types."""

    def __init__(self, session: scbroker.ServerProvider) -> None:
        super().__init__(session)
        self.book: scbroker.Contacts = scbroker.Contacts(session)

    def find(self, text: str) -> Who:
        """Return the person of a contact's name, a user id or a card's text: the contact, if it is one.

        Raises `NotFoundError`, which suggests similar names, for an unknown name.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            # A link's URL is a secret: the error for a link does not repeat the text.
            card = scbroker.ContactCard.parse(text)
            contact = self.contacts.get(card.userId)
            return card if contact is None or contact.fingerprint != card.fingerprint else contact
        try:
            user_id = uuid.UUID(text)
        except ValueError:
            return self.book.get(text).result()
        return self.contacts.get(user_id, user_id)

    def find_all(self, texts: Sequence[str]) -> list[Holder]:
        """Return the people of the texts, each once."""
        found = [holder_of(self.find(each)) for each in texts]
        return list({each.id: each for each in found}.values())

    def find_holder(self, text: str) -> Holder:
        """Return the person or the accepted group of a text.

        Raises `InvalidArgumentError` if it means both a contact and a group, `NotFoundError` if neither.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            return holder_of(self.find(text))
        group = self._only(text, self.readable)
        try:
            person = holder_of(self.find(text))
        except errors.NotFoundError as error:
            if group is not None:
                return holder_of(group)
            self._check_offers(text)
            more = f"No group of yours is named {text!r} either."
            raise errors.NotFoundError(f"{error.message} {more}") from None
        if group is not None and is_id(text):
            return holder_of(group)
        if group is not None:
            raise errors.InvalidArgumentError(
                f"{text!r} is a contact and a group: use the id, {person.id} for the contact or {group.id} "
                "for the group."
            )
        return person

    def find_group(self, text: str) -> scbroker.Group:
        """Return the accepted group that a text means.

        Raises `NotFoundError` if no such group exists, with a hint if the text means an offer, and
        `InvalidArgumentError`, which lists them, if it means several: a command never guesses.
        """
        if (found := self._only(text, self.readable)) is not None:
            return found
        for each in self.accepted if is_id(text) else ():
            if isinstance(each, errors.BrokerError) and each.containerId == uuid.UUID(text):
                raise each
        self._check_offers(text)
        raise errors.NotFoundError(
            f"You have no group named {text!r}, and no id begins with it: `scbroker groups ls` lists your "
            "groups."
        )

    def find_group_or_id(self, text: str) -> GroupRef:
        """Return a whole id as it is if no group that can be read has it, else as `find_group`."""
        is_unknown = is_id(text) and uuid.UUID(text) not in self.groups
        return uuid.UUID(text) if is_unknown else self.find_group(text)

    def find_offer(self, text: str) -> GroupRef:
        """Return the offered group that a text means; a whole id as it is. Raises as `find_group`."""
        groups = [
            each for each in self._provider.getGroups().result() if isinstance(each, scbroker.Group)
        ]
        found = self._only(text, [each for each in groups if not each.accepted])
        if found is None and self._only(text, groups) is not None:
            raise errors.InvalidArgumentError(f"You have accepted the group {text!r} already.")
        if found is None and is_id(text):
            return uuid.UUID(text)
        if found is None:
            raise errors.NotFoundError(
                f"No group named {text!r} is offered to you, and no id of one begins with it: `scbroker "
                "groups ls` lists your groups."
            )
        return found

    def find_any_group(self, text: str) -> GroupRef:
        """Return the accepted group that a text means, or else an offered one; raises as `find_group`."""
        return self._only(text, self.readable) or self.find_offer(text)

    def offers(self) -> list[scbroker.Group] | None:
        """Return the offered groups; None if they cannot be read in two seconds."""
        reading = self._provider.getGroups()
        try:
            found = reading.result(_OFFER_SECONDS)
        except (TimeoutError, errors.BrokerError):
            reading.cancel()
            return None
        return [each for each in found if isinstance(each, scbroker.Group) and not each.accepted]

    def _check_offers(self, text: str) -> None:
        """Raise `NotFoundError` if a text means a group that is only offered."""
        if meant(text, self.offers() or []):
            raise errors.NotFoundError(
                f"You have not accepted the group {text!r} yet: run `scbroker groups accept "
                f"{shlex.quote(text)}` first."
            )

    def _only(self, text: str, groups: Sequence[scbroker.Group]) -> scbroker.Group | None:
        found = meant(text, groups)
        if len(found) > 1:
            listed = "; ".join(
                f"{each.id}, {each.name!r}, created by {self.name_of(each.createdBy)}, has "
                f"{counted(each.memberCount, 'member')}"
                for each in found[:_MOST_LISTED]
            )
            raise errors.InvalidArgumentError(
                f"{text!r} means {len(found)} groups: use a whole id. {listed}."
            )
        return found[0] if found else None

    def name_of(self, user_id: uuid.UUID) -> str:
        """Return the contact's name, "you" for the user's own id, "link NAME" for the user of one of the
        user's links, "group NAME" for a group that the user has accepted, or the id of somebody else.
        """
        return _label(self.user(user_id))

    def of_level(self, level: scbroker.AccessLevel, *, is_short: bool = False) -> str:
        """Return the name of the holder of an access level, or the id; its first digits if `is_short`."""
        return _label(self.holder(level), is_short=is_short)

    def group_of(self, group_id: uuid.UUID) -> str:
        """Return "group NAME" for a group that the user has accepted, "group ID" for any other."""
        return _label(self.group(group_id))

    def others_of(self, container: scbroker.Container[Any]) -> list[str] | None:
        """Return the names of the container's other members; None if the user may not see them."""
        others = self.others(container)
        return None if others is None else [_label(each) for each in others]


def _label(who: Somebody, *, is_short: bool = False) -> str:
    if who.kind == "you":
        return "you"
    shown = who.name or (who.id.hex[:SHORT_ID] if is_short else str(who.id))
    before = {"link": "link ", "group": "group ", "other-group": "group "}
    if who.kind in before:
        return before[who.kind] + (quoted(shown) if "," in shown else shown)
    return shown if who.name is None else contact_in_text(shown)


def tell_offers(run: Run) -> None:
    """At the end of another command, tell the user about offered groups, if there are any."""
    if run.out.quiet or run.out.as_json:
        return
    with contextlib.suppress(errors.BrokerError):
        offers = run.people.offers() or []
        if len(offers) == 1:
            creator = run.people.name_of(offers[0].createdBy)
            run.out.say(
                f"The group {offers[0].name!r}, created by {creator}, is offered to you: `scbroker groups "
                "accept` or `decline` it."
            )
        elif offers:
            run.out.say(
                f"{len(offers)} groups are offered to you: `scbroker groups ls` lists them."
            )


PERSON: Final = typer.Argument(
    metavar="PERSON",
    help="A person: the name of a contact, a user id or a contact card.",
    autocompletion=complete_person,
)
PersonArgument = Annotated[str, PERSON]
GROUP_HELP: Final = "its name, its id, or four or more first digits of the id."
GroupArgument = Annotated[
    str,
    typer.Argument(metavar="GROUP", help=f"A group: {GROUP_HELP}", autocompletion=complete_group),
]
OfferArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help=f"An offered group: {GROUP_HELP}", autocompletion=complete_offer
    ),
]
