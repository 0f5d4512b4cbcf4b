"""How many users one address registers, and to how many others one user gives access (protocol.md, 5)."""

import pytest

from scbroker.keys import KeyRing
from tests.kit.brokers import Answer, BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.tables import added, dump, query
from tests.kit.writers import OWNER, READER, Grants, Story, User
from tests.server.conftest import NewUser

HOUR = 3600


def waits(answer: Answer, at_most: int) -> None:
    answer.expect(429, "throttled")
    assert 1 <= int(answer.headers["retry-after"]) <= at_most


def over(broker: BrokerProcess) -> None:
    """The time of everything that is counted is over."""
    query(broker.database_url, "UPDATE guesses SET ends_at = 1")


@pytest.mark.long
def test_one_address_registers_so_many_users_in_a_while_and_then_again(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(registrations_address=3, guess_seconds=60)
    rings = [KeyRing.generate() for _ in range(4)]
    with Wire(broker) as wire:
        for ring in rings[:3]:
            wire.register(ring).expect(201)
        before = dump(broker.database_url)
        waits(wire.register(rings[3]), 60)
        assert added(before, dump(broker.database_url)) == {}
        over(broker)
        wire.register(rings[3]).expect(201)
        wire.log_in(rings[0])


def created(author: User, *others: User) -> tuple[Answer, Story]:
    story = Story(author)
    grants: Grants = {author: OWNER, **dict.fromkeys(others, READER)}
    return story.send(author, story.begin(grants)), story


@pytest.mark.long
def test_one_user_gives_access_to_so_many_in_an_hour_and_the_count_outlives_the_broker(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(max_new_grants=5)
    alice, *others = [new_user(at=broker) for _ in range(7)]
    created(alice, *others[:3])[0].expect(201)
    broker.restart()
    for user in (alice, *others):
        user.wire.close()
    before = dump(broker.database_url)
    waits(created(alice, *others[:3])[0], HOUR)
    assert added(before, dump(broker.database_url)) == {}, "what is refused leaves nothing behind"
    created(alice, *others[:2])[0].expect(201)
    waits(created(alice, others[0])[0], HOUR)
    created(others[0], alice)[0].expect(201)
    over(broker)
    created(alice, *others[:5])[0].expect(201)
    created(alice, *others)[0].expect(413, "too-large")


@pytest.mark.long
def test_a_writer_who_adds_nobody_is_never_throttled(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    """Containers of one's own, what is written to who is in already, and who is taken out."""
    broker = start_broker(max_new_grants=1)
    alice, bob = new_user(at=broker), new_user(at=broker)
    story = Story(alice).created({alice: OWNER, bob: READER})
    waits(created(alice, bob)[0], HOUR)
    for _ in range(3):
        Story(alice).created()
        story.tell(alice, story.follow(alice, content=b"more"))
        story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: OWNER}))
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    again = story.follow(alice, grants={alice: OWNER, bob: READER})
    waits(story.send(alice, again), HOUR)
    over(broker)
    story.tell(alice, again)
