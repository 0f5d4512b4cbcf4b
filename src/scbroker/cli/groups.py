"""Find groups by what a person types: a name, an id, or four or more first digits of an id.

Everybody can offer a group, with any name. So a name means an accepted group. Only the commands about offers
also find offered groups.
"""

from __future__ import annotations

import contextlib
import shlex
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.cli import with_message
from scbroker.cli.completion import complete_group, complete_offer
from scbroker.cli.names import PREFIX
from scbroker.desk.people import People
from scbroker.spelling import comparable

if TYPE_CHECKING:
    from scbroker.cli.run import Run

Entry: TypeAlias = "scbroker.Group | errors.BrokerError"
_OFFER_SECONDS: Final = 2.0
"""Time limit for offers that the command does not need: the history of an offered group can be long."""
_MOST_LISTED: Final = 10
_FEWEST_DIGITS: Final = 4


class Found(NamedTuple):
    """A group that a command line names. If the group cannot be read, only its id is known."""

    id: uuid.UUID
    entry: Entry

    @property
    def ref(self) -> scbroker.Group | uuid.UUID:
        """The group, so that the library compares its whole fingerprint, or the id if it cannot be read."""
        return self.entry if isinstance(self.entry, scbroker.Group) else self.id

    @property
    def name(self) -> str:
        """The name, or the id if the group cannot be read."""
        return self.entry.name if isinstance(self.entry, scbroker.Group) else str(self.id)

    def readable(self) -> scbroker.Group:
        """Return the group, or raise the error if it cannot be read."""
        if isinstance(self.entry, scbroker.Group):
            return self.entry
        raise with_message(self.entry, f"{self.id}: {self.entry.message}")


class Groups:
    """The user's groups. The accepted ones are read once for each command."""

    def __init__(
        self, session: scbroker.ServerProvider, known: People, name_of: Callable[[uuid.UUID], str]
    ) -> None:
        self._session, self._known, self._name_of = session, known, name_of

    def all(self) -> list[Entry]:
        """Read all groups, offered ones included; an error stands for a group that cannot be read."""
        return self._session.getGroups().result()

    def offers(self) -> list[scbroker.Group] | None:
        """Return the offered groups; None if they cannot be read in two seconds."""
        reading = self._session.getGroups()
        try:
            found = reading.result(_OFFER_SECONDS)
        except (TimeoutError, errors.BrokerError):
            reading.cancel()
            return None
        return [each for each in found if isinstance(each, scbroker.Group) and not each.accepted]

    @property
    def accepted(self) -> list[scbroker.Group]:
        """The accepted groups that can be read."""
        return [each for each in self._known.accepted if isinstance(each, scbroker.Group)]

    def known(self, group_id: uuid.UUID) -> scbroker.Group | None:
        """Return an accepted group by its id; None for any other id, and if the groups cannot be read."""
        return self._known.groups.get(group_id)

    def get(self, text: str) -> Found | None:
        """Return the accepted group that a text means, or None.

        Raises `InvalidArgumentError`, which lists them, if it means several: a command never guesses.
        """
        return self._only(text, self._known.accepted)

    def find(self, text: str) -> Found:
        """Return the accepted group that a text means.

        Raises `NotFoundError` if no such group exists, with a hint if the text means an offer; and as `get`.
        """
        found = self.get(text)
        if found is not None:
            return found
        if self.is_offered(text):
            raise errors.NotFoundError(not_accepted(text))
        raise errors.NotFoundError(
            f"You have no group named {text!r}, and no id begins with it: `scbroker groups ls` lists your "
            "groups."
        )

    def id_of(self, text: str) -> uuid.UUID:
        """Return the text as an id, or the id of the accepted group that it means; raises as `find`."""
        return uuid.UUID(text) if _is_id(text) else self.find(text).id

    def find_offer(self, text: str) -> Found:
        """Return the offered group that a text means; raises as `find`."""
        groups = self.all()
        # A group that cannot be read may be an offer: whether the user accepted it is not known.
        found = self._only(
            text, [e for e in groups if not (isinstance(e, scbroker.Group) and e.accepted)]
        )
        if found is None and self._only(text, groups) is not None:
            raise errors.InvalidArgumentError(f"You have accepted the group {text!r} already.")
        if found is None:
            raise errors.NotFoundError(
                f"No group named {text!r} is offered to you, and no id of one begins with it: `scbroker "
                "groups ls` lists your groups."
            )
        return found

    def find_any(self, text: str) -> Found:
        """Return the group that a text means: an accepted one, or else an offered one; raises as `find`."""
        return self.get(text) or self.find_offer(text)

    def is_offered(self, text: str) -> bool:
        """Return whether a text means an offered group; False if the offers cannot be read in two seconds."""
        return bool(_meant(text, self.offers() or []))

    def _only(self, text: str, groups: Sequence[Entry]) -> Found | None:
        found = _meant(text, groups)
        if len(found) > 1:
            listed = "; ".join(map(self._told_apart, found[:_MOST_LISTED]))
            raise errors.InvalidArgumentError(
                f"{text!r} means {len(found)} groups: use a whole id. {listed}."
            )
        return found[0] if found else None

    def _told_apart(self, found: Found) -> str:
        if not isinstance(found.entry, scbroker.Group):
            return f"{found.id} cannot be read"
        creator, number = self._name_of(found.entry.createdBy), found.entry.memberCount
        return f"{found.id}, {found.name!r}, created by {creator}, has {counted(number, 'member')}"


