"""Apply what a caller wants to change about a group to the roster in force.

Another manager may change the group at the same time. The intents then apply to the new roster; if the other
manager has changed the same member, managers or texts, the caller decides. Spec: docs/spec/groups.md, 8.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scbroker import errors
from scbroker.client.core.roster_making import Texts
from scbroker.client.groups.opening import OpenGroup
from scbroker.records.canonical import user_id_of
from scbroker.records.container_record import Entry
from scbroker.records.roster import Member
from scbroker.vocabulary import GroupRole


class Wish(NamedTuple):
    """A user to become a member or a manager."""

    value: int
    """The role of a member, or the permissions of a manager."""
    fingerprint: bytes | None = None
    """That of the user, if the caller gave it: their keys must have it."""


@dataclass(frozen=True, slots=True, repr=False)
class Intents:
    """Changes of members, managers and texts. An intent that is fulfilled already changes nothing."""

    add: Mapping[uuid.UUID, Wish] = field(default_factory=dict)
    remove: frozenset[uuid.UUID] = frozenset()
    roles: Mapping[uuid.UUID, int] = field(default_factory=dict)
    managers: Mapping[uuid.UUID, Wish] | None = None
    """The whole list, with its permissions; None to leave it."""
    name: str | None = None
    description: str | None = None
    new_epoch: bool = False
    """Whether the group's key is replaced in any case."""
    only_author: bool = False
    """Whether everybody but the author loses the group, which is deleted next."""

    @property
    def replaces_texts(self) -> bool:
        """Return whether nothing of the info before is needed."""
        return self.name is not None and self.description is not None

    def texts(self, group: OpenGroup) -> Texts:
        info = group.info
        return Texts(
            info.name if self.name is None else self.name,
            info.description if self.description is None else self.description,
        )

    def check_known(self, group: OpenGroup) -> None:
        """Check the first reading: raise for a user who cannot be added, or whose role cannot be changed."""
        present = members_of(group)
        for user, wish in self.add.items():
            if user in present and present[user].role != wish.value:
                raise errors.InvalidArgumentError(
                    f"User {user} is a member already, as {GroupRole(present[user].role).name}: change the "
                    "role with setGroupRoles."
                )
        for user in self.roles:
            if user not in present:
                raise errors.NotFoundError(
                    f"User {user} is not a member of the group: call addGroupMembers."
                )

    def check_allowed(self, group: OpenGroup) -> None:
        """Raise `PermissionDeniedError` for a change that the caller may not make."""
        if not group.is_manager:
            raise errors.PermissionDeniedError(
                "You are not a manager of this group: ask one of its managers."
            )
        if group.is_owner:
            return
        listed = set(managers_of(group))
        if self.managers is not None or self.only_author:
            raise errors.PermissionDeniedError(
                "You are not an owner of this group: ask one of its owners."
            )
        if removed := listed & self.remove:
            raise errors.PermissionDeniedError(
                f"User {min(removed)} is a manager of the group: only an owner can remove a manager."
            )

    def check_no_conflict(self, first: OpenGroup, latest: OpenGroup) -> None:
        """Raise `ConflictError` if another manager has changed what these intents change too."""
        before, after = members_of(first), members_of(latest)
        for user in (*self.add, *self.remove, *self.roles):
            if _role(before, user) != _role(after, user) and not self._is_fulfilled(user, after):
                raise errors.ConflictError(
                    f"Another manager changed the membership of user {user} meanwhile: read the group again."
                )
        listed, now_listed = managers_of(first), managers_of(latest)
        if self.managers is not None and _permissions(listed) != _permissions(now_listed):
            wanted = {user: wish.value for user, wish in self.managers.items()}
            if _permissions(now_listed) != wanted:
                raise errors.ConflictError(
                    "Another owner changed the managers meanwhile: read the group again."
                )
        for what, text, read in _TEXTS:
            wanted_text = text(self)
            if wanted_text is not None and read(first) != read(latest) != wanted_text:
                raise errors.ConflictError(
                    f"Another manager changed the {what} meanwhile: read the group again."
                )

    def _is_fulfilled(self, user: uuid.UUID, members: Mapping[uuid.UUID, Member]) -> bool:
        role = _role(members, user)
        if user in self.add:
            return role == self.add[user].value
        return role is None if user in self.remove else role == self.roles.get(user)


_TEXTS: tuple[tuple[str, Callable[[Intents], str | None], Callable[[OpenGroup], str]], ...] = (
    ("name", lambda intents: intents.name, lambda group: group.info.name),
    ("description", lambda intents: intents.description, lambda group: group.info.description),
)


def members_of(group: OpenGroup) -> dict[uuid.UUID, Member]:
    """Return the members by user id, without users who have left."""
    return {
        user_id_of(name): member for name, member in group.members.items() if name not in group.left
    }


def managers_of(group: OpenGroup) -> dict[uuid.UUID, Entry]:
    """Return the entries of the managers by user id, also of those who have left."""
    return {user_id_of(name): entry for name, entry in group.chain.managers.items()}


def _role(members: Mapping[uuid.UUID, Member], user: uuid.UUID) -> int | None:
    member = members.get(user)
    return None if member is None else member.role


def _permissions(entries: Mapping[uuid.UUID, Entry]) -> dict[uuid.UUID, int]:
    return {user: entry.permissions for user, entry in entries.items()}
