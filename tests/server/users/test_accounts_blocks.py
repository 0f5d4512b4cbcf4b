"""Blocked users: which records the broker refuses, and what a block leaves as it is.

Spec: docs/spec/protocol.md, section 5.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from scbroker.wire.containers import RecordsAnswer, RecordsRequest
from scbroker.wire.users import MAX_BLOCKED, BlockedUsers
from tests.kit.brokers import Answer, BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.tables import count_rows, query
from tests.kit.writers import OWNER, READER, Grants, Story, User, delete_user, stalled
from tests.server.conftest import NewUser


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


def created(author: User, grants: Grants) -> Answer:
    story = Story(author)
    return story.send(author, story.begin(grants))


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
