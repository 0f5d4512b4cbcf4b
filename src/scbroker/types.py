"""What operations return. Immutable; nothing that was decrypted stands in a repr.

Times are aware datetimes in UTC. What the caller's permissions hide is None.
"""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Generic, TypeVar

from scbroker.records.ids import parse_fingerprint
from scbroker.vocabulary import AccessLevel, Availability, ContainerEventType, KeyType

T = TypeVar("T")
ContentSource = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Header(Generic[T]):
    """A container's decrypted header."""

    customHeaderObject: T = field(repr=False)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What every kind of container shows beside content and header.

    `type`, `access`, `version`, times and authors are verified by signature; createdAt and
    modifiedAt are their authors' clocks.
    """

    id: uuid.UUID
    type: str | None
    access: Sequence[AccessLevel] | None
    """All entries with ViewAccess, else None."""
    version: int
    length: int | None
    """Bytes of content; None when there is none, or without Decrypt."""
    createdAt: dt.datetime
    createdBy: uuid.UUID
    modifiedAt: dt.datetime
    modifiedBy: uuid.UUID


@dataclass(frozen=True, slots=True)
class _Parts(Metadata):
    """Whether there are content and header, and whether this result holds them."""

    contentAvailability: Availability
    """Whether this holds the content, or why it does not."""
    headerAvailability: Availability
    """Whether this holds the header, or why it does not."""

    @property
    def hasContent(self) -> bool:
        """Whether the container has content, shown here or not; the signed record proves it."""
        return self.contentAvailability is not Availability.Absent

    @property
    def hasHeader(self) -> bool:
        """Whether the container has a header, shown here or not; the signed record proves it."""
        return self.headerAvailability is not Availability.Absent


@dataclass(frozen=True, slots=True)
class Container(_Parts, Generic[T]):
    """A container, opened as far as the caller's permissions go."""

    content: bytes | None = field(default=None, repr=False)
    header: Header[T] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SecuredContainer(_Parts):
    """A container as the broker keeps it: the signed record, the caller's wrap, the sealed parts."""

    record: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    wrap: bytes | None = field(repr=False)
    sealedHeader: bytes | None = field(repr=False)
    sealedContent: bytes | None = field(repr=False)
    """None for a content of more than 64 KiB, which is NotIncluded: its segments are read by range."""


@dataclass(frozen=True, slots=True)
class NewContainer:
    """One of the containers to be made by `createContainers`; each field as for `createContainer`."""

    content: ContentSource | None = field(repr=False)
    customHeaderObject: object = field(default=None, repr=False)
    accessLevels: Iterable[AccessLevel] | None = None
    type: str | None = None


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
    """The user's, for people to compare."""

    def hasFingerprint(self, text: str) -> bool:
        """Whether this is the user whose fingerprint somebody read out, typed or scanned.

        Spaces, hyphens, colons and capitals do not count; every digit does. `InvalidArgumentError` for
        what is no whole fingerprint: the first groups alone prove nothing.
        """
        return parse_fingerprint(text) == parse_fingerprint(self.fingerprint)


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """One entry of the caller's event log. Events are the broker's word; containers are verified."""

    id: int
    eventType: ContainerEventType
    containerId: uuid.UUID
    containerType: str | None
    """As of the event; None without ViewType."""
    date: dt.datetime
    version: int
    relatedUserId: uuid.UUID | None
    applicationName: str
    changes: Sequence[str]
    previousContainerType: str | None
    """The type before an event that changed it; None if there was none, or without ViewType then."""


__all__ = [
    "Container",
    "ContainerEvent",
    "ContentSource",
    "Header",
    "Metadata",
    "NewContainer",
    "PublicKey",
    "SecuredContainer",
]
