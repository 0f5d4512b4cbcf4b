"""Find containers by what a person types: an id, the beginning of one, or a name.

The name of a container is the `name` of its header, as `put` writes it. Slashes in names make a tree.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

import scbroker
from scbroker import errors
from scbroker.cli.completion import complete_container
from scbroker.cli.output import SHORT_ID
from scbroker.desk import names as desk
from scbroker.desk.names import LONGEST_NAME, name_of
from scbroker.desk.people import PREFIX
from scbroker.desk.strangers import Strangers, newest_twin, text_of_twins
from scbroker.spelling import without_invisible

_MOST_LISTED: Final = 10
LINK_MARK: Final = re.compile("scbroker-link(:|%3a)", re.IGNORECASE)
"""A part that the URL of every link contains, after a #. Some programs encode both signs."""


def label_of(container: scbroker.Container[Any]) -> str:
    """Return a container's name, or its id, for a message."""
    name = name_of(container) or str(container.id)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


class Names:
    """The user's containers by id and name. Each call reads their present state."""

    def __init__(
        self,
        session: scbroker.BrokerProvider,
        failed: Callable[[str, errors.BrokerError], None],
        warn: Callable[[str], None],
    ) -> None:
        self._session, self._failed, self._warn = session, failed, warn
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
            kept = found if len(found) < 2 else Strangers(self._session).left_among(found)
            if left_out := len(found) - len(kept):
                self._warn(
                    f"{left_out} more of your containers are named {name!r}, and are left out: people who "
                    "are not your contacts can change them, or have named them."
                )
            named[name] = self.without_twins(name, kept) if newest else kept
        return [_only(text, ids.get(text), named.get(names.get(text, ""), [])) for text in texts]

    def without_twins(
        self, name: str, found: list[scbroker.Container[Any]]
    ) -> list[scbroker.Container[Any]]:
        """Return only the newest, with a warning, if the user alone can have named them all; else all."""
        if (
            len(found) < 2
            or (one := newest_twin(found, self._session.getUserId().result())) is None
        ):
            return found
        self._warn(text_of_twins(name, one.id, {each.id for each in found} - {one.id}))
        return [one]

    def _named_like(self, name: str) -> list[scbroker.Container[Any]]:
        """Return the containers whose name differs from this one in invisible characters alone."""
        seen = without_invisible(name)
        found = desk.containers_whose_name(
            self._session, lambda each: without_invisible(each) == seen
        )
        return [each for each in found if isinstance(each, scbroker.Container)]

    def container(self, text: str, *, newest: bool = False) -> scbroker.Container[Any]:
        """Return the container that `ids_of` finds for a text, without its content."""
        [found] = desk.containers_of(self._session, self.ids_of([text], newest=newest))
        if isinstance(found, errors.BrokerError):
            raise type(found)(f"{text}: {found.message}")
        return found

    def named(self, names: Collection[str]) -> Mapping[str, list[scbroker.Container[Any]]]:
        """Return the containers of each of these names, which are in NFC; none for a name that none has.

        Warn of damaged containers: each could have one of the names.
        """
        found, damaged = desk.containers_named(self._session, names)
        if damaged:
            self._warn(
                f"{len(damaged)} of your containers cannot be read, such as {damaged[0]}, so their names are "
                "not known: `scbroker ls` lists them."
            )
        return found

    def below(
        self, folder: str, known: Collection[uuid.UUID] = ()
    ) -> list[scbroker.Container[Any]]:
        """Return the containers whose names begin with a folder, such as "photos/".

        A damaged container is reported as a failure, once for each command, because it could be one of the
        folder; but not if strangers can have damaged it. People in `known` are no strangers.

        Raises `NotFoundError` if none exists.
        """
        beginning = unicodedata.normalize("NFC", folder).rstrip("/") + "/"
        found, damaged = [], []
        for each in desk.containers_whose_name(
            self._session, lambda name: name.startswith(beginning)
        ):
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
        if theirs := Strangers(self._session, known).damaged(ids):
            id, example = next(iter(theirs.items()))
            is_own = example.createdBy == self._session.getUserId().result()
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


def _only(text: str, id: uuid.UUID | None, named: list[scbroker.Container[Any]]) -> uuid.UUID:
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


def _listed(containers: list[scbroker.Container[Any]]) -> str:
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
