"""Random walks through all that stores or deletes: after each step everybody pays for what is theirs."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from scbroker.records.container_record import Role
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.quotas import check_usage, set_quota, used
from tests.kit.tables import query
from tests.kit.writers import OWNER, Story, User, delete_user, leave

QUOTA = 110_000
LARGE = 70_000


class Walk:
    """Users with a quota, their containers, and steps that any of them may take at random."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack, seed: int) -> None:
        self.broker, self.stack, self.choice = broker, stack, random.Random(seed)
        self.users = [self._new_user() for _ in range(3)]
        self.stories: list[tuple[Story, list[User]]] = []
        self.refused = 0

    def _new_user(self) -> User:
        ring = self.broker.new_user()
        return User(ring, self.stack.enter_context(Wire(self.broker)).log_in(ring))

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self.create, self.create, self.change, self.change, self.upload, self.upload, self.begin,
            self.share, self.leave, self.delete, self.sweep, self.age, self.delete_user,
        ]  # fmt: skip
        self.choice.choice(steps)()

    def _any(self) -> tuple[Story, list[User]] | None:
        return self.choice.choice(self.stories) if self.stories else None

    def _sent(self, story: Story, author: User, request: object) -> bool:
        answer = story.send(author, request)  # type: ignore[arg-type] # a request of the story
        if answer.status == 201:
            story.took(request)  # type: ignore[arg-type]
            return True
        assert answer.code == "quota"
        self.refused += 1
        return False

    def create(self) -> None:
        author = self.choice.choice(self.users)
        story = Story(author)
        others = {
            user: OWNER for user in self.users if user is author or self.choice.random() < 0.4
        }
        size = self.choice.choice([0, 100, 30_000])
        if self._sent(story, author, story.begin(others, content=bytes(size))):
            self.stories.append((story, list(others)))

    def change(self) -> None:
        if found := self._any():
            story, members = found
            author = self.choice.choice(members)
            content = bytes(self.choice.choice([10, 20_000]))
            self._sent(story, author, story.follow(author, content=content, header=b"{}"))

    def upload(self) -> None:
        if found := self._any():
            story, members = found
            author = self.choice.choice(members)
            part, sealed = story.seal(Role.Content, author, bytes(LARGE), story.key)
            answer = story.chunk(author, part, 0, sealed)
            if answer.status == 204:
                self._sent(story, author, story.follow(author, content=part))
            else:
                assert answer.code == "quota"
                self.refused += 1

    def begin(self) -> None:
        """Begin an upload that is abandoned, or dropped."""
        author = self.choice.choice(self.users)
        story = Story(author)
        part, sealed = story.seal(Role.Content, author, bytes(LARGE), story.key)
        story.chunk(author, part, self.choice.choice([0, 1]), sealed)
        if self.choice.random() < 0.5:
            path = f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}"
            author.wire.call("DELETE", path).expect(204)

    def share(self) -> None:
        if found := self._any():
            story, members = found
            author = self.choice.choice(members)
            kept = [u for u in self.users if u is author or self.choice.random() < 0.5]
            if self._sent(story, author, story.follow(author, grants=dict.fromkeys(kept, OWNER))):
                members[:] = kept

    def leave(self) -> None:
        if (found := self._any()) and len(found[1]) > 1:
            story, members = found
            leaver = self.choice.choice(members)
            leave(story, leaver).expect(204)
            # The story goes on as of a list that the others renew.
            members.remove(leaver)
            author = members[0]
            request = story.follow(author, grants=dict.fromkeys(members, OWNER))
            if not self._sent(story, author, replace(request, departures=1)):
                self.stories.remove(found)

    def delete(self) -> None:
        if found := self._any():
            story, members = found
            author = self.choice.choice(members)
            story.tell(author, story.follow(author, tombstone=True))
            self.stories.remove(found)

    def sweep(self) -> None:
        admin(self.broker, "sweep").expect(0)

    def age(self) -> None:
        """Let what is due later be due now."""
        url = self.broker.database_url
        query(url, "UPDATE parts SET replaced_at = 0 WHERE replaced_at > 0")
        query(url, "UPDATE parts SET touched_at = 1 WHERE touched_at > 1 AND NOT committed")
        query(url, "UPDATE pending_blobs SET since = 0 WHERE since > 0")

    def delete_user(self) -> None:
        if self.choice.random() < 0.3:
            gone = self.users.pop(self.choice.randrange(len(self.users)))
            delete_user(gone).expect(204)
            for found in list(self.stories):
                if gone in found[1]:
                    self.stories.remove(found)
            self.sweep()
            self.users.append(self._new_user())


@pytest.fixture
def walking(start_broker: StartBroker) -> Iterator[Callable[[int], Walk]]:
    with ExitStack() as stack:
        broker = start_broker()
        set_quota(broker.database_url, None, bytes=QUOTA, containers=5)
        yield lambda seed: Walk(broker, stack, seed)


@pytest.mark.long
@both_engines
@pytest.mark.parametrize("seed", [1])
def test_after_every_step_everybody_is_charged_with_what_is_stored(
    walking: Callable[[int], Walk], seed: int
) -> None:
    walk = walking(seed)
    for _ in range(60):
        walk.step()
        check_usage(walk.broker.database_url)
        for user in walk.users:
            found = used(walk.broker.database_url, user)
            # A deletion is never refused: each tombstone may add its record.
            assert found.bytes <= QUOTA + 60 * 4_000
            assert found.containers <= 5
    assert walk.refused, "the walk never reached a quota"
    walk.age()
    admin(walk.broker, "sweep").expect(0)
    check_usage(walk.broker.database_url)
    admin(walk.broker, "check").expect(0)
