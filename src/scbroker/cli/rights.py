"""Read permissions from the options of a command."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scbroker import errors
from scbroker.desk.rights import WORDS, listed
from scbroker.vocabulary import ContainerAccessLevel

_RIGHTS: Final = {(each.name or "").lower(): each for each in ContainerAccessLevel}
_NAMES: Final = ", ".join(each.name or "" for each in ContainerAccessLevel)

Can = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(WORDS),
        help="What the people can do. read: see content, name, members and type. write: also replace content "
        "and name. manage: also share, and change the type. owner: also delete, and get an event when "
        "somebody reads. By default read.",
    ),
]
Rights = Annotated[
    str | None,
    typer.Option(
        "--rights",
        metavar="RIGHT,...",
        help=f"The exact permissions in place of --can: one or more of {_NAMES}.",
    ),
]


def permissions_of(can: str | None, rights: str | None) -> ContainerAccessLevel | None:
    """Return the permissions that --can or --rights names; None without either.

    Raises `InvalidArgumentError` for unknown words, and for permissions that cannot be given together.
    """
    if can is not None and rights is not None:
        raise errors.InvalidArgumentError(
            "--can and --rights exclude each other: pass one of them."
        )
    if can is not None:
        return _named("--can", can, WORDS)
    if rights is None:
        return None
    found = ContainerAccessLevel(0)
    for each in rights.split(","):
        found |= _named("--rights", each.strip(), _RIGHTS)
    if missing := found.missing():
        raise errors.InvalidArgumentError(
            f"--rights {rights} also needs {listed(missing)}: pass all of them."
        )
    return found


def _named(option: str, name: str, known: dict[str, ContainerAccessLevel]) -> ContainerAccessLevel:
    found = known.get(name.lower())
    if found is None:
        names = ", ".join(WORDS) if known is WORDS else _NAMES
        raise errors.InvalidArgumentError(f"{option} cannot be {name!r}: pass one of {names}.")
    return found
