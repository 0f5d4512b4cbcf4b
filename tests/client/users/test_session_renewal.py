"""A session is renewed silently, and one renewal is for all who wait for it, whatever becomes of it."""

import asyncio
import threading
from typing import Any

import pytest

from scbroker import BrokerError, Promise, ServerProvider
from tests.client.conftest import Account
from tests.kit.both_engines import both_engines
from tests.kit.fixtures import NewProvider
from tests.kit.network import Go, Network, lost
from tests.kit.waiting import PATIENCE, until, wait_until

CHALLENGES = ("POST", "/v1/session-challenges")


class Held:
    """Requests wait until the test lets them, and then fail, or go to the broker."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.fails = True
        self.cancelled = 0

    async def hold(self, go: Go) -> Any:
        try:
            await until(self.release.is_set)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise BrokerError.unreachableError("There is no broker.")
        return await go()


def begin(alice: ServerProvider, count: int) -> list[Promise[Any]]:
    """So many operations, all of which wait for a token."""
    session: Any = alice._current
    session.token.value = None
    begun: list[Promise[Any]] = [alice.getEvents() for _ in range(count)]
    wait_for(session, count)
    return begun


def wait_for(session: Any, count: int) -> None:
    token = session.token
    wait_until(lambda: (token.renewal.waiting if token.renewal else 0) == count)


def test_a_broker_that_does_not_answer_is_waited_for_once_by_all_operations_together(
    alice: ServerProvider, network: Network
) -> None:
    held = Held()
    network.treat(*CHALLENGES, held.hold)
    begun = begin(alice, 10)
    held.release.set()
    errors = []
    for promise in begun:
        with pytest.raises(BrokerError.unreachableError) as caught:
            promise.result(PATIENCE)
        errors.append(caught.value)
    assert len(network.those(*CHALLENGES)) == 4, "one renewal, with its four attempts"
    assert len(set(map(id, errors))) == 10, "each has an error of its own"
    held.fails = False
    assert alice.getEvents().result(PATIENCE) == [], "and the next begins anew"


def test_a_renewal_that_nobody_waits_for_any_more_ends_and_the_next_begins_anew(
    alice: ServerProvider, network: Network
) -> None:
    held = Held()
    held.fails = False
    network.treat(*CHALLENGES, held.hold)
    for promise in begin(alice, 3):
        assert promise.cancel()
    wait_for(alice._current, 0)
    next_one = alice.getEvents()
    wait_for(alice._current, 1)
    assert held.cancelled == 1
    held.release.set()
    assert next_one.result(PATIENCE) == []
    assert len(network.those(*CHALLENGES)) == 2


@both_engines
def test_a_session_that_ended_at_the_broker_is_renewed_silently(alice: ServerProvider) -> None:
    made = alice.createContainer(b"c").result(PATIENCE)
    session: Any = alice._current
    session.token.value = "x" * 43
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"
    session.token.value = "y" * 43
    assert alice.createContainer(b"x" * 3_000_000).result(PATIENCE).length == 3_000_000
    session.token.expires = 0.0
    assert alice.getContainerContent(made.id).result(PATIENCE) == b"c"


def test_a_log_in_whose_answer_was_lost_asks_for_another_nonce(
    account: Account, new_provider: NewProvider, network: Network
) -> None:
    """The nonce of the first is spent: the same bytes can only be refused."""
    network.treat("POST", "/v1/sessions", lost(1))
    new_provider(account.ring).getEvents().result(PATIENCE)
    sent = [each.body for each in network.those("POST", "/v1/sessions")]
    assert len(set(sent)) > 1
