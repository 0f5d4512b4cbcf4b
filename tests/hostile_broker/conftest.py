"""A hostile broker for each test, and the one way to claim that an attack failed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, FileTrustStore, MemoryTrustStore, Promise, ServerProvider
from tests.hostile_broker.broker import PATIENCE, HostileBroker

# What a client may still send after it found a lie: it renews its session, or asks again.
ASKING = {
    "POST /v1/session-challenges",
    "POST /v1/sessions",
    "DELETE /v1/sessions/current",
    "POST /v1/key-records",
}


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileBroker]:
    with HostileBroker(tmp_path_factory.mktemp("mallory")) as broker:
        yield broker


@pytest.fixture
def mallory(_shared: HostileBroker) -> Iterator[HostileBroker]:
    """A hostile broker that other tests use as well, each with users of its own."""
    with _shared.scene():
        yield _shared


@pytest.fixture
def own_mallory(tmp_path: Path) -> Iterator[HostileBroker]:
    """A hostile broker of this test's own, for what concerns its whole state: it may be rolled back."""
    with HostileBroker(tmp_path) as broker, broker.scene():
        yield broker


def marks(provider: ServerProvider) -> dict[tuple[str, bytes], bytes]:
    """All pins and marks of a device; of one that keeps them in files, every byte of those."""
    store = provider._trust_store
    if isinstance(store, FileTrustStore):
        files = sorted(store.directory.glob("*.trust"))
        return {(path.name, b""): path.read_bytes() for path in files}
    assert isinstance(store, MemoryTrustStore)
    return {name: value for user in store._users.values() for name, value in user._values.items()}


@contextmanager
def refused(
    mallory: HostileBroker, device: ServerProvider, error: type[BrokerError]
) -> Iterator[Callable[[Promise[Any]], BrokerError]]:
    """`with refused(mallory, alice, Error) as attempt: attempt(alice.getContainer(id))`.

    Each attempt fails with exactly this error, no pin or mark moved, and nothing was sent that depends
    on a key: no record, no chunk, no KeyFile.
    """
    before, count = marks(device), len(mallory.heard)
    attempts: list[BrokerError] = []

    def attempt(promise: Promise[Any]) -> BrokerError:
        with pytest.raises(BrokerError) as caught:
            promise.result(PATIENCE)
        assert type(caught.value) is error, caught.value
        attempts.append(caught.value)
        return caught.value

    yield attempt
    assert attempts, "nothing was attempted"
    assert marks(device) == before
    sent = [
        name for name in mallory.since(count) if not name.startswith("GET ") and name not in ASKING
    ]
    assert sent == []
