"""Every row of the interface has mutants, and its tests notice them.

`make conformance` tries them all, this suite those that were missed once.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance import results
from tests.conformance.catalogue import CATALOGUE, EQUIVALENT, EVERYDAY
from tests.conformance.interface import INTERFACE, KINDS, ROOT
from tests.conformance.mutants import Mutant
from tests.conformance.mutate import NOTICED, SURVIVED, Job, named_by_rows

KNOWN = [(mutant.row, mutant.says) for mutant in CATALOGUE]


def test_every_row_of_the_interface_and_every_operation_has_a_mutant() -> None:
    rows = {str(operation) for operation in [*INTERFACE.operations, *INTERFACE.added]}
    rows |= {row["id"] for kind in KINDS for row in INTERFACE.rows(kind)}
    assert {row for row, _ in KNOWN} == rows
    assert rows <= named_by_rows().keys()


def test_each_mutant_has_a_name_of_its_own_and_the_lists_name_mutants() -> None:
    assert len(set(KNOWN)) == len(KNOWN)
    assert set(KNOWN) >= EVERYDAY
    assert EQUIVALENT.keys() <= set(KNOWN)
    assert not EVERYDAY & EQUIVALENT.keys()


def test_the_tests_of_a_row_notice_the_mutants_that_they_once_missed() -> None:
    command = [sys.executable, "-m", "tests.conformance.mutate", "--everyday", "--jobs", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EVERYDAY)} mutants, 0 wrong" in done.stdout


@pytest.mark.parametrize(
    "outcome, is_right",
    [
        (f"{NOTICED} by tests/x.py::test_y", (False, True)),
        (SURVIVED, (True, False)),
        ("the process died", (False, False)),
    ],
    ids=["noticed", "survived", "neither"],
)
def test_tests_are_right_that_pass_without_a_mutant_and_fail_with_it(
    outcome: str, is_right: tuple[bool, bool]
) -> None:
    mutant = Mutant("getUserId", "returns another", lambda: None)
    without, within = Job([], None, outcome), Job([], mutant, outcome)
    assert (without.is_right, within.is_right) == is_right


def test_the_page_of_mutants_is_that_of_the_catalogue() -> None:
    """It is written by `make conformance`, after a run in which all mutants were noticed."""
    assert results.PATH.read_text("utf-8") == results.text()
