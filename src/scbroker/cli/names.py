"""Find containers, people and groups by what a person types.

A container has an id and, in its header, a name, as `put` writes it; slashes in names make a tree. A person
is a contact's name, a user id or a contact card. Everybody can offer a group, with any name: so a name means
an accepted group, and only the commands about offers also find offered groups.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import unicodedata
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

import scbroker
from scbroker import errors
from scbroker.cli.command import complete_container, complete_group, complete_offer, complete_person
from scbroker.cli.output import SHORT_ID
from scbroker.desk import people
from scbroker.desk.names import (
    LONGEST_NAME,
    Container,
    containers_named,
    containers_of,
    containers_whose_name,
    name_of,
    shortened,
)
from scbroker.desk.people import (
    PREFIX,
    Somebody,
    contact_in_text,
    counted,
    is_id,
    meant,
    newest_twin,
    quoted,
    text_of_twins,
)
from scbroker.spelling import without_invisible

if TYPE_CHECKING:
    from scbroker.cli.command import Run

_MOST_LISTED: Final = 10
LINK_MARK: Final = re.compile("scbroker-link(:|%3a)", re.IGNORECASE)
"""A part that the URL of every link contains, after a #. Some programs encode both signs."""


def label_of(container: Container) -> str:
    """Return a container's name, or its id, for a message."""
    return shortened(name_of(container) or str(container.id), LONGEST_NAME)


