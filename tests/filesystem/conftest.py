"""Filesystems of real sessions at a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scbroker import ServerProvider
from scbroker.filesystem import ContainerFileSystem, system
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE

PASSPHRASE = "A passphrase 1"


@pytest.fixture
def alice(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


@pytest.fixture
def mallory(new_provider: NewProvider) -> ServerProvider:
    return new_provider(True)


@pytest.fixture
def files(alice: ServerProvider) -> ContainerFileSystem:
    """Alice's filesystem; it reads the names anew only when it is told to."""
    return ContainerFileSystem(provider=alice, listings_expiry_time=600)


@pytest.fixture
def count_listings(monkeypatch: pytest.MonkeyPatch) -> Callable[[ServerProvider], list[int]]:
    """`count_listings(provider)` is a list that gets an item whenever the containers are listed."""

    def count(provider: ServerProvider) -> list[int]:
        seen: list[int] = []
        real = provider.iterContainers

        def counted(*args: Any, **kwargs: Any) -> Any:
            seen.append(1)
            return real(*args, **kwargs)

        monkeypatch.setattr(provider, "iterContainers", counted)
        return seen

    return count


@pytest.fixture
def kept_options(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """Options that find the kept session of a new user."""
    for name, value in (
        ("SCBROKER_API_KEY", str(broker.api_key)),
        ("SCBROKER_SERVER_URL", broker.url),
        ("SCBROKER_APPLICATION_NAME", "files"),
    ):
        monkeypatch.setenv(name, value)
    found = {"sessionStore": str(tmp_path / "sessions"), "trustStore": str(tmp_path / "trust")}
    with ServerProvider.fromEnvironment(None, **found) as provider:
        provider.register("A password 1", PASSPHRASE, keep=True).result(PATIENCE)
    yield found
    for session in system._sessions.values():
        session.close()
    system._sessions.clear()
