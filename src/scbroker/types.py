"""Define the types that operations return, and the items of batches.

All are immutable. A repr contains nothing that was or will be encrypted, except the name of a contact. A
field that the caller's permissions hide is None. Times are aware datetimes in UTC.
"""

from __future__ import annotations

import builtins
import datetime as dt
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Generic, TypeVar

from scbroker.errors import BrokerError, WriteOutcome
from scbroker.records.canonical import parse_fingerprint, show_fingerprint, user_id_of
from scbroker.records.container_record import GROUP_TYPE
from scbroker.vocabulary import (
    AccessLevel,
    Availability,
    ContainerAccessLevel,
    ContainerEventType,
    GroupRole,
    HolderRef,
    KeyType,
    NamedGroup,
    Person,
)

T = TypeVar("T")
ContentSource = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | Iterable[bytes]
_SECONDS: Final = "%Y-%m-%d %H:%M:%S %Z"


@dataclass(frozen=True, slots=True, repr=False)
class Header(Generic[T]):
    """A container's decrypted header."""

    customHeaderObject: T

    def __repr__(self) -> str:
        return "<Header: its object is customHeaderObject>"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields of every kind of container, beside content and header.

    Signatures prove `type`, `access`, `version`, times and authors; `createdAt` and `modifiedAt` are the
    times of their authors' clocks.
    """

    id: uuid.UUID
    type: str | None
    access: Sequence[AccessLevel] | None
    """All entries; None without ViewAccess."""
    version: int
    length: int | None
    """The number of bytes of the content; None without content, or without Decrypt."""
    createdAt: dt.datetime
    createdBy: uuid.UUID
    modifiedAt: dt.datetime
    modifiedBy: uuid.UUID
    modifiedVia: uuid.UUID | None
    """The group for which `modifiedBy` acted; None if they acted for themselves."""
    modifierIsMember: bool | None
    """Whether `modifiedBy` is a member of `modifiedVia` now; None without a group, or if it is not known."""
    via: uuid.UUID | None
    """The group through which the caller reads the container; None if they read by access of their own."""


@dataclass(frozen=True, slots=True, repr=False)
class _Parts(Metadata):
    """Whether the container has content and header, and whether this result has them."""

    contentAvailability: Availability
    """Whether this result has the content, or why not."""
    headerAvailability: Availability
    """Whether this result has the header, or why not."""

    @property
    def hasContent(self) -> bool:
        """Return whether the container has content, even if hidden here; the signed record proves it."""
        return self.contentAvailability is not Availability.Absent

    @property
    def hasHeader(self) -> bool:
        """Return whether the container has a header, even if hidden here; the signed record proves it."""
        return self.headerAvailability is not Availability.Absent

    @property
    def _through(self) -> str:
        if self.modifiedVia is None:
            return ""
        former = " as a former member" if self.modifierIsMember is False else ""
        return f" through group {self.modifiedVia}{former}"

    def __repr__(self) -> str:
        content = "content" if self.length is None else f"content of {self.length} bytes"
        shown = (
            f"type {self.type!r}",
            f"version {self.version}",
            _PHRASES[self.contentAvailability].format(content),
            _PHRASES[self.headerAvailability].format("header"),
            "members hidden" if self.access is None else _counted(len(self.access), "member"),
            f"modified {self.modifiedAt:{_SECONDS}} by {self.modifiedBy}{self._through}",
        )
        return f"<{type(self).__name__} {self.id}: {', '.join(shown)}>"


_PHRASES: Final = {
    Availability.Available: "{}",
    Availability.Absent: "no {}",
    Availability.Hidden: "{} hidden",
    Availability.NotIncluded: "{} not included",
}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@dataclass(frozen=True, slots=True, repr=False)
class Container(_Parts, Generic[T]):
    """A container, decrypted as far as the caller's permissions allow."""

    content: bytes | None = None
    header: Header[T] | None = None
    contentBy: uuid.UUID | None = None
    """The user who wrote the content, according to the author of the newest record; None without content."""
    headerBy: uuid.UUID | None = None
    """The user who wrote the header, and so the container's name; None without header."""
    asOf: dt.datetime | None = None
    """When the broker served the copy of a `CachedProvider`; None if the broker answered the call."""
    isOwnDocument: bool = False
    """Whether the caller's address book or list of links is in it. Not by its type, which members can set."""


@dataclass(frozen=True, slots=True, repr=False)
class SecuredContainer(_Parts):
    """A container as the broker stores it: the signed record, the caller's wrap, the sealed parts."""

    record: bytes
    signature: bytes
    wrap: bytes | None
    sealedHeader: bytes | None
    sealedContent: bytes | None
    """None also for a content of more than 64 KiB, which is `NotIncluded`: read it in segments."""