def tell_offers(run: Run) -> None:
    """Say that groups are offered to the user, if any are, at the end of a command about something else."""
    if run.out.quiet or run.out.as_json:
        return
    with contextlib.suppress(errors.BrokerError):
        offers = run.people.groups.offers() or []
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


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or the plural."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def modifier_is_member(
    session: scbroker.ServerProvider, container: scbroker.Container[Any]
) -> bool | None:
    """Return whether the user who changed a container last is still in the group for which they acted.

    None if they acted for no group, or if it cannot be known. A container that was read by the user's own
    access does not say it, so this reads the members, which works if the user is in the group too.
    """
    if container.modifierIsMember is not None or container.modifiedVia is None:
        return container.modifierIsMember
    try:
        members = session.getGroupMembers(container.modifiedVia).result()
    except (errors.NotFoundError, errors.DeletedError, errors.UntrustedError):
        return None
    return any(each.userId == container.modifiedBy for each in members)


def not_accepted(text: str) -> str:
    """Return the sentence that says how to accept a group that is only offered."""
    return (
        f"You have not accepted the group {text!r} yet: run `scbroker groups accept {shlex.quote(text)}` "
        "first."
    )


def _meant(text: str, groups: Sequence[Entry]) -> list[Found]:
    """Return the groups that a text means.

    A text that is a whole id is never taken as a name. Otherwise a manager could name a group after the id of
    a user.
    """
    every = [Found(id, each) for each in groups if (id := _id_of(each)) is not None]
    by_id = [each for each in every if _begins(each.id, text)]
    if _is_id(text):
        return by_id
    named = [each for each in every if isinstance(each.entry, scbroker.Group)]
    similar = [each for each in named if comparable(each.name) == comparable(text)]
    exact = [each for each in similar if _normal(each.name) == _normal(text)]
    return list({each.id: each for each in (*by_id, *(exact or similar))}.values())


def _id_of(entry: Entry) -> uuid.UUID | None:
    return entry.id if isinstance(entry, scbroker.Group) else entry.containerId


def _begins(id: uuid.UUID, text: str) -> bool:
    if _is_id(text):
        return id == uuid.UUID(text)
    digits = text.replace("-", "").lower()
    return (
        bool(PREFIX.fullmatch(text)) and len(digits) >= _FEWEST_DIGITS and id.hex.startswith(digits)
    )


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="A group: its name, its id, or four or more first digits of the id.",
        autocompletion=complete_group,
    ),
]
OfferArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="An offered group: its name, its id, or four or more first digits of the id.",
        autocompletion=complete_offer,
    ),
]
