"""The run starts with this test: its broker stays up, and the forked processes use it as well."""

import pytest

from tests.kit.brokers import BrokerProcess, Wire


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_broker_of_the_run_answers(broker: BrokerProcess) -> None:
    with Wire(broker) as wire:
        assert wire.call("GET", "/health/ready").status == 200
