"""docs/mutants.md: how many mutants each row has, and which of them no test can notice."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.conformance.catalogue import CATALOGUE, EQUIVALENT
from tests.conformance.interface import ROOT

PATH: Final = ROOT / "docs" / "mutants.md"
_HEAD: Final = """\
# Mutants of the interface's rows

This page shows that the tests of each row notice when the row is broken.

A mutant is one way to break one row of the [conformance page](conformance.md): an operation that

- ignores a parameter,
- returns another result or another field,
- does nothing, or fails,
- misses what its row claims beyond that.

`make conformance` installs one mutant at a time, each in a process of its own, and runs the tests that the
row names. They pass without the mutant, and one of them must fail with it. The run writes this page when
every mutant was noticed.

The table does not count wrong declared results. For these, `tests/conformance/test_types.py` declares all
results as something else, and a type checker must notice it for every operation in both styles.

"""
_EQUIVALENT: Final = """\
No test can notice these. The run tries them as well, and they have to survive.

| row | mutant | why no test can notice it |
|---|---|---|"""


def text() -> str:
    """The page of a run in which every mutant was noticed, but for the equivalent ones."""
    of_rows = Counter(mutant.row for mutant in CATALOGUE)
    equivalent = Counter(row for row, _ in EQUIVALENT)
    lines = [
        f"{len(CATALOGUE)} mutants of {len(of_rows)} rows: {len(CATALOGUE) - len(EQUIVALENT)} noticed, "
        f"{len(EQUIVALENT)} equivalent.",
        "",
        "| row | mutants | noticed | equivalent |",
        "|---|---|---|---|",
    ]
    for row, count in of_rows.items():
        lines.append(f"| {row} | {count} | {count - equivalent[row]} | {equivalent[row]} |")
    if EQUIVALENT:
        lines += ["", "## Equivalent mutants", "", _EQUIVALENT]
        lines += [f"| {row} | {says} | {reason} |" for (row, says), reason in EQUIVALENT.items()]
    return _HEAD + "\n".join(lines) + "\n"


def write() -> None:
    PATH.write_text(text(), "utf-8")
