"""Presigned URLs, object names and reported chunks of a broker on an S3, on both databases."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final
from urllib.request import Request, urlopen

import obstore
import pytest

from assurance.cluster.ceph import ObjectGateway
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT, Part, Role
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.parts import (
    MAX_CHUNK,
    Chunks,
    SentChunk,
    SentChunks,
    Transfer,
    Transfers,
    TransfersRequest,
)
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.groups import SHARER, WRITER, Group
from tests.kit.objects import store_of
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Grant, Story, User, chunks_of

pytestmark = pytest.mark.cluster("ceph")

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND


class Scene:
    """A broker on a bucket, and users who send requests by hand."""

    def __init__(self, gateway: ObjectGateway, start: StartBroker, stack: ExitStack) -> None:
        bucket = gateway.new_bucket()
        self.bucket = gateway.store(bucket)
        self._url, self._variables = f"s3://{bucket}", gateway.environment
        self._start, self._stack = start, stack
        self.broker: BrokerProcess

    def begin(self, **settings: Any) -> Scene:
        self.broker = self._start(object_store_url=self._url, variables=self._variables, **settings)
        return self

    def user(self) -> User:
        ring = self.broker.new_user()
        return User(ring, self._stack.enter_context(Wire(self.broker)).log_in(ring))


@pytest.fixture
def scene(gateway: ObjectGateway, start_broker: StartBroker) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(gateway, start_broker, stack)


def path_of(story: Story, part: Part, what: str) -> str:
    return f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/{what}"


def ask(user: User, story: Story, part: Part, *chunks: int) -> Answer:
    message = TransfersRequest(chunks=list(chunks))
    return user.wire.call("POST", path_of(story, part, "transfers"), message)


def transfers_of(user: User, story: Story, part: Part, *chunks: int) -> list[Transfer]:
    return ask(user, story, part, *chunks).expect(200).message(Transfers).transfers


def put(url: str, body: bytes, method: str = "PUT", **headers: str) -> int:
    try:
        with urlopen(
            Request(url, body or None, headers, method=method), timeout=PATIENCE
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def hashes_of(sealed: bytes) -> bytes:
    return b"".join(
        hashlib.sha256(sealed[at : at + SEALED_SEGMENT]).digest()
        for at in range(0, len(sealed), SEALED_SEGMENT)
    )


def report(user: User, story: Story, part: Part, *chunks: tuple[int, str, bytes]) -> Answer:
    sent = [SentChunk(index=index, name=name, hashes=hashes) for index, name, hashes in chunks]
    message = SentChunks(chunks=sent)
    return user.wire.call("POST", path_of(story, part, "chunks"), message)


def send(user: User, story: Story, part: Part, sealed: bytes) -> list[Transfer]:
    """Store all chunks directly."""
    pieces = chunks_of(sealed)
    found = transfers_of(user, story, part, *range(len(pieces)))
    for transfer, piece in zip(found, pieces, strict=True):
        assert put(transfer.url, piece) == 200
    told = [(t.index, t.name, hashes_of(p)) for t, p in zip(found, pieces, strict=True)]
    report(user, story, part, *told).expect(204)
    return found


def listed(user: User, story: Story, part: Part) -> list[int]:
    answer = user.wire.call("GET", path_of(story, part, "chunks")).expect(200)
    return [chunk.index for chunk in answer.message(Chunks).chunks]


def test_a_content_is_stored_directly_and_can_be_read_directly_or_through_the_broker(
    scene: Scene,
) -> None:
    scene.begin()
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, os.urandom(9 * SEGMENT), story.key)
    send(alice, story, part, sealed)
    assert listed(alice, story, part) == [0, 1]
    story.tell(alice, story.follow(alice, content=part))
    answer = alice.wire.call("GET", path_of(story, part, "transfers?first=0&count=2")).expect(200)
    found = answer.message(Transfers)
    assert [transfer.index for transfer in found.transfers] == [0, 1]
    assert found.seconds == 900
    fetched = b""
    for transfer in found.transfers:
        with urlopen(transfer.url, timeout=PATIENCE) as body:
            fetched += body.read()
    assert fetched == sealed
    path = path_of(story, part, "segments?first=7&count=2")
    assert alice.wire.call("GET", path).expect(200).body == sealed[7 * SEALED_SEGMENT :]
    assert "X-Amz" not in scene.broker.log


def test_a_presigned_url_is_for_one_method_and_one_object(scene: Scene) -> None:
    scene.begin()
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    [first, second] = transfers_of(alice, story, part, 0, 1)
    assert put(first.url, b"", "GET") == 403
    assert put(first.url, b"", "DELETE") == 403
    assert put(first.url.replace(first.name, second.name), sealed) == 403
    assert first.name != second.name
    assert put(first.url, sealed) == 200
    report(alice, story, part, (0, first.name, hashes_of(sealed))).expect(204)
    story.tell(alice, story.follow(alice, content=part))
    path = path_of(story, part, "transfers?first=0&count=1")
    [reading] = alice.wire.call("GET", path).expect(200).message(Transfers).transfers
    assert put(reading.url, b"other") == 403
    assert put(reading.url, b"", "GET", Range="bytes=0-9") == 206


def test_a_reported_chunk_is_accepted_only_if_its_object_has_the_size_of_its_segments(
    scene: Scene,
) -> None:
    scene.begin()
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    [transfer] = transfers_of(alice, story, part, 0)
    one = (0, transfer.name, hashes_of(sealed))
    report(alice, story, part, one).expect(422, "incomplete")
    for wrong in (b"", b"x" * 72, bytes(SEALED_SEGMENT + 1), bytes(MAX_CHUNK)):
        assert put(transfer.url, wrong) == 200
        report(alice, story, part, one).expect(422, "rejected")
    assert listed(alice, story, part) == []
    assert put(transfer.url, sealed) == 200
    report(alice, story, part, one).expect(204)
    report(alice, story, part, one).expect(204)
    assert listed(alice, story, part) == [0]
    story.tell(alice, story.follow(alice, content=part))
    report(alice, story, part, one).expect(204)
    report(alice, story, part, (0, transfer.name, bytes(32))).expect(409, "exists")


def test_reported_hashes_that_differ_from_the_signed_ones_are_refused_at_the_record(
    scene: Scene,
) -> None:
    scene.begin()
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    [transfer] = transfers_of(alice, story, part, 0)
    assert put(transfer.url, sealed) == 200
    report(alice, story, part, (0, transfer.name, os.urandom(32))).expect(204)
    story.send(alice, story.follow(alice, content=part)).expect(422, "rejected")
    [other] = transfers_of(alice, story, part, 0)
    assert put(other.url, sealed) == 200
    report(alice, story, part, (0, other.name, hashes_of(sealed))).expect(204)
    story.tell(alice, story.follow(alice, content=part))


def test_an_object_name_is_accepted_once_and_only_for_its_part(scene: Scene) -> None:
    scene.begin()
    alice, bob = scene.user(), scene.user()
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    other, _ = story.seal(Role.Content, alice, bytes(70_000), story.key)
    hashes = hashes_of(sealed)
    [transfer] = transfers_of(alice, story, part, 0)
    assert put(transfer.url, sealed) == 200
    report(alice, story, other, (0, transfer.name, hashes)).expect(400, "invalid")
    report(bob, story, part, (0, transfer.name, hashes)).expect(409, "exists")
    twice = [(0, transfer.name, hashes), (1, transfer.name, hashes)]
    report(alice, story, part, *twice).expect(400, "invalid")
    report(alice, story, part, *twice[:1], *twice[:1]).expect(400, "invalid")
    unknown = transfer.name.replace("-", "-" + "0" * 8)[: len(transfer.name)]
    obstore.put(store_of(scene.broker), unknown, sealed)
    for name in (unknown, "parts/00/check", "../x", transfer.name + "x"):
        assert report(alice, story, part, (0, name, hashes)).status in (400, 422), name
    report(alice, story, part, twice[0]).expect(204)
    report(alice, story, part, twice[1]).expect(422, "incomplete")
    assert listed(alice, story, part) == [0]
    ask(alice, story, part, 0, 0).expect(400, "invalid")


@pytest.mark.parametrize("since", [-1, 0, 1])
def test_an_object_name_that_is_claimed_or_pending_deletion_again_is_refused(
    scene: Scene, since: int
) -> None:
    scene.begin()
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    [transfer] = transfers_of(alice, story, part, 0)
    assert put(transfer.url, sealed) == 200
    statement = "UPDATE pending_blobs SET since = CASE WHEN ? > 0 THEN since + 1 ELSE ? END"
    query(scene.broker.database_url, statement, since, since)
    told = (0, transfer.name, hashes_of(sealed))
    report(alice, story, part, told).expect(422, "incomplete")
    send(alice, story, part, sealed)
    story.tell(alice, story.follow(alice, content=part))


def test_presigned_urls_are_given_only_to_users_who_may_upload_or_download(scene: Scene) -> None:
    scene.begin()
    alice, bob, carol, dora = (scene.user() for _ in range(4))
    story = Story(alice).created({alice: OWNER, bob: READER, carol: Level.ViewAccess})
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    ask(bob, story, part, 0).expect(403, "permission")
    strange, _ = story.seal(Role.Content, dora, bytes(70_000), story.key)
    ask(dora, story, strange, 0).expect(200)  # as for a container that does not exist
    send(alice, story, part, sealed)
    reading = path_of(story, part, "transfers?first=0&count=1")
    alice.wire.call("GET", reading).expect(404, "not-found")
    story.tell(alice, story.follow(alice, content=part))
    bob.wire.call("GET", reading).expect(200)
    carol.wire.call("GET", reading).expect(403, "permission")
    dora.wire.call("GET", reading).expect(404, "not-found")
    ask(alice, story, part, 0).expect(409, "exists")
    beyond = path_of(story, part, "transfers?first=0&count=2")
    bob.wire.call("GET", beyond).expect(400, "invalid")
    story.tell(alice, story.follow(alice, tombstone=True))
    bob.wire.call("GET", reading).expect(410, "deleted")


def test_a_presigned_url_is_valid_no_longer_than_the_access(scene: Scene) -> None:
    scene.begin()
    alice, bob = scene.user(), scene.user()
    story = Story(alice)
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    send(alice, story, part, sealed)
    story.tell(
        alice, story.begin({alice: OWNER, bob: Grant(READER, clock() + 600 * SECOND)}, content=part)
    )
    path = path_of(story, part, "transfers?first=0&count=1")
    assert bob.wire.call("GET", path).expect(200).message(Transfers).seconds <= 600
    assert alice.wire.call("GET", path).expect(200).message(Transfers).seconds == 900


def test_a_removed_member_gets_no_presigned_url_and_keeps_those_that_they_have_until_they_expire(
    scene: Scene,
) -> None:
    """The store checks the URL alone. The object that the member puts there becomes part of no container."""
    scene.begin()
    alice, bob = scene.user(), scene.user()
    team = Group(alice).created({alice: SHARER, bob: WRITER})
    story = Story(alice).created({alice: OWNER, team: OWNER})
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    send(alice, story, part, sealed)
    story.tell(alice, story.follow(alice, content=part))
    own, late = story.seal(Role.Content, bob, bytes(70_000), story.key)
    via = f"via={team.group_id}"
    to_read = path_of(story, part, f"transfers?first=0&count=1&{via}")
    to_write = path_of(story, own, f"transfers?{via}")
    first = TransfersRequest(chunks=[0])
    [reading] = bob.wire.call("GET", to_read).expect(200).message(Transfers).transfers
    [writing] = bob.wire.call("POST", to_write, first).expect(200).message(Transfers).transfers

    team.tell(alice, team.follow(alice, remove=[bob]))
    bob.wire.call("GET", to_read).expect(404, "not-found")
    bob.wire.call("POST", to_write, first).expect(404, "not-found")
    with urlopen(reading.url, timeout=30) as body:
        assert body.read() == sealed
    assert put(writing.url, late) == 200
    told = SentChunks(chunks=[SentChunk(index=0, name=writing.name, hashes=hashes_of(late))])
    bob.wire.call("POST", path_of(story, own, f"chunks?{via}"), told).expect(404, "not-found")
    story.send(bob, story.follow(bob, content=own, via=team)).expect(404, "not-found")


def test_a_presigned_url_counts_as_a_whole_chunk_in_the_quota(scene: Scene) -> None:
    scene.begin(max_pending_bytes=4 * MAX_CHUNK, max_pending_parts=1)
    alice = scene.user()
    story = Story(alice).created()
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    other, _ = story.seal(Role.Content, alice, bytes(70_000), story.key)
    ask(alice, story, part, 0, 1, 2, 3).expect(413, "too-large")
    transfers_of(alice, story, part, 0, 1)
    ask(alice, story, other, 0).expect(413, "too-large")
    ask(alice, story, part, 0, 1).expect(413, "too-large")
    [transfer] = transfers_of(alice, story, part, 0)
    assert put(transfer.url, sealed) == 200
    report(alice, story, part, (0, transfer.name, hashes_of(sealed))).expect(204)
    story.tell(alice, story.follow(alice, content=part))
    transfers_of(alice, story, other, 0)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_broker_with_presigned_transfers_turned_off_gives_no_url(scene: Scene) -> None:
    scene.begin(direct_transfer="false")
    alice = scene.user()
    story = Story(alice).created()
    part = story.upload(alice, bytes(70_000))
    assert transfers_of(alice, story, part, 0) == []
    story.tell(alice, story.follow(alice, content=part))
    path = path_of(story, part, "transfers?first=0&count=1")
    assert alice.wire.call("GET", path).expect(200).message(Transfers).transfers == []
