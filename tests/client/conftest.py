"""Fixtures of the client's tests: one engine unless a test asks for both, and ready accounts."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from scbroker import BrokerError, KeyRing, Promise, ServerProvider
from scbroker.client.calls.tasks import io_thread
from scbroker.client.containers.fetching import own_nonce
from scbroker.client.people import links
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.waiting import PATIENCE

PASSWORD = "correct Horse 7"
PASSPHRASE = "battery Staple 8"
REMINDER = "what the horse said"
Users = Callable[[int], list[KeyRing]]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """SQLite, unless `both_engines` marks the test: what the client does rarely depends on it."""
    return str(getattr(request, "param", "sqlite"))


@dataclass(frozen=True)
class Account:
    """A user who registered with PASSWORD, PASSPHRASE and REMINDER. Read only: tests share it."""

    ring: KeyRing
    key_file: bytes


@pytest.fixture(scope="session")
def _accounts() -> dict[str, Account]:
    return {}


@pytest.fixture
def account(
    broker: BrokerProcess, new_provider: NewProvider, _accounts: dict[str, Account]
) -> Account:
    if broker.url not in _accounts:
        provider = new_provider()
        key_file = provider.register(PASSWORD, PASSPHRASE, REMINDER).result(PATIENCE)
        _accounts[broker.url] = Account(provider.getKeyRing().result(PATIENCE), key_file)
    return _accounts[broker.url]


@pytest.fixture
def ahead(fresh_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> BrokerProcess:
    """A broker of the test's own: `ahead.clock_ahead` sets its clock and that of this process."""
    set_by(fresh_broker, monkeypatch)
    return fresh_broker


def set_by(broker: BrokerProcess, patched: pytest.MonkeyPatch) -> None:
    """Let the clock of this process be ahead by as much as that of the broker."""
    right = time.time_ns
    patched.setattr(time, "time_ns", lambda: right() + round(broker.clock_ahead * 1e9))


@pytest.fixture
def alice(new_provider: NewProvider) -> ServerProvider:
    """A new user's session."""
    return new_provider(True)


@pytest.fixture
def bob(new_provider: NewProvider, user_pool: Users) -> ServerProvider:
    """Another user's session, on a device of its own."""
    return new_provider(user_pool(2)[0])


@pytest.fixture
def carol(new_provider: NewProvider, user_pool: Users) -> ServerProvider:
    """A third user's."""
    return new_provider(user_pool(2)[1])


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


def beside(provider: ServerProvider, new_provider: NewProvider, **options: Any) -> ServerProvider:
    """Another device of the same user, which has seen nothing unless it gets a trust store."""
    return new_provider(provider.getKeyRing().result(PATIENCE), **options)


def id_of(provider: ServerProvider) -> Any:
    return provider.getUserId().result(PATIENCE)


def refusal(
    promise: Promise[Any], kind: type[BrokerError], words: str | None = None
) -> BrokerError:
    """Wait for an operation that has to fail with this error, whose message has these words; return it."""
    with pytest.raises(kind, match=words) as raised:
        promise.result(PATIENCE)
    return raised.value


def drop(promise: object) -> None:
    """Nobody keeps it, nobody looks at it; or the call that would make it raises."""
    del promise


def put_own_document(provider: ServerProvider, type: str, content: bytes) -> uuid.UUID:
    """Store a content as the user's own document of a type, as another program of this user could."""
    work = links._create(provider, content, type, own_nonce(type, 0))
    return io_thread.submit("test", work).result(PATIENCE).id