class Names:
    """The user's containers by id and name. Each call reads their present state."""

    def __init__(
        self,
        people: people.People,
        failed: Callable[[str, errors.BrokerError], None],
        warn: Callable[[str], None],
    ) -> None:
        self._session, self._people = people.provider, people
        self._failed, self._warn = failed, warn
        self._damaged: set[uuid.UUID | None] = set()

    def id_of(self, text: str) -> uuid.UUID:
        """Return the id of the container that an id, the beginning of an id or a name means.

        Raises `NotFoundError` if none exists, and `InvalidArgumentError`, which lists them, if several do:
        the command never guesses.
        """
        return self.ids_of([text])[0]

    def ids_of(self, texts: Sequence[str], *, newest: bool = False) -> list[uuid.UUID]:
        """Return the ids that several texts mean, each as by `id_of`; read all containers at most once.

        A beginning of an id can be a name as well. Other users choose the ids of what they share. Containers
        of strangers are left out, with a warning, if others have their name. With `newest`, a name of several
        containers that only the user can have named is that of the newest.
        """
        ids = {text: self._by_prefix(text) for text in texts if PREFIX.fullmatch(text)}
        names = {
            text: unicodedata.normalize("NFC", text)
            for text in texts
            if (id := ids.get(text)) is None or not is_whole(text, id)
        }
        named = {**self.named(set(names.values()))}
        for name, exact in named.items():
            found = exact or self._named_like(name)
            kept = found if len(found) < 2 else self._people.left_among(found)
            if left_out := len(found) - len(kept):
                self._warn(
                    f"{left_out} more of your containers are named {name!r}, and are left out: people who "
                    "are not your contacts can change them, or have named them."
                )
            named[name] = self.without_twins(name, kept) if newest else kept
        return [_only(text, ids.get(text), named.get(names.get(text, ""), [])) for text in texts]

    def without_twins(self, name: str, found: list[Container]) -> list[Container]:
        """Return only the newest, with a warning, if the user alone can have named them all; else all."""
        if len(found) < 2 or (one := newest_twin(found, self._people.own_id)) is None:
            return found
        self._warn(text_of_twins(name, one.id, {each.id for each in found} - {one.id}))
        return [one]

    def _named_like(self, name: str) -> list[Container]:
        """Return the containers whose name differs from this one in invisible characters alone."""
        seen = without_invisible(name)
        found = containers_whose_name(self._session, lambda each: without_invisible(each) == seen)
        return [each for each in found if isinstance(each, scbroker.Container)]

    def container(self, text: str, *, newest: bool = False) -> Container:
        """Return the container that `ids_of` finds for a text, without its content."""
        [found] = containers_of(self._session, self.ids_of([text], newest=newest))
        if isinstance(found, errors.BrokerError):
            raise type(found)(f"{text}: {found.message}")
        return found

    def named(self, names: Collection[str]) -> Mapping[str, list[Container]]:
        """Return the containers of each of these names, which are in NFC; none for a name that none has.

        Warn of damaged containers: each could have one of the names.
        """
        found, damaged = containers_named(self._session, names)
        if damaged:
            self._warn(
                f"{len(damaged)} of your containers cannot be read, such as {damaged[0]}, so their names are "
                "not known: `scbroker ls` lists them."
            )
        return found

    def below(self, folder: str, known: Collection[uuid.UUID] = ()) -> list[Container]:
        """Return the containers whose names begin with a folder, such as "photos/".

        A damaged container is reported as a failure, once for each command, because it could be one of the
        folder; but not if strangers can have damaged it. People in `known` are no strangers.

        Raises `NotFoundError` if none exists.
        """
        beginning = unicodedata.normalize("NFC", folder).rstrip("/") + "/"
        found, damaged = [], []
        for each in containers_whose_name(self._session, lambda name: name.startswith(beginning)):
            if isinstance(each, scbroker.Container):
                found.append(each)
            elif each.containerId not in self._damaged:
                self._damaged.add(each.containerId)
                damaged.append(each)
        for each in self.not_of_strangers(damaged, known):
            self._failed(str(each.containerId), each)
        if not found:
            raise errors.NotFoundError(
                f"You have no container whose name begins with {beginning!r}: `scbroker ls` lists your "
                "containers."
            )
        return found

    def not_of_strangers(
        self, damaged: Sequence[errors.BrokerError], known: Collection[uuid.UUID] = ()
    ) -> list[errors.BrokerError]:
        """Return the errors of containers that strangers cannot have damaged; say how many others exist.

        Anybody at the broker can share a container that cannot be read, and no command may fail by that.
        """
        ids = [each.containerId for each in damaged if each.containerId is not None]
        if theirs := self._people.damaged(ids, known):
            id, example = next(iter(theirs.items()))
            is_own = example.createdBy == self._people.own_id
            self._warn(
                f"Left out: {len(theirs)} containers that cannot be read, and that people who are not your "
                f"contacts can change, such as {id}: `scbroker {'info' if is_own else 'leave'} {id}` "
                + ("shows who." if is_own else "ends your access.")
            )
        return [each for each in damaged if each.containerId not in theirs]

    def _by_prefix(self, text: str) -> uuid.UUID | None:
        digits = text.replace("-", "").lower()
        if len(digits) == 32:
            return uuid.UUID(digits)
        if len(digits) > 32:
            return None
        before = int(digits.ljust(32, "0"), 16) - 1
        start = None if before < 0 else uuid.UUID(int=before)
        page = self._session.listContainers(startAfter=start, headers=False, limit=2).result()
        ids = [
            each.id if isinstance(each, scbroker.Container) else each.containerId
            for each in page.containers
        ]
        found = sorted(id for id in ids if id is not None and id.hex.startswith(digits))
        if len(found) > 1:
            raise errors.InvalidArgumentError(
                f"Several ids begin with {text}, such as {found[0]} and {found[1]}: type more of the id."
            )
        return found[0] if found else None


def is_whole(text: str, id: uuid.UUID) -> bool:
    """Return whether a text is this id, not only the beginning of it."""
    return text.replace("-", "").lower() == id.hex


