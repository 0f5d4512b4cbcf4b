"""What the specs say of a container, small enough to be held against every run.

The model does no I/O: it is told what was written in which order, and says who may write what, what
everybody reads, and what everybody is told. Users are numbers here. Spec: docs/spec/container.md,
sections 4, 7 and 10, and docs/spec/protocol.md, "Events".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from scbroker import BrokerError, ContainerAccessLevel, ContainerEventType

Level = ContainerAccessLevel
Field = Literal["header", "content", "access", "type"]
FIELDS: Final[tuple[Field, ...]] = ("header", "content", "access", "type")
"""In the order in which events name them."""


@dataclass(frozen=True)
class Grant:
    """What one user may do, and until when."""

    permissions: Level
    ends: dt.datetime | None = None

    def allows(self, level: Level) -> bool:
        return level & ~self.permissions == Level(0)

    def expired(self, now: dt.datetime) -> bool:
        return self.ends is not None and self.ends <= now

    def outlasts(self, other: Grant) -> bool:
        """Return whether it ends later."""
        if self.ends is None or other.ends is None:
            return self.ends is None and other.ends is not None
        return self.ends > other.ends


Members = Mapping[int, Grant]


@dataclass(frozen=True)
class Merge:
    """A change of one user's access that keeps all other entries; None removes the user."""

    user: int
    grant: Grant | None

    def into(self, members: Members) -> Members:
        others = {user: grant for user, grant in members.items() if user != self.user}
        return others if self.grant is None else {**others, self.user: self.grant}


@dataclass(frozen=True)
class Change:
    """What one operation is to do: new values of some fields, or the end of the container."""

    values: Mapping[Field, Any] = field(default_factory=dict)
    delete: bool = False
    condition: int | None = None

    @property
    def needed(self) -> Level:
        if self.delete:
            return Level.Delete
        needed = Level.Upload
        if "type" in self.values:
            needed |= Level.ModifyType
        if "access" in self.values:
            needed |= Level.ModifyAccess
        return needed

    @property
    def seals(self) -> bool:
        """Return whether something new is sealed, which needs a container key that nobody outside knows."""
        return any(self.values.get(name) is not None for name in ("header", "content"))

    @property
    def merge(self) -> Merge | None:
        """Return the merge of this change, or None."""
        access = self.values.get("access")
        return access if isinstance(access, Merge) else None

    @property
    def replaced(self) -> set[Field]:
        """Return the fields that this change replaces as a whole."""
        return set(self.values) - ({"access"} if self.merge else set())

    @property
    def tried_once(self) -> bool:
        """Return whether any other change in between is a conflict."""
        return "access" in self.replaced or self.condition is not None


@dataclass(frozen=True)
class State:
    """A container at one version."""

    version: int
    values: Mapping[Field, Any]
    creator: int
    author: int
    chosen_by: int
    """Who made the container key: the author of the last change of access."""
    deleted: bool = False
    left: frozenset[int] = frozenset()
    """Users who have left the list."""

    @property
    def access(self) -> Members:
        """The list as it is signed; after deletion the last one."""
        members: Members = self.values["access"]
        return members

    @property
    def present(self) -> Members:
        """The list without the users who have left, as members see it."""
        return {user: grant for user, grant in self.access.items() if user not in self.left}

    def members(self, now: dt.datetime) -> Members:
        return {
            user: grant
            for user, grant in self.access.items()
            if not grant.expired(now) and user not in self.left
        }

    def needs_renewal(self, now: dt.datetime) -> bool:
        """Return whether somebody outside may know the container key."""
        chooser = self.access.get(self.chosen_by)
        if chooser is None or chooser.expired(now) or not chooser.allows(Level.Decrypt):
            return True
        return any(
            grant.expired(now) or (user in self.left and grant.allows(Level.Decrypt))
            for user, grant in self.access.items()
        )

    def refusal(self, user: int, change: Change, now: dt.datetime) -> type[BrokerError] | None:
        """What a writer is told who finds this state; None where the change goes ahead."""
        members = self.members(now)
        own = members.get(user)
        if own is None:
            return BrokerError.notFoundError
        if self.deleted:
            return BrokerError.deletedError
        if change.condition not in (None, self.version):
            return BrokerError.conflictError
        if not own.allows(change.needed):
            return BrokerError.permissionDeniedError
        if "access" in change.values:
            asked = self.asked(change, now)
            if not asked:
                return BrokerError.invalidArgumentError
            former = {
                user: self.access[user] for user in self.left if not self.access[user].expired(now)
            }
            if not may_give(own, members, asked, former):
                return BrokerError.permissionDeniedError
        return None

    def refusal_to_leave(
        self, user: int, now: dt.datetime, *, abandon: bool
    ) -> tuple[type[BrokerError], ...]:
        """What a member is told who cannot leave: one of these errors; empty where they can."""
        members = self.members(now)
        if user not in members:
            return (BrokerError.notFoundError,)
        if self.deleted:
            return (BrokerError.deletedError,)
        others = [grant for other, grant in members.items() if other != user]
        if not others:  # the client knows, or the broker tells it
            return (BrokerError.invalidArgumentError, BrokerError.rejectedError)
        changes = members[user].allows(Level.ModifyAccess)
        if changes and not abandon and not any(g.allows(Level.ModifyAccess) for g in others):
            return (BrokerError.invalidArgumentError,)
        return ()

    def without(self, user: int) -> State:
        """The same version once this user has left."""
        return replace(self, left=self.left | {user})

    def asked(self, change: Change, now: dt.datetime) -> Members:
        """Return the whole access list that the change makes."""
        merge = change.merge
        members: Members = (
            change.values["access"] if merge is None else merge.into(self.members(now))
        )
        return members

    def has(self, change: Change, now: dt.datetime) -> bool:
        """Return whether nothing is to be written. The removal of an expired user is: they have the key."""
        merge = change.merge
        if merge is None or (merge.grant is None and merge.user in self.access):
            return False
        return self.asked(change, now) == self.members(now)

    def after(self, user: int, change: Change, now: dt.datetime, *, renewed: bool) -> State:
        """The next version; `renewed` where a new container key was made that nobody asked for."""
        values = {**self.values, **change.values}
        if "access" in change.values:
            values["access"] = self.asked(change, now)
        if renewed:
            values["access"] = self.members(now)
        chose = renewed or "access" in change.values
        return State(
            version=self.version + 1, values=values, creator=self.creator, author=user,
            chosen_by=user if chose else self.chosen_by, deleted=change.delete,
            left=frozenset() if chose else self.left,
        )  # fmt: skip

    def shown(self, user: int) -> Shown:
        """What a member reads."""
        own = self.access[user]
        opens = own.allows(Level.Download | Level.Decrypt)
        content = self.values["content"]
        return Shown(
            version=self.version,
            header=self.values["header"] if opens else None,
            content=content if opens else None,
            type=self.values["type"] if own.allows(Level.ViewType) else None,
            access=self.present if own.allows(Level.ViewAccess) else None,
            length=len(content) if content is not None and own.allows(Level.Decrypt) else None,
            creator=self.creator,
            author=self.author,
        )


