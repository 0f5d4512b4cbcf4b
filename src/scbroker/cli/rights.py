"""Say permissions in words, such as "write", and read them from the options of a command."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, GroupRole

if TYPE_CHECKING:
    from scbroker.cli.run import Run

READ: Final = ContainerAccessLevel.DefaultUserPermissions
_WRITE: Final = READ | ContainerAccessLevel.Upload
WORDS: Final = {
    "read": READ,
    "write": _WRITE,
    "manage": _WRITE | ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.ModifyType,
    "owner": ContainerAccessLevel.DefaultOwnerPermissions,
}
_OF_ROLES: Final = {each.name.lower(): each.permissions for each in GroupRole}
"""What a role allows if the group itself has every permission."""
SHARE: Final = ContainerAccessLevel.ModifyAccess
WRITE: Final = ContainerAccessLevel.Upload
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
            f"--rights {rights} also needs {_listed(missing)}: pass all of them."
        )
    return found


@functools.cache  # a list has the same few for thousands of containers
def in_words(permissions: ContainerAccessLevel) -> str:
    """Return the word of --can for permissions, that of a role in a group, or their names with commas."""
    words = (word for word, each in (WORDS | _OF_ROLES).items() if each == permissions)
    return next(words, _listed(permissions))


def living(container: scbroker.Container[Any]) -> list[AccessLevel]:
    """Return the entries of a container's access list that have not ended; none if the list is hidden."""
    now = dt.datetime.now(dt.UTC)
    levels = container.access or ()
    return [each for each in levels if each.expiresAt is None or each.expiresAt > now]


def ways_of(run: Run, container: scbroker.Container[Any]) -> Iterator[AccessLevel]:
    """Yield what the user may do with a container: by an entry of their own, then through each group.

    Through a group, the user may do what both the group's entry and the user's role allow. Without ViewAccess
    this yields nothing, because the list of members is hidden.
    """
    levels = living(container)
    yield from (each for each in levels if each.userId == run.people.own_id)
    for each in levels:
        if (group := run.people.groups.known(each.userId)) is not None:
            allowed = each.permissions & group.role.permissions
            yield AccessLevel(group, allowed, each.expiresAt)


def own_rights(run: Run, container: scbroker.Container[Any]) -> ContainerAccessLevel | None:
    """Return all that the user may do with a container, alone or through groups; None without ViewAccess."""
    found = ContainerAccessLevel(0)
    for each in ways_of(run, container):
        found |= each.permissions
    return found or None


def _named(option: str, name: str, known: dict[str, ContainerAccessLevel]) -> ContainerAccessLevel:
    found = known.get(name.lower())
    if found is None:
        names = ", ".join(WORDS) if known is WORDS else _NAMES
        raise errors.InvalidArgumentError(f"{option} cannot be {name!r}: pass one of {names}.")
    return found


def _listed(permissions: ContainerAccessLevel) -> str:
    return ",".join(each.name or "" for each in permissions)
