"""What a type checker knows of every operation: awaited, waited for, and in a handler.

A wrong expectation here fails `make check`, in mypy or in pyright. Each operation is also given a
handler that takes something else, as near to the right thing as there is: the line is an error, and
should it cease to be one, the unused ignore is.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, assert_type

from scbroker import (
    AccessChange,
    AccessLevel,
    BrokerError,
    Contact,
    ContactCard,
    Contacts,
    Container,
    ContainerEvent,
    ContainerEventType,
    ContainerPage,
    ContentReader,
    Group,
    GroupManager,
    GroupMember,
    GroupRenewal,
    GroupRole,
    Head,
    Header,
    Heads,
    KeyRing,
    KeyType,
    Link,
    LinkProvider,
    MemberRole,
    NewContainer,
    Promise,
    PublicKey,
    SecuredContainer,
    SentChange,
    ServerProvider,
    Stream,
    UnsettledAccess,
    Usage,
    openLink,
)

T = TypeVar("T")


class Takes(Generic[T]):
    """A handler of exactly this. mypy looks at a lambda of overloads once without knowing its types."""

    def __call__(self, found: T) -> None: ...


@dataclass
class Letter:
    subject: str


@dataclass
class Invoice:
    total: int


def failed(error: BrokerError) -> None: ...


def nothing() -> None: ...


async def register(provider: ServerProvider) -> None:
    assert_type(await provider.register("p", "q"), bytes)
    assert_type(provider.register("p", "q", "r").result(), bytes)
    provider.register("p", "q", "r", completionHandler=Takes[bytes](), errorHandler=failed)
    provider.register("p", "q", completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def log_in(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.logIn(user, passphrase="q"), bytes)
    assert_type(provider.logIn(user, "p", "q").result(), bytes)
    provider.logIn(user, passphrase="q", completionHandler=Takes[bytes](), errorHandler=failed)
    provider.logIn(user, passphrase="q", completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def log_in_with_a_ring(provider: ServerProvider, user: uuid.UUID, ring: KeyRing) -> None:
    """The one operation whose forms differ in what they give."""
    await assert_type(provider.logIn(ring, user), Promise[None])
    assert_type(provider.logIn(keyRing=ring, userId=user), Promise[None]).result()
    provider.logIn(ring, user, completionHandler=nothing, errorHandler=failed)
    provider.logIn(keyRing=ring, userId=user, completionHandler=nothing, errorHandler=failed)
    provider.logIn(keyRing=ring, userId=user, completionHandler=Takes[bytes](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def keep(provider: ServerProvider, ring: KeyRing, user: uuid.UUID) -> None:
    assert_type(await provider.register("p", "q", keep=True), bytes)
    assert_type(await provider.logIn(user, passphrase="q", keep=True), bytes)
    await assert_type(provider.logIn(ring, user, keep=True), Promise[None])
    provider.logIn(ring, user, keep=True, completionHandler=nothing, errorHandler=failed)


async def resume_session(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.resumeSession(), uuid.UUID)
    assert_type(provider.resumeSession(user).result(), uuid.UUID)
    provider.resumeSession(completionHandler=Takes[uuid.UUID](), errorHandler=failed)
    provider.resumeSession(completionHandler=Takes[str](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_kept_sessions(provider: ServerProvider) -> None:
    assert_type(await provider.getKeptSessions(), list[uuid.UUID])
    assert_type(provider.getKeptSessions().result(), list[uuid.UUID])
    provider.getKeptSessions(completionHandler=Takes[list[uuid.UUID]](), errorHandler=failed)
    provider.getKeptSessions(completionHandler=Takes[list[str]](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def forget_kept_session(provider: ServerProvider, user: uuid.UUID) -> None:
    await assert_type(provider.forgetKeptSession(user), Promise[None])
    assert_type(provider.forgetKeptSession(user), Promise[None]).result()
    provider.forgetKeptSession(user, completionHandler=nothing, errorHandler=failed)
    provider.forgetKeptSession(user, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def logout(provider: ServerProvider) -> None:
    await assert_type(provider.logout(), Promise[None])
    assert_type(provider.logout(), Promise[None]).result()
    provider.logout(completionHandler=nothing, errorHandler=failed)
    provider.logout(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_key_ring(provider: ServerProvider) -> None:
    assert_type(await provider.getKeyRing(), KeyRing)
    assert_type(provider.getKeyRing().result(), KeyRing)
    provider.getKeyRing(completionHandler=Takes[KeyRing](), errorHandler=failed)
    provider.getKeyRing(completionHandler=Takes[bytes](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_user_id(provider: ServerProvider) -> None:
    assert_type(await provider.getUserId(), uuid.UUID)
    assert_type(provider.getUserId().result(), uuid.UUID)
    provider.getUserId(completionHandler=Takes[uuid.UUID](), errorHandler=failed)
    provider.getUserId(completionHandler=Takes[str](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_reminder(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.getReminder(), str)
    assert_type(provider.getReminder(user).result(), str)
    provider.getReminder(user, completionHandler=Takes[str](), errorHandler=failed)
    provider.getReminder(completionHandler=Takes[bytes](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def change_credentials(provider: ServerProvider) -> None:
    assert_type(await provider.changeCredentials("p", "q"), bytes)
    assert_type(provider.changeCredentials("p", "q", "r", compromised=True).result(), bytes)
    provider.changeCredentials(
        "p", "q", compromised=True, completionHandler=Takes[bytes](), errorHandler=failed
    )
    provider.changeCredentials("p", "q", completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def create_or_update_key_file(provider: ServerProvider) -> None:
    assert_type(await provider.createOrUpdateKeyFile(b"k", "p", "q"), bytes)
    assert_type(provider.createOrUpdateKeyFile(b"k", "p", "q", "r").result(), bytes)
    provider.createOrUpdateKeyFile(
        b"k", "p", "q", completionHandler=Takes[bytes](), errorHandler=failed
    )
    provider.createOrUpdateKeyFile(b"k", "p", "q", completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_key_file(provider: ServerProvider) -> None:
    assert_type(await provider.getKeyFile("q"), bytes)
    assert_type(provider.getKeyFile("q").result(), bytes)
    provider.getKeyFile("q", completionHandler=Takes[bytes](), errorHandler=failed)
    provider.getKeyFile("q", completionHandler=Takes[KeyRing](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def delete_key_file(provider: ServerProvider) -> None:
    await assert_type(provider.deleteKeyFile(), Promise[None])
    assert_type(provider.deleteKeyFile(), Promise[None]).result()
    provider.deleteKeyFile(completionHandler=nothing, errorHandler=failed)
    provider.deleteKeyFile(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def need_to_sync_account(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.needToSyncAccount(user, b"k"), bool)
    assert_type(provider.needToSyncAccount(user, b"k").result(), bool)
    provider.needToSyncAccount(user, b"k", completionHandler=Takes[bool](), errorHandler=failed)
    provider.needToSyncAccount(user, b"k", completionHandler=Takes[str](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def delete_user(provider: ServerProvider) -> None:
    await assert_type(provider.deleteUser(), Promise[None])
    assert_type(provider.deleteUser(), Promise[None]).result()
    provider.deleteUser(completionHandler=nothing, errorHandler=failed)
    provider.deleteUser(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def create_container(provider: ServerProvider, levels: list[AccessLevel]) -> None:
    assert_type(await provider.createContainer(b"c", {"any": 1}), SecuredContainer)
    assert_type(provider.createContainer(None, Letter("s")).result(), SecuredContainer)
    assert_type(await provider.createContainer(b"c", {"any": 1}, levels, "type"), SecuredContainer)
    assert_type(await provider.createContainer(b"c", levels, "type"), SecuredContainer)
    assert_type(await provider.createContainer(b"c", None, "type"), SecuredContainer)
    assert_type(await provider.createContainer(b"c", []), SecuredContainer)
    provider.createContainer(
        b"c", levels, "type", completionHandler=Takes[SecuredContainer](), errorHandler=failed
    )
    provider.createContainer(b"c", completionHandler=Takes[SecuredContainer](), errorHandler=failed)
    provider.createContainer(  # pyright: ignore[reportCallIssue]
        b"c",
        completionHandler=Takes[Container[Any]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def create_containers(provider: ServerProvider) -> None:
    new = [NewContainer(b"c", Letter("s")), NewContainer(content=None, type="t")]
    assert_type(await provider.createContainers(new), list[SecuredContainer | BrokerError])
    assert_type(provider.createContainers(iter(new)).result(), list[SecuredContainer | BrokerError])
    provider.createContainers(
        new, completionHandler=Takes[list[SecuredContainer | BrokerError]](), errorHandler=failed
    )
    provider.createContainers(
        new,
        completionHandler=Takes[list[SecuredContainer]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def update_container(
    provider: ServerProvider, container: uuid.UUID, levels: list[AccessLevel]
) -> None:
    assert_type(await provider.updateContainer(container), SecuredContainer)
    assert_type(
        provider.updateContainer(container, b"", Letter("s"), levels, "type", ifVersion=1).result(),
        SecuredContainer,
    )
    provider.updateContainer(
        container,
        b"",
        None,
        levels,
        completionHandler=Takes[SecuredContainer](),
        errorHandler=failed,
    )
    provider.updateContainer(container, content=b"", completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def update_container_header(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.updateContainerHeader(container, Letter("s")), SecuredContainer)
    assert_type(provider.updateContainerHeader(container).result(), SecuredContainer)
    provider.updateContainerHeader(
        container, completionHandler=Takes[SecuredContainer](), errorHandler=failed
    )
    provider.updateContainerHeader(container, completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def update_container_content(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.updateContainerContent(container, b""), SecuredContainer)
    assert_type(provider.updateContainerContent(container).result(), SecuredContainer)
    provider.updateContainerContent(
        container, completionHandler=Takes[SecuredContainer](), errorHandler=failed
    )
    provider.updateContainerContent(container, completionHandler=nothing, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def update_container_access_levels(provider: ServerProvider, container: uuid.UUID) -> None:
    await assert_type(provider.updateContainerAccessLevels(container), Promise[None])
    assert_type(provider.updateContainerAccessLevels(container), Promise[None]).result()
    provider.updateContainerAccessLevels(container, completionHandler=nothing, errorHandler=failed)
    provider.updateContainerAccessLevels(
        container,
        completionHandler=Takes[SecuredContainer](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


Changed: TypeAlias = list[SecuredContainer | BrokerError]


async def update_containers_access_levels(
    provider: ServerProvider, containers: list[uuid.UUID], levels: list[AccessLevel]
) -> None:
    changes = [AccessChange(each, add=levels, remove=containers) for each in containers]
    assert_type(await provider.updateContainersAccessLevels(changes), Changed)
    assert_type(provider.updateContainersAccessLevels(iter(changes)).result(), Changed)
    provider.updateContainersAccessLevels(
        changes, completionHandler=Takes[Changed](), errorHandler=failed
    )
    provider.updateContainersAccessLevels(
        changes,
        completionHandler=Takes[list[SecuredContainer]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def grant_access(
    provider: ServerProvider, containers: list[uuid.UUID], levels: list[AccessLevel]
) -> None:
    assert_type(await provider.grantAccess(containers, levels), Changed)
    assert_type(provider.grantAccess(containers[0], levels[0]).result(), Changed)
    provider.grantAccess(
        iter(containers), iter(levels), completionHandler=Takes[Changed](), errorHandler=failed
    )
    provider.grantAccess(
        containers,
        levels,
        completionHandler=Takes[list[SecuredContainer]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def revoke_access(
    provider: ServerProvider, containers: list[uuid.UUID], users: list[uuid.UUID]
) -> None:
    assert_type(await provider.revokeAccess(containers, users), Changed)
    assert_type(provider.revokeAccess(containers[0], users[0]).result(), Changed)
    provider.revokeAccess(
        iter(containers), iter(users), completionHandler=Takes[Changed](), errorHandler=failed
    )
    provider.revokeAccess(
        containers,
        users,
        completionHandler=Takes[list[SecuredContainer]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def create_link(provider: ServerProvider, box: uuid.UUID, end: dt.datetime) -> None:
    assert_type(await provider.createLink(box, expiresAt=end), Link)
    assert_type(
        provider.createLink([box], "Download|Decrypt", end, "secret", name="n").result(), Link
    )
    provider.createLink(box, completionHandler=Takes[Link](), errorHandler=failed)
    provider.createLink(box, completionHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_links(provider: ServerProvider) -> None:
    assert_type(await provider.getLinks(), list[Link])
    assert_type(provider.getLinks().result(), list[Link])
    provider.getLinks(completionHandler=Takes[list[Link]](), errorHandler=failed)
    provider.getLinks(completionHandler=Takes[Link](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def revoke_link(provider: ServerProvider, link: Link) -> None:
    await provider.revokeLink(link)
    provider.revokeLink(link.userId).result()
    provider.revokeLink(str(link.userId), completionHandler=nothing, errorHandler=failed)
    provider.revokeLink(link, completionHandler=Takes[Link](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def open_link(link: Link) -> None:
    assert_type(await openLink(link), LinkProvider)
    assert_type(openLink(link.url, "secret", applicationName="n").result(), LinkProvider)
    openLink(link.url, completionHandler=Takes[LinkProvider](), errorHandler=failed)
    openLink(link.url, completionHandler=Takes[Link](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def update_container_type(provider: ServerProvider, container: uuid.UUID) -> None:
    await assert_type(provider.updateContainerType(container, "note"), Promise[None])
    assert_type(provider.updateContainerType(container), Promise[None]).result()
    provider.updateContainerType(container, completionHandler=nothing, errorHandler=failed)
    provider.updateContainerType(
        container,
        completionHandler=Takes[SecuredContainer](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_container(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainer(container), Container[Any])
    assert_type(provider.getContainer(container).result(), Container[Any])
    provider.getContainer(container, completionHandler=Takes[Container[Any]](), errorHandler=failed)
    provider.getContainer(
        container,
        completionHandler=Takes[SecuredContainer](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_container_with_a_type(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainer(container, Letter), Container[Letter])
    assert_type(provider.getContainer(container, headerType=Letter).result(), Container[Letter])
    provider.getContainer(
        container, Letter, completionHandler=Takes[Container[Letter]](), errorHandler=failed
    )
    provider.getContainer(
        container,
        Letter,
        completionHandler=Takes[Container[Invoice]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )
    found = await provider.getContainer(container, Letter)
    assert_type(found.header, Header[Letter] | None)
    if found.header is not None:
        assert_type(found.header.customHeaderObject, Letter)


async def get_containers(provider: ServerProvider, containers: list[uuid.UUID]) -> None:
    assert_type(await provider.getContainers(containers), list[Container[Any] | BrokerError])
    assert_type(
        provider.getContainers(iter(containers)).result(), list[Container[Any] | BrokerError]
    )
    provider.getContainers(
        containers,
        completionHandler=Takes[list[Container[Any] | BrokerError]](),
        errorHandler=failed,
    )
    provider.getContainers(
        containers,
        completionHandler=Takes[list[SecuredContainer | BrokerError]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_containers_without_parts(
    provider: ServerProvider, containers: list[uuid.UUID]
) -> None:
    found = await provider.getContainers(containers, content=False, headers=False)
    assert_type(found, list[Container[Any] | BrokerError])


async def get_containers_with_a_type(provider: ServerProvider, containers: list[uuid.UUID]) -> None:
    assert_type(
        await provider.getContainers(containers, Letter), list[Container[Letter] | BrokerError]
    )
    assert_type(
        provider.getContainers(containers, headerType=Letter).result(),
        list[Container[Letter] | BrokerError],
    )
    provider.getContainers(
        containers,
        Letter,
        completionHandler=Takes[list[Container[Letter] | BrokerError]](),
        errorHandler=failed,
    )
    provider.getContainers(
        containers,
        Letter,
        completionHandler=Takes[list[Container[Invoice] | BrokerError]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_container_header(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainerHeader(container), Header[Any] | None)
    assert_type(provider.getContainerHeader(container).result(), Header[Any] | None)
    provider.getContainerHeader(
        container, completionHandler=Takes[Header[Any] | None](), errorHandler=failed
    )
    provider.getContainerHeader(
        container,
        completionHandler=Takes[Header[Any]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_container_header_with_a_type(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainerHeader(container, Letter), Header[Letter] | None)
    assert_type(
        provider.getContainerHeader(container, headerType=Letter).result(), Header[Letter] | None
    )
    provider.getContainerHeader(
        container, Letter, completionHandler=Takes[Header[Letter] | None](), errorHandler=failed
    )
    provider.getContainerHeader(
        container,
        Letter,
        completionHandler=Takes[Header[Letter]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )
    found = await provider.getContainerHeader(container, Letter)
    if found is not None:
        assert_type(found.customHeaderObject.subject, str)


async def get_container_content(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainerContent(container), bytes | None)
    assert_type(provider.getContainerContent(container).result(), bytes | None)
    provider.getContainerContent(
        container, completionHandler=Takes[bytes | None](), errorHandler=failed
    )
    provider.getContainerContent(container, completionHandler=Takes[bytes](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def save_container_content(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.saveContainerContent(container, Path("file")), int | None)
    assert_type(provider.saveContainerContent(container, Path("file")).result(), int | None)
    provider.saveContainerContent(
        container, Path("file"), completionHandler=Takes[int | None](), errorHandler=failed
    )
    provider.saveContainerContent(
        container,
        Path("file"),
        completionHandler=Takes[int](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def open_container_content(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.openContainerContent(container), ContentReader | None)
    assert_type(provider.openContainerContent(container).result(), ContentReader | None)
    provider.openContainerContent(
        container, completionHandler=Takes[ContentReader | None](), errorHandler=failed
    )
    provider.openContainerContent(
        container,
        completionHandler=Takes[ContentReader](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_container_metadata(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainerMetadata(container), Container[Any])
    assert_type(provider.getContainerMetadata(container).result(), Container[Any])
    provider.getContainerMetadata(
        container, completionHandler=Takes[Container[Any]](), errorHandler=failed
    )
    provider.getContainerMetadata(
        container,
        completionHandler=Takes[SecuredContainer](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_secured_container(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getSecuredContainer(container), SecuredContainer)
    assert_type(provider.getSecuredContainer(container).result(), SecuredContainer)
    provider.getSecuredContainer(
        container, completionHandler=Takes[SecuredContainer](), errorHandler=failed
    )
    provider.getSecuredContainer(
        container,
        completionHandler=Takes[Container[Any]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def delete_container(provider: ServerProvider, container: uuid.UUID) -> None:
    await assert_type(provider.deleteContainer(container), Promise[None])
    assert_type(provider.deleteContainer(container), Promise[None]).result()
    provider.deleteContainer(container, completionHandler=nothing, errorHandler=failed)
    provider.deleteContainer(container, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def list_containers(provider: ServerProvider) -> None:
    assert_type(await provider.listContainers(), ContainerPage[Any])
    assert_type(provider.listContainers(headerType=Letter).result(), ContainerPage[Letter])
    provider.listContainers(completionHandler=Takes[ContainerPage[Any]](), errorHandler=failed)
    provider.listContainers(
        completionHandler=Takes[Container[Any]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def iter_containers(provider: ServerProvider) -> None:
    assert_type(provider.iterContainers(), Stream[Container[Any] | BrokerError])
    assert_type(provider.iterContainers(headerType=Letter), Stream[Container[Letter] | BrokerError])
    provider.iterContainers(eventHandler=Takes[Container[Any] | BrokerError](), errorHandler=failed)
    provider.iterContainers(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def leave_container(provider: ServerProvider, container: uuid.UUID) -> None:
    await assert_type(provider.leaveContainer(container), Promise[None])
    assert_type(provider.leaveContainer(str(container), abandon=True), Promise[None]).result()
    provider.leaveContainer(container, completionHandler=nothing, errorHandler=failed)
    provider.leaveContainer(container, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def block_user(provider: ServerProvider, user: uuid.UUID, contact: Contact) -> None:
    provider.blockUser(contact).result()
    await assert_type(provider.blockUser(user), Promise[None])
    assert_type(provider.blockUser(str(user)), Promise[None]).result()
    provider.blockUser(user, completionHandler=nothing, errorHandler=failed)
    provider.blockUser(user, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def unblock_user(provider: ServerProvider, user: uuid.UUID, card: ContactCard) -> None:
    provider.unblockUser(card).result()
    await assert_type(provider.unblockUser(user), Promise[None])
    assert_type(provider.unblockUser(str(user)), Promise[None]).result()
    provider.unblockUser(user, completionHandler=nothing, errorHandler=failed)
    provider.unblockUser(user, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_blocked_users(provider: ServerProvider) -> None:
    assert_type(await provider.getBlockedUsers(), list[uuid.UUID])
    assert_type(provider.getBlockedUsers().result(), list[uuid.UUID])
    provider.getBlockedUsers(completionHandler=Takes[list[uuid.UUID]](), errorHandler=failed)
    provider.getBlockedUsers(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def create_group(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.createGroup("Team"), Group)
    assert_type(
        provider.createGroup(
            "Team", [user, MemberRole(user)], "all of us", managers=[user]
        ).result(),
        Group,
    )
    provider.createGroup("Team", completionHandler=Takes[Group](), errorHandler=failed)
    provider.createGroup("Team", completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_groups(provider: ServerProvider) -> None:
    assert_type(await provider.getGroups(), list[Group | BrokerError])
    assert_type(provider.getGroups().result(), list[Group | BrokerError])
    provider.getGroups(completionHandler=Takes[list[Group | BrokerError]](), errorHandler=failed)
    provider.getGroups(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_group_members(provider: ServerProvider, group: Group) -> None:
    assert_type(await provider.getGroupMembers(group), list[GroupMember])
    assert_type(provider.getGroupMembers(group.id).result(), list[GroupMember])
    provider.getGroupMembers(
        group, completionHandler=Takes[list[GroupMember]](), errorHandler=failed
    )
    provider.getGroupMembers(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def accept_group(provider: ServerProvider, group: Group) -> None:
    assert_type(await provider.acceptGroup(group), Group)
    assert_type(provider.acceptGroup(str(group.id)).result(), Group)
    provider.acceptGroup(group, completionHandler=Takes[Group](), errorHandler=failed)
    provider.acceptGroup(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def decline_group(provider: ServerProvider, group: Group) -> None:
    await assert_type(provider.declineGroup(group), Promise[None])
    assert_type(provider.declineGroup(group.id), Promise[None]).result()
    provider.declineGroup(group, completionHandler=nothing, errorHandler=failed)
    provider.declineGroup(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def leave_group(provider: ServerProvider, group: Group) -> None:
    await assert_type(provider.leaveGroup(group), Promise[None])
    assert_type(provider.leaveGroup(group.id, abandon=True), Promise[None]).result()
    provider.leaveGroup(group, completionHandler=nothing, errorHandler=failed)
    provider.leaveGroup(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def add_group_members(provider: ServerProvider, group: Group, user: uuid.UUID) -> None:
    assert_type(await provider.addGroupMembers(group, user), Group)
    assert_type(
        provider.addGroupMembers(group, [user, MemberRole(user, GroupRole.Reader)]).result(), Group
    )
    provider.addGroupMembers(group, user, completionHandler=Takes[Group](), errorHandler=failed)
    provider.addGroupMembers(group, user, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def remove_group_members(provider: ServerProvider, group: Group, user: uuid.UUID) -> None:
    assert_type(await provider.removeGroupMembers(group, user), Group)
    assert_type(provider.removeGroupMembers(group, [user], renew=True).result(), Group)
    provider.removeGroupMembers(group, user, completionHandler=Takes[Group](), errorHandler=failed)
    provider.removeGroupMembers(group, user, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def set_group_roles(provider: ServerProvider, group: Group, user: uuid.UUID) -> None:
    assert_type(await provider.setGroupRoles(group, MemberRole(user, "Reader")), Group)
    assert_type(provider.setGroupRoles(group, [MemberRole(user)]).result(), Group)
    provider.setGroupRoles(
        group, MemberRole(user, "Reader"), completionHandler=Takes[Group](), errorHandler=failed
    )
    provider.setGroupRoles(group, [], completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def set_group_managers(provider: ServerProvider, group: Group, user: uuid.UUID) -> None:
    assert_type(await provider.setGroupManagers(group, [user]), Group)
    assert_type(provider.setGroupManagers(group, [GroupManager(user, owner=True)]).result(), Group)
    provider.setGroupManagers(group, [user], completionHandler=Takes[Group](), errorHandler=failed)
    provider.setGroupManagers(group, [user], completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def rename_group(provider: ServerProvider, group: Group) -> None:
    assert_type(await provider.renameGroup(group, "New"), Group)
    assert_type(provider.renameGroup(group, description="new").result(), Group)
    provider.renameGroup(group, "New", completionHandler=Takes[Group](), errorHandler=failed)
    provider.renameGroup(group, "New", completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def renew_group(provider: ServerProvider, group: Group) -> None:
    assert_type(await provider.renewGroup(group), GroupRenewal)
    assert_type(provider.renewGroup(group, newKey=True).result(), GroupRenewal)
    provider.renewGroup(group, completionHandler=Takes[GroupRenewal](), errorHandler=failed)
    provider.renewGroup(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def replace_group(provider: ServerProvider, group: Group) -> None:
    assert_type(await provider.replaceGroup(group, group.id), GroupRenewal)
    assert_type(provider.replaceGroup(group.id, group).result(), GroupRenewal)
    provider.replaceGroup(
        group, group.id, completionHandler=Takes[GroupRenewal](), errorHandler=failed
    )
    provider.replaceGroup(group, group.id, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def delete_group(provider: ServerProvider, group: Group) -> None:
    await assert_type(provider.deleteGroup(group), Promise[None])
    assert_type(provider.deleteGroup(group.id), Promise[None]).result()
    provider.deleteGroup(group, completionHandler=nothing, errorHandler=failed)
    provider.deleteGroup(group, completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_usage(provider: ServerProvider) -> None:
    assert_type(await provider.getUsage(), Usage)
    assert_type(provider.getUsage().result(), Usage)
    provider.getUsage(completionHandler=Takes[Usage](), errorHandler=failed)
    provider.getUsage(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_contact_card(provider: ServerProvider) -> None:
    assert_type(await provider.getContactCard("Alice"), ContactCard)
    assert_type(provider.getContactCard("Alice").result(), ContactCard)
    provider.getContactCard("A", completionHandler=Takes[ContactCard](), errorHandler=failed)
    provider.getContactCard("A", completionHandler=Takes[Contact](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def contacts(book: Contacts, card: ContactCard, provider: ServerProvider) -> None:
    """The address book, and its contacts in place of user ids."""
    found = assert_type(await book.add(card, "Bob", verified=True), Contact)
    assert_type(book.get("Bob").result(), Contact)
    assert_type(await book.find("B"), Sequence[Contact])
    assert_type(await book.list(), Sequence[Contact])
    assert_type(await book.rename("Bob", "Robert"), Contact)
    assert_type(await book.verify("Robert", found.fingerprint), Contact)
    await assert_type(book.remove("Robert"), Promise[None])
    assert_type(
        book.list(completionHandler=Takes[Sequence[Contact]](), errorHandler=failed), Contacts
    )
    book.remove("Bob", completionHandler=nothing, errorHandler=failed)
    book.remove("Bob", completionHandler=Takes[Contact](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await provider.grantAccess(found.userId, [AccessLevel(found), AccessLevel(card)])
    await provider.revokeAccess(found.userId, [found, card, found.userId, str(found.userId)])
    await provider.revokeAccess(found.userId, found)
    await provider.getPublicKeys(found)
    await provider.getLatestActiveSigningKey(card)
    AccessChange(found.userId, remove=[found, card])
    await provider.getContainer(found)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def get_sent_changes(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getSentChanges(container), Sequence[SentChange])
    assert_type(provider.getSentChanges(container).result(), Sequence[SentChange])
    provider.getSentChanges(
        container, completionHandler=Takes[Sequence[SentChange]](), errorHandler=failed
    )
    provider.getSentChanges(
        container,
        completionHandler=Takes[list[SentChange]](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def confirm_access(provider: ServerProvider, container: uuid.UUID, head: Head) -> None:
    assert_type(await provider.confirmAccess(container), UnsettledAccess | None)
    assert_type(provider.confirmAccess(container, accept=head).result(), UnsettledAccess | None)
    provider.confirmAccess(
        container, completionHandler=Takes[UnsettledAccess | None](), errorHandler=failed
    )
    provider.confirmAccess(container, completionHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def reset_container_mark(provider: ServerProvider, container: uuid.UUID, head: Head) -> None:
    assert_type(await provider.resetContainerMark(container), Heads)
    assert_type(provider.resetContainerMark(container, accept=head).result(), Heads)
    provider.resetContainerMark(container, completionHandler=Takes[Heads](), errorHandler=failed)
    provider.resetContainerMark(container, completionHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def reset_event_mark(provider: ServerProvider, head: Head) -> None:
    assert_type(await provider.resetEventMark(), Heads)
    assert_type(provider.resetEventMark(head).result(), Heads)
    provider.resetEventMark(completionHandler=Takes[Heads](), errorHandler=failed)
    provider.resetEventMark(completionHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_public_keys(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.getPublicKeys(keyType=KeyType.Signing), Sequence[PublicKey])
    assert_type(provider.getPublicKeys(user, index=0).result(), Sequence[PublicKey])
    provider.getPublicKeys(
        user, completionHandler=Takes[Sequence[PublicKey]](), errorHandler=failed
    )
    provider.getPublicKeys(user, completionHandler=Takes[list[PublicKey]](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_latest_active_signing_key(provider: ServerProvider, user: uuid.UUID) -> None:
    assert_type(await provider.getLatestActiveSigningKey(user), PublicKey | None)
    assert_type(
        provider.getLatestActiveSigningKey(user, KeyType.Encryption).result(), PublicKey | None
    )
    provider.getLatestActiveSigningKey(
        user, completionHandler=Takes[PublicKey | None](), errorHandler=failed
    )
    provider.getLatestActiveSigningKey(
        user,
        completionHandler=Takes[PublicKey](),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        errorHandler=failed,
    )


async def get_events(provider: ServerProvider) -> None:
    assert_type(await provider.getEvents([ContainerEventType.Added]), Sequence[ContainerEvent])
    assert_type(provider.getEvents(startId=1).result(), Sequence[ContainerEvent])
    provider.getEvents(completionHandler=Takes[Sequence[ContainerEvent]](), errorHandler=failed)
    provider.getEvents(completionHandler=Takes[list[ContainerEvent]](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def follow_events(provider: ServerProvider) -> None:
    async for event in assert_type(provider.followEvents(), Stream[ContainerEvent]):
        assert_type(event, ContainerEvent)
    for event in provider.followEvents(1, [ContainerEventType.Added]):
        assert_type(event, ContainerEvent)
    handled = provider.followEvents(eventHandler=Takes[ContainerEvent](), errorHandler=failed)
    assert_type(handled, Stream[ContainerEvent])
    provider.followEvents(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