@dataclass(frozen=True)
class Shown:
    """A container as one user sees it; None for what is hidden or not there."""

    version: int
    header: object
    content: bytes | None
    type: str | None
    access: Members | None
    length: int | None
    creator: int
    author: int


def may_give(author: Grant, before: Members, after: Members, former: Members) -> bool:
    """Rule 4: nobody gives, takes or prolongs what they do not hold themselves.

    A user who has left is judged as one without access, or by their former grant.
    """
    return all(
        _may_change(author, before.get(u), after.get(u))
        or (u in former and _may_change(author, former[u], after.get(u)))
        for u in before.keys() | after
    )


def _may_change(author: Grant, old: Grant | None, new: Grant | None) -> bool:
    nothing = Level(0)
    old_bits = old.permissions if old else nothing
    new_bits = new.permissions if new else nothing
    touched = old_bits ^ new_bits
    if old and new and old.ends != new.ends:
        touched |= old_bits | new_bits
    if not author.allows(touched):
        return False
    if new is None:
        return True
    more = bool(new_bits & ~old_bits) or old is None or new.outlasts(old)
    return not (more and new.outlasts(author))


@dataclass(frozen=True)
class Told:
    """An event of one user."""

    kind: ContainerEventType
    version: int
    type: str | None
    by: int | None
    application: str
    changes: tuple[str, ...] = ()

    @property
    def emptied(self) -> Told:
        """The same once the container is deleted."""
        return Told(self.kind, 0, None, None, "")


def news(
    before: State | None, after: State, changed: set[Field], application: str, now: dt.datetime
) -> Iterator[tuple[int, Told]]:
    """Who is told what of a record that made `after` out of `before`."""
    old = before.members(now) if before else {}
    new = {} if after.deleted else after.members(now)
    for user in sorted(old.keys() | new.keys()):
        was, entry = old.get(user), new.get(user)
        kind, state = ContainerEventType.Updated, after
        names: tuple[str, ...] = ()
        if entry is None:
            kind, state = ContainerEventType.Deleted, before or after
        elif was is None:
            kind = ContainerEventType.Added
        else:
            names = tuple(name for name in FIELDS if name in changed and _sees(name, was, entry))
            if not names:
                continue
        seen = entry or was
        text = state.values["type"] if seen and seen.allows(Level.ViewType) else None
        if after.deleted:
            text = None
        yield user, Told(kind, after.version, text, after.author, application, names)


def _sees(name: Field, was: Grant, entry: Grant) -> bool:
    """Return whether a user may know of this change; of one's own access always."""
    if name == "access":
        return was != entry or entry.allows(Level.ViewAccess)
    return name != "type" or entry.allows(Level.ViewType)


def departure_events(
    state: State, user: int, application: str, now: dt.datetime
) -> Iterator[tuple[int, Told]]:
    """The events of a departure, and the users who get them."""
    for other, grant in sorted(state.members(now).items()):
        text = state.values["type"] if grant.allows(Level.ViewType) else None
        if other == user:
            yield user, Told(ContainerEventType.Deleted, state.version, text, user, application)
        elif grant.allows(Level.ViewAccess):
            yield (
                other,
                Told(
                    ContainerEventType.Updated, state.version, text, user, application, ("access",)
                ),
            )


def farewell(state: State, user: int) -> Told:
    """What a user is told whose time is over."""
    text = state.values["type"] if state.access[user].allows(Level.ViewType) else None
    return Told(ContainerEventType.Deleted, state.version, text, None, "")
