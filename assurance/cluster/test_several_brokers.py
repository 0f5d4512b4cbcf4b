"""Several brokers on one database and one object store behave as one broker."""

import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, Final, TypeVar

import pytest

from assurance.cluster.cluster import Cluster
from assurance.cluster.conftest import Everywhere, NewDevice
from scbroker import ServerProvider
from scbroker.records.container_record import SEGMENT, Role
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.client.conftest import PASSPHRASE, PASSWORD
from tests.kit.brokers import Answer, Wire, environment
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, READER, Story, User, chunks_of

pytestmark = pytest.mark.cluster("patroni")

ROUNDS: Final = 12
T = TypeVar("T")


def at_once(work: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """Run all at the same moment, each in a thread of its own."""
    found = list(items)
    start = Barrier(len(found))

    def run(item: Any) -> T:
        start.wait(PATIENCE)
        return work(item)

    with ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(run, found))


def as_at(users: list[User], session: User) -> list[User]:
    """Return the users with this one session at each of the brokers."""
    for user in users:
        user.wire.token = session.wire.token
    return users


def test_a_session_of_one_broker_is_valid_at_all_and_ends_at_all(everywhere: Everywhere) -> None:
    users = everywhere()
    users = as_at(users, users[0])
    for user in users:
        user.wire.call("GET", "/v1/events").expect(200)
    users[1].wire.call("DELETE", "/v1/sessions/current").expect(204)
    for user in users:
        user.wire.call("GET", "/v1/events").expect(401, "session")


def test_a_challenge_of_one_broker_can_be_answered_at_another_but_only_once(
    cluster: Cluster,
) -> None:
    ring = cluster.new_user()
    wires = [Wire(broker) for broker in cluster.brokers]
    request = wires[0].log_in_request(ring)
    answers = at_once(lambda wire: wire.call("POST", "/v1/sessions", request).status, wires)
    for wire in wires:
        wire.close()
    assert sorted(answers) == [201, 401, 401]


def test_guesses_at_all_brokers_together_never_exceed_the_limit(cluster: Cluster) -> None:
    auth = os.urandom(32)
    ring = cluster.brokers[0].new_user(auth)
    path = f"/v1/users/{ring.userId}/key-file/open"

    def guess(number: int, right: bool = False) -> Answer:
        with Wire(cluster.brokers[number % 3]) as wire:
            body = {"auth": auth if right else os.urandom(32)}
            return wire.call("POST", path, body, X_Forwarded_For="203.0.113.7")

    counts = Counter(answer.status for answer in at_once(guess, range(24)))
    assert counts == {401: 10, 429: 14}
    for number in range(3):
        guess(number, right=True).expect(429, "throttled")


def test_the_throttle_counts_the_address_behind_the_proxy_and_not_a_claimed_one(
    cluster: Cluster,
) -> None:
    """The proxy replaces the X-Forwarded-For of a client."""
    ring = cluster.new_user()
    path = f"/v1/users/{ring.userId}/key-file/open"
    with Wire(cluster) as wire:
        answers = [
            wire.call(
                "POST", path, {"auth": os.urandom(32)}, X_Forwarded_For=f"203.0.113.{n}"
            ).status
            for n in range(12)
        ]
    assert answers == [401] * 10 + [429] * 2


def test_chunks_sent_through_different_brokers_are_one_content(everywhere: Everywhere) -> None:
    users = everywhere()
    users = as_at(users, users[0])
    story = Story(users[0]).created()
    plaintext = os.urandom(20 * SEGMENT + 17)
    part, sealed = story.seal(Role.Content, users[0], plaintext, story.key)
    pieces = list(enumerate(chunks_of(sealed)))
    assert len(pieces) == 3

    def send(piece: tuple[int, bytes]) -> int:
        return story.chunk(users[piece[0]], part, *piece).status

    assert at_once(send, pieces) == [204] * 3
    story.tell(users[1], story.follow(users[0], content=part))
    path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/segments"
    for user in users:
        got = [
            user.wire.call("GET", f"{path}?first={at}&count={min(8, 21 - at)}").expect(200).body
            for at in range(0, 21, 8)
        ]
        assert b"".join(got) == sealed


def test_one_chunk_sent_through_all_brokers_at_once_is_stored_once(everywhere: Everywhere) -> None:
    users = everywhere()
    users = as_at(users, users[0])
    story = Story(users[0]).created()
    part, sealed = story.seal(Role.Content, users[0], os.urandom(70_000), story.key)
    statuses = at_once(lambda user: story.chunk(user, part, 0, sealed).status, users)
    assert statuses == [204] * 3
    story.tell(users[2], story.follow(users[0], content=part))
    path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/segments?first=0&count=1"
    assert [user.wire.call("GET", path).expect(200).body for user in users] == [sealed] * 3


