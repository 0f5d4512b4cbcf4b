# Written by tools/make_stubs.py: change the module, and run it.

from __future__ import annotations

import builtins
import datetime as dt
import logging
import os
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
    runtime_checkable,
)

from scbroker import errors
from scbroker.cards import ContactCard
from scbroker.client.arguments import Progress
from scbroker.client.calls.operation import (
    EventHandlers,
    Handlers,
    Operations,
    Stream,
    VoidHandlers,
)
from scbroker.client.calls.tasks import Promise
from scbroker.client.containers import contents, fetching
from scbroker.client.containers.contents import ContentReader
from scbroker.client.containers.writing import Change, Grants, Merge
from scbroker.client.http.requests import Requests
from scbroker.client.users.accounts import Validator
from scbroker.client.users.session import Session
from scbroker.client.users.session_store import KeptSessions
from scbroker.client.users.trust_store import TrustStore
from scbroker.keys import KeyRing
from scbroker.types import (
    AccessChange,
    Container,
    ContainerEvent,
    ContainerPage,
    ContentSource,
    Group,
    GroupMember,
    GroupRenewal,
    Head,
    Header,
    Heads,
    Link,
    NewContainer,
    PublicKey,
    SecuredContainer,
    SentChange,
    UnsettledAccess,
    Usage,
)
from scbroker.vocabulary import (
    AccessLevel,
    ContainerAccessLevel,
    ContainerEventType,
    GroupManager,
    GroupRef,
    HolderRef,
    KeyType,
    MemberRole,
    UserRef,
)

_log = logging.getLogger("scbroker")
P = ParamSpec("P")
T = TypeVar("T")
Work = Coroutine[Any, Any, T]
if TYPE_CHECKING:
    import typing_extensions

    H = typing_extensions.TypeVar("H", default=Any)
else:
    H = TypeVar("H")

