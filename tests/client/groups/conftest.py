"""Users who make groups by hand, and devices of users that read them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from scbroker import KeyRing, MemoryTrustStore, ServerProvider
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider
from tests.kit.writers import User


class Device(Protocol):
    """Gives a device of a user; with `store`, one that has these marks."""

    def __call__(self, user: User, store: MemoryTrustStore | None = None) -> ServerProvider: ...


@pytest.fixture
def new_user(broker: BrokerProcess) -> Iterator[Callable[[], User]]:
    """Users who send their requests by hand."""
    with ExitStack() as stack:

        def make(ring: KeyRing | None = None) -> User:
            wire = stack.enter_context(Wire(broker, "by hand"))
            found = ring or broker.new_user()
            return User(found, wire.log_in(found))

        yield make


@pytest.fixture
def device(new_provider: NewProvider) -> Device:
    def make(user: User, store: MemoryTrustStore | None = None) -> ServerProvider:
        options: dict[str, Any] = {} if store is None else {"trustStore": store}
        return new_provider(user.ring, **options)

    return make