def _only(text: str, id: uuid.UUID | None, named: list[Container]) -> uuid.UUID:
    """Return the one container that a text means by the beginning of its id, or by its name."""
    if id is not None:
        if others := [each for each in named if each.id != id]:
            raise errors.InvalidArgumentError(
                f"{text!r} is a name, and the beginning of the id {id} too: use a whole id. {_listed(others)}"
            )
        return id
    if not named:
        if LINK_MARK.search(text):  # a link's URL is a secret: no message repeats it
            raise errors.InvalidArgumentError(
                "This is a link, not a container: `scbroker open` opens it."
            )
        raise errors.NotFoundError(
            f"You have no container named {text!r}, and no id begins with it: `scbroker ls` lists your "
            "containers."
        )
    if len(named) > 1:
        raise errors.InvalidArgumentError(
            f"{len(named)} containers are named {text!r}: use an id. {_listed(named)}"
        )
    return named[0].id


def _listed(containers: list[Container]) -> str:
    shown = [
        f"{each.id.hex[:SHORT_ID]} by {each.createdBy}, changed {each.modifiedAt:%Y-%m-%d %H:%M}"
        for each in containers[:_MOST_LISTED]
    ]
    more = len(containers) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "") + "."


CONTAINER: Final = "A container: its name, its id, or four or more first digits of the id."
_ARGUMENT: Final = typer.Argument(
    metavar="CONTAINER", help=CONTAINER, autocompletion=complete_container
)
ContainerArgument = Annotated[str, _ARGUMENT]
ContainersArgument = Annotated[list[str], _ARGUMENT]
AnyContainers = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONTAINER", help=f"{CONTAINER} By default all.", autocompletion=complete_container
    ),
]
Recursive = Annotated[
    bool,
    typer.Option(
        "--recursive",
        "-r",
        help="Take each CONTAINER as a folder, such as photos/: all containers whose names begin with it.",
    ),
]
Everyone = Annotated[
    bool,
    typer.Option(
        "--everyone", help="Also containers that people who are not your contacts can change."
    ),
]
OfType = Annotated[str | None, typer.Option(metavar="TYPE", help="Only containers of this type.")]


CARD_PREFIX: Final = "scbroker-contact:"
_OFFER_SECONDS: Final = 2.0
"""Time limit for reading offers, which only add a hint: the history of an offered group can be long."""
Who: TypeAlias = "scbroker.Contact | scbroker.ContactCard | uuid.UUID"


class Holder(NamedTuple):
    """A person or a group that a command line names, with a name for messages."""

    who: Any
    """A `Who`, or a group: the library verifies a group's whole fingerprint, not an id's."""
    id: uuid.UUID
    name: str

    @property
    def is_group(self) -> bool:
        return isinstance(self.who, scbroker.Group)

    @property
    def title(self) -> str:
        """The name of the group alone; the id if the group cannot be read."""
        return self.who.name if self.is_group else self.name


def holder_of(who: Who | scbroker.Group) -> Holder:
    """Return a person or a group with its name for messages."""
    if isinstance(who, uuid.UUID):
        return Holder(who, who, str(who))
    if isinstance(who, scbroker.Group):
        return Holder(who, who.id, f"the group {who.name!r}")
    return Holder(who, who.userId, contact_in_text(who.name))


def warn(run: Run, people: Sequence[Holder]) -> None:
    """Say how to verify these people, except for verified contacts."""
    for each in people:
        if isinstance(each.who, scbroker.Contact):
            if not each.who.verified:
                run.out.say(
                    f"Warning: {each.name} is not verified, so this may be somebody else's card. Compare "
                    f"fingerprints with `scbroker contacts verify {shlex.quote(each.who.name)}`."
                )
        elif isinstance(each.who, scbroker.ContactCard):
            run.out.say(
                f"Warning: anybody can make a card that says {each.who.name!r}. Add it with `scbroker "
                "contacts add`, and compare fingerprints with `scbroker contacts verify`."
            )
        else:
            run.out.say(
                f"Warning: an id alone does not say who the user {each.id} is. Add the person's card with "
                "`scbroker contacts add`, and compare fingerprints with `scbroker contacts verify`."
            )


