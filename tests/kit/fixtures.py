"""Fixtures that any test may ask for."""

import asyncio
import functools
import gc
import inspect
import itertools
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, Phase, settings

from assurance.cluster.deployment import Addresses
from scbroker import KeyRing, MemoryTrustStore, ServerProvider, keys
from scbroker.crypto import seal
from tests.kit import argon2
from tests.kit.brokers import ENGINES, BrokerProcess, InProcess, Wire
from tests.kit.engine_choice import CHOICE, CLUSTER, pytest_addoption, pytest_configure
from tests.kit.engines import PostgresServer
from tests.kit.processes import want_forks
from tests.kit.waiting import PATIENCE

__all__ = ["pytest_addoption", "pytest_configure"]  # hooks

settings.register_profile("everyday", deadline=None)  # of 200 ms, which a busy machine exceeds
settings.load_profile("everyday")
settings.register_profile(
    "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
"""No test fails because an example takes long on a slow machine."""
settings.load_profile("unhurried")
settings.register_profile(
    "thorough",
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    phases=set(Phase) - {Phase.shrink, Phase.explain},
)
"""For `--hypothesis-profile`: minutes where the everyday run takes seconds."""

want_forks()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_sessionstart() -> None:
    """Let Ctrl-C end processes of tests, and collect no garbage until all tests are collected.

    A script's background command ignores SIGINT, and its children would inherit that. Nothing that
    collecting tests makes becomes garbage.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave the collected tests out of garbage collections, which would scan them each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _stretched_quickly() -> Iterator[None]:
    """A secret of a KeyFile costs 0.3 s of processor time: a test of the cost sets the real one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "stretch", argon2.stretch)
        yield


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A device without a folder of its own keeps its state here, not in the home of the caller."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def real_argon2id() -> Iterator[None]:
    """For modules whose KeyFiles another implementation opens or makes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keys, "stretch", functools.cache(seal.stretch))
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, started when a test first asks for it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty PostgreSQL database of this test's own, as SQLAlchemy takes it."""
    return postgres_server.createdatabase()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of each engine in turn; with `--engines`, of each that was chosen.

    A test that does not touch the database in a way of its own takes one of them for the everyday run
    by `@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)`. One that is about some engines
    alone says so by `@pytest.mark.only_on("sqlite")`.
    """
    return str(request.param)


@dataclass(frozen=True, slots=True)
class Stores:
    """An empty database and an empty object store."""

    database_url: str
    object_store_url: str = ""
    """Empty for the folder in which a broker keeps its contents by itself."""
    variables: dict[str, str] = field(default_factory=dict, repr=False)

    def broker(
        self, folder: Path, kind: type[BrokerProcess] = BrokerProcess, **settings: Any
    ) -> BrokerProcess:
        """A broker on them, which is still to be started."""
        given: dict[str, Any] = {"variables": self.variables}
        if self.object_store_url:
            given["object_store_url"] = self.object_store_url
        return kind(folder, self.database_url, **(given | settings))


NewStores = Callable[[str, Path], Stores]


@pytest.fixture(scope="session")
def new_stores(request: pytest.FixtureRequest) -> NewStores:
    """`new_stores(engine, folder)`: new ones on this engine, in this folder if they lie in one."""

    def make(engine: str, folder: Path) -> Stores:
        if engine == "sqlite":
            return Stores(f"sqlite:///{folder / 'test.sqlite'}")
        if engine == CLUSTER:
            found: Addresses = request.config.stash[CHOICE].addresses
            return Stores(found.create_database(), found.create_store(), found.environment)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return Stores(server.createdatabase())

    return make


@pytest.fixture
def stores(engine: str, new_stores: NewStores, tmp_path: Path) -> Stores:
    """Stores of this test's own on each engine in turn."""
    return new_stores(engine, tmp_path)


@pytest.fixture
def database_url(stores: Stores) -> str:
    """An empty database of this test's own on each engine in turn."""
    return stores.database_url


def is_process(node: pytest.Item) -> bool:
    """Return whether a test needs a broker in a process of its own, as an operator starts it.

    Tests marked `process` do, and all that `make test` leaves out: the same claims meet sockets there.
    The cluster's object store takes its keys from a broker's environment.
    """
    return any(map(node.get_closest_marker, ("process", "long", CLUSTER)))


@pytest.fixture
def broker_kind(engine: str, request: pytest.FixtureRequest) -> type[BrokerProcess]:
    """The kind of `broker` and its kin: in the tests' own process, unless the test needs another."""
    has_commands = {"person", "stranger"}.intersection(request.fixturenames)
    needs_process = has_commands or engine == CLUSTER or is_process(request.node)
    return BrokerProcess if needs_process else InProcess


