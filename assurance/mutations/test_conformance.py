"""Every row of the interface has mutants, and the tests of its row notice them.

`make conformance` tries them all; here are those that the tests missed once.
"""

import subprocess
import sys

import pytest

from assurance.mutations.conformance import run
from assurance.mutations.conformance.catalogue import CATALOGUE, EQUIVALENT, EVERYDAY
from assurance.mutations.conformance.mutants import Mutant
from assurance.mutations.engine import NOTICED, ROOT, SURVIVED
from tests.conformance.interface import INTERFACE, KINDS
from tests.kit.waiting import PATIENCE

KNOWN = [(mutant.row, mutant.says) for mutant in CATALOGUE]


def test_every_row_of_the_interface_and_every_operation_has_a_mutant() -> None:
    rows = {str(operation) for operation in [*INTERFACE.operations, *INTERFACE.added]}
    rows |= {row["id"] for kind in KINDS for row in INTERFACE.rows(kind)}
    assert {row for row, _ in KNOWN} == rows
    assert rows <= run.named_by_rows().keys()


def test_each_mutant_has_a_name_of_its_own_and_the_lists_name_mutants() -> None:
    assert len(set(KNOWN)) == len(KNOWN)
    assert set(KNOWN) >= EVERYDAY
    assert EQUIVALENT.keys() <= set(KNOWN)
    assert not EVERYDAY & EQUIVALENT.keys()


@pytest.mark.long
def test_the_tests_of_a_row_notice_the_mutants_that_they_once_missed() -> None:
    command = [sys.executable, "-m", "assurance.mutations.conformance.run", "--everyday"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EVERYDAY)} mutants, 0 wrong" in done.stdout


@pytest.mark.parametrize(
    "outcome, without, within",
    [
        (f"{NOTICED} by tests/x.py::test_y", False, True),
        (SURVIVED, True, False),
        ("the process died", False, False),
    ],
    ids=["noticed", "survived", "neither"],
)
def test_tests_must_pass_without_a_mutant_and_fail_with_it(
    outcome: str, without: bool, within: bool
) -> None:
    mutant = Mutant("getUserId", "returns another", lambda: None)
    assert run.is_right(run.Job([]), outcome) == without
    assert run.is_right(run.Job([], mutant), outcome) == within
