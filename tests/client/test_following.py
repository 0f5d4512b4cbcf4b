"""followEvents over a real broker: each event once and in order, across failures of all kinds."""

import concurrent.futures
import datetime as dt
import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from scbroker import (
    AccessLevel,
    BrokerError,
    ContainerAccessLevel,
    ContainerEvent,
    ContainerEventType,
    ServerProvider,
    Stream,
)
from scbroker.client import events
from scbroker.client.users import session
from scbroker.wire.codec import Message
from tests.client.conftest import id_of
from tests.kit.ageing import DAY
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider, StartBroker
from tests.kit.impatience import be_impatient
from tests.kit.network import Go, Network, Octets, overtaken, refused
from tests.kit.owners import change
from tests.kit.waiting import PATIENCE, until, wait_until

Added, Updated, Accessed, Deleted = ContainerEventType
OWNER = ContainerAccessLevel.DefaultOwnerPermissions
READER = ContainerAccessLevel.DefaultUserPermissions | ContainerAccessLevel.ViewType


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses of an outage a tenth as long."""
    monkeypatch.setattr(events, "_LONGEST_PAUSE", 1.0)


def take(stream: Stream[ContainerEvent], count: int) -> list[ContainerEvent]:
    """Return the next events; each has to arrive within PATIENCE."""
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        return [beside.submit(next, stream).result(PATIENCE) for _ in range(count)]


def ids(found: Iterable[ContainerEvent]) -> list[int]:
    return [event.id for event in found]


def create(provider: ServerProvider, count: int = 1, **more: Any) -> list[uuid.UUID]:
    return [provider.createContainer(b"", **more).result(PATIENCE).id for _ in range(count)]


@both_engines
def test_events_come_as_they_happen_each_once_and_in_order(alice: ServerProvider) -> None:
    made = create(alice, 2)
    with alice.followEvents(1) as stream:
        assert [(e.id, e.containerId) for e in take(stream, 2)] == [(1, made[0]), (2, made[1])]
        for number in range(3, 8):
            [new] = create(alice)
            [event] = take(stream, 1)
            assert (event.id, event.containerId, event.eventType) == (number, new, Added)
    assert alice.getEvents().result(PATIENCE)[-1].id == 7


def test_a_page_that_arrives_after_a_later_one_was_read_is_no_rollback(
    alice: ServerProvider, network: Network
) -> None:
    """Another operation or program reads newer events while the page is on its way."""

    def read_more() -> None:
        create(alice)
        alice.getEvents().result(PATIENCE)

    network.treat("GET", "/v1/events", overtaken(read_more))
    create(alice)
    with alice.followEvents(1) as stream:
        assert ids(take(stream, 2)) == [1, 2]


def test_without_start_the_stream_begins_behind_the_logs_end(alice: ServerProvider) -> None:
    create(alice, 3)
    with alice.followEvents() as stream:
        [new] = create(alice)
        [event] = take(stream, 1)
        assert (event.id, event.containerId) == (4, new)


@pytest.mark.long
def test_the_stream_has_what_its_provider_changes_after_the_call_although_the_first_request_is_slow(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(alice, 3)
    until_begun, changes = session.Session._until_begun, []

    async def note(self: session.Session, message: Message | None) -> None:
        if message is not None and message.is_act:
            changes.append(self)
        await until_begun(self, message)

    async def delay(go: Go) -> Octets:
        await until(lambda: changes)
        await go()  # meanwhile a change that does not wait is stored
        return await go()

    monkeypatch.setattr(session.Session, "_until_begun", note)
    with Network() as network:
        network.treat("GET", "/v1/events", delay)
        with alice.followEvents() as stream:
            new = create(alice, 2)
            create(alice, 2)  # so that a stream that begins late has events nevertheless
            assert [(e.id, e.containerId) for e in take(stream, 2)] == [(4, new[0]), (5, new[1])]


def test_changes_do_not_wait_for_the_outage_of_a_stream_that_begins(
    alice: ServerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    with Network() as network:
        network.treat("GET", "/v1/events", refused(BrokerError.unreachableError("No events.")))
        with alice.followEvents():
            create(alice)
            wait_until(lambda: "waits for the broker" in caplog.text)
            create(alice)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "criteria",
    [
        {},
        {"eventType": Added},
        {"eventType": ["Updated", "Deleted"]},
        {"containerType": "a"},
        {"containerType": "b", "eventType": [Updated]},
    ],
)
def test_the_criteria_match_the_same_events_as_in_get_events(
    alice: ServerProvider, criteria: dict[str, Any]
) -> None:
    [one] = create(alice, type="a")
    [two] = create(alice)
    alice.updateContainerType(one, "b").result(PATIENCE)
    alice.updateContainerHeader(two, {}).result(PATIENCE)
    alice.updateContainerType(two, "a").result(PATIENCE)
    for its_id in (None, one, two):
        expected = alice.getEvents(**criteria, containerId=its_id).result(PATIENCE)
        with alice.followEvents(1, **criteria, containerId=its_id) as stream:
            assert take(stream, len(expected)) == expected


@pytest.mark.long
def test_handlers_follow_until_the_stream_is_closed(alice: ServerProvider) -> None:
    found: list[ContainerEvent] = []
    failed: list[BrokerError] = []
    with concurrent.futures.ThreadPoolExecutor(4) as queue:
        stream = alice.followEvents(
            1, eventHandler=found.append, errorHandler=failed.append, queue=queue
        )
        create(alice, 3)
        wait_until(lambda: ids(found) == [1, 2, 3])
        stream.close()
        create(alice)
        with alice.followEvents(4) as other:
            take(other, 1)
    assert (ids(found), failed) == ([1, 2, 3], [])


# Access that expires


@pytest.mark.long
@both_engines
def test_a_deleted_event_arrives_when_access_expires(
    start_broker: StartBroker, new_provider: NewProvider
) -> None:
    broker = start_broker(session_seconds=DAY)
    alice, bob = new_provider(True, at=broker), new_provider(True, at=broker)
    with bob.followEvents(1) as stream:
        expires = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
        levels = [AccessLevel(id_of(alice), OWNER), AccessLevel(id_of(bob), READER, expires)]
        create(alice, accessLevels=levels)
        # The request for the second event begins when the first is taken, and waits for the expiry.
        left = expires - dt.datetime.now(dt.UTC)
        broker.clock_ahead = left.total_seconds() - 1
        added, deleted = take(stream, 2)
    assert (added.eventType, deleted.eventType) == (Added, Deleted)
    assert abs(deleted.date - expires) < dt.timedelta(milliseconds=1)
    assert dt.datetime.now(dt.UTC) + dt.timedelta(seconds=broker.clock_ahead) >= expires


# Brokers that end, and outages


@pytest.mark.long
@both_engines
def test_a_broker_that_is_killed_and_restarted_loses_and_doubles_no_event(
    fresh_broker: BrokerProcess, new_provider: NewProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scbroker")
    alice = new_provider(True, at=fresh_broker)
    other = new_provider(alice.getKeyRing().result(PATIENCE), at=fresh_broker)
    create(alice)
    ending, made = threading.Event(), []

    def write() -> None:
        while not ending.is_set():
            made.append(create(alice)[0])

    with other.followEvents(2) as stream, concurrent.futures.ThreadPoolExecutor(1) as beside:
        writing = beside.submit(write)
        found = take(stream, 5)
        for _ in range(3):
            fresh_broker.kill()
            fresh_broker.start()
            found += take(stream, 10)
        ending.set()
        writing.result(PATIENCE)
        found += take(stream, len(made) - len(found))
    assert ids(found) == list(range(2, len(made) + 2))
    assert [event.containerId for event in found] == made


@pytest.mark.long
def test_a_stream_that_is_opened_while_the_broker_is_down_starts_when_it_is_up(
    fresh_broker: BrokerProcess,
    new_provider: NewProvider,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_impatient(monkeypatch)
    alice = new_provider(True, at=fresh_broker)
    create(alice)
    fresh_broker.stop()
    with alice.followEvents() as stream:
        wait_until(lambda: "waits for the broker" in caplog.text)
        fresh_broker.start()
        wait_until(lambda: followers(fresh_broker) == 1)
        create(alice)
        assert ids(take(stream, 1)) == [2]


def followers(broker: BrokerProcess) -> int:
    """Return how many requests wait for events at the broker."""
    with Wire(broker) as wire:
        lines = wire.send("GET", "/metrics").body.decode().splitlines()
    [line] = [each for each in lines if each.startswith("scbroker_followers ")]
    return int(float(line.split()[1]))


@pytest.mark.long
@both_engines
def test_a_stream_goes_on_when_its_token_is_renewed(
    alice: ServerProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Network() as network, alice.followEvents(1) as stream:
        for number in range(1, 4):
            create(alice)
            assert ids(take(stream, 1)) == [number]
            monkeypatch.setattr(session, "_EARLY_SECONDS", DAY)  # each request renews it
    assert len(network.those("POST", "/v1/sessions")) >= 2


# Ends


ENDS: dict[str, Callable[[ServerProvider, ServerProvider], object]] = {
    "log-out": lambda own, _: own.logout().result(PATIENCE),
    "closing": lambda own, _: own.close(),
    "deletion elsewhere": lambda _, other: other.deleteUser().result(PATIENCE),
    "new keys elsewhere": lambda _, other: change(other, compromised=True).result(PATIENCE),
}


@pytest.mark.sampled
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_session_ends_its_waiting_stream(
    fresh_broker: BrokerProcess, new_provider: NewProvider, end: str
) -> None:
    own = new_provider(True, at=fresh_broker)
    other = new_provider(own.getKeyRing().result(PATIENCE), at=fresh_broker)
    with own.followEvents(1) as stream:
        wait_until(lambda: followers(fresh_broker) == 1)
        assert events._WAIT > PATIENCE
        ENDS[end](own, other)
        with pytest.raises(BrokerError.notAuthenticatedError):
            take(stream, 1)


@pytest.mark.parametrize(
    "wrong", [{"startId": -1}, {"startId": "1"}, {"containerId": 7}, {"endId": 3}]
)
def test_wrong_arguments_are_refused_at_the_call(
    alice: ServerProvider, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BrokerError.invalidArgumentError):
        alice.followEvents(**wrong)


# Several brokers on one database


@pytest.mark.long
@pytest.mark.only_on("postgresql")
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_an_event_written_through_one_broker_is_followed_through_another(
    start_broker: StartBroker, new_provider: NewProvider
) -> None:
    one, two = start_broker(workers=2), start_broker()
    alice = new_provider(True, at=one)
    other = new_provider(alice.getKeyRing().result(PATIENCE), at=two)
    with other.followEvents(1) as stream:
        assert events._WAIT > PATIENCE
        for number in range(1, 21):
            wait_until(lambda: followers(two) == 1)
            create(alice)
            assert ids(take(stream, 1)) == [number]
