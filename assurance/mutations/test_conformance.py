"""Every row of the interface has mutants, and the tests of its row notice them.

`make conformance` tries them all; here are those that the tests missed once.
"""

import subprocess
import sys

import pytest

from assurance.mutations.conformance.run import CATALOGUE, EVERYDAY, named_by_rows
from assurance.mutations.engine import ROOT
from tests.conformance.interface import INTERFACE, KINDS
from tests.kit.waiting import PATIENCE

KNOWN = [(mutant.row, mutant.says) for mutant in CATALOGUE]


def test_every_row_of_the_interface_and_every_operation_has_a_mutant() -> None:
    rows = {str(operation) for operation in [*INTERFACE.operations, *INTERFACE.added]}
    rows |= {row["id"] for kind in KINDS for row in INTERFACE.rows(kind)}
    assert {row for row, _ in KNOWN} == rows
    assert rows <= named_by_rows().keys()


def test_each_mutant_has_a_name_of_its_own_and_the_list_names_mutants() -> None:
    assert len(set(KNOWN)) == len(KNOWN)
    assert set(KNOWN) >= EVERYDAY


@pytest.mark.long
def test_the_tests_of_a_row_notice_the_mutants_that_they_once_missed() -> None:
    command = [sys.executable, "-m", "assurance.mutations.conformance.run", "--everyday"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EVERYDAY)} mutants, 0 wrong" in done.stdout
