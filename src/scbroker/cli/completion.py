"""Complete names of containers, people, groups and profiles on a command line, by Typer's scripts for shells.

Other users choose these names, and Typer's scripts have the shell evaluate some of them: the one for zsh runs
what a name such as `x\\$(rm *)` contains. So names with characters that a shell interprets are not offered.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from scbroker import errors

if TYPE_CHECKING:
    from scbroker.cli.run import Run

_SECONDS: Final = 2.0
"""Time limit for reading names from the broker; at its end those read so far are offered."""
_MOST: Final = 1000
_PLAIN: Final = re.compile(r"[\w./+,][\w ./+,-]*")


def _names(ctx: Any, incomplete: str, read: Callable[[Run], Iterable[str]]) -> list[str]:
    """Return the names that begin with a word and were read in two seconds, or before a failure."""
    import scbroker
    from scbroker.cli.output import Output
    from scbroker.cli.run import Run

    _ = scbroker.ServerProvider  # imported here, or the import would take up the time limit
    found: list[str] = []

    def collect() -> None:
        with (
            contextlib.suppress(Exception),  # an error must not print into the command line
            Run(ctx.params.get("profile"), Output(as_json=False, quiet=True)) as run,
        ):
            for each in read(run):
                if each.startswith(incomplete) and _PLAIN.fullmatch(each):
                    found.append(each)
                if len(found) == _MOST:
                    return

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    reader.join(_SECONDS)
    names = sorted(set(found))
    if os.environ.get("_SCBROKER_COMPLETE") == "complete_bash":  # bash does not escape spaces
        return [each.replace(" ", "\\ ") for each in names]
    return names


def complete_container(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of containers that complete a word on the command line."""
    from scbroker.desk.names import names_by_id

    return _names(ctx, incomplete, lambda run: (name for _, name in names_by_id(run.session)))


def complete_folder(ctx: Any, incomplete: str) -> list[str]:
    """Return the folders in containers' names, up to a slash, that complete a word."""
    at = len(incomplete)
    names = complete_container(ctx, incomplete)
    return sorted({each[: each.index("/", at) + 1] for each in names if "/" in each[at:]})


def _people(run: Run) -> Iterable[str]:
    return (each.name for each in run.people.book.list().result())


def _groups(run: Run) -> Iterable[str]:
    return (each.name for each in run.people.readable)


def _offers(run: Run) -> Iterable[str]:
    return (each.name for each in run.people.offers() or [])


def _completing(*lists: Callable[[Run], Iterable[str]]) -> Callable[[Any, str], list[str]]:
    """Return a completion function for typer: it offers the names of these lists that begin with the word."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        return _names(ctx, incomplete, lambda run: chain.from_iterable(e(run) for e in lists))

    return complete


complete_person: Final = _completing(_people)
complete_group: Final = _completing(_groups)
complete_holder: Final = _completing(_people, _groups)
complete_offer: Final = _completing(_offers)


def complete_profile(incomplete: str) -> list[str]:
    from scbroker.cli import profiles

    try:
        return [each for each in profiles.read().profiles if each.startswith(incomplete)]
    except errors.BrokerError:
        return []
