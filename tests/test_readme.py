"""What the README says, done: its example and its claims."""

from pathlib import Path

from tests.kit.brokers import BrokerProcess
from tests.test_docs import Page, Stage, new_stage  # noqa: F401 - the fixture `stage`

ROOT = Path(__file__).parent.parent


def test_the_example_runs_as_it_stands_and_prints_what_it_says(
    broker: BrokerProcess, stage: Stage
) -> None:
    (example,) = Page(ROOT / "README.md").examples
    assert len([line for line in example.code.splitlines() if line.strip()]) <= 10
    stage.run(ROOT / "README.md", broker)
