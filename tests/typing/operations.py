"""What a type checker knows of both call styles. A wrong expectation here fails `make check`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_type

from scbroker import (
    AccessLevel,
    BrokerError,
    BrokerProvider,
    Container,
    ContainerAccessLevel,
    ContainerEvent,
    ContainerEventType,
    Header,
    KeyRing,
    KeyType,
    Promise,
    PublicKey,
    SecuredContainer,
    ServerProvider,
    mainQueue,
)


@dataclass
class Letter:
    subject: str


def failed(error: BrokerError) -> None:
    assert_type(error.code, str)


def on_error(error: Exception) -> None:
    """A handler may take more than it is given."""


async def promise_style(provider: ServerProvider, user: uuid.UUID, ring: KeyRing) -> None:
    assert_type(await provider.register("p", "q"), bytes)
    assert_type(provider.register("p", "q", "r").result(), bytes)
    assert_type(await provider.logIn(user, passphrase="q"), bytes)
    assert_type(await provider.getKeyRing(), KeyRing)
    assert_type(await provider.getUserId(), uuid.UUID)
    assert_type(await provider.getReminder(), str)
    assert_type(await provider.createContainer(b"c", {"any": 1}), SecuredContainer)
    assert_type(await provider.getContainerContent(user), bytes | None)
    assert_type(await provider.getContainerMetadata(user), Container[Any])
    assert_type(await provider.getSecuredContainer(user), SecuredContainer)
    assert_type(await provider.updateContainerHeader(user, Letter("s")), SecuredContainer)
    assert_type(await provider.getPublicKeys(keyType=KeyType.Signing), Sequence[PublicKey])
    assert_type(await provider.getLatestActiveSigningKey(user), PublicKey | None)
    events = await provider.getEvents([ContainerEventType.Added])
    assert_type(events, Sequence[ContainerEvent])
    assert_type(events[0].eventType, ContainerEventType)
    void = [
        assert_type(provider.logIn(keyRing=ring, userId=user), Promise[None]),
        assert_type(provider.logout(), Promise[None]),
        assert_type(provider.deleteContainer(user), Promise[None]),
        assert_type(provider.updateContainerType(user), Promise[None]),
        assert_type(provider.updateContainerAccessLevels(user), Promise[None]),
    ]
    for promise in void:
        await promise


async def headers_are_generic(provider: ServerProvider, container: uuid.UUID) -> None:
    assert_type(await provider.getContainerHeader(container), Header[Any] | None)
    assert_type(await provider.getContainerHeader(container, Letter), Header[Letter] | None)
    found = await provider.getContainer(container, Letter)
    assert_type(found, Container[Letter])
    assert_type(found.header, Header[Letter] | None)
    if found.header is not None:
        assert_type(found.header.customHeaderObject.subject, str)
    assert_type((await provider.getContainer(container)).header, Header[Any] | None)
    assert_type(found.access, Sequence[AccessLevel] | None)


def callback_style(
    provider: ServerProvider,
    container: uuid.UUID,
    user: uuid.UUID,
    ring: KeyRing,
    made: Callable[[SecuredContainer], None],
    letter: Callable[[Container[Letter]], None],
    key_file: Callable[[bytes], None],
) -> None:
    """Chaining works: each gives the provider itself, of its own class."""
    assert_type(
        provider.createContainer(b"", completionHandler=made, errorHandler=failed), ServerProvider
    )
    assert_type(
        provider.getContainer(container, Letter, completionHandler=letter, errorHandler=failed),
        ServerProvider,
    )
    with ThreadPoolExecutor() as queue:
        provider.logout(completionHandler=lambda: None, errorHandler=on_error, queue=queue)
    provider.deleteContainer(
        container, completionHandler=lambda: 7, errorHandler=failed, queue=mainQueue
    ).getUserId(completionHandler=print, errorHandler=failed)
    provider.logIn(user, passphrase="q", completionHandler=key_file, errorHandler=failed)
    provider.logIn(keyRing=ring, userId=user, completionHandler=lambda: None, errorHandler=failed)


def a_server_provider_is_a_broker_provider(provider: ServerProvider) -> BrokerProvider:
    return provider


def errors_are_classes(provider: ServerProvider) -> float | None:
    try:
        provider.logout().result(timeout=1.0)
    except BrokerError.throttledError as error:
        assert_type(error.retryAfter, float | None)
        return error.retryAfter
    except (BrokerError.notFoundError, BrokerError.deletedError) as error:
        assert_type(error.message, str)
    return None


def permissions_are_flags(user: uuid.UUID) -> AccessLevel:
    level = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
    assert_type(level, ContainerAccessLevel)
    return AccessLevel(user, level)


async def wrong_uses(
    provider: ServerProvider,
    container: uuid.UUID,
    levels: list[AccessLevel],
    key_file: Callable[[bytes], None],
    nothing: Callable[[], None],
) -> None:
    """Each line is an error; should it cease to be one, the unused ignore is."""
    provider.getUserId()  # type: ignore[unused-awaitable]
    await provider.register("p")  # type: ignore[call-overload]
    await provider.createContainer("text", None, levels)  # type: ignore[call-overload]
    await provider.createContainer(b"", None, levels)  # type: ignore[call-overload]
    await provider.createContainer(b"", accessLevels=[container])  # type: ignore[list-item]
    await provider.updateContainer(container, content=b"")  # type: ignore[call-overload]
    await provider.getContainer("id")  # type: ignore[call-overload]
    await provider.logIn("id", passphrase="q")  # type: ignore[call-overload]
    provider.logout(completionHandler=nothing)  # type: ignore[call-overload]
    provider.logout(completionHandler=key_file, errorHandler=failed)  # type: ignore[arg-type]
    provider.register(
        "p",
        "q",
        completionHandler=nothing,  # type: ignore[arg-type]
        errorHandler=failed,
    )
    provider.getUserId(  # type: ignore[call-overload]
        completionHandler=print, errorHandler=failed, queue="main"
    )
    ServerProvider(7, "https://broker.example", "x")  # type: ignore[arg-type]
    (await provider.getContainer(container)).content = b""  # type: ignore[misc]
