"""Plan the next roster of a group: who is in it, whether it begins an epoch, and who gets the secret.

Another manager may change the group at the same time. The caller's changes then apply to the new roster; if
the other manager has changed the same member, managers or texts, the caller gets a `ConflictError` and
decides.
Spec: docs/spec/groups.md, 3.5 and 8.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from scbroker import errors
from scbroker.client.core.group_records import Seat, Texts
from scbroker.client.core.sealing import Recipient, recipient_of
from scbroker.client.groups.opening import OpenGroup
from scbroker.client.users.session import Session
from scbroker.records import roster
from scbroker.records.canonical import user_id_of
from scbroker.records.judge import Grant
from scbroker.records.roster import Info
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
    """True if the group's key is replaced in any case."""
    only_author: bool = False
    """True if everybody but the author loses the group, which is deleted next."""

    def texts(self, group: OpenGroup | None) -> Texts:
        info = Info("", "", []) if group is None else group.info
        return Texts(
            info.name if self.name is None else self.name,
            info.description if self.description is None else self.description,
        )

    def check_known(self, group: OpenGroup) -> None:
        """Check the first reading: raise for a user who cannot be added, or whose role cannot be changed."""
        present = roles_of(group)
        for user, wish in self.add.items():
            if present.get(user, wish.value) != wish.value:
                raise errors.InvalidArgumentError(
                    f"User {user} is a member already, as {GroupRole(present[user]).name}: change the role "
                    "with setGroupRoles."
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
        before, after, wanted = self._touched(first), self._touched(latest), self._wanted()
        for what, value in after.items():
            if value not in (before[what], wanted[what]):
                raise errors.ConflictError(
                    f"Another manager changed {what} meanwhile: read the group again."
                )

    def _wanted(self) -> dict[str, object]:
        """Return what these intents make of what they change."""
        roles: dict[uuid.UUID, int | None] = {user: wish.value for user, wish in self.add.items()}
        roles |= dict.fromkeys(self.remove) | dict(self.roles)
        wanted: dict[str, object] = {_membership_of(user): role for user, role in roles.items()}
        if self.managers is not None:
            wanted["the managers"] = {user: wish.value for user, wish in self.managers.items()}
        texts = {"the name": self.name, "the description": self.description}
        return wanted | {what: text for what, text in texts.items() if text is not None}

    def _touched(self, group: OpenGroup) -> dict[str, object]:
        """Return what these intents change as a group has it."""
        present: dict[str, object] = {
            **{_membership_of(user): role for user, role in roles_of(group).items()},
            "the managers": managers_of(group),
            "the name": group.info.name,
            "the description": group.info.description,
        }
        return {what: present.get(what) for what in self._wanted()}


def _membership_of(user: uuid.UUID) -> str:
    return f"the membership of user {user}"


def roles_of(group: OpenGroup) -> dict[uuid.UUID, int]:
    """Return the roles of the members by user id, without users who have left."""
    members = group.members.items()
    return {user_id_of(name): each.role for name, each in members if name not in group.left}


def managers_of(group: OpenGroup) -> dict[uuid.UUID, int]:
    """Return the permissions of the managers by user id, also of those who have left."""
    return {user_id_of(name): each.permissions for name, each in group.chain.managers.items()}


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """The members and managers after a change."""

    seats: Mapping[bytes, Seat] | None
    """By fingerprint; None if the roster stays as it is."""
    rises: bool
    texts: Texts | None
    """None if the info stays as it is."""
    managers: Mapping[uuid.UUID, Grant] | None
    """None if the access list stays as it is."""
    recipients: Mapping[uuid.UUID, Recipient]
    """The latest keys of the managers, if their list changes."""
    dropped: tuple[uuid.UUID, ...] = ()
    """Members who lose their leaf because the broker alone says that they were deleted."""


def _check_size(members: Collection[uuid.UUID], managers: Collection[uuid.UUID]) -> None:
    for found, limit, word in (
        (members, roster.MAX_MEMBERS, "members"),
        (managers, roster.MAX_MANAGERS, "managers"),
    ):
        if len(found) > limit:
            raise errors.TooLargeError(
                f"The group would have {len(found)} {word}: it takes at most {limit}."
            )


async def plan_next(session: Session, group: OpenGroup | None, intents: Intents) -> Plan | None:
    """Return the members and managers after a change, or of a new group; None if there is nothing to do.

    Raises `NotFoundError` for a deleted user who would be added, `KeySubstitutionError` for one whose keys
    are not those of the contact or card that the caller gave, and `TooLargeError` where a limit is reached.
    """
    keys, left = _Keys(session), set[uuid.UUID]()
    if group is not None:
        left = {user_id_of(name) for name in group.left}
        keys.deleted |= {user_id_of(name) for name in group.deleted}
        keys.unproved |= {user_id_of(name) for name in group.unproved}
    while True:
        gone = left | keys.deleted
        managers = _next_managers(group, intents, gone)
        places = _next_places(group, intents, managers, gone)
        if group is None:  # nobody's keys are fetched for a group that is too large
            _check_size(places, managers)
        rises = _rises(group, intents, places)
        changes_access = group is None or managers != managers_of(group)
        # A manager who is gone and stays in the list keeps the leaf, without a wrap (C8).
        wrapped = {
            user for user, seat in places.items() if seat.is_new or (rises and user not in gone)
        }
        # An owner must drop deleted managers, named by the broker or not, so the keys of all are fetched.
        is_owner = group is not None and group.is_owner
        needed = wrapped | managers.keys() if changes_access or is_owner else wrapped
        # Plan again if the keys showed that a member was deleted: that member loses the leaf as well.
        if not await keys.fetch(needed):
            break
    keys.check([*intents.add.items(), *(intents.managers or {}).items()])
    _check_size(places, managers)
    if group is not None and rises and group.epoch == roster.LAST_EPOCH:
        raise errors.TooLargeError(
            "The group's key cannot be replaced any more: create another group, and call replaceGroup."
        )
    grants = {user: Grant(permissions, None) for user, permissions in managers.items()}
    texts = intents.texts(group)
    is_same_info = (
        group is not None
        and group.has_all_secrets_in_info
        and (texts == Texts(group.info.name, group.info.description))
    )
    present = {} if group is None else {user_id_of(name): m for name, m in group.members.items()}
    is_same = all(
        user in present and not seat.is_new and seat.role == present[user].role
        for user, seat in places.items()
    )
    if is_same and is_same_info and not rises:
        return Plan(None, False, None, grants, keys.found) if changes_access else None
    seats = dict[bytes, Seat]()
    for user, seat in places.items():
        key = keys.living(user) if user in wrapped else None
        seats[present[user].fingerprint if key is None else key.name] = seat._replace(key=key)
    lost = present.keys() - places.keys() - intents.remove
    return Plan(
        seats,
        rises,
        texts if rises or not is_same_info else None,
        grants if changes_access else None,
        keys.found,
        tuple(sorted(lost & keys.unproved)),
    )


@dataclass(slots=True)
class _Keys:
    """The latest keys of users, and who of them was deleted."""

    session: Session
    found: dict[uuid.UUID, Recipient] = field(default_factory=dict)
    deleted: set[uuid.UUID] = field(default_factory=set)
    unproved: set[uuid.UUID] = field(default_factory=set)
    """Users whose deletion the broker alone claims: their key chain is not closed."""

    async def fetch(self, users: Iterable[uuid.UUID]) -> bool:
        """Fetch the keys that are not known yet; return whether a user was found to be deleted."""
        missing = set(users) - self.found.keys() - self.deleted
        if not missing:
            return False
        chains = await self.session.directory.latest(missing)
        for user in missing:
            chain = chains.get(user)
            if chain is not None and not chain.closed:
                self.found[user] = recipient_of(chain)
                continue
            self.deleted.add(user)
            if chain is None:
                self.unproved.add(user)
        return not self.deleted.isdisjoint(missing)

    def living(self, user: uuid.UUID) -> Recipient:
        found = self.found.get(user)
        if found is None:
            raise errors.NotFoundError(f"User {user} was deleted: leave the user out.")
        return found

    def check(self, wishes: Iterable[tuple[uuid.UUID, Wish]]) -> None:
        """Raise for a user who was deleted, or whose keys are not those of the given contact or card."""
        for user, wish in wishes:
            if user in self.deleted:
                self.found.pop(user, None)
                self.living(user)
            found = self.found.get(user)
            if found is not None and wish.fingerprint not in (None, found.name):
                raise errors.KeySubstitutionError(
                    f"The keys of user {user} do not have the fingerprint of the contact or card that was "
                    "given: compare the fingerprint with the person before you share anything."
                )


def _next_managers(
    group: OpenGroup | None, intents: Intents, gone: Collection[uuid.UUID]
) -> dict[uuid.UUID, int]:
    """Return the permissions of the next roster's managers, by user id.

    Only an owner may change the managers. So an author who is an owner takes managers who have left or were
    deleted off the list, and any other author keeps them (section 8).
    """
    if group is None or intents.managers is not None:
        return {user: wish.value for user, wish in (intents.managers or {}).items()}
    if intents.only_author:
        return {user_id_of(group.fingerprint): roster.OWNER}
    listed = managers_of(group)
    dropped = {*intents.remove, *gone} if group.is_owner else set()
    return {user: each for user, each in listed.items() if user not in dropped}


def _next_places(
    group: OpenGroup | None,
    intents: Intents,
    managers: Mapping[uuid.UUID, int],
    gone: Collection[uuid.UUID],
) -> dict[uuid.UUID, Seat]:
    """Return the next members by user id, without keys; `gone` are those who left or were deleted."""
    named, places = intents.managers or {}, dict[uuid.UUID, Seat]()
    if group is not None:
        if intents.only_author:
            return {user_id_of(group.fingerprint): Seat(group.role, None)}
        for name, member in group.members.items():
            user = user_id_of(name)
            if user in gone:
                if user in managers and user not in named and user not in intents.add:
                    places[user] = Seat(member.role, None)
            elif user not in intents.remove:
                places[user] = Seat(intents.roles.get(user, member.role), None)
    for user, wish in intents.add.items():
        places.setdefault(user, Seat(wish.value, None, is_new=True))
    for user in named:
        places.setdefault(user, Seat(GroupRole.Writer, None, is_new=True))
    return places


def _rises(group: OpenGroup | None, intents: Intents, places: Mapping[uuid.UUID, Seat]) -> bool:
    """Return whether the next roster begins an epoch (3.5)."""
    if group is None or intents.new_epoch or group.owed:
        return True
    for name, member in group.members.items():
        seat = places.get(user_id_of(name))
        # A user who left and is added again still has a leaf, and within an epoch only users without one get
        # wraps.
        if seat is None or seat.role < member.role or seat.is_new:
            return True
    return False
