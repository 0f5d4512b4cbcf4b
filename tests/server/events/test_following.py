"""Requests that wait for an event: their answers, their cost, and their limits."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from scbroker.crypto.verify import sha256
from scbroker.wire.events import HEARTBEAT
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process


class Reader:
    """A session that waits for events on raw connections, so that each byte of an answer is seen."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.wire = Wire(broker)
        self.ring = broker.new_user()
        self.wire.log_in(self.ring)

    def ask(self, query: str) -> socket.socket:
        """Sends a request; the connection stays open."""
        headers = "".join(f"{key}: {value}\r\n" for key, value in self.wire.headers().items())
        connection = socket.create_connection(("127.0.0.1", self._broker.port), PATIENCE)
        connection.sendall(f"GET /v1/events?{query} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
        return connection


def head_of(connection: socket.socket) -> bytes:
    """Return the head of an answer; bytes received after it are lost."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(1)
    return found.lower()


def rest_of(connection: socket.socket) -> bytes:
    """Return the rest of a chunked body, without heartbeats."""
    found = b""
    while not found.endswith(b"0\r\n\r\n"):
        piece = connection.recv(65536)
        assert piece
        found += piece
    body = b""
    while (size := int(found.partition(b"\r\n")[0], 16)) > 0:
        found = found.partition(b"\r\n")[2]
        body, found = body + found[:size], found[size + 2 :]
    return body.strip(HEARTBEAT)


def metric(broker: BrokerProcess, name: str) -> int:
    with Wire(broker) as wire:
        lines = wire.send("GET", "/metrics").body.decode().splitlines()
    [line] = [each for each in lines if each.startswith(f"{name} ")]
    return int(float(line.split()[1]))


NewReader = Callable[[BrokerProcess], Reader]


@pytest.fixture
def new_reader() -> Iterator[NewReader]:
    with ExitStack() as stack:

        def make(broker: BrokerProcess) -> Reader:
            reader = Reader(broker)
            stack.enter_context(reader.wire)
            return reader

        yield make


@pytest.fixture
def reader(fresh_broker: BrokerProcess, new_reader: NewReader) -> Reader:
    return new_reader(fresh_broker)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_answer_begins_at_once_and_ends_without_a_page_when_its_time_is_over(
    reader: Reader, fresh_broker: BrokerProcess
) -> None:
    with reader.ask("startId=1&wait=600") as longer, reader.ask("startId=1&wait=1") as connection:
        head_of(longer)  # within PATIENCE, which is less
        head = head_of(connection)
        assert head.startswith(b"http/1.1 200 ")
        assert b"\r\nx-accel-buffering: no\r\n" in head
        assert b"\r\ntransfer-encoding: chunked\r\n" in head
        assert b"content-length" not in head
        assert rest_of(connection) == b""
        wait_until(lambda: metric(fresh_broker, "scbroker_followers") == 1)  # the longer one


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_log_out_ends_the_waiting_requests_of_its_session_without_a_page(reader: Reader) -> None:
    with reader.ask("startId=1&wait=600") as connection:
        head_of(connection)
        reader.wire.send("DELETE", "/v1/sessions/current").expect(204)
        assert rest_of(connection) == b""


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_revocation_of_an_api_key_ends_the_requests_that_wait(
    start_broker: StartBroker, new_reader: NewReader
) -> None:
    broker = start_broker()
    with new_reader(broker).ask("startId=1&wait=600") as connection:
        head_of(connection)
        key = sha256(broker.api_key.bytes).hex()[:8]
        admin(broker, "api-keys", "revoke", key).expect(0)
        assert rest_of(connection) == b""


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_followers_take_no_slot_of_other_requests(
    start_broker: StartBroker, new_reader: NewReader
) -> None:
    broker = start_broker(max_requests=2)
    reader = new_reader(broker)
    with ExitStack() as stack:
        for _ in range(20):
            head_of(stack.enter_context(reader.ask("startId=1&wait=600")))
        for name in ("scbroker_requests_present", "scbroker_requests_waiting"):
            assert metric(broker, name) == 0
        for _ in range(10):
            reader.wire.send("GET", "/v1/events").expect(200)
    wait_until(lambda: metric(broker, "scbroker_followers") == 0)
    assert metric(broker, "scbroker_requests_present") == 0


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "settings, most", [({"max_followers": 3}, 3), ({"max_connections": 8}, 6), ({}, 32)]
)
def test_more_followers_than_are_allowed_are_refused_and_others_are_served(
    start_broker: StartBroker, new_reader: NewReader, settings: dict[str, int], most: int
) -> None:
    broker = start_broker(**settings)
    reader = new_reader(broker)
    with ExitStack() as stack:
        for _ in range(most):
            assert b" 200 " in head_of(stack.enter_context(reader.ask("startId=1&wait=600")))
        answer = reader.wire.send("GET", "/v1/events?startId=1&wait=600")
        answer.expect(503, "overloaded")
        reader.wire.send("GET", "/v1/events").expect(200)
        # A request that does not have to wait is answered even now.
        reader.wire.send("GET", "/v1/events?startId=2&wait=600").expect(200)
    wait_until(lambda: metric(broker, "scbroker_followers") == 0)
    with reader.ask("startId=1&wait=600") as connection:
        assert b" 200 " in head_of(connection)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_stop_of_the_broker_ends_all_waiting_requests(
    start_broker: StartBroker, new_reader: NewReader
) -> None:
    broker = start_broker()
    readers = [new_reader(broker) for _ in range(2)]
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(reader.ask("startId=1&wait=600"))
            for reader in readers
            for _ in range(20)
        ]
        for connection in waiting:
            head_of(connection)
        broker.stop()
        for connection in waiting:
            assert rest_of(connection) == b""


@pytest.mark.long
def test_waiting_requests_ask_the_database_for_nothing(
    start_broker: StartBroker, new_reader: NewReader
) -> None:
    broker = start_broker()
    reader = new_reader(broker)
    other = new_reader(broker)
    kinds = [f'scbroker_database_seconds_count{{kind="{kind}"}}' for kind in ("read", "write")]
    with ExitStack() as stack:
        for each in (reader, other):
            for _ in range(25):
                head_of(stack.enter_context(each.ask("startId=1&wait=600")))
        before = [metric(broker, kind) for kind in kinds]
        # The broker reads whether its key was rotated once every 5 seconds.
        wait_until(lambda: metric(broker, kinds[0]) > before[0])
        after = [metric(broker, kind) for kind in kinds]
    assert sum(after) - sum(before) < 50, "far fewer than one of each waiting request"


@pytest.mark.only_on("postgresql")
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_lost_connection_for_events_is_logged_and_opened_again(
    start_broker: StartBroker, new_reader: NewReader
) -> None:
    broker = start_broker()
    new_reader(broker)
    wait_until(lambda: listeners(broker))
    [(pid,)] = listeners(broker)
    query(broker.database_url, "SELECT pg_terminate_backend(?::int)", pid)
    wait_until(lambda: listeners(broker) and listeners(broker) != [(pid,)])
    assert "the connection for events is lost" in broker.log
    wait_until(lambda: "listening for events again" in broker.log)


def listeners(broker: BrokerProcess) -> list[tuple[Any, ...]]:
    return query(
        broker.database_url,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND (query = 'SELECT 1' OR query LIKE '%pg_notify%') AND pid <> pg_backend_pid()",
    )
