"""What the README says, done: its example and its claims."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.waiting import PATIENCE
from tests.test_docs import Page, Stage, new_stage  # noqa: F401 - the fixture `stage`

ROOT = Path(__file__).parent.parent


def test_the_example_runs_as_it_stands_and_prints_what_it_says(
    broker: BrokerProcess, stage: Stage
) -> None:
    (example,) = Page(ROOT / "README.md").examples
    assert len([line for line in example.code.splitlines() if line.strip()]) <= 10
    stage.run(ROOT / "README.md", broker)


@pytest.mark.long
@both_engines
def test_eight_writers_at_once_create_two_hundred_containers_and_none_fails(
    new_provider: NewProvider,
) -> None:
    providers = [new_provider(True) for _ in range(8)]

    def write(number: int) -> list[str]:
        promises = [
            providers[number].createContainer(bytes(1024), {"number": n}) for n in range(25)
        ]
        return [str(promise.result(PATIENCE).id) for promise in promises]

    with ThreadPoolExecutor(8) as writers:
        ids = [found for some in writers.map(write, range(8)) for found in some]
    assert len(set(ids)) == 200
