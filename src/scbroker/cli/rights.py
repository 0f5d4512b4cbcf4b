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
        metavar="|".join([*WORDS, "RIGHT,..."]),
        help="What the people can do. read: see content, name, members and type. write: also replace content "
        "and name. manage: also share, and change the type. owner: also delete, and get an event when "
        f"somebody reads. Or the exact permissions: one or more of {_NAMES}. By default read.",
    ),
]


def permissions_of(can: str | None) -> ContainerAccessLevel | None:
    """Return the permissions that --can names, by a word or one by one; None without it.

    Raises `InvalidArgumentError` for unknown words, and for permissions that cannot be given together.
    """
    if can is None:
        return None
    if can.lower() in WORDS:
        return WORDS[can.lower()]
    found = ContainerAccessLevel(0)
    for each in can.split(","):
        right = _RIGHTS.get(each.strip().lower())
        if right is None:
            raise errors.InvalidArgumentError(
                f"--can cannot be {each.strip()!r}: pass one of {', '.join(WORDS)}, or some of {_NAMES}."
            )
        found |= right
    if missing := found.missing():
        raise errors.InvalidArgumentError(
            f"--can {can} also needs {listed(missing)}: pass all of them."
        )
    return found
