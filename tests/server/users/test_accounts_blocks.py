"""Blocked users: which records the broker refuses, and what a block leaves as it is.

Spec: docs/spec/protocol.md, section 5.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scbroker.wire.containers import RecordsAnswer, RecordsRequest
from scbroker.wire.users import MAX_BLOCKED, BlockedUsers
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.tables import count_rows, query
from tests.kit.writers import (
    OWNER,
    READER,
    Grant,
    Grants,
    Story,
    User,
    authorized,
    delete_user,
    renewed,
    stalled,
    store,
    storing,
)
from tests.server.conftest import LASTS, NewUser, PassUntil, Unchanged, at_once


def block(user: User, other: User) -> Answer:
    return user.wire.call("PUT", f"/v1/blocks/{other.id}")


def unblock(user: User, other: User) -> Answer:
    return user.wire.call("DELETE", f"/v1/blocks/{other.id}")


def blocked(user: User) -> list[str]:
    return user.wire.call("GET", "/v1/blocks").expect(200).message(BlockedUsers).users


def refused(answer: Answer, by: User) -> None:
    """The answer names the user who blocked the author."""
    answer.expect(403, "blocked")
    assert by.id.encode() in answer.body


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_user_blocks_at_most_1024_others(broker: BrokerProcess, new_user: NewUser) -> None:
    alice, bob, carol = [new_user() for _ in range(3)]
    for number in range(MAX_BLOCKED - 1):
        query(
            broker.database_url,
            "INSERT INTO blocks (user_id, blocked_id) VALUES (?, ?)",
            alice.ring.userId.bytes,
            number.to_bytes(16, "big"),
        )
    block(alice, bob).expect(204)
    block(alice, carol).expect(413, "too-large")
    block(alice, bob).expect(204)
    assert len(blocked(alice)) == MAX_BLOCKED
    assert carol.id not in blocked(alice)
    unblock(alice, bob).expect(204)
    block(alice, carol).expect(204)


def test_a_blocked_author_gives_no_access_by_a_new_container_or_a_new_list(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob, carol = [new_user() for _ in range(3)]
    block(alice, bob).expect(204)
    story = Story(bob).created({bob: OWNER, carol: READER})
    with unchanged():
        refused(created(bob, {bob: OWNER, alice: READER}), alice)
        grant = story.follow(bob, grants={bob: OWNER, carol: READER, alice: READER})
        refused(story.send(bob, grant), alice)
    by_carol = Story(carol).created({carol: OWNER, alice: READER})
    alice.view(by_carol)
    unblock(alice, bob).expect(204)
    story.tell(bob, grant)
    alice.view(story)


def created(author: User, grants: Grants) -> Answer:
    story = Story(author)
    return story.send(author, story.begin(grants))


def test_a_blocked_author_who_is_a_member_elsewhere_gives_no_access_there(
    new_user: NewUser,
) -> None:
    """Who signs the record counts, not who created the container."""
    alice, bob, carol = [new_user() for _ in range(3)]
    block(alice, bob).expect(204)
    story = Story(carol).created({carol: OWNER, bob: OWNER})
    refused(story.send(bob, story.follow(bob, grants={carol: OWNER, alice: READER})), alice)
    story.tell(carol, story.follow(carol, grants={carol: OWNER, bob: OWNER, alice: READER}))


@pytest.mark.long
def test_a_user_whose_access_expired_counts_as_without_access(
    new_user: NewUser, pass_until: PassUntil
) -> None:
    alice, bob = new_user(), new_user()
    block(alice, bob).expect(204)
    unblock(alice, bob).expect(204)
    ends = clock() + LASTS
    story = Story(bob).created({bob: OWNER, alice: Grant(READER, ends)})
    block(alice, bob).expect(204)
    pass_until(ends)
    refused(story.send(bob, story.follow(bob, grants={bob: OWNER, alice: READER})), alice)


@pytest.mark.long
def test_each_record_of_a_batch_is_refused_by_itself_and_counts_no_grant(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(max_new_grants=1)
    alice, bob, carol = [new_user(at=broker) for _ in range(3)]
    block(alice, bob).expect(204)
    lists: list[Grants] = [{bob: OWNER, alice: READER}, {bob: OWNER}, {bob: OWNER, carol: READER}]
    message = RecordsRequest(records=[Story(bob).begin(grants) for grants in lists])
    answer = bob.wire.call("POST", "/v1/batches/records", message).expect(200)
    found = answer.message(RecordsAnswer).records
    assert [item.problem and item.problem.code for item in found] == ["blocked", None, None]
    assert found[0].problem is not None
    assert alice.id in found[0].problem.detail


@pytest.mark.long
def test_blocks_outlive_the_broker_the_session_and_a_change_of_keys(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    block(alice, bob).expect(204)
    after, records = renewed(bob)
    store(bob, authorized(bob, storing(bob, keyRecords=records))).expect(204)
    broker.restart()
    for user in (alice, bob):
        user.wire.close()
    with Wire(broker) as wire:
        later = User(after.ring, wire.log_in(after.ring))
        refused(created(later, {later: OWNER, alice: READER}), alice)


def test_the_deletion_of_either_user_removes_the_block(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob, carol = [new_user() for _ in range(3)]
    for one, other in ((alice, bob), (bob, carol), (carol, alice)):
        block(one, other).expect(204)
    before = count_rows(broker.database_url, "blocks")
    delete_user(alice).expect(204)
    assert count_rows(broker.database_url, "blocks") == before - 2
    assert blocked(carol) == []
    assert blocked(bob) == [carol.id]


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_block_waits_for_a_grant_that_is_being_stored(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """So a grant by the blocked user is never stored after the block was answered."""
    alice, bob = new_user(), new_user()
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "events") as wait_for:
        creating = pool.submit(created, bob, {bob: OWNER, alice: READER})
        wait_for(1)
        blocking = pool.submit(block, alice, bob)
        wait_for(2)
        assert not blocking.done()
    creating.result().expect(201)
    blocking.result().expect(204)
    refused(created(bob, {bob: OWNER, alice: READER}), alice)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_users_who_block_and_share_with_each_other_at_once_never_deadlock(
    new_user: NewUser,
) -> None:
    alice, bob = new_user(), new_user()
    more = [new_user(each.ring) for each in (alice, bob)]

    def act(user: User, other: User, count: int) -> None:
        for _ in range(count):
            block(user, other).expect(204)
            unblock(user, other).expect(204)

    def share(user: User, other: User, count: int) -> None:
        for _ in range(count):
            assert created(user, {user: OWNER, other: READER}).status in (201, 403)

    def run(work: int) -> None:
        [lambda: act(alice, bob, 20), lambda: act(bob, alice, 20),
         lambda: share(more[0], bob, 10), lambda: share(more[1], alice, 10)][work]()  # fmt: skip

    at_once(run, range(4))
    assert blocked(alice) == blocked(bob) == []
