"""A broker compares its clock with the database's, and says so where they differ."""

from pathlib import Path

import pytest

from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.waiting import wait_until

WARNING = "the clock differs from the database's"
METRIC = "scbroker_clock_difference_seconds "


def difference(broker: BrokerProcess) -> float:
    with Wire(broker) as wire:
        lines = wire.send("GET", "/metrics").body.decode().splitlines()
    [found] = [line for line in lines if line.startswith(METRIC)]
    return float(found.removeprefix(METRIC))


@pytest.mark.long
@pytest.mark.parametrize("ahead, warns", [(45, True), (0, False)])
def test_a_broker_says_by_how_much_its_clock_differs_from_the_databases(
    postgres_url: str, tmp_path: Path, ahead: int, warns: bool
) -> None:
    with BrokerProcess(tmp_path, postgres_url, clock_ahead=ahead) as broker:
        wait_until(lambda: WARNING in broker.log if warns else difference(broker) != 0)
        assert ahead - 2 < difference(broker) < ahead + 2
        assert (WARNING in broker.log) == warns
