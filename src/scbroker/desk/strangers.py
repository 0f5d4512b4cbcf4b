"""Decide which containers are left out when a command works on many, because strangers can change them.

Everybody who can change the container counts, not only its creator: a member with Upload can replace the
content and the name, and with the name the folder. Everybody is a stranger but the user's contacts, people
whom a command names, and members of groups that the user has accepted and that the user or a contact has
made.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import scbroker
from scbroker import errors
from scbroker.desk.paths import is_hidden, relative_path, without_marks

Container: TypeAlias = "scbroker.Container[Any]"
_UNKNOWN = uuid.UUID(int=0)


class Strangers:
    """The people whom a session's user does not know. Contacts and groups are read once, when needed."""

    def __init__(
        self, provider: scbroker.BrokerProvider, known: Collection[uuid.UUID] = ()
    ) -> None:
        self._provider, self._named = provider, known
        self._members: dict[uuid.UUID, set[uuid.UUID]] = {}

    def may_change(self, container: Container) -> bool:
        """Return whether a stranger can change a container, or has made or changed its present version.

        They are taken for able if the user may not see the members. Every command with `--recursive`, a
        mirror and a filesystem leave such a container out, unless the user wants those of everyone.
        """
        others = _authors(container) - {self._own}
        if not others or not (others := others - self._known):
            return False
        groups = self._groups & {each.userId for each in container.access or ()}
        return bool(others.difference(*map(self._in, groups)))

    def path_of(self, container: Container, name: str, *, alone: bool = False) -> PurePosixPath:
        """Return the relative path of the file for a content; the last part of the name if it is `alone`.

        Raises `InvalidArgumentError` for a name that no file gets, and for that of a hidden file that is
        alone, or unless nobody but the user can change the container. Invisible characters in a stranger's
        name are escaped.
        """
        escaped = without_marks(name)
        path = relative_path(escaped if escaped != name and self.may_change(container) else name)
        path = PurePosixPath(path.name) if alone else path
        if (alone and is_hidden(path)) or self.hide(container, str(path)):
            raise errors.InvalidArgumentError(
                f"The name {name!r} would make a hidden file: choose another name."
            )
        return path

    def left_among(self, named: Sequence[Container]) -> list[Container]:
        """Return those of several containers with one name that strangers have neither made nor named.

        Return all of them if strangers can change each, and the user has not made and named one.
        """
        kept = [each for each in named if is_own(each, self._own) or not self.may_change(each)]
        return kept or list(named)

    def damaged(self, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Container]:
        """Return the containers, out of some with damaged headers, that strangers can have damaged."""
        if not ids:
            return {}
        found = self._provider.getContainers(ids, content=False, headers=False).result()
        return {
            each.id: each
            for each in found
            if isinstance(each, scbroker.Container) and self.may_change(each)
        }

    def hide(self, container: Container, name: str) -> bool:
        """Return whether to leave out a hidden file, because others than the user made or can change it."""
        return is_hidden(PurePosixPath(name)) and _authors(container) != {self._own}

    @cached_property
    def _own(self) -> uuid.UUID:
        return self._provider.getUserId().result()

    @cached_property
    def _contacts(self) -> set[uuid.UUID]:
        try:
            contacts = scbroker.Contacts(self._provider).list().result()
        except errors.PermissionDeniedError:  # a link's user has no address book
            return set()
        return {each.userId for each in contacts}

    @cached_property
    def _known(self) -> set[uuid.UUID]:
        return {*self._named, *self._groups, *self._contacts}

    @cached_property
    def _groups(self) -> set[uuid.UUID]:
        """The groups that the user has accepted, and that the user or a contact has made.

        Acceptance alone does not count: the broker could invent it, and strangers can offer groups.
        """
        try:
            found = self._provider.getGroups(offered=False).result()
        except errors.PermissionDeniedError:
            return set()
        makers = {self._own, *self._contacts}
        return {
            each.id
            for each in found
            if isinstance(each, scbroker.Group) and each.createdBy in makers
        }

    def _in(self, group: uuid.UUID) -> set[uuid.UUID]:
        """Return the members of a group; none if the user has left it meanwhile, or if a cache lacks it."""
        if group not in self._members:
            try:
                members = self._provider.getGroupMembers(group).result()
            except (errors.NotFoundError, errors.OfflineError):
                members = []
            self._members[group] = {each.userId for each in members}
        return self._members[group]


def others_can_change(container: scbroker.Metadata, user: uuid.UUID) -> bool:
    """Return whether others than this user can change a container now, or have created or named it."""
    named_by = container.headerBy if isinstance(container, scbroker.Container) else None
    return {*_writers(container), named_by or user} != {user}


def newest_twin(named: Sequence[Container], user: uuid.UUID) -> Container | None:
    """Return the newest of several containers with one name; None if others can have named any of them.

    Programs that create a name at once make a container each.
    """
    if len(named) < 2 or any(others_can_change(each, user) for each in named):
        return None
    return max(named, key=lambda each: (each.modifiedAt, each.id))


def text_of_twins(name: str, newest: uuid.UUID, others: Collection[uuid.UUID]) -> str:
    """Return the warning that the newest of several containers with one name is used."""
    return (
        f"{len(others) + 1} of your containers are named {name!r}. The newest is used, {newest}: rename or "
        f"delete the others, as by `scbroker rm {min(others)}`."
    )


def is_renamed(container: Container, user: uuid.UUID) -> bool:
    """Return whether a member has named a container that neither they nor this user have made.

    By a name such a member puts it into a folder whose containers the user gives to them, or to others.
    """
    return container.headerBy not in (None, user, container.createdBy)


def is_own(container: Container, user: uuid.UUID) -> bool:
    """Return whether this user has made a container and given it its name, as a member with Upload may."""
    return container.createdBy == user and container.headerBy in (None, user)


def _writers(container: scbroker.Metadata) -> set[uuid.UUID]:
    """Return the creator, and the users and groups that can change name and content; `_UNKNOWN` if hidden."""
    if container.access is None:
        return {container.createdBy, _UNKNOWN}
    upload = scbroker.ContainerAccessLevel.Upload
    writers = {each.userId for each in container.access if each.permissions & upload}
    return {container.createdBy, *writers}


def _authors(container: Container) -> set[uuid.UUID]:
    """Return all who can change a container, or have made its present version, name or content.

    Not by `modifiedBy` alone: after the user has ended a member's access, the newest version is the user's,
    and the name and content may still be the member's.
    """
    found = {container.modifiedBy, container.contentBy, container.headerBy, *_writers(container)}
    return {each for each in found if each is not None}