@runtime_checkable
class BrokerProvider(Protocol):
    @overload
    def register(
        self, password: str, passphrase: str, reminder: str | None = None, *, keep: bool = False
    ) -> Promise[bytes]: ...
    @overload
    def register(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        keep: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @overload
    def logIn(
        self,
        userId: uuid.UUID | str,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        keep: bool = False,
    ) -> Promise[bytes]: ...
    @overload
    def logIn(
        self, keyRing: KeyRing, userId: uuid.UUID | str, *, keep: bool = False
    ) -> Promise[None]: ...
    @overload
    def logIn(
        self,
        userId: uuid.UUID | str,
        password: str | None = None,
        passphrase: str | None = None,
        *,
        keep: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @overload
    def logIn(
        self,
        keyRing: KeyRing,
        userId: uuid.UUID | str,
        *,
        keep: bool = False,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @overload
    def resumeSession(self, userId: uuid.UUID | str | None = None) -> Promise[uuid.UUID]: ...
    @overload
    def resumeSession(
        self, userId: uuid.UUID | str | None = None, **handlers: Unpack[Handlers[uuid.UUID]]
    ) -> Self: ...
    @overload
    def getKeptSessions(self) -> Promise[list[uuid.UUID]]: ...
    @overload
    def getKeptSessions(self, **handlers: Unpack[Handlers[list[uuid.UUID]]]) -> Self: ...
    @overload
    def forgetKeptSession(self, userId: uuid.UUID | str) -> Promise[None]: ...
    @overload
    def forgetKeptSession(
        self, userId: uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @overload
    def logout(self) -> Promise[None]: ...
    @overload
    def logout(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def deleteUser(self) -> Promise[None]: ...
    @overload
    def deleteUser(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def changeCredentials(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        compromised: bool = False,
    ) -> Promise[bytes]: ...
    @overload
    def changeCredentials(
        self,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        *,
        compromised: bool = False,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @overload
    def getKeyRing(self) -> Promise[KeyRing]: ...
    @overload
    def getKeyRing(self, **handlers: Unpack[Handlers[KeyRing]]) -> Self: ...
    @overload
    def getUserId(self) -> Promise[uuid.UUID]: ...
    @overload
    def getUserId(self, **handlers: Unpack[Handlers[uuid.UUID]]) -> Self: ...
    @overload
    def getContactCard(self, name: str) -> Promise[ContactCard]: ...
    @overload
    def getContactCard(self, name: str, **handlers: Unpack[Handlers[ContactCard]]) -> Self: ...
    @overload
    def getReminder(self, userId: uuid.UUID | str | None = None) -> Promise[str]: ...
    @overload
    def getReminder(
        self, userId: uuid.UUID | str | None = None, **handlers: Unpack[Handlers[str]]
    ) -> Self: ...
    @overload
    def createOrUpdateKeyFile(
        self, keyFileData: bytes, password: str, passphrase: str, reminder: str | None = None
    ) -> Promise[bytes]: ...
    @overload
    def createOrUpdateKeyFile(
        self,
        keyFileData: bytes,
        password: str,
        passphrase: str,
        reminder: str | None = None,
        **handlers: Unpack[Handlers[bytes]],
    ) -> Self: ...
    @overload
    def deleteKeyFile(self) -> Promise[None]: ...
    @overload
    def deleteKeyFile(self, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def getKeyFile(self, passphrase: str) -> Promise[bytes]: ...
    @overload
    def getKeyFile(self, passphrase: str, **handlers: Unpack[Handlers[bytes]]) -> Self: ...
    @overload
    def needToSyncAccount(self, userId: uuid.UUID | str, keyFileData: bytes) -> Promise[bool]: ...
    @overload
    def needToSyncAccount(
        self, userId: uuid.UUID | str, keyFileData: bytes, **handlers: Unpack[Handlers[bool]]
    ) -> Self: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def createContainer(
        self,
        content: ContentSource | None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def createContainers(
        self, containers: Iterable[NewContainer]
    ) -> Promise[list[SecuredContainer | errors.BrokerError]]: ...
    @overload
    def createContainers(
        self,
        containers: Iterable[NewContainer],
        **handlers: Unpack[Handlers[list[SecuredContainer | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def updateContainer(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainer(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        customHeaderObject: object = None,
        accessLevels: Iterable[AccessLevel] | None = None,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID | str,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainerHeader(
        self,
        containerId: uuid.UUID | str,
        customHeaderObject: object = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
    ) -> Promise[SecuredContainer]: ...
    @overload
    def updateContainerContent(
        self,
        containerId: uuid.UUID | str,
        content: ContentSource | None = None,
        *,
        ifVersion: int | None = None,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[SecuredContainer]],
    ) -> Self: ...
    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID | str,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
    ) -> Promise[None]: ...
    @overload
    def updateContainerAccessLevels(
        self,
        containerId: uuid.UUID | str,
        accessLevels: Iterable[AccessLevel] | None = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @overload
    def updateContainersAccessLevels(
        self, changes: Iterable[AccessChange]
    ) -> Promise[list[SecuredContainer | errors.BrokerError]]: ...
    @overload
    def updateContainersAccessLevels(
        self,
        changes: Iterable[AccessChange],
        **handlers: Unpack[Handlers[list[SecuredContainer | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def grantAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        accessLevels: AccessLevel | Iterable[AccessLevel],
    ) -> Promise[list[SecuredContainer | errors.BrokerError]]: ...
    @overload
    def grantAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        accessLevels: AccessLevel | Iterable[AccessLevel],
        **handlers: Unpack[Handlers[list[SecuredContainer | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def revokeAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        userIds: HolderRef | Iterable[HolderRef],
    ) -> Promise[list[SecuredContainer | errors.BrokerError]]: ...
    @overload
    def revokeAccess(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        userIds: HolderRef | Iterable[HolderRef],
        **handlers: Unpack[Handlers[list[SecuredContainer | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def createLink(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        permissions: ContainerAccessLevel | int | str = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
        password: str | None = None,
        *,
        name: str | None = None,
        apiKey: uuid.UUID | str | None = None,
    ) -> Promise[Link]: ...
    @overload
    def createLink(
        self,
        containerIds: uuid.UUID | str | Iterable[uuid.UUID | str],
        permissions: ContainerAccessLevel | int | str = ContainerAccessLevel.DefaultUserPermissions,
        expiresAt: dt.datetime | None = None,
        password: str | None = None,
        *,
        name: str | None = None,
        apiKey: uuid.UUID | str | None = None,
        **handlers: Unpack[Handlers[Link]],
    ) -> Self: ...
    @overload
    def getLinks(self) -> Promise[list[Link]]: ...
    @overload
    def getLinks(self, **handlers: Unpack[Handlers[list[Link]]]) -> Self: ...
    @overload
    def revokeLink(self, link: Link | uuid.UUID | str) -> Promise[None]: ...
    @overload
    def revokeLink(
        self, link: Link | uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @overload
    def updateContainerType(
        self, containerId: uuid.UUID | str, type: str | None = None, *, ifVersion: int | None = None
    ) -> Promise[None]: ...
    @overload
    def updateContainerType(
        self,
        containerId: uuid.UUID | str,
        type: str | None = None,
        *,
        ifVersion: int | None = None,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @overload
    def getContainer(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[H] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Promise[Container[H]]: ...
    @overload
    def getContainer(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[H] | None = None,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[Container[H]]],
    ) -> Self: ...
    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID | str],
        headerType: builtins.type[H] | None = None,
        *,
        content: bool = True,
        headers: bool = True,
    ) -> Promise[list[Container[H] | errors.BrokerError]]: ...
    @overload
    def getContainers(
        self,
        containerIds: Iterable[uuid.UUID | str],
        headerType: builtins.type[H] | None = None,
        *,
        content: bool = True,
        headers: bool = True,
        **handlers: Unpack[Handlers[list[Container[H] | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def listContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        limit: int = 64,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
    ) -> Promise[ContainerPage[H]]: ...
    @overload
    def listContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        limit: int = 64,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
        **handlers: Unpack[Handlers[ContainerPage[H]]],
    ) -> Self: ...
    @overload
    def iterContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
    ) -> Stream[Container[H] | errors.BrokerError]: ...
    @overload
    def iterContainers(
        self,
        containerType: str | None = None,
        startAfter: uuid.UUID | str | None = None,
        headers: bool = True,
        headerType: builtins.type[H] | None = None,
        **handlers: Unpack[EventHandlers[Container[H] | errors.BrokerError]],
    ) -> Stream[Container[H] | errors.BrokerError]: ...
    @overload
    def getContainerHeader(
        self, containerId: uuid.UUID | str, headerType: builtins.type[H] | None = None
    ) -> Promise[Header[H] | None]: ...
    @overload
    def getContainerHeader(
        self,
        containerId: uuid.UUID | str,
        headerType: builtins.type[H] | None = None,
        **handlers: Unpack[Handlers[Header[H] | None]],
    ) -> Self: ...
    @overload
    def getContainerContent(
        self, containerId: uuid.UUID | str, *, progress: Progress | None = None
    ) -> Promise[bytes | None]: ...
    @overload
    def getContainerContent(
        self,
        containerId: uuid.UUID | str,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[bytes | None]],
    ) -> Self: ...
    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID | str,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> Promise[int | None]: ...
    @overload
    def saveContainerContent(
        self,
        containerId: uuid.UUID | str,
        path: os.PathLike[str],
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[int | None]],
    ) -> Self: ...
    @overload
    def openContainerContent(
        self, containerId: uuid.UUID | str
    ) -> Promise[ContentReader | None]: ...
    @overload
    def openContainerContent(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[ContentReader | None]]
    ) -> Self: ...
    @overload
    def getContainerMetadata(self, containerId: uuid.UUID | str) -> Promise[Container[Any]]: ...
    @overload
    def getContainerMetadata(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[Container[Any]]]
    ) -> Self: ...
    @overload
    def deleteContainer(self, containerId: uuid.UUID | str) -> Promise[None]: ...
    @overload
    def deleteContainer(
        self, containerId: uuid.UUID | str, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @overload
    def leaveContainer(
        self, containerId: uuid.UUID | str, *, abandon: bool = False
    ) -> Promise[None]: ...
    @overload
    def leaveContainer(
        self,
        containerId: uuid.UUID | str,
        *,
        abandon: bool = False,
        **handlers: Unpack[VoidHandlers],
    ) -> Self: ...
    @overload
    def blockUser(self, userId: UserRef) -> Promise[None]: ...
    @overload
    def blockUser(self, userId: UserRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def unblockUser(self, userId: UserRef) -> Promise[None]: ...
    @overload
    def unblockUser(self, userId: UserRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def getBlockedUsers(self) -> Promise[list[uuid.UUID]]: ...
    @overload
    def getBlockedUsers(self, **handlers: Unpack[Handlers[list[uuid.UUID]]]) -> Self: ...
    @overload
    def createGroup(
        self,
        name: str,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef] | None = None,
        description: str = "",
        *,
        managers: Iterable[GroupManager | UserRef] | None = None,
    ) -> Promise[Group]: ...
    @overload
    def createGroup(
        self,
        name: str,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef] | None = None,
        description: str = "",
        *,
        managers: Iterable[GroupManager | UserRef] | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def getGroups(self, *, offered: bool = True) -> Promise[list[Group | errors.BrokerError]]: ...
    @overload
    def getGroups(
        self,
        *,
        offered: bool = True,
        **handlers: Unpack[Handlers[list[Group | errors.BrokerError]]],
    ) -> Self: ...
    @overload
    def getGroupMembers(self, groupId: GroupRef) -> Promise[list[GroupMember]]: ...
    @overload
    def getGroupMembers(
        self, groupId: GroupRef, **handlers: Unpack[Handlers[list[GroupMember]]]
    ) -> Self: ...
    @overload
    def acceptGroup(self, groupId: GroupRef) -> Promise[Group]: ...
    @overload
    def acceptGroup(self, groupId: GroupRef, **handlers: Unpack[Handlers[Group]]) -> Self: ...
    @overload
    def declineGroup(self, groupId: GroupRef) -> Promise[None]: ...
    @overload
    def declineGroup(self, groupId: GroupRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def leaveGroup(self, groupId: GroupRef, *, abandon: bool = False) -> Promise[None]: ...
    @overload
    def leaveGroup(
        self, groupId: GroupRef, *, abandon: bool = False, **handlers: Unpack[VoidHandlers]
    ) -> Self: ...
    @overload
    def addGroupMembers(
        self, groupId: GroupRef, members: MemberRole | UserRef | Iterable[MemberRole | UserRef]
    ) -> Promise[Group]: ...
    @overload
    def addGroupMembers(
        self,
        groupId: GroupRef,
        members: MemberRole | UserRef | Iterable[MemberRole | UserRef],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def removeGroupMembers(
        self,
        groupId: GroupRef,
        userIds: UserRef | Iterable[UserRef],
        *,
        renew: bool = False,
        progress: Progress | None = None,
    ) -> Promise[Group]: ...
    @overload
    def removeGroupMembers(
        self,
        groupId: GroupRef,
        userIds: UserRef | Iterable[UserRef],
        *,
        renew: bool = False,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def setGroupRoles(
        self, groupId: GroupRef, roles: MemberRole | Iterable[MemberRole]
    ) -> Promise[Group]: ...
    @overload
    def setGroupRoles(
        self,
        groupId: GroupRef,
        roles: MemberRole | Iterable[MemberRole],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def setGroupManagers(
        self, groupId: GroupRef, managers: Iterable[GroupManager | UserRef]
    ) -> Promise[Group]: ...
    @overload
    def setGroupManagers(
        self,
        groupId: GroupRef,
        managers: Iterable[GroupManager | UserRef],
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def renameGroup(
        self, groupId: GroupRef, name: str | None = None, description: str | None = None
    ) -> Promise[Group]: ...
    @overload
    def renameGroup(
        self,
        groupId: GroupRef,
        name: str | None = None,
        description: str | None = None,
        **handlers: Unpack[Handlers[Group]],
    ) -> Self: ...
    @overload
    def renewGroup(
        self, groupId: GroupRef, *, newKey: bool = False, progress: Progress | None = None
    ) -> Promise[GroupRenewal]: ...
    @overload
    def renewGroup(
        self,
        groupId: GroupRef,
        *,
        newKey: bool = False,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[GroupRenewal]],
    ) -> Self: ...
    @overload
    def replaceGroup(
        self, groupId: GroupRef, newGroupId: GroupRef, *, progress: Progress | None = None
    ) -> Promise[GroupRenewal]: ...
    @overload
    def replaceGroup(
        self,
        groupId: GroupRef,
        newGroupId: GroupRef,
        *,
        progress: Progress | None = None,
        **handlers: Unpack[Handlers[GroupRenewal]],
    ) -> Self: ...
    @overload
    def deleteGroup(self, groupId: GroupRef) -> Promise[None]: ...
    @overload
    def deleteGroup(self, groupId: GroupRef, **handlers: Unpack[VoidHandlers]) -> Self: ...
    @overload
    def getUsage(self) -> Promise[Usage]: ...
    @overload
    def getUsage(self, **handlers: Unpack[Handlers[Usage]]) -> Self: ...
    @overload
    def getSentChanges(self, containerId: uuid.UUID | str) -> Promise[Sequence[SentChange]]: ...
    @overload
    def getSentChanges(
        self, containerId: uuid.UUID | str, **handlers: Unpack[Handlers[Sequence[SentChange]]]
    ) -> Self: ...
    @overload
    def resetContainerMark(
        self, containerId: uuid.UUID | str, accept: Head | None = None
    ) -> Promise[Heads]: ...
    @overload
    def resetContainerMark(
        self,
        containerId: uuid.UUID | str,
        accept: Head | None = None,
        **handlers: Unpack[Handlers[Heads]],
    ) -> Self: ...
    @overload
    def confirmAccess(
        self, containerId: uuid.UUID | str, accept: Head | None = None
    ) -> Promise[UnsettledAccess | None]: ...
    @overload
    def confirmAccess(
        self,
        containerId: uuid.UUID | str,
        accept: Head | None = None,
        **handlers: Unpack[Handlers[UnsettledAccess | None]],
    ) -> Self: ...
    @overload
    def resetEventMark(
        self, accept: Head | None = None, *, groupId: GroupRef | None = None
    ) -> Promise[Heads]: ...
    @overload
    def resetEventMark(
        self,
        accept: Head | None = None,
        *,
        groupId: GroupRef | None = None,
        **handlers: Unpack[Handlers[Heads]],
    ) -> Self: ...
    @overload
    def getPublicKeys(
        self,
        userId: UserRef | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
    ) -> Promise[Sequence[PublicKey]]: ...
    @overload
    def getPublicKeys(
        self,
        userId: UserRef | None = None,
        keyType: KeyType | int | str | None = None,
        index: int | None = None,
        **handlers: Unpack[Handlers[Sequence[PublicKey]]],
    ) -> Self: ...
    @overload
    def getLatestActiveSigningKey(
        self, userId: UserRef, keyType: KeyType | int | str = KeyType.Signing
    ) -> Promise[PublicKey | None]: ...
    @overload
    def getLatestActiveSigningKey(
        self,
        userId: UserRef,
        keyType: KeyType | int | str = KeyType.Signing,
        **handlers: Unpack[Handlers[PublicKey | None]],
    ) -> Self: ...
    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        groupId: GroupRef | None = None,
    ) -> Promise[Sequence[ContainerEvent]]: ...
    @overload
    def getEvents(
        self,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        startId: int | None = None,
        endId: int | None = None,
        *,
        groupId: GroupRef | None = None,
        **handlers: Unpack[Handlers[Sequence[ContainerEvent]]],
    ) -> Self: ...
    @overload
    def followEvents(
        self,
        startId: int | None = None,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        *,
        groupStartIds: Mapping[uuid.UUID, int] | None = None,
    ) -> Stream[ContainerEvent]: ...
    @overload
    def followEvents(
        self,
        startId: int | None = None,
        eventType: ContainerEventType | str | Iterable[ContainerEventType | str] | None = None,
        containerId: uuid.UUID | str | None = None,
        containerType: str | None = None,
        *,
        groupStartIds: Mapping[uuid.UUID, int] | None = None,
        **handlers: Unpack[EventHandlers[ContainerEvent]],
    ) -> Stream[ContainerEvent]: ...

OPERATIONS: frozenset[str] = frozenset(
    (name for name, each in vars(BrokerProvider).items() if hasattr(each, "parameters"))
)

class BaseProvider(BrokerProvider, Operations):
    _current: Session | None = None
    _requests: Requests
    _trust_store: TrustStore
    _kept: KeptSessions
    _validator: Validator
    def _session(self) -> Session: ...
    def _how_to_begin(self) -> str: ...
    def _hold(
        self, work: Callable[Concatenate[Session, P], Work[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Work[T]: ...
    def _update_each(
        self, argument: str, items: Sequence[tuple[uuid.UUID, Grants | Merge]]
    ) -> Work[list[SecuredContainer | errors.BrokerError]]: ...
    def _read(
        self,
        containerId: uuid.UUID,
        use: Callable[[Session, fetching.Opened], Work[T]],
        **wanted: Unpack[fetching.Wanted],
    ) -> Work[T]: ...
    async def _log_in(
        self,
        user_id: uuid.UUID,
        password: str | None,
        passphrase: str,
        ring: KeyRing | None,
        keep: bool,
    ) -> bytes | None: ...
    def _begin(self, ring: KeyRing) -> Work[None]: ...
    async def _keeping(self, keep: bool, begin: Callable[[], Work[T]]) -> T: ...
    def _session_of(self, ring: KeyRing) -> Session: ...
    async def _adopt(self, beginning: Work[tuple[Session, T]]) -> T: ...
    async def _resume(
        self, user_id: uuid.UUID | None, begin: Callable[[KeyRing], Work[None]]
    ) -> uuid.UUID: ...
    @classmethod
    def _of(cls, session: Session) -> BaseProvider: ...
    ...

def _header(data: bytes | None, header_type: builtins.type[Any] | None) -> Header[Any] | None: ...
def _wanted(
    type: str | None, limit: int, headers: bool, header_type: builtins.type[Any] | None
) -> contents.Wanted: ...
def changed_fields(
    new: NewContainer, progress: Progress | None = None, creator: uuid.UUID | None = None
) -> Change: ...
def _warn_of_closed(session: Session, change: Change, what: str) -> None: ...
def _new(creator: uuid.UUID, number: int, item: NewContainer) -> Change: ...
def _access_change(number: int, item: AccessChange) -> tuple[uuid.UUID, Grants | Merge]: ...
def _grants(item: AccessChange) -> Grants | Merge: ...
def check_key_ring(
    keyRing: KeyRing, userId: uuid.UUID, password: str | None, passphrase: str | None
) -> None: ...
