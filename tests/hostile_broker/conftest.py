"""A hostile broker for each test, and its users."""

from collections.abc import Iterator

import pytest

from tests.hostile_broker.accomplices import Cast, Mallory
from tests.hostile_broker.accounts import Derivation, watch_derivations
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import is_process
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mallory]:
    # Its log has a warning of nothing but what it refuses.
    with Mallory(tmp_path_factory.mktemp("mallory"), slow_seconds=PATIENCE) as broker:
        yield broker


@pytest.fixture(scope="session")
def _shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mallory]:
    with Mallory(
        tmp_path_factory.mktemp("mallory"), BrokerProcess, slow_seconds=PATIENCE
    ) as broker:
        yield broker


@pytest.fixture
def mallory(request: pytest.FixtureRequest) -> Iterator[Mallory]:
    """A hostile broker that other tests use as well, each with users of its own.

    Behind it is a broker in this process, or for some tests in a process of its own.
    """
    shared: Mallory = request.getfixturevalue(
        "_shared_process" if is_process(request.node) else "_shared"
    )
    with shared.scene():
        yield shared


@pytest.fixture
def alice(mallory: Mallory) -> User:
    """The victim; `Cast` says who the others are."""
    return mallory.people(1)[0]


@pytest.fixture
def bob(mallory: Mallory) -> User:
    return mallory.people(1)[0]


@pytest.fixture
def carol(mallory: Mallory) -> User:
    return mallory.people(1)[0]


@pytest.fixture
def eve(mallory: Mallory) -> User:
    return mallory.people(1)[0]


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[Derivation]:
    return watch_derivations(monkeypatch)


@pytest.fixture
def who(alice: User, bob: User, carol: User, eve: User) -> Cast:
    return Cast(alice, bob, carol, eve)
