"""Find containers by what a person types: an id, the beginning of one, or a name.

The name of a container is the `name` of its header, as `put` writes it. Slashes in names make a tree.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

import scbroker
from scbroker import errors
from scbroker.cli.output import SHORT_ID

_PREFIX: Final = re.compile(r"[0-9a-fA-F-]{4,36}")
_MOST_LISTED: Final = 10
LINK_MARK: Final = "#scbroker-link:"
"""What the URL of a link contains."""


def name_of(container: scbroker.Container[Any]) -> str | None:
    """Return a container's name in Unicode's NFC; None if its header has none or is hidden."""
    header = container.header and container.header.customHeaderObject
    name = header.get("name") if isinstance(header, dict) else None
    return unicodedata.normalize("NFC", name) if isinstance(name, str) and name else None


def label_of(container: scbroker.Container[Any]) -> str:
    """Return a container's name, or its id, for a message."""
    return name_of(container) or str(container.id)


class Names:
    """The user's containers by id and name, each time as the broker has them."""

    def __init__(self, session: scbroker.BrokerProvider) -> None:
        self._session = session

    def all(
        self, type: str | None = None
    ) -> Iterator[scbroker.Container[Any] | errors.BrokerError]:
        """Yield all containers with their headers, ascending by id, and errors in place of damaged ones."""
        yield from self._session.iterContainers(type)

    def id_of(self, text: str) -> uuid.UUID:
        """Return the id of the container that an id, the beginning of an id or a name means.

        Raises `NotFoundError` if there is none, and `InvalidArgumentError`, which lists them, if there are
        several: which of them is meant is never guessed.
        """
        return self.ids_of([text])[0]

    def ids_of(self, texts: Sequence[str]) -> list[uuid.UUID]:
        """Return the ids that several texts mean, each as by `id_of`; read all containers at most once."""
        ids = [text for text in texts if _PREFIX.fullmatch(text)]
        whole = {text: uuid.UUID(_digits(text)) for text in ids if len(_digits(text)) == 32}
        begun = {text: self._by_prefix(text) for text in ids if text not in whole}
        normal = {text: unicodedata.normalize("NFC", text) for text in texts}
        # A name can look like the beginning of an id, as 2024 does, and others can share a container whose
        # id begins with it: so both are looked for.
        named = self.named({name for text, name in normal.items() if text not in whole})
        return [
            whole.get(text) or _only(text, named[normal[text]], begun.get(text)) for text in texts
        ]

    def container(self, text: str) -> scbroker.Container[Any]:
        """Return the container, without content, that a text means as by `id_of`."""
        [found] = self._session.getContainers([self.id_of(text)], content=False).result()
        if isinstance(found, errors.BrokerError):
            raise type(found)(f"{text}: {found.message}")
        return found

    def named(self, names: Collection[str]) -> Mapping[str, list[scbroker.Container[Any]]]:
        """Return the containers of each of these names, which are in NFC; none for a name that none has."""
        found: dict[str, list[scbroker.Container[Any]]] = {name: [] for name in names}
        for container in self._matching(lambda name: name != "" and name in found) if found else ():
            found[name_of(container) or ""].append(container)
        return found

    def below(self, folder: str) -> list[scbroker.Container[Any]]:
        """Return the containers whose names begin with a folder, such as "photos/".

        Raises `NotFoundError` without any.
        """
        beginning = unicodedata.normalize("NFC", folder).rstrip("/") + "/"
        found = self._matching(lambda name: name.startswith(beginning))
        if not found:
            raise errors.NotFoundError(
                f"You have no container whose name begins with {beginning!r}: `scbroker ls` lists them."
            )
        return found

    def _by_prefix(self, text: str) -> uuid.UUID | None:
        digits = _digits(text)
        if not 4 <= len(digits) < 32:
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
                f"Several ids begin with {text}, such as {found[0]} and {found[1]}: type more of it."
            )
        return found[0] if found else None

    def _matching(self, matches: Callable[[str], bool]) -> list[scbroker.Container[Any]]:
        containers = (each for each in self.all() if isinstance(each, scbroker.Container))
        return [each for each in containers if matches(name_of(each) or "")]


def _digits(text: str) -> str:
    return text.replace("-", "").lower()


def _only(text: str, named: list[scbroker.Container[Any]], begun: uuid.UUID | None) -> uuid.UUID:
    """Return the one container that has a text as its name, or that has an id which begins with it."""
    if begun is not None:
        if others := [each for each in named if each.id != begun]:
            raise errors.InvalidArgumentError(
                f"The id {begun} begins with {text!r}, and other containers have it as their name: use a "
                f"whole id. {_listed(others)}"
            )
        return begun
    if not named:
        if LINK_MARK in text:  # a secret, which no message repeats
            raise errors.InvalidArgumentError(
                "This is a link, not a container: `scbroker open` opens it."
            )
        raise errors.NotFoundError(
            f"You have no container named {text!r}, and no id begins with it: `scbroker ls` lists them."
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


def complete_container(ctx: Any, incomplete: str) -> list[str]:
    """Return the names that complete a word on the command line; nothing if they cannot be read."""
    from scbroker.cli.completion import candidates
    from scbroker.cli.output import Output
    from scbroker.cli.run import Run

    def read() -> Iterator[str]:
        with Run(ctx.params.get("profile"), Output(as_json=False, quiet=True)) as run:
            for each in run.names.all():
                yield (name_of(each) if isinstance(each, scbroker.Container) else None) or ""

    return candidates(incomplete, read)


def complete_folder(ctx: Any, incomplete: str) -> list[str]:
    """Return the beginnings of names, up to a slash, that complete a word on the command line."""
    found = set()
    for name in complete_container(ctx, incomplete):
        rest = name[len(incomplete) :]
        if "/" in rest:
            found.add(incomplete + rest[: rest.index("/") + 1])
    return sorted(found)


ContainerArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONTAINER",
        help="A container: its name, its id, or four or more first digits of the id.",
        autocompletion=complete_container,
    ),
]
ContainersArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CONTAINER",
        help="Containers: their names, their ids, or four or more first digits of the ids.",
        autocompletion=complete_container,
    ),
]
