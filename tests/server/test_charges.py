"""Each user is charged with exactly what is stored for them, and nothing beyond a quota is stored."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from scbroker.crypto.verify import sha256
from scbroker.errors import QuotaExceededError
from scbroker.records.container_record import Role
from scbroker.server.admin import users
from scbroker.server.broker import Call
from scbroker.server.containers import appending
from scbroker.server.parts import chunks, presigned, sweeping
from scbroker.wire import containers as wire
from scbroker.wire import parts as p
from scbroker.wire.parts import MAX_CHUNK
from tests.kit.beside import further_broker
from tests.kit.brokers import ENGINES, BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.objects import SigningFolder, folder_of, objects
from tests.kit.quotas import check_usage, leave_free, set_quota, used
from tests.kit.tables import count_rows
from tests.kit.writers import OWNER, Story, User, leave, session_of, stored_list
from tests.server.conftest import NewUser, Unchanged, at_once

LARGE = 70_000


KIB_64 = 65_536


def cost(request: wire.RecordRequest) -> int:
    """The bytes that a record is charged with, with the list and the inline parts that come with it."""
    size = len(request.record.body) + len(request.record.signature)
    size += 0 if request.accessList is None else len(stored_list(request.accessList))
    return size + len(request.header or b"") + len(request.content or b"")


def sealed_of(author: User, size: int = LARGE) -> tuple[Story, Any, bytes]:
    story = Story(author)
    return (story, *story.seal(Role.Content, author, bytes(size), story.key))


# What is charged


def test_a_chunk_counts_from_its_upload_and_its_part_for_its_exact_size_once_a_record_names_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, url = new_user(), broker.database_url
    story, part, sealed = sealed_of(alice)
    tiny, _, small = sealed_of(alice, 100)
    tiny.chunk(alice, story.seal(Role.Content, alice, b"", story.key)[0], 0, small).expect(204)
    assert used(url, alice).bytes == KIB_64, "a small chunk counts for more while it is unfinished"
    for _ in range(2):
        story.chunk(alice, part, 0, sealed).expect(204)
        assert used(url, alice).bytes == KIB_64 + len(sealed)
    story.tell(alice, story.begin(content=part))
    assert used(url, alice).bytes == KIB_64 + len(sealed) + cost(story.requests[0])
    check_usage(url, alice)


# What is refused


def test_exactly_what_fits_is_stored_and_a_refused_record_leaves_nothing(
    broker: BrokerProcess, new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, url = new_user(), broker.database_url
    story = Story(alice).created()
    request = story.follow(alice, content=b"more", header=b"{}")
    leave_free(url, alice, cost(request) - 1)
    before = used(url, alice)
    with unchanged():
        answer = story.send(alice, request).expect(413, "quota")
    assert answer.problem["quota"] == {
        "resource": "bytes", "quota": before.quota_bytes, "used": before.bytes, "needed": cost(request)
    }  # fmt: skip
    assert "left, and this needs" in answer.problem["detail"]
    leave_free(url, alice, cost(request))
    story.tell(alice, request)
    found = used(url, alice)
    assert found.bytes == found.quota_bytes


def test_a_user_creates_as_many_containers_as_the_quota_says(
    broker: BrokerProcess, new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob, url = new_user(), new_user(), broker.database_url
    set_quota(url, alice, containers=2)
    first, _ = (Story(alice).created({alice: OWNER, bob: OWNER}) for _ in range(2))
    third = Story(alice)
    request = third.begin()
    with unchanged():
        answer = third.send(alice, request).expect(413, "quota")
    assert answer.problem["quota"] == {
        "resource": "containers", "quota": 2, "used": 2, "needed": 1
    }  # fmt: skip
    Story(bob).created()
    first.tell(bob, first.follow(bob, tombstone=True))
    third.tell(alice, request)
    check_usage(url, alice, bob)


def test_of_a_batch_the_records_that_fit_are_stored(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, url = new_user(), broker.database_url
    stories = [Story(alice) for _ in range(4)]
    contents = [b"x", bytes(20_000), b"y", b"z"]
    requests = [s.begin(content=c) for s, c in zip(stories, contents, strict=True)]
    leave_free(url, alice, cost(requests[0]) + cost(requests[2]) + cost(requests[3]))
    message = wire.RecordsRequest(records=requests)
    answer = alice.wire.call("POST", "/v1/batches/records", message).expect(200)
    found = answer.message(wire.RecordsAnswer).records
    assert [each.problem and each.problem.code for each in found] == [None, "quota", None, None]
    assert found[1].problem is not None
    refused = found[1].problem.quota
    assert refused
    assert refused.needed == cost(requests[1])
    assert used(url, alice).containers == 3
    again = alice.wire.call("POST", "/v1/batches/records", message).expect(200)
    codes = [
        each.problem and each.problem.code for each in again.message(wire.RecordsAnswer).records
    ]
    assert codes == [None, "quota", None, None]
    assert used(url, alice).bytes == used(url, alice).quota_bytes
    check_usage(url, alice)


def test_a_user_at_their_quota_deletes_and_leaves(broker: BrokerProcess, new_user: NewUser) -> None:
    alice, bob, url = new_user(), new_user(), broker.database_url
    story = Story(alice).created()
    shared = Story(bob).created({bob: OWNER, alice: OWNER})
    set_quota(url, alice, bytes=0, containers=0)
    story.send(alice, story.follow(alice, content=b"more")).expect(413, "quota")
    without_bob = shared.follow(alice, grants={alice: OWNER})
    shared.send(alice, without_bob).expect(413, "quota")
    leave(shared, alice).expect(204)
    story.tell(alice, story.follow(alice, tombstone=True))
    assert used(url, alice).containers == 0
    check_usage(url, alice, bob)


def test_a_chunk_beyond_the_quota_is_refused_before_its_object_is_stored(
    broker: BrokerProcess, new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, url = new_user(), broker.database_url
    story, part, sealed = sealed_of(alice)
    leave_free(url, alice, len(sealed) - 1)
    before = objects(broker)
    with unchanged():
        answer = story.chunk(alice, part, 0, sealed).expect(413, "quota")
    assert answer.problem["quota"]["needed"] == len(sealed)
    assert objects(broker) == before
    leave_free(url, alice, len(sealed))
    story.chunk(alice, part, 0, sealed).expect(204)
    story.send(alice, story.begin(content=part)).expect(413, "quota")
    check_usage(url, alice)


# Many writers


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_many_writers_at_two_brokers_never_exceed_a_quota_and_what_was_refused_left_nothing(
    start_broker: StartBroker, new_user: NewUser, engine: str
) -> None:
    first = start_broker()
    second = start_broker() if engine == "postgresql" else first
    ring = first.new_user()
    alice, url = new_user(ring, at=first), first.database_url
    probe = Story(alice).created()
    one = cost(probe.requests[0])
    leave_free(url, alice, 10 * one + one // 2)
    sessions = [new_user(ring, at=first if n % 2 else second) for n in range(6)]

    def write(user: User) -> list[int]:
        found = []
        for _ in range(4):
            story = Story(user)
            found.append(story.send(user, story.begin()).status)
        return found

    statuses = [status for each in at_once(write, sessions) for status in each]
    assert sorted(set(statuses)) == [201, 413]
    stored = count_rows(url, "containers", "creator_id = ?", ring.userId.bytes)
    assert stored - 1 == statuses.count(201) == 10
    assert used(url, alice).containers == stored
    check_usage(url)


# Every statement may be the last


# Presigned URLs


@pytest.mark.long
async def test_a_presigned_url_counts_as_a_chunk_until_it_is_used_or_can_no_longer_be(
    fresh_broker: BrokerProcess, new_user: NewUser
) -> None:
    broker, alice = fresh_broker, await asyncio.to_thread(new_user, at=fresh_broker)
    url = broker.database_url
    story, part, sealed = sealed_of(alice)
    path = {"containerId": story.id, "partId": part.partId}
    assert alice.wire.token
    call = Call("tests", "::1", path, session_of(alice, sha256(alice.wire.token.encode())))
    store = SigningFolder(folder_of(broker))
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(further_broker(url, store))

        async def bytes_used() -> int:
            assert await at.database.read(users.differences, large=True) == {}
            return (await asyncio.to_thread(used, url, alice)).bytes

        found = await presigned.to_send(at, call, p.TransfersRequest(chunks=[0, 1, 2]))
        assert await bytes_used() == 3 * MAX_CHUNK
        name = found.transfers[0].name
        await store.put(name, sealed)
        hashes = chunks.hashes_of(memoryview(sealed))
        sent = p.SentChunks(chunks=[p.SentChunk(index=0, name=name, hashes=hashes)])
        await presigned.sent(at, call, sent)
        assert await bytes_used() == 2 * MAX_CHUNK + len(sealed)
        request = story.begin(content=part)
        first = Call("tests", "::1", {"containerId": story.id, "version": 1}, call.session)
        await appending.append(at, first, request)
        assert await bytes_used() == 2 * MAX_CHUNK + len(sealed) + cost(request)
        while await sweeping.sweep(at):
            pass
        assert await bytes_used() > 2 * MAX_CHUNK, "somebody may still put objects there"
        await at.database.write(lambda c: c.run("UPDATE pending_blobs SET since = 1"))
        # The names say until when their URLs are good.
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr(sweeping, "good_until", lambda _: 0)
            while await sweeping.sweep(at):
                pass
        assert await bytes_used() == len(sealed) + cost(request)
        await at.database.write(
            lambda c: users.set_quotas(c, [alice.ring.userId], {"bytes": 10 + MAX_CHUNK})
        )
        other = Call("tests", "::1", {**path, "partId": bytes(16)}, call.session)
        with pytest.raises(QuotaExceededError):
            await presigned.to_send(at, other, p.TransfersRequest(chunks=[1]))
