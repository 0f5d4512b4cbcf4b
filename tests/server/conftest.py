"""Users at a broker, and the claim that a request changed nothing."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, Protocol, TypeVar

import pytest

from scbroker.keys import KeyRing
from tests.kit.brokers import BrokerProcess, InProcess, Wire
from tests.kit.engine_choice import CLUSTER
from tests.kit.fixtures import NewStores, Shared, brokers_by_engine
from tests.kit.tables import added, dump, gone
from tests.kit.writers import MINUTE, User

T = TypeVar("T")
LASTS: Final = 3 * MINUTE
"""How long access lasts that is to expire: less than a signed time may differ from a broker's."""


def at_once(work: Callable[..., T], *arguments: Iterable[Any]) -> list[T]:
    """Return the results of calls that run at the same time, as `map` gives them."""
    calls = list(zip(*arguments, strict=True))
    with ThreadPoolExecutor(len(calls)) as pool:
        return [running.result() for running in [pool.submit(work, *call) for call in calls]]


class NewUser(Protocol):
    """Gives a user with a session: a new one, or the one of this KeyRing."""

    def __call__(
        self, ring: KeyRing | None = None, *, at: BrokerProcess | None = None, name: str = "tests"
    ) -> User: ...


@pytest.fixture
def broker_kind(engine: str, request: pytest.FixtureRequest) -> type[BrokerProcess]:
    """The broker in the tests' own process, also for long tests; those marked `process` need another."""
    needs_process = engine == CLUSTER or request.node.get_closest_marker("process")
    return BrokerProcess if needs_process else InProcess


@pytest.fixture(scope="module")
def shared_brokers(
    new_stores: NewStores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """One broker for each module: many tests here read all of its tables."""
    with brokers_by_engine(new_stores, tmp_path_factory) as broker_on:
        yield broker_on


@pytest.fixture
def new_user(broker: BrokerProcess) -> Iterator[NewUser]:
    """Users with sessions, at `broker` unless another is given."""
    with ExitStack() as stack:

        def make(
            ring: KeyRing | None = None, *, at: BrokerProcess | None = None, name: str = "tests"
        ) -> User:
            wire = stack.enter_context(Wire(at or broker, name))
            found = ring or (at or broker).new_user()
            return User(found, wire.log_in(found))

        yield make


class PassUntil(Protocol):
    """Sets the clocks to a moment, in microseconds since 1970."""

    def __call__(self, moment: int, *, at: BrokerProcess | None = None) -> None: ...


@pytest.fixture
def pass_until(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[PassUntil]:
    """Set the clocks of `broker` (or the one that `at` gives) and of this process, until the test ends."""
    right, reset = time.time_ns, []

    def go_on(moment: int, *, at: BrokerProcess | None = None) -> None:
        found = at or broker
        ahead = max(found.clock_ahead, (moment - right() // 1000 + 1) / 1e6)
        monkeypatch.setattr(time, "time_ns", lambda: right() + round(ahead * 1e9))
        found.clock_ahead = ahead
        reset.append(found)

    yield go_on
    for each in reset:
        each.clock_ahead = 0.0


Unchanged = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def unchanged(broker: BrokerProcess) -> Unchanged:
    """`with unchanged():` fails if any row of any table of `broker` came, went or changed.

    But for the throttle's counts: what was refused counts as well.
    """

    @contextmanager
    def compare() -> Iterator[None]:
        before = dump(broker.database_url)
        yield
        after = dump(broker.database_url)
        assert not added(before, after | {"guesses": set()})
        assert not gone(before, after)

    return compare
