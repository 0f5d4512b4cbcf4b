"""Large contents in chunks: sending, resuming, committing, reading, and what stays on the disk."""

import uuid

import pytest
from msgspec.structs import replace

from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import SEALED_SEGMENT, SEGMENT, Part, Role
from scbroker.server.storage.blobs import new_blob_name
from scbroker.wire.codec import OCTETS
from scbroker.wire.parts import MAX_CHUNK, Chunks, ChunkState, Transfers, TransfersRequest
from tests.kit.brokers import ENGINES, Answer, BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.objects import folder_of, objects
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, WRITER, Story, User, chunks_of
from tests.server.conftest import NewUser, Unchanged


@pytest.fixture(scope="session")
def plaintext() -> bytes:
    """Ten segments: a full chunk and one of two."""
    return random_bytes(SEGMENT) * 9 + b"x" * 1000


def _part_path(story: Story, part: Part, what: str) -> str:
    return f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/{what}"


def _begun(user: User, plaintext: bytes = bytes(70_000)) -> tuple[Story, Part, bytes]:
    """Return a container of the user's, and a new content of it with the bytes to be sent."""
    story = Story(user).created()
    return (story, *story.seal(Role.Content, user, plaintext, story.key))


def _segments(user: User, story: Story, part: Part, first: int, count: int) -> Answer:
    path = _part_path(story, part, f"segments?first={first}&count={count}")
    return user.wire.call("GET", path)


def _chunk_list(user: User, story: Story, part: Part) -> list[ChunkState]:
    answer = user.wire.call("GET", _part_path(story, part, "chunks")).expect(200)
    return answer.message(Chunks).chunks


