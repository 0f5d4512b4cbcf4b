"""The population that operations are measured beside, and what is said of it."""

import uuid
from contextlib import ExitStack

import pytest

from benchmarks.population import HEAVY, RARE, Real, Size, on, populate
from benchmarks.sizes import sizes
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, Story, User

pytestmark = pytest.mark.process

SIZE = Size(containers=200, events=5000, users=20)
ROWS = {"containers": 1, "records": 1, "access_lists": 1, "members": 2, "parts": 2}


@pytest.mark.long
def test_a_population_is_as_large_as_asked_for_and_a_tenth_of_it_is_one_users(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with ExitStack() as stack:
        alice, bob = (_user(broker, stack) for _ in range(2))
        _check(broker, alice, bob)


def _user(broker: BrokerProcess, stack: ExitStack) -> User:
    ring = broker.new_user()
    return User(ring, stack.enter_context(Wire(broker)).log_in(ring))


def _check(broker: BrokerProcess, alice: User, bob: User) -> None:
    story = Story(alice).created({alice: OWNER, bob: READER}, header=b"{}", type="letter")
    broker.stop()
    real = Real(alice.ring.userId, bob.ring.userId, uuid.UUID(bytes=story.id))
    url, said = broker.database_url, list[str]()
    on(url, lambda connection: populate(connection, real, SIZE, said.append))
    counted = {
        table: query(url, f"SELECT count(*) FROM {table}")[0][0]
        for table in ("users", "events", *ROWS)
    }
    assert counted == {
        "users": SIZE.users + 2, "events": SIZE.events + 2,
        **{table: (SIZE.containers + 1) * each for table, each in ROWS.items()},
    }  # fmt: skip
    hers = "SELECT count(*) FROM members WHERE user_id = ?"
    assert query(url, hers, alice.ring.userId.bytes) == [(SIZE.containers // HEAVY + 1,)]
    assert said[-1] == f"{SIZE.events:,} events"

    broker.start()
    alice.wire.close()
    log = alice.events()
    assert [event.id for event in log] == list(range(1, SIZE.events // HEAVY + 2))
    rare = alice.events(containerId=story.path.rpartition("/")[2], eventType="Deleted")
    assert [event.id for event in rare] == list(range(5, 501, SIZE.events // HEAVY // RARE))
    gaps = "SELECT user_id FROM events GROUP BY user_id HAVING max(id) <> count(*)"
    assert query(url, gaps) == []
    [table] = [table for table in on(url, sizes) if table.name == "records"]
    assert table.rows == SIZE.containers + 1
    assert table.total > table.rows * 3000