@dataclass(frozen=True, slots=True)
class ContainerPage(Generic[T]):
    """A page of the containers that the caller has access to, ascending by id."""

    containers: Sequence[Container[T] | BrokerError]
    """The containers; for one that cannot be verified or opened, its error with its `containerId`."""
    next: uuid.UUID | None
    """The `startAfter` of the next page; None if the list ends with this page."""
    leftOut: Sequence[uuid.UUID]
    """Ids in this page's range of containers that this device has read before and the broker now denies.

    In a page of a `CachedProvider`'s cache: of containers that this device has read and the cache lacks.
    """
    asOf: dt.datetime | None = None
    """The oldest `asOf` of a page of the cache, or the time of the call if the page is empty; else None."""


@dataclass(frozen=True, slots=True, repr=False)
class NewContainer:
    """One of the items of `createContainers`; the fields are the parameters of `createContainer`."""

    content: ContentSource | None
    customHeaderObject: object = None
    accessLevels: Iterable[AccessLevel] | None = None
    type: str | None = None

    def __repr__(self) -> str:
        if isinstance(self.content, bytes | bytearray | memoryview):
            content = f"content of {len(self.content)} bytes"
        else:
            content = f"content from a {builtins.type(self.content).__name__}"
        shown = (
            f"type {self.type!r}",
            "no content" if self.content is None else content,
            "no header" if self.customHeaderObject is None else "header",
            "no access levels" if self.accessLevels is None else "access levels",
        )
        return f"<NewContainer: {', '.join(shown)}>"


@dataclass(frozen=True, slots=True)
class AccessChange:
    """An item of `updateContainersAccessLevels`: the change of access to one container.

    `add` and `remove` change the entries of these users and groups, and keep all others. `replace` is a whole
    list, as for `updateContainerAccessLevels`, and cannot be combined with the other two.
    """

    containerId: uuid.UUID | str
    add: Iterable[AccessLevel] = ()
    remove: Iterable[HolderRef] = ()
    replace: Iterable[AccessLevel] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Link:
    """A link that gives people without an account read access to containers until a time.

    Anybody who has `url`, and the password if the link has one, can read. The repr leaves the URL out.
    """

    url: str
    userId: uuid.UUID
    """The id of the user that was registered for the link."""
    containerIds: Sequence[uuid.UUID]
    permissions: ContainerAccessLevel
    expiresAt: dt.datetime
    hasPassword: bool
    name: str | None
    createdAt: dt.datetime

    @property
    def expired(self) -> bool:
        """Return whether the link has ended by the clock of this machine."""
        return self.expiresAt <= dt.datetime.now(dt.UTC)

    def __repr__(self) -> str:
        shown = (
            f"name {self.name!r}",
            _counted(len(self.containerIds), "container"),
            f"{self.permissions.name}",
            f"{'expired' if self.expired else 'until'} {self.expiresAt:{_SECONDS}}",
            "with password" if self.hasPassword else "without password",
        )
        return f"<Link of user {self.userId}: {', '.join(shown)}>"


@dataclass(frozen=True, slots=True)
class GroupRenewal:
    """The result of `renewGroup` or `replaceGroup`."""

    renewed: int
    """The number of containers that have a new key."""
    failed: Sequence[BrokerError]
    """The errors of the others, each with its `containerId`."""


@dataclass(frozen=True, slots=True, repr=False)
class Group(NamedGroup):
    """A group of the caller, with the roster in force: verified, and opened with the group's key.

    An access list takes it in place of a user: `AccessLevel(group, "Download|Decrypt")`.
    """

    name: str
    description: str
    role: GroupRole
    """The caller's."""
    isManager: bool
    isOwner: bool
    """Whether the caller is a manager who can change the managers and delete the group."""
    accepted: bool
    """Whether the caller accepted the group; until then it is an offer. This is the broker's word."""
    memberCount: int
    """The number of members who have not left."""
    epoch: int
    """How often the group's key was replaced; 16,383 is the last one."""
    version: int
    createdAt: dt.datetime
    createdBy: uuid.UUID
    modifiedAt: dt.datetime
    """The time of the newest change of members, managers, name or description."""
    modifiedBy: uuid.UUID
    dropped: Sequence[uuid.UUID] = ()
    """Members whom this change removed because the broker says, without a proof, that they were deleted."""
    renewal: GroupRenewal | None = None
    """The containers that `removeGroupMembers` has renewed; None without `renew`."""

    def __repr__(self) -> str:
        shown = (
            f"role {self.role.name}",
            "owner" if self.isOwner else "manager" if self.isManager else "not a manager",
            "accepted" if self.accepted else "offered",
            _counted(self.memberCount, "member"),
            f"epoch {self.epoch}",
            f"version {self.version}",
            f"modified {self.modifiedAt:{_SECONDS}} by {self.modifiedBy}",
        )
        return f"<Group {self.id}: {', '.join(shown)}>"


