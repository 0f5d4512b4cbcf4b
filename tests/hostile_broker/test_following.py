"""Attacks on streams of events: false logs, silence, and a user who opens all waiting requests.

Attacks 75 to 79 of `catalogue`. Each id is delivered once and in order or the stream ends with an error; a
broker that answers without end is not asked without a pause.
"""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from scbroker import BrokerError, MemoryTrustStore, ServerProvider
from scbroker.client import following
from scbroker.client.calls.io_thread import io_thread
from scbroker.client.http import requests
from scbroker.wire.events import HEARTBEAT, Events
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import EVENTS, FORK, ROLLBACK
from tests.hostile_broker.test_event_log import LIES, log_of_five, reads, told_otherwise
from tests.kit.tcp import BadBroker, hang
from tests.kit.waiting import PATIENCE, tick, wait_until


def collect(device: ServerProvider, start: int, count: int) -> list[int]:
    """Return the ids of the next `count` events, or raise the error of the stream."""
    with device.followEvents(start) as stream:
        giving_up = threading.Timer(PATIENCE, stream.close)
        giving_up.start()
        try:
            return [event.id for event in itertools.islice(stream, count)]
        finally:
            giving_up.cancel()


@pytest.mark.sampled
@attack(75, "a stream with gaps")
@pytest.mark.parametrize("name", sorted(LIES))
def test_a_lie_about_the_log_ends_the_stream_of_a_device_that_has_read_it(
    mallory: Mallory, name: str
) -> None:
    lie, _, error = LIES[name]
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)
    assert reads(device) == [1, 2, 3, 4, 5]
    with mallory.lying(EVENTS, lie), pytest.raises((error, BrokerError.eventsExpiredError)):
        collect(device, 1, 6)
    assert collect(device, 1, 5) == [1, 2, 3, 4, 5]


@attack(76, "a stream that goes back")
def test_a_log_that_ends_before_the_streams_next_event_is_a_rollback_also_without_marks(
    mallory: Mallory,
) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)
    shorter = Events(events=[], firstId=1, lastId=3)
    with mallory.answering(EVENTS, shorter), pytest.raises(ROLLBACK, match="ends at 3"):
        collect(device, 6, 1)


@attack(76, "a stream that goes back")
def test_a_log_that_has_grown_beyond_the_streams_next_event_again_is_another(
    mallory: Mallory,
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    assert collect(device, 1, 5) == [1, 2, 3, 4, 5]
    story.tell(alice, story.follow(alice, content=b"six"))
    with mallory.lying(EVENTS, told_otherwise(5, version=7)), pytest.raises(FORK):
        collect(device, 6, 1)
    assert collect(device, 6, 1) == [6]


@contextmanager
def counted(mallory: Mallory, answer: Any) -> Iterator[list[Exchange]]:
    """Answer all requests for events with this lie; yield them."""
    asked: list[Exchange] = []

    def before(exchange: Exchange) -> None:
        asked.append(exchange)
        exchange.invent(answer)

    with mallory.meddling(EVENTS, before=before):
        yield asked


@pytest.mark.long
@attack(77, "a stream of empty answers")
@pytest.mark.parametrize(
    "answer",
    [b"", HEARTBEAT * 100_000, Events(events=[], firstId=1, lastId=0)],
    ids=["nothing", "heartbeats", "a page"],
)
def test_a_broker_that_answers_at_once_without_an_event_is_asked_once_a_second(
    mallory: Mallory, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await tick()

    monkeypatch.setattr(following, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    monkeypatch.setattr(following, "monotonic", lambda: 0.0)
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    with counted(mallory, answer) as asked, device.followEvents(1):
        wait_until(lambda: len(asked) >= 4)
        asked_at_least = len(asked)
        assert len(pauses) >= asked_at_least - 1
    assert set(pauses) == {1.0}


@pytest.mark.long
@attack(78, "a stream without a heartbeat")
@pytest.mark.parametrize(
    "silent, seconds, why",
    [
        pytest.param(0.5, PATIENCE, "silent for too long", id="no byte"),
        pytest.param(PATIENCE, 0.5, "does not end", id="no end"),
    ],
)
def test_a_connection_without_an_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, silent: float, seconds: float, why: str
) -> None:
    monkeypatch.setattr(requests, "_SILENT_SECONDS", silent)
    with (
        BadBroker([hang]) as broker,
        ServerProvider(uuid4(), broker.url, "device", trustStore=MemoryTrustStore()) as device,
    ):
        waiting = device._requests.wait("/v1/events", seconds, {}, token="a token")
        done = io_thread.submit("waiting", waiting)
        with pytest.raises((BrokerError.unreachableError, TimeoutError)) as caught:
            done.result(PATIENCE)
        assert why in str(caught.value)


@attack(79, "all waiting requests of one user")
def test_one_user_cannot_take_all_waiting_requests(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    greedy, modest = mallory.device_of(alice), mallory.device_of(bob)
    refused: list[int] = []

    def after(exchange: Exchange) -> None:
        if exchange.status == 503:
            refused.append(1)

    with ExitStack() as stack, mallory.meddling(EVENTS, after=after):
        for _ in range(40):
            stack.enter_context(greedy.followEvents(1))
        wait_until(lambda: len(refused) >= 8)
        modest.createContainer(b"").result(PATIENCE)
        assert collect(modest, 1, 1) == [1]
