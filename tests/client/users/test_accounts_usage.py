"""What a program reads of its user's usage, and what it is told when a quota is exceeded."""

import pytest

from scbroker import BrokerError, ServerProvider, Usage
from tests.client.conftest import id_of
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.quotas import set_quota
from tests.kit.tables import count_rows
from tests.kit.waiting import PATIENCE

MIB = 1_048_576


@pytest.fixture
def device(broker: BrokerProcess, new_provider: NewProvider) -> ServerProvider:
    return new_provider(broker.new_user())


def limit(broker: BrokerProcess, device: ServerProvider, **quotas: int | None) -> None:
    set_quota(broker.database_url, device.getKeyRing().result(PATIENCE), **quotas)


def test_a_user_reads_their_usage_and_what_their_quotas_leave(
    broker: BrokerProcess, device: ServerProvider
) -> None:
    assert device.getUsage().result(PATIENCE) == Usage(0, 0, None, None)
    device.createContainer(b"x").result(PATIENCE)
    found = device.getUsage().result(PATIENCE)
    assert (found.containers, found.freeBytes, found.freeContainers) == (1, None, None)
    limit(broker, device, bytes=found.bytes + 5, containers=1)
    found = device.getUsage().result(PATIENCE)
    assert (found.freeBytes, found.freeContainers) == (5, 0)
    limit(broker, device, bytes=0, containers=0)
    found = device.getUsage().result(PATIENCE)
    assert (found.freeBytes, found.freeContainers) == (0, 0)


def test_a_program_reads_what_is_free_and_what_was_needed_and_the_request_is_sent_once(
    broker: BrokerProcess, device: ServerProvider
) -> None:
    device.createContainer(b"x").result(PATIENCE)
    used = device.getUsage().result(PATIENCE).bytes
    limit(broker, device, bytes=used + 100)
    with Network() as network, pytest.raises(BrokerError.quotaExceededError) as caught:
        device.createContainer(bytes(2000)).result(PATIENCE)
    assert len(network.those("PUT", "/records/1")) == 1
    error = caught.value
    assert (error.resource, error.quota, error.used, error.free) == ("bytes", used + 100, used, 100)
    assert error.needed > 2000
    assert not error.retryable
    assert error.message.startswith("You have 100 B of ")
    limit(broker, device, containers=1, bytes=None)
    with pytest.raises(BrokerError.quotaExceededError, match="0 containers of 1 containers left"):
        device.createContainer(b"y").result(PATIENCE)


def test_nothing_is_sent_of_a_large_content_that_does_not_fit(
    broker: BrokerProcess, device: ServerProvider
) -> None:
    limit(broker, device, bytes=17 * MIB)
    with pytest.raises(BrokerError.quotaExceededError) as caught:
        device.createContainer(bytes(18 * MIB)).result(PATIENCE)
    assert (caught.value.free, caught.value.needed) == (17 * MIB, 18 * MIB)
    assert count_rows(broker.database_url, "parts", "user_id = ?", id_of(device).bytes) == 0
    device.createContainer(bytes(10 * MIB)).result(PATIENCE)
