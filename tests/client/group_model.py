"""A model of groups and of the containers that they reach, with which tests compare every run.

The model does no I/O. Users and groups are numbers here. Spec: docs/spec/groups.md, sections 3, 6, 8 to 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from scbroker import BrokerError, ContainerAccessLevel, GroupRole

Level = ContainerAccessLevel
Refusals = tuple[type[BrokerError], ...]
Kind = Literal[
    "add", "remove", "role", "managers", "rename", "renew", "delete", "accept", "decline", "leave"
]
ALLOWED: Final[Refusals] = ()
GONE: Final[Refusals] = (BrokerError.deletedError, BrokerError.notFoundError)
UNKNOWN: Final[Refusals] = (BrokerError.notFoundError,)
DENIED: Final[Refusals] = (BrokerError.permissionDeniedError,)
INVALID: Final[Refusals] = (BrokerError.invalidArgumentError,)
OWNER: Final = Level.DefaultOwnerPermissions
READER: Final = Level.Download | Level.Decrypt | Level.ViewAccess
WRITER: Final = READER | Level.Upload
_OF_ROLE: Final = {
    GroupRole.Reader: READER | Level.ViewType | Level.ReceiveAccessEvents,
    GroupRole.Writer: WRITER | Level.ViewType | Level.ReceiveAccessEvents | Level.ModifyType,
    GroupRole.Sharer: OWNER,
}


@dataclass(frozen=True)
class Change:
    """The change that one operation makes to a group."""

    kind: Kind
    user: int = -1
    role: GroupRole = GroupRole.Writer
    managers: Mapping[int, bool] = field(default_factory=dict)
    """Whether each is an owner."""
    name: str = ""
    abandon: bool = False

    def is_invalid_for(self, actor: int) -> bool:
        """Whether the client refuses the arguments before it sends anything, whatever the group's state."""
        if self.kind == "managers":
            return not any(self.managers.values())
        return self.kind == "remove" and self.user == actor


@dataclass(frozen=True)
class Team:
    """A group at one moment."""

    name: str
    roles: Mapping[int, GroupRole]
    """The roles of all leaves, also those of managers who have left."""
    managers: Mapping[int, bool]
    accepted: frozenset[int]
    left: frozenset[int] = frozenset()
    owed: bool = False
    """Whether somebody has left who knows the secret of the epoch."""
    epoch: int = 0
    deleted: bool = False

    @property
    def members(self) -> Mapping[int, GroupRole]:
        if self.deleted:
            return {}
        return {user: role for user, role in self.roles.items() if user not in self.left}

    def role_of(self, user: int) -> GroupRole | None:
        """The role by which a user reaches the group's containers."""
        return self.members.get(user) if user in self.accepted else None

    def after(self, actor: int, change: Change) -> tuple[Refusals, Team]:
        """Return the errors that the actor may get, none if the change is allowed, and the group after it."""
        if change.is_invalid_for(actor):
            return INVALID, self
        if self.deleted:
            return GONE, self
        if actor not in self.members:
            return UNKNOWN, self
        if change.kind == "accept":
            return ALLOWED, replace(self, accepted=self.accepted | {actor})
        if change.kind in ("leave", "decline"):
            return self._without(actor, change)
        refused = self._refusal(actor, change)
        if refused:
            return refused, self
        if change.kind == "delete":
            return ALLOWED, replace(self.alone(actor), deleted=True)
        # A reader who manages the group replaces its key, and cannot give its containers new ones.
        is_half = change.kind == "renew" and self.members[actor] is GroupRole.Reader
        return DENIED if is_half else ALLOWED, self._changed(actor, change)

    def alone(self, actor: int) -> Team:
        """The group between the two records of its deletion."""
        return replace(
            self, roles={actor: self.roles[actor]}, managers={actor: True}, left=frozenset(),
            accepted=self.accepted & {actor}, owed=False, epoch=self.epoch + 1,
        )  # fmt: skip

    def _without(self, actor: int, change: Change) -> tuple[Refusals, Team]:
        if change.kind == "decline" and actor in self.accepted:
            return INVALID, self
        others = self.members.keys() - {actor}
        abandon = change.abandon or change.kind == "decline"
        is_last_owner = self.managers.get(actor) and not any(self.managers.get(u) for u in others)
        if not others or (is_last_owner and not abandon):
            return INVALID, self
        return ALLOWED, replace(
            self, left=self.left | {actor}, accepted=self.accepted - {actor}, owed=True
        )

    def _refusal(self, actor: int, change: Change) -> Refusals:
        """The errors that a manager may get for a change."""
        if actor not in self.managers:
            return DENIED
        removes_manager = change.kind == "remove" and change.user in self.managers
        if not self.managers[actor] and (removes_manager or change.kind in ("managers", "delete")):
            return DENIED
        present = self.members.get(change.user)
        if change.kind == "add" and present not in (None, change.role):
            return INVALID
        if change.kind == "role" and present is None:
            return UNKNOWN
        return ALLOWED

    def _changed(self, actor: int, change: Change) -> Team:
        """The group after an act of a manager, with the next epoch where section 3.5 demands it."""
        removed = {change.user} if change.kind == "remove" else set[int]()
        managers = self.managers
        if change.kind == "managers":
            managers = change.managers
        elif self.managers[actor]:
            managers = {u: o for u, o in managers.items() if u not in self.left | removed}
        named = set(change.managers) if change.kind == "managers" else set[int]()
        added = {change.user: change.role} if change.kind == "add" else dict[int, GroupRole]()
        stays = {u for u in self.left if u in managers and u not in named | added.keys()}
        roles = {
            u: role
            for u, role in self.roles.items()
            if (u in stays if u in self.left else u not in removed)
        }
        if change.kind == "role":
            roles[change.user] = change.role
        new = {
            u: r
            for u, r in {**dict.fromkeys(named, GroupRole.Writer), **added}.items()
            if u not in roles
        }
        dropped = self.roles.keys() - roles.keys()
        falls = any(roles[u] < self.roles[u] for u in roles)
        rises = self.owed or bool(dropped) or falls or change.kind == "renew"
        name = change.name if change.kind == "rename" else self.name
        accepted = self.accepted & roles.keys()
        return replace(
            self, name=name, roles={**roles, **new}, managers=managers, left=frozenset(stays),
            accepted=accepted, owed=False if rises else self.owed, epoch=self.epoch + rises,
        )  # fmt: skip


@dataclass(frozen=True)
class Box:
    """A container: who has access, alone or through groups, and its content."""

    users: Mapping[int, Level]
    groups: Mapping[int, Level]
    content: bytes

    def levels(self, user: int, teams: Mapping[int, Team]) -> list[Level]:
        """What the user may do by each entry; first by their own."""
        found = [self.users[user]] if user in self.users else []
        for number, level in self.groups.items():
            role = teams[number].role_of(user)
            if role is not None:
                found.append(level & _OF_ROLE[role])
        return found

    def refusal(self, user: int, needed: Level, teams: Mapping[int, Team]) -> Refusals:
        """The errors that a user may get; they may act by any of their entries."""
        levels = self.levels(user, teams)
        if not levels:
            return UNKNOWN
        return ALLOWED if any(needed & ~level == Level(0) for level in levels) else DENIED