def test_what_has_arrived_is_listed_for_its_sender_until_a_record_names_it(
    new_user: NewUser, plaintext: bytes
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    part, sealed = story.seal(Role.Content, alice, plaintext, story.key)
    first, second = chunks_of(sealed)
    assert _chunk_list(alice, story, part) == []
    story.chunk(alice, part, 1, second).expect(204)
    digest = sha256(sha256(second[:SEALED_SEGMENT]) + sha256(second[SEALED_SEGMENT:]))
    assert _chunk_list(alice, story, part) == [ChunkState(index=1, hash=digest)]
    story.chunk(alice, part, 0, first).expect(204)
    assert [chunk.index for chunk in _chunk_list(alice, story, part)] == [0, 1]
    assert _chunk_list(bob, story, part) == []
    story.tell(alice, story.follow(alice, content=part))
    assert _chunk_list(alice, story, part) == []


def test_a_list_has_at_most_4096_chunks_from_any_chunk_on(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice, most = new_user(), 4096
    story, part, sealed = _begun(alice, b"x" * 1000)
    for index in (0, 2 * most + 1):
        story.chunk(alice, part, index, sealed).expect(204)
    between = """
        INSERT INTO chunks (part_id, chunk, size, chunk_hash, blob, hashes)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8192)
        SELECT part_id, i, size, chunk_hash, blob, hashes FROM n, chunks WHERE part_id = ? AND chunk = 0
    """
    query(broker.database_url, between, part.partId)

    def listed(first: int) -> list[int]:
        answer = alice.wire.call("GET", _part_path(story, part, f"chunks?first={first}"))
        return [chunk.index for chunk in answer.expect(200).message(Chunks).chunks]

    assert [chunk.index for chunk in _chunk_list(alice, story, part)] == list(range(most))
    assert listed(1) == list(range(1, most + 1))
    assert listed(most) == list(range(most, 2 * most))
    assert listed(2 * most) == [2 * most, 2 * most + 1]
    assert listed(2**17 - 1) == []
    for text in (f"first={2**17}", "first=-1", "count=1", "first=0&first=0"):
        alice.wire.call("GET", _part_path(story, part, f"chunks?{text}")).expect(400, "invalid")


def test_a_chunk_is_replaced_until_a_record_names_its_part_and_never_after(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story, part, sealed = _begun(alice)
    _, other = story.seal(Role.Content, alice, bytes(70_000), story.key)
    story.chunk(alice, part, 0, other).expect(204)
    story.send(alice, story.follow(alice, content=part)).expect(422, "rejected")
    story.chunk(alice, part, 0, sealed).expect(204)
    story.tell(alice, story.follow(alice, content=part))
    with unchanged():
        story.chunk(alice, part, 0, other).expect(409, "exists")
        story.chunk(alice, part, 1, other).expect(409, "exists")
    story.chunk(alice, part, 0, sealed).expect(204)
    assert _segments(alice, story, part, 0, 1).body == sealed
    _segments(alice, story, part, 0, 2).expect(400, "invalid")


def test_a_chunk_has_at_most_eight_segments_and_a_place_in_a_content(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story, part, _ = _begun(alice, b"")
    with unchanged():
        story.chunk(alice, part, 0, bytes(MAX_CHUNK + 1)).expect(413, "too-large")
        story.chunk(alice, part, 2**17, bytes(100)).expect(413, "too-large")
        story.chunk(alice, part, 10**15, bytes(100)).expect(413, "too-large")
        path = _part_path(story, part, "chunks/00")
        headers = {"Content-Type": OCTETS}
        alice.wire.send("PUT", path, bytes(100), headers).expect(400, "invalid")
    story.chunk(alice, part, 2**17 - 1, bytes(100)).expect(204)


@pytest.mark.long
def test_chunks_are_for_those_who_may_upload(new_user: NewUser, unchanged: Unchanged) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: READER, carol: WRITER})
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    with unchanged():
        story.chunk(bob, part, 0, sealed).expect(403, "permission")
    story.chunk(carol, part, 0, sealed).expect(204)
    with unchanged():
        story.chunk(alice, part, 0, sealed).expect(409, "exists")
        other = Story(carol)
        other.chunk(carol, part, 0, sealed).expect(409, "exists")
        # The part is Carol's to commit, not Alice's.
        story.send(alice, story.follow(alice, content=part)).expect(422, "incomplete")
    story.tell(alice, story.follow(alice, tombstone=True))
    with unchanged():
        story.chunk(carol, part, 1, sealed).expect(410, "deleted")


def test_a_part_of_another_container_is_not_served_here(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    mine, theirs = Story(alice).created(), Story(bob).created()
    part = theirs.head.content
    assert part is not None
    _segments(alice, mine, part, 0, 1).expect(404, "not-found")
    _segments(alice, theirs, part, 0, 1).expect(404, "not-found")


@pytest.mark.long
def test_a_replaced_part_is_served_for_its_grace_and_is_gone_then(
    new_user: NewUser, start_broker: StartBroker
) -> None:
    broker = start_broker(part_grace_seconds=3600)
    alice = new_user(at=broker)
    story = Story(alice)
    old, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    story.chunk(alice, old, 0, sealed).expect(204)
    story.tell(alice, story.begin(content=old))
    story.tell(alice, story.follow(alice, content=story.upload(alice, bytes(80_000))))
    assert _segments(alice, story, old, 0, 1).expect(200).body == sealed
    assert len(objects(broker)) == 2
    statement = "UPDATE parts SET replaced_at = 1 WHERE part_id = ?"
    query(broker.database_url, statement, old.partId)
    _sweep_by_deleting_another(alice)
    _segments(alice, story, old, 0, 1).expect(410, "part-gone")
    assert len(objects(broker)) == 1
    current = story.head.content
    assert current is not None
    _segments(alice, story, current, 0, 1).expect(200)


def _sweep_by_deleting_another(user: User) -> None:
    """A deletion sweeps at once; else a sweep comes once a minute."""
    other = Story(user).created()
    other.tell(user, other.follow(user, tombstone=True))


@pytest.mark.long
def test_a_user_sends_no_more_unfinished_bytes_than_the_broker_allows(
    new_user: NewUser, start_broker: StartBroker
) -> None:
    broker = start_broker(max_pending_bytes=270_000)  # of which one session has three quarters
    alice = new_user(at=broker)
    story = Story(alice).created()
    first = story.upload(alice, bytes(90_000))
    story.upload(alice, bytes(90_000))
    third, sealed = story.seal(Role.Content, alice, bytes(90_000), story.key)
    story.chunk(alice, third, 0, sealed).expect(413, "too-large")
    story.tell(alice, story.follow(alice, content=first))
    story.chunk(alice, third, 0, sealed).expect(204)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_contents_larger_than_the_broker_allows_are_refused_before_they_are_sent(
    new_user: NewUser, start_broker: StartBroker
) -> None:
    broker = start_broker(max_content=8 * SEGMENT)
    alice = new_user(at=broker)
    story, part, _ = _begun(alice)
    story.chunk(alice, part, 1, bytes(100)).expect(413, "too-large")
    large = replace(part, paddedLength=8 * SEGMENT + 1)
    story.send(alice, story.follow(alice, content=large)).expect(413, "too-large")


@pytest.mark.long
@pytest.mark.only_on(*ENGINES)  # a folder is made a file
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_store_that_does_not_take_a_chunk_is_overloaded_and_keeps_nothing(
    new_user: NewUser, fresh_broker: BrokerProcess
) -> None:
    alice = new_user(at=fresh_broker)
    story, part, sealed = _begun(alice)
    folder = folder_of(fresh_broker) / "parts"
    moved = folder.rename(folder.with_name("moved"))
    folder.write_bytes(b"a file where the folder was")
    answer = story.chunk(alice, part, 0, sealed).expect(503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert _chunk_list(alice, story, part) == []
    folder.unlink()
    moved.rename(folder)
    story.chunk(alice, part, 0, sealed).expect(204)
    story.tell(alice, story.follow(alice, content=part))
    assert _segments(alice, story, part, 0, 1).expect(200).body == sealed


@pytest.mark.only_on(*ENGINES)
def test_a_broker_on_a_folder_gives_no_presigned_urls_and_accepts_no_reports_of_chunks(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story, part, sealed = _begun(alice)
    path, none = _part_path(story, part, "transfers"), Transfers(transfers=[], seconds=0)
    with unchanged():
        answer = alice.wire.call("POST", path, TransfersRequest(chunks=[0, 5])).expect(200)
        assert answer.message(Transfers) == none
        alice.wire.call("POST", path, TransfersRequest(chunks=[1, 1])).expect(400, "invalid")
        for chunks in ([], [2**17], list(range(65))):
            alice.wire.call("POST", path, {"chunks": chunks}).expect(400, "invalid")
        name = new_blob_name(part.partId)
        for told, status, code in (
            ((name, bytes(32)), 422, "incomplete"), ((name, bytes(33)), 400, "invalid"),
            ((name, b""), 400, "invalid"), ((name, bytes(288)), 400, "invalid"),
            ((name[:-1], bytes(32)), 400, "invalid"), (("../../x", bytes(32)), 400, "invalid"),
        ):  # fmt: skip
            message = {"chunks": [{"index": 0, "name": told[0], "hashes": told[1]}]}
            answer = alice.wire.call("POST", _part_path(story, part, "chunks"), message)
            answer.expect(status, code)
    story.chunk(alice, part, 0, sealed).expect(204)
    story.tell(alice, story.follow(alice, content=part))
    answer = alice.wire.call("GET", f"{path}?first=0&count=1").expect(200)
    assert answer.message(Transfers) == none
    for text in ("", "first=0", "first=0&count=0", "first=0&count=65", f"first={2**17}&count=1"):
        alice.wire.call("GET", f"{path}?{text}").expect(400, "invalid")
