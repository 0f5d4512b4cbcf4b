"""Takes one defence out at a time, and expects the tests that it is for to fail.

    python -m tests.hostile_broker.mutate [--attack N] [--jobs 2]

Each mutation of `mutations` is made in a copy of the tree, in a temporary folder. The exit status is 0 where
every one was caught; after a run of all of them `docs/attacks.md` is written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.hostile_broker import page
from tests.hostile_broker.mutations import MUTATIONS
from tests.hostile_broker.mutations.edits import ROOT, Mutation

_COPIED: Final = ("src", "tests", "assurance", "conftest.py", "pyproject.toml")
_SECONDS: Final = 300.0
CAUGHT: Final = "caught"
# What a failed claim begins with; whatever else goes wrong in a test proves nothing.
_ASSERTIONS: Final = ("AssertionError", "assert ", "Failed: DID NOT RAISE")
_WHERE: Final = "import scbroker, scbroker.cli; print(scbroker.__file__, scbroker.cli.__file__)"
# What a broker of the tests would import, started as they start it.
_BROKERS_WHERE: Final = (
    "import subprocess, sys; from tests.kit.brokers import environment; "
    f"subprocess.run([sys.executable, '-c', {_WHERE!r}], env=environment(), check=True)"
)


def run(mutation: Mutation) -> str:
    """What became of the named tests once the defence was gone: `CAUGHT`, or what else."""
    with TemporaryDirectory(prefix="mutation-") as name:
        copy = Path(name)
        for part in _COPIED:
            _copy(ROOT / part, copy / part)
        mutation.apply(copy)
        inherited = {**os.environ, "PYTHONPATH": str(copy / "src")}
        for code in (_WHERE, _BROKERS_WHERE):
            _check_imports(copy, inherited, code)
        return _outcome(copy, inherited, mutation.tests)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        shutil.copy(source, target)


def _check_imports(copy: Path, variables: dict[str, str], code: str) -> None:
    """Neither the tests nor the brokers that they start may import the checkout."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True)
    found = done.stdout.split()
    inside = [Path(path).is_relative_to(copy / "src") for path in found]
    if inside != [True, True]:
        raise RuntimeError(f"The copy does not import, or not from itself: {found} {done.stderr}")


def _outcome(copy: Path, variables: dict[str, str], tests: Sequence[str]) -> str:
    report = copy / "report.xml"
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"--junitxml={report}", *tests,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=copy, env=variables, capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode not in (0, 1) or not report.exists():
        return f"the tests did not run: {done.stdout[-300:]}"
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return _judged(list(cases), tests)


def _judged(cases: Iterable[ElementTree.Element], tests: Sequence[str]) -> str:
    """Every test that was named has to fail, in one of its cases at least, and none in another way."""
    failed, faults = set(), []
    for case in cases:
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for trouble in [*case.findall("failure"), *case.findall("error")]:
            message = trouble.get("message", "")
            if trouble.tag == "failure" and message.startswith(_ASSERTIONS):
                failed.add(name)
            else:
                faults.append(f"{name}: {message[:200]}")
    missed = [test for test in tests if not any(_is_of(name, test) for name in failed)]
    if faults:
        return f"failed in another way: {faults[0]}"
    return f"NOT CAUGHT by {', '.join(missed)}" if missed else CAUGHT


def _is_of(case: str, test: str) -> bool:
    return case == test or case.startswith(f"{test}[")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--attack", type=int, help="the mutations of this attack alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    options = parser.parse_args()
    chosen = [item for item in MUTATIONS if options.attack in (None, item.attack)]
    for mutation in chosen:
        mutation.check()
    began, caught = time.monotonic(), 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutation, outcome in zip(chosen, pool.map(run, chosen), strict=True):
            print(f"{mutation.attack:2}  {mutation.defence}: {outcome}", flush=True)
            caught += outcome == CAUGHT
    print(f"\n{caught} of {len(chosen)} caught in {time.monotonic() - began:.0f} s")
    if not chosen or caught < len(chosen):
        return 1
    if options.attack is None:
        page.PATH.write_text(page.text(), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
