"""Say permissions in words, such as "write"."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any, Final

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker.vocabulary import AccessLevel, ContainerAccessLevel, GroupRole

READ: Final = ContainerAccessLevel.DefaultUserPermissions
_WRITE: Final = READ | ContainerAccessLevel.Upload
WORDS: Final = {
    "read": READ,
    "write": _WRITE,
    "manage": _WRITE | ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.ModifyType,
    "owner": ContainerAccessLevel.DefaultOwnerPermissions,
}
MEANINGS: Final = {
    "read": "see content, name, members and type",
    "write": "read, and replace content and name",
    "manage": "write, share, and change the type",
    "owner": "manage, delete, and get an event when somebody reads",
}
ROLES: Final = {
    "reader": "read the containers of the group",
    "writer": "read the containers of the group, and replace content and name",
    "sharer": "read and change the containers of the group, share and delete them",
}
PLACES: Final = {
    "member": "manages nothing",
    "manager": "adds and removes members, changes their roles, and renames the group",
    "owner": "also changes the managers, and deletes the group",
}
_OF_ROLES: Final = {each.name.lower(): each.permissions for each in GroupRole}
"""What a role allows if the group itself has every permission."""
SHARE: Final = ContainerAccessLevel.ModifyAccess
WRITE: Final = ContainerAccessLevel.Upload


@functools.cache  # thousands of containers share a few permissions
def in_words(permissions: ContainerAccessLevel) -> str:
    """Return the word for permissions, that of a role in a group, or their names with commas."""
    words = (word for word, each in (WORDS | _OF_ROLES).items() if each == permissions)
    return next(words, listed(permissions))


def explained(meanings: Mapping[str, str]) -> str:
    """Return words with their meanings, for the help of an option."""
    return " ".join(f"{word}: {meaning}." for word, meaning in meanings.items())


def listed(permissions: ContainerAccessLevel) -> str:
    """Return the names of permissions with commas."""
    return ",".join(each.name or "" for each in permissions)


def living(container: scbroker.Container[Any]) -> list[AccessLevel]:
    """Return the entries of a container's access list that have not ended; none if the list is hidden."""
    now = dt.datetime.now(dt.UTC)
    levels = container.access or ()
    return [each for each in levels if each.expiresAt is None or each.expiresAt > now]
