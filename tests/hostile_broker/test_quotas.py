"""Attacks on a broker's disk by a user with a quota: around it, and through it at once.

Numbers and names are those of `catalogue`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import pytest

from scbroker import KeyRing
from scbroker.records.container_record import Role
from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.objects import objects
from tests.kit.quotas import check_usage, leave_free, set_quota, used
from tests.kit.writers import Story, User

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