def check_others(run: Run, people: Sequence[Holder], what_to_do: str) -> None:
    """Raise `InvalidArgumentError` if the user is one of these people."""
    if any(each.id == run.people.own_id for each in people):
        raise errors.InvalidArgumentError(f"You are the user {run.people.own_id}. {what_to_do}")


class People(people.People):
    """The user's contacts, links and groups, found by what a person types."""

    def __init__(self, session: scbroker.ServerProvider) -> None:
        super().__init__(session)
        self.book: scbroker.Contacts = scbroker.Contacts(session)

    def find(self, text: str) -> Holder:
        """Return the person of a contact's name, a user id or a card's text: the contact, if it is one.

        Raises `NotFoundError`, which suggests similar names, for an unknown name.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            # A link's URL is a secret: the error for a link does not repeat the text.
            card = scbroker.ContactCard.parse(text)
            contact = self.contacts.get(card.userId)
            if contact is not None and contact.fingerprint == card.fingerprint:
                return holder_of(contact)
            return holder_of(card)
        try:
            user_id = uuid.UUID(text)
        except ValueError:
            return holder_of(self.book.get(text).result())
        return holder_of(self.contacts.get(user_id, user_id))

    def find_all(self, texts: Sequence[str]) -> list[Holder]:
        """Return the people of the texts, each once."""
        return list({each.id: each for each in map(self.find, texts)}.values())

    def find_holder(self, text: str) -> Holder:
        """Return the person or the accepted group of a text.

        Raises `InvalidArgumentError` if it means both a contact and a group, `NotFoundError` if neither.
        """
        if text.strip().lower().startswith(CARD_PREFIX) or LINK_MARK.search(text):
            return self.find(text)
        group = self._only(text, self.readable)
        try:
            person = self.find(text)
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

    def find_group_or_id(self, text: str) -> Holder:
        """Return a whole id as it is if no group that can be read has it, else as `find_group`."""
        is_unknown = is_id(text) and uuid.UUID(text) not in self.groups
        return holder_of(uuid.UUID(text) if is_unknown else self.find_group(text))

    def find_offer(self, text: str) -> Holder:
        """Return the offered group that a text means; a whole id as it is. Raises as `find_group`."""
        groups = [
            each for each in self.provider.getGroups().result() if isinstance(each, scbroker.Group)
        ]
        found = self._only(text, [each for each in groups if not each.accepted])
        if found is None and self._only(text, groups) is not None:
            raise errors.InvalidArgumentError(f"You have accepted the group {text!r} already.")
        if found is None and is_id(text):
            return holder_of(uuid.UUID(text))
        if found is None:
            raise errors.NotFoundError(
                f"No group named {text!r} is offered to you, and no id of one begins with it: `scbroker "
                "groups ls` lists your groups."
            )
        return holder_of(found)

    def find_any_group(self, text: str) -> Holder:
        """Return the accepted group that a text means, or else an offered one; raises as `find_group`."""
        found = self._only(text, self.readable)
        return self.find_offer(text) if found is None else holder_of(found)

    def offers(self) -> list[scbroker.Group] | None:
        """Return the offered groups; None if they cannot be read in two seconds."""
        reading = self.provider.getGroups()
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

    def named_with_id(self, user_id: uuid.UUID) -> str:
        """Return the name of a user as `name_of` does, with the id."""
        name = self.name_of(user_id)
        return name if name == str(user_id) else f"{name} ({user_id})"

    def of_level(self, level: scbroker.AccessLevel, *, is_short: bool = False) -> str:
        """Return the name of the holder of an access level, or the id; its first digits if `is_short`."""
        return _label(self.holder(level), is_short=is_short)

    def group_of(self, group_id: uuid.UUID) -> str:
        """Return "group NAME" for a group that the user has accepted, "group ID" for any other."""
        return _label(self.group(group_id))

    def others_of(self, container: Container) -> list[str] | None:
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
