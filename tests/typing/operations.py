"""The types of each form of an operation: awaited, waited for, and in a handler.

A wrong expectation here fails `make check`, in mypy or in pyright. Most are also given a
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
    ContentReader,
    Group,
    Head,
    Header,
    Link,
    LinkProvider,
    NewContainer,
    Promise,
    SecuredContainer,
    SentChange,
    ServerProvider,
    Stream,
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


async def get_kept_sessions(provider: ServerProvider) -> None:
    assert_type(await provider.getKeptSessions(), list[uuid.UUID])
    assert_type(provider.getKeptSessions().result(), list[uuid.UUID])
    provider.getKeptSessions(completionHandler=Takes[list[uuid.UUID]](), errorHandler=failed)
    provider.getKeptSessions(completionHandler=Takes[list[str]](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def logout(provider: ServerProvider) -> None:
    await assert_type(provider.logout(), Promise[None])
    assert_type(provider.logout(), Promise[None]).result()
    provider.logout(completionHandler=nothing, errorHandler=failed)
    provider.logout(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


async def create_link(provider: ServerProvider, box: uuid.UUID, end: dt.datetime) -> None:
    assert_type(await provider.createLink(box, expiresAt=end), Link)
    assert_type(
        provider.createLink([box], "Download|Decrypt", end, "secret", name="n").result(), Link
    )
    provider.createLink(box, completionHandler=Takes[Link](), errorHandler=failed)
    provider.createLink(box, completionHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def open_link(link: Link) -> None:
    assert_type(await openLink(link), LinkProvider)
    assert_type(openLink(link.url, "secret", applicationName="n").result(), LinkProvider)
    openLink(link.url, completionHandler=Takes[LinkProvider](), errorHandler=failed)
    openLink(link.url, completionHandler=Takes[Link](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


async def iter_containers(provider: ServerProvider) -> None:
    assert_type(provider.iterContainers(), Stream[Container[Any] | BrokerError])
    assert_type(provider.iterContainers(headerType=Letter), Stream[Container[Letter] | BrokerError])
    provider.iterContainers(eventHandler=Takes[Container[Any] | BrokerError](), errorHandler=failed)
    provider.iterContainers(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def get_groups(provider: ServerProvider) -> None:
    assert_type(await provider.getGroups(), list[Group | BrokerError])
    assert_type(provider.getGroups().result(), list[Group | BrokerError])
    provider.getGroups(completionHandler=Takes[list[Group | BrokerError]](), errorHandler=failed)
    provider.getGroups(completionHandler=Takes[None](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


async def follow_events(provider: ServerProvider) -> None:
    async for event in assert_type(provider.followEvents(), Stream[ContainerEvent]):
        assert_type(event, ContainerEvent)
    for event in provider.followEvents(1, [ContainerEventType.Added]):
        assert_type(event, ContainerEvent)
    handled = provider.followEvents(eventHandler=Takes[ContainerEvent](), errorHandler=failed)
    assert_type(handled, Stream[ContainerEvent])
    provider.followEvents(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
