"""Whatever happens, a cache answers as the broker does, or with the state that the device verified last.

Hypothesis draws what an owner, another program of the same device, the network and evictions do. Two claims
hold for every story. While the broker answers, a read through the cache equals a read without it. While the
broker is away, an answer is a state that the owner made, not older than what any program of the device has
verified, and its age is told; or it is refused.
"""

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scbroker import (
    AccessLevel,
    BrokerError,
    CachedProvider,
    Container,
    ContainerAccessLevel,
    FileTrustStore,
    Promise,
    ServerProvider,
)
from scbroker.client.http.requests import Requests
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE, wait_until

CONTAINERS = 2
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
USER = ContainerAccessLevel.DefaultUserPermissions
NO_LIST = ContainerAccessLevel.Download | ContainerAccessLevel.Decrypt
GONE = BrokerError.deletedError, BrokerError.notFoundError
OFTEN = ["write", "read", "offline", "offline"] * 2
SELDOM = [
    "metadata",
    "metadata",
    "overtake",
    "evict",
    "list",
    "grant",
    "revoke",
    "delete",
    "restart",
]
STEPS = st.lists(
    st.tuples(st.sampled_from(OFTEN + SELDOM), st.sampled_from([0, 0, 0, 1])),
    min_size=10,
    max_size=24,
)


class Story:
    """An owner without a cache, and a member's device whose connection can be cut."""

    def __init__(
        self,
        broker: BrokerProcess,
        new_provider: NewProvider,
        folder: Path,
        permissions: ContainerAccessLevel,
        cut: set[Requests],
    ) -> None:
        self._new_provider, self._folder, self._cut = new_provider, folder, cut
        self.ring = broker.new_user()
        self.level = AccessLevel(self.ring.userId, permissions)
        self.owner = new_provider(broker.new_user())
        self.cache = self._device()
        self.neighbour = new_provider(self.ring, trustStore=FileTrustStore(folder / "marks"))
        self.plain = new_provider(self.ring)
        self.made: dict[tuple[uuid.UUID, int], bytes | None] = {}
        """The content of each version that the owner made."""
        self.verified: dict[uuid.UUID, int] = {}
        """The highest version that a program of the device has verified."""
        levels = [AccessLevel(self.owner.getUserId().result(PATIENCE), OWNER), self.level]
        self.ids = [
            self.owner.createContainer(b"0", 0, accessLevels=levels).result(PATIENCE).id
            for _ in range(CONTAINERS)
        ]
        for container in self.ids:
            self._note(container)
            self._read(container)

    def _device(self) -> CachedProvider:
        marks = FileTrustStore(self._folder / "marks")
        server: ServerProvider = self._new_provider(self.ring, trustStore=marks)
        return CachedProvider(server, self._folder / "cache", follow=False)

    def tell(self, step: str, number: int) -> None:
        getattr(self, f"_{step}")(self.ids[number])

    def _write(self, container: uuid.UUID) -> None:
        content = str(len(self.made)).encode()
        self._by_owner(container, self.owner.updateContainerContent(container, content))

    def _grant(self, container: uuid.UUID) -> None:
        self._by_owner(container, self.owner.grantAccess(container, self.level))

    def _revoke(self, container: uuid.UUID) -> None:
        self._by_owner(container, self.owner.revokeAccess(container, self.ring.userId))

    def _delete(self, container: uuid.UUID) -> None:
        self._by_owner(container, self.owner.deleteContainer(container))

    def _by_owner(self, container: uuid.UUID, promise: Promise[Any]) -> None:
        with suppress(*GONE):
            promise.result(PATIENCE)
            self._note(container)

    def _note(self, container: uuid.UUID) -> None:
        found = self.owner.getContainer(container).result(PATIENCE)
        self.made[container, found.version] = found.content

    def _read(self, container: uuid.UUID) -> None:
        assert self._outcome(self.cache, container) == self._outcome(self.plain, container)

    def _metadata(self, container: uuid.UUID) -> None:
        with suppress(*GONE):
            found = self.cache.getContainerMetadata(container).result(PATIENCE)
            self.verified[container] = found.version

    def _overtake(self, container: uuid.UUID) -> None:
        """Another program with the same marks reads it, without a cache."""
        self._outcome(self.neighbour, container)

    def _list(self, _: uuid.UUID) -> None:
        mine, plain = (
            each.listContainers().result(PATIENCE).containers for each in (self.cache, self.plain)
        )
        assert [state(each) for each in mine] == [state(each) for each in plain]
        for found in mine:
            if isinstance(found, Container):
                self.verified[found.id] = found.version

    def _evict(self, container: uuid.UUID) -> None:
        self.cache._cache().copies.folder.remove("container", container.bytes)

    def _restart(self, _: uuid.UUID) -> None:
        self.cache.close()
        self.cache = self._device()

    def _offline(self, container: uuid.UUID) -> None:
        requests = self.cache._provider._requests
        self._cut.add(requests)
        try:
            found = self.cache.getContainer(container).result(PATIENCE)
        except (BrokerError.unreachableError, BrokerError.notFoundError):
            assert self.cache.awaySince is not None
        else:
            assert found.asOf is not None
            assert found.version >= self.verified[container]
            assert found.content == self.made[container, found.version]
            assert found.header is not None
            assert found.header.customHeaderObject == 0
        finally:
            self._cut.discard(requests)
            self.cache._reach.needed()
            wait_until(lambda: self.cache.awaySince is None)

    def _outcome(self, provider: Any, container: uuid.UUID) -> Any:
        try:
            found = provider.getContainer(container).result(PATIENCE)
        except GONE as error:
            return type(error)
        if provider is not self.plain:
            self.verified[container] = found.version
        return state(found)


def state(found: Any) -> tuple[Any, ...]:
    assert isinstance(found, Container)
    assert found.asOf is None
    header = None if found.header is None else found.header.customHeaderObject
    return found.id, found.version, found.content, header, found.access, found.modifiedAt


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> set[Requests]:
    """The connections that are cut at present."""
    honest, found = Requests._once, set[Requests]()

    async def once(self: Requests, *about: Any) -> Any:
        if self in found:
            raise BrokerError.unreachableError("cut", sent=False)
        return await honest(self, *about)

    monkeypatch.setattr(Requests, "_once", once)
    be_impatient(monkeypatch)
    monkeypatch.setattr("scbroker.client.cache.refresh._FIRST_PAUSE", 0.01)
    return found


@pytest.mark.long
@pytest.mark.parametrize("permissions", [USER, NO_LIST], ids=["sees the list", "does not"])
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_a_cache_answers_as_the_broker_or_with_what_was_verified_last_whatever_happens(
    broker: BrokerProcess,
    new_provider: NewProvider,
    tmp_path_factory: pytest.TempPathFactory,
    cut: set[Requests],
    permissions: ContainerAccessLevel,
    steps: list[tuple[str, int]],
) -> None:
    folder = tmp_path_factory.mktemp("story")
    story = Story(broker, new_provider, folder, permissions, cut)
    for step, number in steps:
        story.tell(step, number)
    story.cache.close()
