"""A suspended user is refused everything, at once, and nothing of theirs goes.

Spec: docs/spec/protocol.md, section 3. `tests.server.admin.test_users` tests the commands.
"""

import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from scbroker.wire import users as u
from scbroker.wire.codec import MESSAGE
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.operators import Done, admin
from tests.kit.tables import count_rows
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, READER, Story, User, stalled
from tests.server.conftest import NewUser
from tests.server.events.test_following import metric


def suspend(broker: BrokerProcess, user: User) -> Done:
    return admin(broker, "users", "suspend", user.id)


def resume(broker: BrokerProcess, user: User) -> None:
    admin(broker, "users", "resume", user.id).expect(0)


def log_in(user: User) -> Answer:
    return user.wire.call("POST", "/v1/sessions", user.wire.log_in_request(user.ring))


def sessions_of(broker: BrokerProcess, user: User) -> int:
    return count_rows(broker.database_url, "sessions", "user_id = ?", user.ring.userId.bytes)


def test_only_a_proof_of_the_passphrase_or_the_key_discloses_a_suspension(
    broker: BrokerProcess, wire: Wire, new_user: NewUser
) -> None:
    """All that a stranger can ask about a user is answered as before, byte by byte."""
    alice = new_user()
    other = wire.log_in_request(alice.ring)

    def ask() -> list[bytes]:
        message = wire.log_in_request(alice.ring)
        forged = u.SessionRequest(statement=message.statement, signature=other.signature)
        answers = [
            wire.open_key_file(alice.ring.userId, os.urandom(32)).expect(401, "credentials"),
            wire.call("POST", "/v1/sessions", forged).expect(401, "challenge"),
            wire.call("GET", f"/v1/users/{alice.id}/reminder").expect(200),
        ]
        return [answer.body for answer in answers]

    before = ask()
    suspend(broker, alice).expect(0)
    assert ask() == before


@pytest.mark.long
def test_others_read_and_write_what_a_suspended_user_shared_and_share_with_them(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: OWNER}, content=b"hers")
    suspend(broker, alice).expect(0)
    assert bob.view(story, "content=1").governing
    story.tell(bob, story.follow(bob, content=b"his"))
    story.tell(bob, story.follow(bob, grants={alice: READER, bob: OWNER}))
    Story(bob).created({bob: OWNER, alice: READER})
    keys = {"users": [{"userId": alice.id}]}
    answer = bob.wire.call("POST", "/v1/key-records", keys).expect(200).message(u.KeyRecords)
    assert len(answer.users[0].keyRecords) == 2
    assert not answer.users[0].deleted
    resume(broker, alice)
    log_in_again(alice)
    # Bob's access is one more, if the broker records it while Alice is still an owner.
    changes = [each.eventType for each in alice.events() if each.eventType != "Accessed"]
    assert changes == ["Added", "Updated", "Updated", "Added"]
    alice.view(story)


def log_in_again(user: User) -> None:
    user.wire.token = log_in(user).expect(201).message(u.Session).token


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)
def test_a_request_that_waits_for_events_ends_without_a_page_when_its_user_is_suspended(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """On SQLite at the next heartbeat, as the command runs in another process; else by a notice alone."""
    alice = new_user()
    with ThreadPoolExecutor(1) as pool:
        path = "/v1/events?startId=1&wait=600"
        waiting = pool.submit(alice.wire.call, "GET", path)
        wait_until(lambda: metric(broker, "scbroker_followers") == 1)
        suspend(broker, alice).expect(0)
        answer = waiting.result(PATIENCE).expect(200)
    assert set(answer.body) <= {0xC0}
    assert answer.headers["content-type"] == MESSAGE


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_log_in_that_began_before_the_suspension_gets_a_session_that_ends_with_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "sessions") as wait_for:
        logging_in = pool.submit(log_in, alice)
        wait_for(1)
        suspending = pool.submit(suspend, broker, alice)
        wait_for(2)
        assert not suspending.done()
    session = logging_in.result(PATIENCE).expect(201).message(u.Session)
    suspending.result(PATIENCE).expect(0)
    alice.wire.token = session.token
    alice.wire.call("GET", "/v1/key-file").expect(401, "session")


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_write_that_began_before_the_suspension_delays_only_the_end_of_the_command(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """A user who always has a transaction that goes on is refused all the same."""
    alice = new_user()
    again, story = new_user(alice.ring), Story(alice).created()
    chunk = f"{story.path}/parts/{uuid.uuid4()}/chunks/0"
    octets = {"Content-Type": "application/octet-stream"}
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "parts") as wait_for:
        writing = pool.submit(alice.wire.send, "PUT", chunk, os.urandom(4096), octets)
        wait_for(1)
        suspending = pool.submit(suspend, broker, alice)
        wait_for(2)
        log_in(again).expect(403, "suspended")
        again.wire.call("GET", "/v1/key-file").expect(401, "session")
        again.wire.send("PUT", chunk, os.urandom(4096), octets).expect(401, "session")
        assert not suspending.done()
    suspending.result(PATIENCE).expect(0)
    assert count_rows(broker.database_url, "pending_blobs") == 1
    writing.result(PATIENCE).expect(403, "suspended")


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("act", ["log in", "write"])
def test_what_a_user_sends_during_the_suspension_is_complete_or_refused_when_it_ends(
    broker: BrokerProcess, new_user: NewUser, act: str
) -> None:
    alice = new_user()
    story = Story(alice).created()
    record = story.follow(alice, content=b"late")
    acts: dict[str, Callable[[], Answer]] = {
        "log in": lambda: log_in(alice),
        "write": lambda: story.send(alice, record),
    }
    with ThreadPoolExecutor(1) as pool:
        with stalled(broker.database_url, "audit") as wait_for:
            suspending = pool.submit(suspend, broker, alice)
            wait_for(1)
            acts[act]().expect(201)  # the suspension is not in force yet
        suspending.result(PATIENCE).expect(0)
    assert sessions_of(broker, alice) == 0
    log_in(alice).expect(403, "suspended")
