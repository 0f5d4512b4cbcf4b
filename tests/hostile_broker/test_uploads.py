"""Attacks by unfinished uploads and on a quota: with a stolen token, by a stranger, and on the broker's disk.

Attacks 50, 57, 62, 105 and 106 of attacks.toml.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pytest

from scbroker import KeyRing
from scbroker.records.container_record import Part, Role
from scbroker.wire.parts import Chunks
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.objects import objects
from tests.kit.quotas import check_usage, leave_free, set_quota, used
from tests.kit.tables import query
from tests.kit.writers import OWNER, WRITER, Story, User, authorized, delete_user, store, storing

PARTS: Final = 8
SHARE: Final = 6
UNFINISHED: Final = (
    "SELECT count(*) FROM parts WHERE user_id = ? AND NOT committed AND touched_at > 0"
)
NewSession = Callable[[KeyRing], User]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("uploads"), max_pending_parts=PARTS) as started:
        yield started


@pytest.fixture
def session(broker: BrokerProcess) -> Iterator[NewSession]:
    """Starts a further session of a user."""
    with ExitStack() as stack:
        yield lambda ring: User(ring, stack.enter_context(Wire(broker)).log_in(ring))


def begin(user: User, count: int, story: Story | None = None) -> list[int]:
    """Send the first chunk of so many new parts; return the statuses of the answers."""
    found = story or Story(user)
    return [
        found.chunk(user, found.seal(Role.Content, user, b"", found.key)[0], 0, bytes(100)).status
        for _ in range(count)
    ]


def log_out(user: User) -> None:
    user.wire.call("DELETE", "/v1/sessions/current").expect(204)


def part_path(story: Story, part: Part, what: str = "") -> str:
    return f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}{what}"


def listed(user: User, story: Story, part: Part) -> list[int]:
    answer = user.wire.call("GET", part_path(story, part, "/chunks")).expect(200)
    return [chunk.index for chunk in answer.message(Chunks).chunks]


@pytest.mark.long
def test_a_thief_of_a_token_takes_a_share_of_the_uploads_and_its_user_goes_on(
    broker: BrokerProcess, session: NewSession
) -> None:
    ring = broker.new_user()
    thief, alice = session(ring), session(ring)
    assert begin(thief, SHARE + 2) == [204] * SHARE + [413] * 2
    assert begin(alice, PARTS - SHARE) == [204] * (PARTS - SHARE)


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["log-out", "endOtherSessions", "expiry"])
def test_once_a_stolen_token_ends_its_uploads_are_in_nobodys_way(
    broker: BrokerProcess, session: NewSession, end: str
) -> None:
    ring = broker.new_user()
    thief, alice = session(ring), session(ring)
    begin(thief, SHARE)
    if end == "log-out":
        log_out(thief)
    elif end == "endOtherSessions":
        store(alice, authorized(alice, storing(alice, endOtherSessions=True))).expect(204)
    else:
        others = "UPDATE sessions SET expires_at = 1 WHERE user_id = ?"
        query(broker.database_url, others, ring.userId.bytes)
        alice = session(ring)
    assert begin(alice, SHARE + 1) == [204] * SHARE + [413]


def test_an_upload_of_an_ended_session_is_resumed_by_the_next_one_and_counts_for_it(
    broker: BrokerProcess, session: NewSession
) -> None:
    ring = broker.new_user()
    before = session(ring)
    story = Story(before)
    part, sealed = story.seal(Role.Content, before, bytes(70_000), story.key)
    story.chunk(before, part, 0, sealed).expect(204)
    log_out(before)
    alice = session(ring)
    assert listed(alice, story, part) == [0]
    story.chunk(alice, part, 1, bytes(100)).expect(204)
    assert begin(alice, SHARE) == [204] * (SHARE - 1) + [413]
    assert listed(alice, story, part) == [0, 1]


def test_an_upload_that_is_dropped_counts_no_more_and_only_its_user_drops_it(
    broker: BrokerProcess, session: NewSession
) -> None:
    alice, bob = (session(broker.new_user()) for _ in range(2))
    story = Story(alice)
    part, sealed = story.seal(Role.Content, alice, bytes(70_000), story.key)
    story.chunk(alice, part, 0, sealed).expect(204)
    begin(alice, SHARE - 1)
    bob.wire.call("DELETE", part_path(story, part)).expect(204)
    bob.wire.call("DELETE", part_path(Story(bob), part)).expect(204)
    assert listed(alice, story, part) == [0]
    assert begin(alice, 1) == [413]
    for _ in range(2):
        alice.wire.call("DELETE", part_path(story, part)).expect(204)
        assert listed(alice, story, part) == []
    assert begin(alice, 2) == [204, 413]
    alice.wire.call("DELETE", part_path(story, part)).expect(204)
    committed = Story(alice)
    log_out(alice)
    alice = session(alice.ring)
    part = committed.upload(alice, bytes(70_000))
    committed.tell(alice, committed.begin(content=part))
    alice.wire.call("DELETE", part_path(committed, part)).expect(409, "exists")
    alice.wire.call("GET", part_path(committed, part, "/segments?first=0&count=1")).expect(200)


@pytest.mark.long
def test_no_number_of_sessions_keeps_more_unfinished_uploads_than_the_broker_allows(
    broker: BrokerProcess, session: NewSession
) -> None:
    """A user can log in as often as they like, and so can a thief of the keys."""
    ring = broker.new_user()
    for _ in range(4):
        user = session(ring)
        begin(user, SHARE)
        [(unfinished,)] = query(broker.database_url, UNFINISHED, ring.userId.bytes)
        assert unfinished <= PARTS
        log_out(user)
    for _ in range(3):
        begin(session(ring), SHARE)
    [(unfinished,)] = query(broker.database_url, UNFINISHED, ring.userId.bytes)
    assert unfinished == PARTS


@pytest.mark.long
def test_a_stranger_gets_the_same_answers_for_a_container_a_deleted_one_and_none(
    broker: BrokerProcess, session: NewSession
) -> None:
    """Only the record that names the upload is refused: each of them in the same words."""
    alice, bob, former = (session(broker.new_user()) for _ in range(3))
    stories = [Story(alice).created() for _ in range(2)]
    stories.append(Story(alice).created({alice: OWNER, former: WRITER}))
    stories[1].tell(alice, stories[1].follow(alice, tombstone=True))
    stories[2].tell(alice, stories[2].follow(alice, grants={alice: OWNER}))
    none = Story(alice)
    none.took(none.begin())  # which is not sent

    def answers(user: User, story: Story) -> list[tuple[Any, ...]]:
        part, _ = story.seal(Role.Content, user, bytes(70_000), story.key)
        call = user.wire.call
        found = [
            story.chunk(user, part, 0, bytes(100)),
            call("POST", part_path(story, part, "/transfers"), {"chunks": [0]}),
            call("GET", part_path(story, part, "/chunks")),
            call("GET", part_path(story, part, "/segments?first=0&count=1")),
            story.send(user, story.follow(user, content=part)),
            call("DELETE", part_path(story, part)),
        ]
        return [answer.shape for answer in found]

    for user in (bob, former):
        wanted = answers(user, none)
        assert [status for status, *_ in wanted] == [204, 200, 200, 404, 404, 204]
        for story in stories:
            assert answers(user, story) == wanted


def test_a_strangers_upload_does_not_show_that_its_container_is_deleted(
    broker: BrokerProcess, session: NewSession
) -> None:
    alice, carol, bob = (session(broker.new_user()) for _ in range(3))
    story, other = Story(alice).created(), Story(carol).created()
    parts = []
    for each in (story, other):
        parts.append(each.seal(Role.Content, bob, b"", each.key)[0])
        each.chunk(bob, parts[-1], 0, bytes(100)).expect(204)
    story.tell(alice, story.follow(alice, tombstone=True))
    delete_user(carol).expect(204)
    assert [listed(bob, story, parts[0]), listed(bob, other, parts[1])] == [[0], [0]]


# Around a quota, and through it at once.


KIB_64: Final = 65_536


def chunk(user: User, size: int) -> int:
    """Send one chunk of a part that no record will name; return the status of the answer."""
    story = Story(user)
    part, _ = story.seal(Role.Content, user, b"", story.key)
    return story.chunk(user, part, 0, bytes(size)).status


def test_many_tiny_chunks_of_abandoned_uploads_cost_64_kib_each(
    broker: BrokerProcess, session: NewSession
) -> None:
    mallory, url = session(broker.new_user()), broker.database_url
    set_quota(url, mallory, bytes=4 * KIB_64)
    assert [chunk(mallory, 100) for _ in range(6)] == [204] * 4 + [413] * 2
    assert used(url, mallory).bytes == 4 * KIB_64
    check_usage(url)


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


# Limits


@pytest.mark.long
def test_contents_that_records_name_have_no_bound_and_that_is_the_limit(
    broker: BrokerProcess, session: NewSession
) -> None:
    alice = session(broker.new_user())
    for _ in range(PARTS + 1):
        story = Story(alice)
        story.tell(alice, story.begin(content=story.upload(alice, bytes(70_000))))
