"""Give pytest the fixtures of a broker. The entry point `pytest11` loads this module at each start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TypeVar

import pytest

from scbroker.testing import Broker, InProcessBroker, LocalBroker

B = TypeVar("B", bound=Broker)


@pytest.fixture(scope="session")
def scbroker_settings() -> Mapping[str, object]:
    """Return the settings of the brokers, as {"max_content": 1_000_000}; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def scbroker_broker(scbroker_settings: Mapping[str, object]) -> Iterator[LocalBroker]:
    """Return a real broker on a free port of this machine, shared by all tests of the session.

    `scbroker_broker.new_user()` registers a user and returns the provider with the user's session.
    """
    yield from _running(LocalBroker(**scbroker_settings))


@pytest.fixture(scope="session")
def scbroker_in_process(scbroker_settings: Mapping[str, object]) -> Iterator[InProcessBroker]:
    """Return a broker in this process, shared by all tests of the session."""
    yield from _running(InProcessBroker(**scbroker_settings))


def _running(broker: B) -> Iterator[B]:
    """Run a broker for a fixture; if it does not start, fail with the reason alone."""
    from scbroker import BrokerError

    with ExitStack() as stack:
        try:
            stack.enter_context(broker)
        except BrokerError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        yield broker
