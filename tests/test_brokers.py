"""The brokers that the tests run against are real, and end when they are told to."""

import http.client

import pytest

from scbroker.wire import users as u
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import NewProvider


def test_a_user_made_by_hand_can_log_in_with_the_client(new_provider: NewProvider) -> None:
    provider = new_provider(True)
    secured = provider.createContainer(b"hello").result(10)
    assert provider.getContainerContent(secured.id).result(10) == b"hello"


def test_a_restarted_broker_has_the_same_address_and_data(fresh_broker: BrokerProcess) -> None:
    ring, port = fresh_broker.new_user(), fresh_broker.port
    fresh_broker.restart()
    assert fresh_broker.port == port
    with Wire(fresh_broker) as wire:
        wire.log_in(ring)
        answer = wire.call("POST", "/v1/key-records", {"users": [{"userId": str(ring.userId)}]})
        assert len(answer.expect(200).message(u.KeyRecords).users[0].keyRecords) == 2


def test_nothing_listens_after_a_broker_was_killed(fresh_broker: BrokerProcess) -> None:
    fresh_broker.kill()
    connection = http.client.HTTPConnection("127.0.0.1", fresh_broker.port, timeout=5)
    with pytest.raises(ConnectionRefusedError):
        connection.request("GET", "/health/live")
