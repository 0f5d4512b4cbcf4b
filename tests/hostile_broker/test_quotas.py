"""Attacks on a broker's disk by a user with a quota: around it, and through it at once.

Numbers and names are those of `catalogue`.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import pytest

from scbroker import KeyRing
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Role
from scbroker.server.broker import Broker, Call
from scbroker.server.parts import presigned
from scbroker.wire.parts import MAX_CHUNK, TransfersRequest
from tests.hostile_broker.catalogue import attack
from tests.kit.beside import beside
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.objects import SigningFolder, folder_of, objects
from tests.kit.quotas import check_usage, leave_free, set_quota, used
from tests.kit.tables import count_rows
from tests.kit.writers import Story, User, session_of

KIB_64: Final = 65_536
NewSession = Callable[[KeyRing], User]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas")) as started:
        yield started


@pytest.fixture
def session(broker: BrokerProcess) -> Iterator[NewSession]:
    """Starts a further session of a user."""
    with ExitStack() as stack:
        yield lambda ring: User(ring, stack.enter_context(Wire(broker)).log_in(ring))


def chunk(user: User, size: int) -> int:
    """Send one chunk of a part that no record will name; return the status of the answer."""
    story = Story(user)
    part, _ = story.seal(Role.Content, user, b"", story.key)
    return story.chunk(user, part, 0, bytes(size)).status


@attack(105, "storage beyond a quota")
def test_many_tiny_chunks_of_abandoned_uploads_cost_64_kib_each(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    set_quota(url, mallory, bytes=4 * KIB_64)
    assert [chunk(mallory, 100) for _ in range(6)] == [204] * 4 + [413] * 2
    assert used(url, mallory).bytes == 4 * KIB_64
    check_usage(url)


@attack(105, "storage beyond a quota")
def test_dropping_an_upload_makes_nothing_free_before_its_bytes_are_deleted(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    set_quota(url, mallory, bytes=2 * KIB_64)
    for status in (204, 204, 413):
        story = Story(mallory)
        part, _ = story.seal(Role.Content, mallory, b"", story.key)
        story.chunk(mallory, part, 0, bytes(100)).expect(status)
        path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}"
        mallory.wire.call("DELETE", path).expect(204)
    assert used(url, mallory).bytes == 2 * KIB_64


@attack(105, "storage beyond a quota")
def test_replacing_a_chunk_again_and_again_counts_each_object(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    set_quota(url, mallory, bytes=3 * KIB_64)
    story = Story(mallory)
    part, _ = story.seal(Role.Content, mallory, b"", story.key)
    found = [story.chunk(mallory, part, 0, bytes([n]) * 100).status for n in range(5)]
    assert found == [204] * 3 + [413] * 2
    check_usage(url)


@attack(105, "storage beyond a quota")
def test_records_without_contents_count_with_their_lists(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    story = Story(mallory).created(content=None)
    one = used(url, mallory).bytes
    leave_free(url, mallory, one)
    statuses = []
    for n in range(4):
        request = story.follow(mallory, header=None, type=f"type {n}")
        statuses.append(story.send(mallory, request).status)
        if statuses[-1] == 201:
            story.took(request)
    assert statuses[0] == 201
    assert statuses[-1] == 413
    found = used(url, mallory)
    assert found.quota_bytes is not None
    assert found.bytes <= found.quota_bytes
    check_usage(url)


@attack(105, "storage beyond a quota")
def test_presigned_urls_that_are_never_used_count_as_whole_chunks(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    set_quota(url, mallory, bytes=3 * MAX_CHUNK)
    assert mallory.wire.token
    caller = session_of(mallory, sha256(mallory.wire.token.encode()))
    path = {"containerId": uuid.uuid4().bytes, "partId": uuid.uuid4().bytes}
    asked = TransfersRequest(chunks=[0, 1])
    statuses: list[str] = []

    async def ask(at: Broker) -> None:
        at.blobs = SigningFolder(folder_of(broker))
        for _ in range(2):
            try:
                await presigned.to_send(at, Call("tests", "::1", path, caller), asked)
                statuses.append("URLs")
            except Exception as error:
                statuses.append(type(error).__name__)

    beside(broker, ask)
    assert statuses == ["URLs", "QuotaExceededError"]
    mallory.wire.call("DELETE", f"/v1/containers/{uuid.UUID(bytes=path['containerId'])}"
                      f"/parts/{uuid.UUID(bytes=path['partId'])}").expect(204)  # fmt: skip
    beside(broker, ask)
    assert statuses[2:] == ["QuotaExceededError"] * 2, "dropping the part ends no URL"
    check_usage(url)


@attack(106, "quota raced by many requests")
def test_requests_at_once_in_many_sessions_store_no_byte_more_than_one_after_the_other(
    broker: BrokerProcess, session: NewSession
) -> None:
    ring = broker.new_user()
    sessions, url = [session(ring) for _ in range(6)], broker.database_url
    set_quota(url, sessions[0], bytes=7 * KIB_64)
    before = len(objects(broker))
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda user: [chunk(user, 100) for _ in range(3)], sessions))
    statuses = [status for each in found for status in each]
    assert sorted(statuses) == [204] * 7 + [413] * 11
    assert used(url, sessions[0]).bytes == 7 * KIB_64
    assert len(objects(broker)) - before == 7
    check_usage(url)


@attack(106, "quota raced by many requests")
def test_containers_created_at_once_are_no_more_than_the_quota(
    broker: BrokerProcess, session: NewSession
) -> None:
    ring = broker.new_user()
    sessions, url = [session(ring) for _ in range(6)], broker.database_url
    set_quota(url, sessions[0], containers=5)

    def create(user: User) -> list[int]:
        stories = [Story(user) for _ in range(3)]
        return [story.send(user, story.begin()).status for story in stories]

    with ThreadPoolExecutor(6) as pool:
        statuses = [status for each in pool.map(create, sessions) for status in each]
    assert sorted(statuses) == [201] * 5 + [413] * 13
    assert count_rows(url, "containers", "creator_id = ?", ring.userId.bytes) == 5
    check_usage(url)
