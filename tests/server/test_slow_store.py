"""An object store that takes every question and answers none holds up who needs it, and nobody else."""

import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scbroker.crypto.seal import random_bytes
from scbroker.records.container_record import Part, Role
from scbroker.server.storage.blobs import new_blob_name
from scbroker.wire.containers import RecordsAnswer, RecordsRequest
from scbroker.wire.parts import MAX_TRANSFERS, SentChunk, SentChunks, Transfers, TransfersRequest
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.tables import query
from tests.kit.waiting import wait_until
from tests.kit.writers import OWNER, READER, Story, User
from tests.server.conftest import NewUser
from tests.server.test_admission import wait_for

on_one_engine = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
WORKER_SLOTS = 16
LARGE_BODY_SLOTS = 4
"""Large-body slots of one user."""


class Store:
    """An S3 as far as TCP goes, until it is closed."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._socket.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store()
    yield found
    found.close()


@pytest.fixture
def slow(tmp_path: Path, store: Store) -> Iterator[BrokerProcess]:
    """A broker on a folder, until `hang`."""
    with BrokerProcess(tmp_path, variables=store.environment) as broker:
        yield broker


def hang(broker: BrokerProcess, *users: User) -> None:
    broker.restart(object_store_url="s3://bucket")
    for user in users:
        user.wire.close()


@contextmanager
def asking(store: Store, work: Sequence[Callable[[], Answer]]) -> Iterator[list[Future[Answer]]]:
    """All of these ask at once; at the end the store is gone, and all have an answer."""
    with ThreadPoolExecutor(len(work)) as pool:
        sent = [pool.submit(one) for one in work]
        try:
            yield sent
        finally:
            store.close()


def others_are_served(broker: BrokerProcess, user: User) -> None:
    """Requests that need no object store are answered: logging in, creating, reading, work in threads."""
    with Wire(broker) as wire:
        wire.log_in(user.ring)
        other = User(user.ring, wire)
        story = Story(other).created()
        wire.call("GET", story.path).expect(200)
        batch = RecordsRequest(records=[Story(other).begin() for _ in range(2)])
        answer = wire.call("POST", "/v1/batches/records", batch).expect(200)
        assert all(item.receipt for item in answer.message(RecordsAnswer).records)


def as_user(
    user: User, broker: BrokerProcess, method: str, path: str, message: Any = None
) -> Answer:
    with Wire(broker, token=user.wire.token) as wire:
        return wire.call(method, path, message)


def path_of(story: Story, part: Part, what: str) -> str:
    return f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/{what}"


@pytest.mark.long
@on_one_engine
def test_readers_of_a_store_that_hangs_hold_up_nobody_else(
    slow: BrokerProcess, store: Store, new_user: NewUser
) -> None:
    alice, *readers = [new_user(at=slow) for _ in range(6)]
    story = Story(alice)
    part = story.upload(alice, bytes(70_000))
    story.tell(alice, story.begin({alice: OWNER, **dict.fromkeys(readers, READER)}, content=part))
    hang(slow, alice, *readers)
    path = path_of(story, part, "segments?first=0&count=1")
    asks = [partial(as_user, user, slow, "GET", path) for user in readers] * LARGE_BODY_SLOTS
    assert len(asks) > WORKER_SLOTS
    with asking(store, asks) as sent:
        wait_for(slow, len(asks))
        others_are_served(slow, alice)
    assert {one.result().expect(503).code for one in sent} == {"overloaded"}


@pytest.mark.long
@on_one_engine
def test_reporting_chunks_to_a_hanging_store_delays_nobody_else(
    slow: BrokerProcess, store: Store, new_user: NewUser
) -> None:
    alice, *senders = [new_user(at=slow) for _ in range(6)]
    hang(slow, alice, *senders)
    asks = []
    for user in senders:
        story = Story(user)
        part, _ = story.seal(Role.Content, user, bytes(70_000), story.key)
        wanted = TransfersRequest(chunks=list(range(MAX_TRANSFERS)))
        answer = user.wire.call("POST", path_of(story, part, "transfers"), wanted).expect(200)
        told = [
            SentChunk(index=transfer.index, name=transfer.name, hashes=random_bytes(32))
            for transfer in answer.message(Transfers).transfers
        ]
        assert len(told) == MAX_TRANSFERS
        path = path_of(story, part, "chunks")
        asks += [partial(as_user, user, slow, "POST", path, SentChunks(chunks=told))] * (
            LARGE_BODY_SLOTS + 2
        )
    with asking(store, asks) as sent:
        wait_for(slow, len(senders) * LARGE_BODY_SLOTS)
        others_are_served(slow, alice)
    assert {one.result().expect(503).code for one in sent} == {"overloaded"}


@pytest.mark.long
@on_one_engine
def test_deletions_while_the_store_hangs_hold_up_one_request_and_no_more(
    slow: BrokerProcess, store: Store, new_user: NewUser
) -> None:
    alice, bob = new_user(at=slow), new_user(at=slow)
    hang(slow, alice, bob)
    row = "INSERT INTO pending_blobs (name, since) VALUES (?, 0)"
    query(slow.database_url, row, new_blob_name(random_bytes(16)))
    asks = []
    for ended in [Story(alice).created() for _ in range(WORKER_SLOTS)]:
        end = ended.follow(alice, tombstone=True)
        asks.append(partial(as_user, alice, slow, "PUT", f"{ended.path}/records/2", end))
    with asking(store, asks) as sent:
        wait_until(lambda: sum(one.done() for one in sent) >= WORKER_SLOTS - 1)
        others_are_served(slow, bob)
        wait_for(slow, 1)
    for one in sent:
        one.result().expect(201)
