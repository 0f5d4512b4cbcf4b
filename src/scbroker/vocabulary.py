"""Define the enumerations and the access level that callers, client and server share.

Nothing here needs a library or a secret. Numbers and names are those of docs/spec/ids.md, section 4, and
docs/spec/container.md, section 4.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import operator
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from scbroker.errors import InvalidArgumentError

E = TypeVar("E", bound=enum.Enum)
T = TypeVar("T")


class KeyType(enum.IntEnum):
    """The use of a public key."""

    Signing = 0
    Encryption = 1


class GroupRole(enum.IntEnum):
    """What a member of a group may do with its containers, as far as the group's entry there allows it."""

    Reader = 0
    """Read containers, their access lists and types."""
    Writer = 1
    """Also change content, header and type."""
    Sharer = 2
    """Everything, with changes of access and deletion."""

    @property
    def permissions(self) -> ContainerAccessLevel:
        """Return the role's permissions. A member has those of them that the group's entry has too."""
        level = ContainerAccessLevel
        reader = level.DefaultUserPermissions | level.ReceiveAccessEvents
        by_role = {
            GroupRole.Reader: reader,
            GroupRole.Writer: reader | level.Upload | level.ModifyType,
            GroupRole.Sharer: level.DefaultOwnerPermissions,
        }
        return by_role[self]


class ContainerEventType(enum.StrEnum):
    """The kind of a container's event for one user: `Deleted` also means removed or expired."""

    Added = "Added"
    Updated = "Updated"
    Accessed = "Accessed"
    Deleted = "Deleted"


class Availability(enum.Enum):
    """Whether a result holds the container's content, or header, and why not."""

    Available = "Available"
    """The result holds it."""
    Absent = "Absent"
    """The container has none; the signed record proves that."""
    Hidden = "Hidden"
    """The container has it, and the caller's permissions hide it."""
    NotIncluded = "NotIncluded"
    """The container has it, and the result leaves it out: it was not asked for, or is too large."""


class ContainerAccessLevel(enum.IntFlag, boundary=enum.STRICT):
    """Permissions on a container: those that one `AccessLevel`, an entry of its access list, gives.

    Cryptography enforces Decrypt. Every reader verifies Upload, ModifyAccess, ModifyType and Delete. The
    broker enforces Download, ViewAccess, ViewType and ReceiveAccessEvents.
    """

    Download = 1
    Decrypt = 2
    Upload = 4
    ViewAccess = 8
    ModifyAccess = 16
    ModifyType = 32
    ViewType = 64
    ReceiveAccessEvents = 128
    Delete = 256
    DefaultOwnerPermissions = 511
    DefaultUserPermissions = 75

    @functools.cache
    def missing(self) -> ContainerAccessLevel:
        """Return the permissions to add to make the combination allowed; none if it is."""
        needed = ContainerAccessLevel(0)
        if self & (ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.ModifyType):
            needed |= ContainerAccessLevel.Upload
        if (self | needed) & ContainerAccessLevel.Upload:
            needed |= ContainerAccessLevel.Decrypt | ContainerAccessLevel.ViewAccess
        return needed & ~self


@dataclass(frozen=True, slots=True)
class Person:
    """A user whose whole fingerprint is known: a ContactCard or a Contact."""

    fingerprint: str
    """16 groups of 4 hexadecimal digits, for people to compare."""
    userId: uuid.UUID = field(init=False)
    """Derived from the fingerprint."""


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """A group with its whole fingerprint, as a Group has it."""

    id: uuid.UUID
    """Derived from the name."""
    fingerprint: str
    """The group's name: 16 groups of 4 hexadecimal digits, for people to compare."""


UserRef: TypeAlias = uuid.UUID | str | Person
"""A user: a user id, its text, a ContactCard or a Contact."""
GroupRef: TypeAlias = uuid.UUID | str | NamedGroup
"""A group: a group id, its text, or a Group."""
HolderRef: TypeAlias = UserRef | NamedGroup
"""What an entry of an access list can name: a user or a group."""


