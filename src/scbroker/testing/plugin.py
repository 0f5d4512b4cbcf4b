"""Give pytest the fixture `scbroker_broker`. The entry point `pytest11` loads this module at each start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from scbroker.testing import LocalBroker


@pytest.fixture(scope="session")
def scbroker_settings() -> Mapping[str, object]:
    """Return the settings of `scbroker_broker`, as {"max_content": 1_000_000}; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def scbroker_broker(scbroker_settings: Mapping[str, object]) -> Iterator[LocalBroker]:
    """Return a real broker on a free port of this machine, shared by all tests of the session.

    `scbroker_broker.new_user()` registers a user and returns the provider with the user's session.
    """
    with ExitStack() as stack:
        broker = _started(stack, LocalBroker(**scbroker_settings))
        if isinstance(broker, str):  # outside the `except`, so that pytest shows the reason alone
            pytest.fail(broker, pytrace=False)
        yield broker


def _started(stack: ExitStack, broker: LocalBroker) -> LocalBroker | str:
    """Start a broker, or return the reason why it does not start."""
    from scbroker import BrokerError

    try:
        return stack.enter_context(broker)
    except BrokerError as error:
        return str(error)
