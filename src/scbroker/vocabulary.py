"""The words that both ends and every caller share: kinds of keys, permissions, kinds of events.

Nothing here needs a library or a secret. Numbers and names are those of docs/spec/ids.md (4) and
docs/spec/container.md (4).
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import uuid
from dataclasses import dataclass


class KeyType(enum.IntEnum):
    """What a public key is for."""

    Signing = 0
    Encryption = 1


class ContainerEventType(enum.StrEnum):
    """What happened to a container, as one of its users sees it."""

    Added = "Added"
    Updated = "Updated"
    Accessed = "Accessed"
    Deleted = "Deleted"


class ContainerAccessLevel(enum.IntFlag):
    """Permissions of one user on one container.

    Decrypt is given by cryptography; Upload, ModifyAccess, ModifyType and Delete are verified by
    every reader; Download, ViewAccess, ViewType and ReceiveAccessEvents are kept by the broker.
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
    DefaultUserPermissions = 11

    @functools.cache
    def missing(self) -> ContainerAccessLevel:
        """The permissions that these ones need beside them; none when the combination is allowed."""
        needed = ContainerAccessLevel(0)
        if self & (ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.ModifyType):
            needed |= ContainerAccessLevel.Upload
        if (self | needed) & ContainerAccessLevel.Upload:
            needed |= ContainerAccessLevel.Decrypt | ContainerAccessLevel.ViewAccess
        return needed & ~self


@dataclass(frozen=True, slots=True)
class AccessLevel:
    """The access of one user to one container.

    `expiresAt` is an aware datetime. From then on the broker serves the user nothing and the next
    writer's program drops them for good; until then, expiry is the broker's word.
    """

    userId: uuid.UUID
    permissions: ContainerAccessLevel = ContainerAccessLevel.DefaultUserPermissions
    expiresAt: dt.datetime | None = None


__all__ = ["AccessLevel", "ContainerAccessLevel", "ContainerEventType", "KeyType"]