def instance_of(name: str, value: object, phrase: str, *kinds: type[T]) -> T:
    """Return an argument that is of one of these types, which `phrase` names, as "a uuid.UUID".

    Raises `InvalidArgumentError` for any other. A bool is not taken for an int.
    """
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        if isinstance(value, Awaitable):
            given = "a promise: await it first, or pass what its result() returns"
        else:
            given = type(value).__name__
        raise InvalidArgumentError(f"{name} must be {phrase}, not {given}")
    return value


def uuid_of(name: str, value: object) -> uuid.UUID:
    """Return an argument that is a UUID or its text as a UUID.

    Raises `InvalidArgumentError` for anything else. The message does not repeat the text: it may be a secret
    that was passed in the wrong place.
    """
    if isinstance(value, str):
        try:
            return uuid.UUID(value)
        except ValueError:
            raise InvalidArgumentError(
                f"{name} is not a UUID: pass a uuid.UUID or its text, such as "
                "8bc85a1e-7008-81b5-a4a4-91ea171fbdd7"
            ) from None
    if isinstance(value, Person):
        what = "pass its userId" if name.startswith("user") else "it names a user"
        raise InvalidArgumentError(
            f"{name} must be a uuid.UUID or its text, not {type(value).__name__}: {what}"
        )
    if isinstance(getattr(value, "id", None), uuid.UUID):
        raise InvalidArgumentError(
            f"{name} must be a uuid.UUID or its text, not {type(value).__name__}: pass its id"
        )
    return instance_of(name, value, "a uuid.UUID or its text", uuid.UUID)


def user_of(name: str, value: object) -> uuid.UUID:
    """Return the user id of an argument that names a user: a UUID, its text, or a Person."""
    return value.userId if isinstance(value, Person) else uuid_of(name, value)


def group_of(name: str, value: object) -> uuid.UUID:
    """Return the group id of an argument that names a group: a UUID, its text, or a Group."""
    return value.id if isinstance(value, NamedGroup) else uuid_of(name, value)


def holder_of(name: str, value: object) -> uuid.UUID:
    """Return the id of an argument that names a user or a group."""
    return value.id if isinstance(value, NamedGroup) else user_of(name, value)


