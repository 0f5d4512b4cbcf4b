"""The types of each form of an operation: awaited, waited for, and in a handler.

A wrong expectation here fails `make check`, in mypy or in pyright. Most are also given a
handler that takes something else, as near to the right thing as there is: the line is an error, and
should it cease to be one, the unused ignore is.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_type

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
    Head,
    Header,
    Link,
    LinkProvider,
    Promise,
    SecuredContainer,
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


async def open_link(link: Link) -> None:
    assert_type(await openLink(link), LinkProvider)
    assert_type(openLink(link.url, "secret", applicationName="n").result(), LinkProvider)
    openLink(link.url, completionHandler=Takes[LinkProvider](), errorHandler=failed)
    openLink(link.url, completionHandler=Takes[Link](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


async def iter_containers(provider: ServerProvider) -> None:
    assert_type(provider.iterContainers(), Stream[Container[Any] | BrokerError])
    assert_type(provider.iterContainers(headerType=Letter), Stream[Container[Letter] | BrokerError])
    provider.iterContainers(eventHandler=Takes[Container[Any] | BrokerError](), errorHandler=failed)
    provider.iterContainers(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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


async def follow_events(provider: ServerProvider) -> None:
    async for event in assert_type(provider.followEvents(), Stream[ContainerEvent]):
        assert_type(event, ContainerEvent)
    for event in provider.followEvents(1, [ContainerEventType.Added]):
        assert_type(event, ContainerEvent)
    handled = provider.followEvents(eventHandler=Takes[ContainerEvent](), errorHandler=failed)
    assert_type(handled, Stream[ContainerEvent])
    provider.followEvents(eventHandler=Takes[Head](), errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