def test_of_writers_at_three_brokers_exactly_one_wins_each_version(everywhere: Everywhere) -> None:
    users = everywhere()
    story = Story(users[0]).created()
    winners: Counter[int] = Counter()
    for _ in range(ROUNDS):
        drafts = [story.follow(user, content=os.urandom(20)) for user in users]
        answers = at_once(
            lambda n, drafts=drafts: story.send(users[n], drafts[n]),  # type: ignore[misc]
            range(3),
        )
        won = [n for n, answer in enumerate(answers) if answer.status == 201]
        assert len(won) == 1
        for n in {0, 1, 2}.difference(won):
            answers[n].expect(409, "conflict")
        # The winner's record sent again, to any broker, is the same one.
        story.send(users[(won[0] + 1) % 3], drafts[won[0]]).expect(200)
        story.took(drafts[won[0]])
        winners[won[0]] += 1
    for user in users:
        assert user.view(story).head.body == story.requests[-1].record.body  # type: ignore[union-attr]


def test_one_users_log_has_no_gap_when_the_writers_are_at_different_brokers(
    everywhere: Everywhere,
) -> None:
    """And no event appears before one that was listed already, at any broker."""
    alice, bob = everywhere(), everywhere()
    seen: list[list[tuple[int, str]]] = []

    def write(n: int) -> None:
        for _ in range(ROUNDS):
            Story(alice[n]).created({alice[n]: OWNER, bob[n]: READER})
            seen.append([(event.id, event.containerId) for event in bob[n].events()])

    at_once(write, range(3))
    logs = [[(event.id, event.containerId) for event in user.events()] for user in bob]
    assert logs[0] == logs[1] == logs[2]
    assert [number for number, _ in logs[0]] == list(range(1, 3 * ROUNDS + 1))
    for listed in seen:
        assert listed == logs[0][: len(listed)]


def test_a_fetch_at_every_broker_is_one_event(everywhere: Everywhere) -> None:
    alice, bob = everywhere(), everywhere()
    told = OWNER | Level.ReceiveAccessEvents
    story, *later = (Story(alice[0]).created({alice[0]: told, bob[0]: READER}) for _ in range(4))
    at_once(lambda user: user.view(story, "content=1"), bob)
    # A broker records a later fetch together with earlier ones, or after them.
    for user, other in zip(bob, later, strict=True):
        user.view(other, "content=1")
    found: list[str] = []

    def all_are_recorded() -> bool:
        found[:] = [event.containerId for event in alice[1].events(eventType="Accessed")]
        return len(set(found)) == 4

    wait_until(all_are_recorded)
    assert len(found) == 4


def test_a_new_api_key_is_valid_at_every_broker_at_once(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    command = [sys.executable, "-c", "from scbroker.cli import main; main()", "admin"]
    made = subprocess.run(
        [*command, "api-keys", "create", "second", "--data-dir", str(broker.directory)],
        env=environment(broker.settings, broker.variables),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    key = made.stdout.strip()
    for each in cluster.brokers:
        with Wire(each) as wire:
            wire.call("POST", "/v1/session-challenges", {}, Scbroker_Api_Key=key).expect(200)


def test_new_keys_count_at_once_at_brokers_that_have_cached_the_old_ones(
    cluster: Cluster, everywhere: Everywhere, new_device: NewDevice
) -> None:
    """A signature by a key that was retired at one broker is refused by the others."""
    with ServerProvider(cluster.api_key, cluster.brokers[0].url, "tests") as first:
        first.register(PASSWORD, PASSPHRASE).result(PATIENCE)
        old = first.getKeyRing().result(PATIENCE)
        users = everywhere(old)
        story = Story(users[0]).created()
        for user in users[1:]:
            story.tell(user, story.follow(user, content=b"all remember the old key"))
        first.changeCredentials(PASSWORD + "!", PASSPHRASE + "!", compromised=True).result(PATIENCE)
        new = first.getKeyRing().result(PATIENCE)
        for user in users:
            request = user.wire.log_in_request(old)
            user.wire.call("POST", "/v1/sessions", request).expect(401, "challenge")
        device = new_device(new, cluster.brokers[1])
        created = device.createContainer(b"with the new key").result(PATIENCE)
        other = new_device(new, cluster.brokers[2])
        assert other.getContainer(created.id).result(PATIENCE).content == b"with the new key"