def member_of(kind: type[E], value: object, name: str) -> E:
    """Return the member that an argument names: by itself, by its value, or by its name.

    The name of a combination of flags is that of its members with `|` between them, as in `.name`.
    Raises `InvalidArgumentError`, whose message names the argument by `name`. A bool and a member of another
    enum are not values, although both are ints.
    """
    if isinstance(value, kind):
        return value
    try:
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            names = value.split("|") if issubclass(kind, enum.Flag) else [value]
            return functools.reduce(operator.or_, [kind[each] for each in names])
        if isinstance(value, int) and not isinstance(value, bool | enum.Enum):
            found = kind(value)
            if found.value == value:
                return found
    except (KeyError, ValueError):
        pass
    shown = repr(value) if isinstance(value, (str, int)) else type(value).__name__
    raise InvalidArgumentError(
        f"{name} must be a {kind.__name__}, its value or its name "
        f"({', '.join(kind.__members__)}), not {shown}"
    )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AccessLevel:
    """One entry of an access list: a user or group with its permissions, a `ContainerAccessLevel`.

    `userId` is a uuid.UUID, its text, a Contact, a ContactCard or a Group; the id of a group names the group.
    The client compares the whole fingerprint of a contact or card with the user's keys, and the name of a
    Group with the group's, before it encrypts anything for them.
    `permissions` is a ContainerAccessLevel, its value or its name, as in `"Download|Decrypt"`.
    `expiresAt` is an aware datetime. From then on the broker refuses the user, and the next writer's client
    removes them from the signed access list; until that happens, only the broker enforces the expiry.

    Raises `invalidArgumentError` for a wrong type, for no permission, and for a combination that
    cannot be given.
    """

    userId: uuid.UUID
    permissions: ContainerAccessLevel = ContainerAccessLevel.DefaultUserPermissions
    expiresAt: dt.datetime | None = None
    fingerprint: str | None = field(init=False, compare=False)
    """That of the Contact, ContactCard or Group that was given, else None."""
    isGroup: bool = field(init=False, compare=False)
    """Whether a Group was given. In a result: whether this device has verified that it is a group's id."""

    def __init__(
        self,
        userId: HolderRef,
        permissions: ContainerAccessLevel | int | str = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
    ) -> None:
        for name, value in (
            ("userId", holder_of("userId", userId)),
            ("permissions", _checked_permissions(permissions)),
            ("expiresAt", None if expiresAt is None else aware_date("expiresAt", expiresAt)),
            ("fingerprint", _fingerprint_of(userId)),
            ("isGroup", isinstance(userId, NamedGroup)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        until = "" if self.expiresAt is None else f" until {self.expiresAt:%Y-%m-%d %H:%M:%S %Z}"
        kind = "group" if self.isGroup else "user"
        return f"<AccessLevel of {kind} {self.userId}: {self.permissions.name}{until}>"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class MemberRole:
    """The role of one user in a group.

    `userId` is a uuid.UUID, its text, a Contact or a ContactCard. The client compares the whole fingerprint
    of a contact or card with the user's keys before it gives the user the group's key. `role` is a GroupRole,
    its value or its name.

    Raises `invalidArgumentError` for a wrong type.
    """

    userId: uuid.UUID
    role: GroupRole = GroupRole.Writer
    fingerprint: str | None = field(init=False, compare=False)
    """That of the Contact or ContactCard that was given, else None."""

    def __init__(self, userId: UserRef, role: GroupRole | int | str = GroupRole.Writer) -> None:
        for name, value in (
            ("userId", user_of("userId", userId)),
            ("role", member_of(GroupRole, role, "role")),
            ("fingerprint", _fingerprint_of(userId)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<MemberRole of user {self.userId}: {self.role.name}>"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class GroupManager:
    """One user who manages a group: adds, removes and changes its members, and renames it.

    With `owner`, the user also changes the managers and deletes the group. `userId` is a uuid.UUID, its text,
    a Contact or a ContactCard, as in `MemberRole`.

    Raises `invalidArgumentError` for a wrong type.
    """

    userId: uuid.UUID
    owner: bool = False
    fingerprint: str | None = field(init=False, compare=False)
    """That of the Contact or ContactCard that was given, else None."""

    def __init__(self, userId: UserRef, owner: bool = False) -> None:
        for name, value in (
            ("userId", user_of("userId", userId)),
            ("owner", instance_of("owner", owner, "a bool", bool)),
            ("fingerprint", _fingerprint_of(userId)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<GroupManager: user {self.userId}{', an owner' if self.owner else ''}>"


def _fingerprint_of(ref: object) -> str | None:
    return ref.fingerprint if isinstance(ref, Person | NamedGroup) else None


def _checked_permissions(permissions: object) -> ContainerAccessLevel:
    given = member_of(ContainerAccessLevel, permissions, "permissions")
    if not given:
        raise InvalidArgumentError(
            "permissions must hold at least one permission: to give a user no access, leave the user out"
        )
    if missing := given.missing():
        raise InvalidArgumentError(
            f"permissions cannot hold {given.name} without {missing.name}: add them"
        )
    return given


def aware_date(name: str, value: object) -> dt.datetime:
    """Return a datetime that has a time zone. Raises `InvalidArgumentError` for anything else."""
    date = instance_of(name, value, "a datetime.datetime", dt.datetime)
    if date.utcoffset() is None:
        raise InvalidArgumentError(
            f"{name} must have a time zone: pass an aware datetime, such as datetime.now(datetime.UTC)"
        )
    return date
