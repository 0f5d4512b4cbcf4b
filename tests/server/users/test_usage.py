"""A user reads what they use and what their quotas are."""

import pytest

from scbroker.wire.users import Usage
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.quotas import set_quota, used
from tests.kit.tables import query
from tests.kit.writers import Story, User
from tests.server.conftest import NewUser


def usage(user: User) -> Usage:
    return user.wire.call("GET", "/v1/usage").expect(200).message(Usage)


@pytest.mark.long
def test_a_user_reads_their_own_usage_and_the_quotas_in_force(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    nothing = Usage(bytes=0, containers=0, quotaBytes=None, quotaContainers=None)
    assert usage(alice) == nothing
    Story(alice).created()
    found = used(broker.database_url, alice)
    assert found.bytes > 3_000
    mine = Usage(bytes=found.bytes, containers=1, quotaBytes=None, quotaContainers=None)
    assert usage(alice) == mine
    set_quota(broker.database_url, None, bytes=10, containers=7)
    set_quota(broker.database_url, alice, bytes=10**12)
    assert usage(bob) == Usage(bytes=0, containers=0, quotaBytes=10, quotaContainers=7)
    assert usage(alice) == Usage(
        bytes=found.bytes, containers=1, quotaBytes=10**12, quotaContainers=7
    )


def test_a_usage_that_an_older_broker_made_negative_is_read_as_nothing(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    Story(alice).created()
    statement = "UPDATE usage SET bytes = -5, containers = -1 WHERE user_id = ?"
    query(broker.database_url, statement, alice.ring.userId.bytes)
    assert usage(alice) == Usage(bytes=0, containers=0, quotaBytes=None, quotaContainers=None)