@dataclass(frozen=True, slots=True, repr=False)
class GroupMember(Person):
    """A member of a group, by the roster in force. Operations that take a `UserRef` take it as well."""

    role: GroupRole
    isManager: bool
    isOwner: bool
    since: dt.datetime
    """The time of the change that added the member, or changed the role or key last."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "userId", user_id_of(parse_fingerprint(self.fingerprint)))

    def __repr__(self) -> str:
        manages = ", an owner" if self.isOwner else ", a manager" if self.isManager else ""
        return f"<GroupMember {self.userId}: {self.role.name}{manages}>"


@dataclass(frozen=True, slots=True)
class SentChange:
    """A change of a container that this device sent and that was not confirmed at once."""

    version: int
    """The version that the container has if the change takes effect."""
    outcome: WriteOutcome


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a history: a container's newest record, or an event log's last event."""

    version: int
    """The record's version, or the event's id."""
    hash: bytes
    """The record's hash, or the digest of all events up to this one."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The head that this device has verified last, and the one that the broker serves now."""

    stored: Head | None
    """None if the device has no mark."""
    served: Head


@dataclass(frozen=True, slots=True)
class UnsettledAccess:
    """A change of access by a user who is not in the group any more, or has a lower role there.

    The client seals nothing new for the container until the caller has confirmed it.
    """

    head: Head
    """Its version and hash: pass it to `confirmAccess` as `accept`."""
    changedBy: uuid.UUID
    changedVia: uuid.UUID
    """The group for which `changedBy` acted."""
    changedAt: dt.datetime
    """The time, by the author's clock."""
    before: Sequence[AccessLevel] | None
    """The access list that was in force before; None without ViewAccess."""
    after: Sequence[AccessLevel] | None
    """The access list of the change."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A user's usage and quotas at the broker: the broker's word."""

    bytes: int
    """The encrypted bytes that the user sent, and the records that the user signed."""
    containers: int
    """Containers that the user created and that were not deleted."""
    quotaBytes: int | None
    """None without a quota."""
    quotaContainers: int | None

    @property
    def freeBytes(self) -> int | None:
        """Return how many bytes the quota leaves; None without a quota."""
        return None if self.quotaBytes is None else max(0, self.quotaBytes - self.bytes)

    @property
    def freeContainers(self) -> int | None:
        """Return how many containers the quota leaves; None without a quota."""
        return (
            None if self.quotaContainers is None else max(0, self.quotaContainers - self.containers)
        )


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One public key of a user, from a verified chain."""

    userId: uuid.UUID
    keyType: KeyType
    index: int
    key: bytes = field(repr=False)
    active: bool
    createdAt: dt.datetime
    retiredAt: dt.datetime | None
    fingerprint: str
    """The fingerprint of the user, for people to compare."""

    def hasFingerprint(self, text: str) -> bool:
        """Return whether this is the fingerprint that somebody read out, typed or scanned.

        Spaces, hyphens, colons and upper or lower case are ignored. Raises `invalidArgumentError` for a text
        that is not a whole fingerprint: the first groups alone prove nothing.
        """
        return parse_fingerprint(text) == parse_fingerprint(self.fingerprint)


@dataclass(frozen=True, slots=True, repr=False)
class Contact(Person):
    """A person in the user's address book. Operations that take a `UserRef` take it in place of a user id."""

    name: str
    serverUrl: str
    """The address of the broker that the contact's card named."""
    verified: bool
    """Whether the user has compared the fingerprint with the person."""
    addedAt: dt.datetime

    def __post_init__(self) -> None:
        fingerprint = parse_fingerprint(self.fingerprint)
        object.__setattr__(self, "fingerprint", show_fingerprint(fingerprint))
        object.__setattr__(self, "userId", user_id_of(fingerprint))

    def __repr__(self) -> str:
        verified = "verified" if self.verified else "not verified"
        return f"<Contact {self.name!r}: user {self.userId}, {verified}>"


@dataclass(frozen=True, slots=True, repr=False)
class ContainerEvent:
    """One entry of an event log, the caller's or a group's: the broker's word, unlike containers."""

    id: int
    eventType: ContainerEventType
    containerId: uuid.UUID
    containerType: str | None
    """The type after the event; None without ViewType."""
    date: dt.datetime
    version: int
    relatedUserId: uuid.UUID | None
    applicationName: str
    changes: Sequence[str]
    previousContainerType: str | None
    """The type before an event that changed it; None if it had none, or without ViewType at that time."""
    groupId: uuid.UUID | None = None
    """The group in whose log this event is, with an id of that log; None for the caller's own log."""

    @property
    def isOfGroup(self) -> bool:
        """Return whether `containerId` is the id of a group that changed, and not that of a container."""
        return self.containerType == GROUP_TYPE

    def __repr__(self) -> str:
        changes = f" of {', '.join(self.changes)}" if self.changes else ""
        by = "" if self.relatedUserId is None else f" by {self.relatedUserId}"
        log = "" if self.groupId is None else f" of group {self.groupId}"
        return (
            f"<ContainerEvent {self.id}{log}: {self.eventType}{changes}, container {self.containerId}, "
            f"type {self.containerType!r}, version {self.version}, {self.date:{_SECONDS}}{by} "
            f"in {self.applicationName!r}>"
        )
