"""What a type checker tells a caller beyond results: chaining, errors, values, and calls that are wrong.

A wrong expectation here fails `make check`, in mypy or in pyright.
"""

import asyncio
import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_type

from scbroker import (
    AccessLevel,
    BaseProvider,
    BrokerError,
    BrokerProvider,
    Container,
    ContainerAccessLevel,
    ContainerEvent,
    ContainerEventType,
    KeyRing,
    ServerProvider,
    mainQueue,
)


class OwnProvider(ServerProvider):
    """A caller's subclass."""


def failed(error: BrokerError) -> None:
    assert_type(error.code, str)


def on_error(error: Exception) -> None:
    """A handler may take more than it is given."""


def nothing() -> None: ...


def a_call_with_handlers_gives_the_provider_of_its_own_class(
    server: ServerProvider, base: BaseProvider, some: BrokerProvider, own: OwnProvider
) -> None:
    assert_type(server.getUserId(completionHandler=print, errorHandler=failed), ServerProvider)
    assert_type(base.getUserId(completionHandler=print, errorHandler=failed), BaseProvider)
    assert_type(some.logout(completionHandler=nothing, errorHandler=failed), BrokerProvider)
    assert_type(own.logout(completionHandler=nothing, errorHandler=failed), OwnProvider)
    own.logout(completionHandler=nothing, errorHandler=failed).getUserId(
        completionHandler=print, errorHandler=failed
    )


def handlers_may_be_lambdas_and_queues_any_executor(
    provider: ServerProvider, container: uuid.UUID
) -> None:
    with ThreadPoolExecutor() as queue:
        provider.logout(completionHandler=lambda: None, errorHandler=on_error, queue=queue)
    provider.deleteContainer(
        container, completionHandler=lambda: 7, errorHandler=failed, queue=mainQueue
    )
    provider.getContainer(
        container, completionHandler=lambda found: print(found.content), errorHandler=failed
    )


def the_constructors_give_their_own_class(url: str) -> None:
    assert_type(ServerProvider.fromEnvironment(), ServerProvider)
    assert_type(OwnProvider.fromEnvironment(timeout=1.0), OwnProvider)
    with OwnProvider(uuid.uuid4(), url, "x") as own:
        assert_type(own, OwnProvider)
        assert_type(own.apiKey, uuid.UUID)
        assert_type(own.serverUrl, str)
        assert_type(own.applicationName, str)


async def a_provider_is_an_async_context_manager(url: str) -> None:
    async with ServerProvider(uuid.uuid4(), url, "x") as provider:
        assert_type(provider, ServerProvider)


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
        return 1.0 if error == BrokerError.deletedError else None
    return None


def values_have_their_types(
    found: Container[Any], event: ContainerEvent, provider: ServerProvider
) -> None:
    assert_type(found.id, uuid.UUID)
    assert_type(found.type, str | None)
    assert_type(found.access, Sequence[AccessLevel] | None)
    assert_type(found.modifiedAt, dt.datetime)
    assert_type(event.eventType, ContainerEventType)
    assert_type(event.changes, Sequence[str])
    assert_type(mainQueue.run(1.0), bool)
    assert_type(provider.getUserId().done(), bool)
    assert_type(provider.getUserId().cancel(), bool)


def permissions_are_flags(user: uuid.UUID) -> AccessLevel:
    level = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
    assert_type(level, ContainerAccessLevel)
    return AccessLevel(user, level)


def contents_are_bytes_files_paths_and_iterators(provider: ServerProvider) -> None:
    for content in (b"", bytearray(), memoryview(b""), Path("x"), iter([b"", b""]), None):
        provider.createContainer(content).result()
    with Path("x").open("rb") as file:
        provider.createContainer(file, progress=lambda done, total: print(done, total)).result()


async def ids_are_texts_too(provider: ServerProvider, ids: list[str]) -> None:
    assert_type(await provider.getContainer(ids[0]), Container[Any])
    assert_type(await provider.logIn(ids[0], passphrase="q"), bytes)
    assert_type(await provider.getContainers(ids), list[Container[Any] | BrokerError])
    assert_type(AccessLevel(ids[0]).userId, uuid.UUID)


async def promises_are_coroutines(provider: ServerProvider, container: uuid.UUID) -> None:
    task = asyncio.create_task(provider.getContainerContent(container))
    assert_type(await task, bytes | None)
    async with asyncio.TaskGroup() as group:
        one = group.create_task(provider.getUserId())
    assert_type(one.result(), uuid.UUID)
    assert_type(await asyncio.wait_for(provider.getKeyRing(), 1), KeyRing)
    both = await asyncio.gather(provider.getUserId(), provider.getKeyRing())
    assert_type(both, tuple[uuid.UUID, KeyRing])


async def a_folder_is_a_trust_store(key: str, url: str) -> None:
    ServerProvider(key, url, "x", trustStore="folder")
    ServerProvider(key, url, "x", trustStore=Path("folder"))


async def wrong_calls(
    provider: ServerProvider,
    container: uuid.UUID,
    levels: list[AccessLevel],
    key_file: Callable[[bytes], None],
) -> None:
    """Each is an error; should it cease to be one, the unused ignore is."""
    provider.getUserId()  # type: ignore[unused-awaitable]
    await provider.register("p")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await provider.createContainer("text", None, levels)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await provider.createContainer("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await provider.createContainer(b"", {"a": 1}, "type")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await provider.createContainer(b"", levels, "type", levels)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await provider.createContainer(b"", accessLevels=[container])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    await provider.updateContainer(container, b"", None, "type")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await provider.logIn(container, passphrase="q", ifVersion=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await provider.getContainer(b"id")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await provider.logIn(b"id", passphrase="q")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    provider.logout(completionHandler=nothing)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    provider.logout(completionHandler=key_file, errorHandler=failed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    provider.logout(completionHandler=nothing, errorHandler=nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    provider.getUserId(completionHandler=print, errorHandler=failed, queue="main")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    ServerProvider(7, "https://broker.example", "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    (await provider.getContainer(container)).content = b""  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
