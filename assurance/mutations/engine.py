"""Try every mutation, judge what its tests make of it, and write the page once all were noticed.

`Campaign` is the loop, the report and the exit status. `in_a_copy` tries a mutation of the source: copy the
tree, edit the copy, run the named tests there. A mutation that needs no other source is tried in a fork:
see `conformance.run`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Generic, TypeVar
from xml.etree import ElementTree

from tests.kit.waiting import PATIENCE

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[2]
NOTICED, SURVIVED = "noticed", "survived"
_COPIED: Final = ("src", "tests", "assurance", "conftest.py", "pyproject.toml")
_SECONDS: Final = 10 * PATIENCE
"""Of all tests of a mutation: each that waits in vain takes `PATIENCE`."""
# The beginnings of a failed claim's message; another failure of a test proves nothing. A test "contains"
# failed subtests, each of which is judged as well.
_ASSERTIONS: Final = ("AssertionError", "assert ", "Failed: DID NOT RAISE", "contains ")
_WHERE: Final = "import scbroker, scbroker.cli; print(scbroker.__file__, scbroker.cli.__file__)"
# What a broker of the tests would import, started as they start it.
_BROKERS_WHERE: Final = (
    "import subprocess, sys; from tests.kit.brokers import environment; "
    f"subprocess.run([sys.executable, '-c', {_WHERE!r}], env=environment(), check=True)"
)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a campaign's command line, with what every campaign takes."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    return parser


@dataclass
class Campaign(Generic[T]):
    """The mutations of a run, and what became of each."""

    chosen: Sequence[T]
    is_right: Callable[[T, str], bool]
    """Whether this is what has to become of a mutation."""
    done: int = 0
    wrong: int = 0
    _began: float = field(default_factory=time.monotonic)

    def add(self, mutation: T, outcome: str, *, silent: bool = False, counts: bool = True) -> None:
        """Count an outcome, and print it unless it is right and `silent`."""
        right = self.is_right(mutation, outcome)
        self.done += counts
        self.wrong += not right
        if not (right and silent):
            print(f"{mutation}: {outcome}", flush=True)

    def end(self) -> int:
        """Report. Return the exit status: 0 if all chosen mutations were tried and right."""
        seconds = time.monotonic() - self._began  # about time
        print(f"{self.done} mutants, {self.wrong} wrong, in {seconds:.0f} s")
        return int(self.wrong > 0 or not self.chosen or self.done < len(self.chosen))


def is_of(nodeid: str, test: str) -> bool:
    """Return whether a collected test is the named one, or a case or a method of it."""
    return nodeid == test or nodeid.startswith((f"{test}[", f"{test}::"))


def in_a_copy(edit: Callable[[Path], None], tests: Sequence[str]) -> str:
    """Edit a copy of the tree and run tests in it; return `NOTICED` if each of them fails, or what else."""
    with TemporaryDirectory(prefix="mutation-") as name:
        copy = Path(name)
        for part in _COPIED:
            _copy(ROOT / part, copy / part)
        edit(copy)
        variables = {**os.environ, "PYTHONPATH": str(copy / "src")}
        for code in (_WHERE, _BROKERS_WHERE):
            _check_imports(copy, variables, code)
        report = copy / "report.xml"
        options = [
            "-q",
            "--long",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            f"--junitxml={report}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy, env=variables, capture_output=True, text=True, timeout=_SECONDS,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not report.exists():
            said = done.stdout[-300:] + done.stderr[-300:]
            return f"the tests did not run (status {done.returncode}): {said}"
        return _judged(ElementTree.parse(report).getroot().iter("testcase"), tests)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)


def _check_imports(copy: Path, variables: dict[str, str], code: str) -> None:
    """Raise unless tests and the brokers that they start import the copy."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True)
    found = done.stdout.split()
    if [Path(path).is_relative_to(copy / "src") for path in found] != [True, True]:
        raise RuntimeError(f"The copy does not import, or not from itself: {found} {done.stderr}")


def _judged(cases: Iterable[ElementTree.Element], tests: Sequence[str]) -> str:
    """Every named test must fail in one of its cases at least, and none by another error."""
    failed = set()
    for case in cases:
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for trouble in [*case.findall("failure"), *case.findall("error")]:
            message = trouble.get("message", "")
            if trouble.tag != "failure" or not message.startswith(_ASSERTIONS):
                return f"failed in another way: {name}: {message[:200]}"
            failed.add(name)
    missed = [test for test in tests if not any(is_of(name, test) for name in failed)]
    return f"NOT CAUGHT by {', '.join(missed)}" if missed else NOTICED
