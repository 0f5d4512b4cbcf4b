"""A short history under cuts and kills; `make crash` has long ones."""

from pathlib import Path

import pytest

from assurance.faults.histories import ENOUGH, run

pytestmark = [pytest.mark.long, pytest.mark.process]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_one_order_explains_all_answers_under_cuts_and_kills(engine: str, tmp_path: Path) -> None:
    report = run(engine, 1, seed=3, folder=tmp_path, disturbances=3)
    assert report.violations == []
    assert report.histories == 3
    assert report.operations > ENOUGH