class Shared(Protocol):
    """Returns the broker of an engine that tests share."""

    def __call__(self, engine: str, kind: type[BrokerProcess] = ...) -> BrokerProcess: ...


@pytest.fixture(scope="session")
def shared_brokers(
    new_stores: NewStores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """One broker for each engine and kind, started when a test first asks for it."""
    with brokers_by_engine(new_stores, tmp_path_factory) as broker_on:
        yield broker_on


@contextmanager
def brokers_by_engine(
    new_stores: NewStores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    running: dict[tuple[str, type[BrokerProcess]], BrokerProcess] = {}
    with ExitStack() as stack:

        def broker_on(engine: str, kind: type[BrokerProcess] = BrokerProcess) -> BrokerProcess:
            if (engine, kind) not in running:
                folder = tmp_path_factory.mktemp(f"broker-{engine}")
                started = new_stores(engine, folder).broker(folder, kind)
                running[engine, kind] = stack.enter_context(started)
            elif not running[engine, kind].is_running:
                running[engine, kind].start()  # a test that stopped it has failed
            return running[engine, kind]

        # Asked for first, hence ended last: brokers stop before their database does.
        yield broker_on


@pytest.fixture
def broker(engine: str, broker_kind: type[BrokerProcess], shared_brokers: Shared) -> BrokerProcess:
    """A running broker on each engine in turn, shared by the tests of this process.

    A test leaves its users and containers behind, and disturbs nobody else's.
    """
    return shared_brokers(engine, broker_kind)


class StartBroker(Protocol):
    """Starts a broker of the test's own, with settings by their field names."""

    def __call__(self, *, workers: int = 1, **settings: Any) -> BrokerProcess: ...


@pytest.fixture
def start_broker(
    stores: Stores, broker_kind: type[BrokerProcess], tmp_path: Path
) -> Iterator[StartBroker]:
    """For tests that end their broker or need other settings: on each engine in turn.

    A second broker of the same test works on the same data.
    """
    with ExitStack() as stack:

        def start(*, workers: int = 1, **settings: Any) -> BrokerProcess:
            new = stores.broker(tmp_path / "data", broker_kind, workers=workers, **settings)
            return stack.enter_context(new)

        yield start


@pytest.fixture
def fresh_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker of the test's own, on each engine in turn: it may be stopped, killed, restarted."""
    return start_broker()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """Requests by hand to `broker`, without a session."""
    with Wire(broker) as connection:
        yield connection


class NewProvider(Protocol):
    """Makes providers, each with an application name and a trust store of its own.

    `user` logs this user in: a KeyRing, or True for a new user.
    """

    def __call__(
        self, user: KeyRing | bool = False, *, at: BrokerProcess | None = None, **options: Any
    ) -> ServerProvider: ...


_numbers = itertools.count(1)


@pytest.fixture
def new_provider(broker: BrokerProcess) -> Iterator[NewProvider]:
    """Makes providers for `broker` (or the one that `at` gives), and closes them all at the end.

    `new_provider()` has no session; `new_provider(True)` is a new user's, `new_provider(ring)` this
    user's. Either costs no Argon2id; `register` costs two of 0.15 s.
    """
    with ExitStack() as stack:

        def make(
            user: KeyRing | bool = False, *, at: BrokerProcess | None = None, **options: Any
        ) -> ServerProvider:
            found = at or broker
            settings = {"trustStore": MemoryTrustStore(), "timeout": PATIENCE, **options}
            name = settings.pop("applicationName", f"test {next(_numbers)}")
            provider = ServerProvider(found.api_key, found.url, name, **settings)
            stack.enter_context(provider)
            if user:
                ring = found.new_user() if user is True else user
                provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
            return provider

        yield make


@pytest.fixture
def user_pool(
    broker: BrokerProcess, _pools: dict[uuid.UUID, list[KeyRing]]
) -> Callable[[int], list[KeyRing]]:
    """`user_pool(n)`: n registered users of `broker` that other tests use as well.

    For members and bystanders whose event log and KeyFile the test does not look at.
    """

    def take(count: int) -> list[KeyRing]:
        pool = _pools.setdefault(broker.api_key, [])
        while len(pool) < count:
            pool.append(broker.new_user())
        return pool[:count]

    return take


@pytest.fixture(scope="session")
def _pools() -> dict[uuid.UUID, list[KeyRing]]:
    return {}
