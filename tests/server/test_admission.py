"""A broker with more to do than it takes on: it refuses the rest at once and does none of it."""

import asyncio
import re
import sqlite3
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message

from scbroker.errors import OverloadedError
from scbroker.server import requests
from scbroker.server.capacity import ADMITTED, Gate, Kind
from scbroker.server.operations import OPERATIONS
from scbroker.wire import codec
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.tables import dump
from tests.kit.waiting import PATIENCE, tick, wait_until
from tests.kit.writers import Story, User
from tests.server.conftest import NewUser

MOST = 8
WRITES = 6


@pytest.fixture
def small(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker on SQLite that takes on little."""
    with BrokerProcess(tmp_path, max_requests=MOST, database_wait_seconds=600) as broker:
        yield broker


@contextmanager
def held(broker: BrokerProcess) -> Iterator[None]:
    """Another program keeps everybody from writing to the database."""
    path = broker.database_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def present(broker: BrokerProcess) -> int:
    with Wire(broker) as wire:
        found = re.search(r"^scbroker_requests_present (\d+)", metrics(wire), re.MULTILINE)
    assert found is not None
    return int(found[1])


def metrics(wire: Wire) -> str:
    return wire.send("GET", "/metrics").expect(200).body.decode()


def wait_for(broker: BrokerProcess, count: int) -> None:
    wait_until(lambda: present(broker) == count)


@contextmanager
def full(broker: BrokerProcess, alice: User) -> Iterator[None]:
    """As many containers of Alice's are being created as the broker takes on writes."""
    with ThreadPoolExecutor(WRITES) as pool:
        with held(broker):
            sent = [pool.submit(create, broker, alice, Story(alice)) for _ in range(WRITES)]
            wait_for(broker, WRITES)
            yield
        for answer in sent:
            answer.result(PATIENCE).expect(201)
    wait_for(broker, 0)


def create(broker: BrokerProcess, user: User, story: Story) -> Answer:
    with Wire(broker, token=user.wire.token) as wire:
        return story.send(User(user.ring, wire), story.begin())


@pytest.mark.long
def test_what_is_too_much_is_refused_and_not_done_and_done_when_it_is_sent_again(
    small: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user(at=small)
    story = Story(alice)
    request = story.begin()
    with full(small, alice):
        before = dump(small.database_url)
        refused = story.send(alice, request).expect(503, "overloaded")
        assert 1 <= int(refused.headers["retry-after"]) <= 3
        assert dump(small.database_url) == before
    alice.wire.call("GET", story.path).expect(404, "not-found")
    story.tell(alice, request)


@pytest.mark.sampled
@pytest.mark.parametrize("announced", ["Content-Length: 1", "Transfer-Encoding: chunked"])
def test_a_body_that_nobody_asked_for_is_refused_and_not_waited_for(
    small: BrokerProcess, new_user: NewUser, announced: str
) -> None:
    alice = new_user(at=small)
    bodiless = [operation for operation in OPERATIONS if operation.message is None]
    assert {operation.method for operation in bodiless} == {"GET", "PUT", "DELETE"}
    name, _, value = announced.partition(": ")
    for operation in bodiless:
        path = re.sub(r"{\w+Id}", str(uuid.uuid4()), operation.path)
        needed = [f for f in msgspec.structs.fields(operation.query) if f.required]
        path += "?" + "&".join(f"{field.encode_name}=1" for field in needed)
        with Wire(small, token=alice.wire.token) as wire:
            answer = wire.send(operation.method, path, headers={name: value})
            assert "takes no body" in answer.expect(400, "invalid").problem["detail"]
    assert not present(small)
    alice.wire.send("DELETE", "/v1/sessions/current", headers={"Content-Length": "0"}).expect(204)


@pytest.mark.long
def test_a_write_that_waited_too_long_is_refused_and_not_done(
    tmp_path: Path, new_user: NewUser
) -> None:
    with BrokerProcess(tmp_path) as broker:
        alice = new_user(at=broker)
        story = Story(alice)
        broker.restart(database_wait_seconds=1)
        alice.wire.close()
        with ThreadPoolExecutor(1) as pool:
            with held(broker):
                sent = pool.submit(create, broker, alice, story)
                wait_for(broker, 1)
                # By the same clock, this takes two seconds.
                alice.wire.call("GET", "/v1/events?startId=1&wait=2").expect(200)
            sent.result(PATIENCE).expect(503, "overloaded")
        broker.restart(database_wait_seconds=60)
        alice.wire.close()
        alice.wire.call("GET", story.path).expect(404, "not-found")
        story.created()


@pytest.mark.sampled
@pytest.mark.parametrize("drip", [b"", b"x"], ids=["nothing", "a byte at a time"])
async def test_a_body_that_comes_too_slowly_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, drip: bytes
) -> None:
    loop = asyncio.get_running_loop()
    right, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: right() + ahead[0])

    async def receive() -> Message:
        ahead[0] += 1 if drip else 3600
        await (tick() if drip else asyncio.Event().wait())
        return {"type": "http.request", "body": drip, "more_body": True}

    headers = [(b"content-type", codec.OCTETS.encode())]
    scope = {"type": "http", "method": "PUT", "headers": headers, ADMITTED: Kind.Writing}
    request = Request({**scope, "state": {"gate": Gate(1, 1)}}, receive)
    operation = next(operation for operation in OPERATIONS if operation.message is bytes)
    with pytest.raises(OverloadedError, match="too slowly"):
        async for _ in requests._body(operation, request):
            pass
