"""Breaks one operation at a time, and expects the tests that its row names to fail.

    python -m tests.conformance.mutate [--everyday] [--row ROW] [--jobs 2]

One pytest collects the tests of all rows and starts one broker. For each mutant it forks: the child installs
the mutant, runs the tests of the row until one fails, and ends. Children without a mutant run all of the
tests first, which have to pass; `--everyday` leaves that to the suite that it is part of. The exit status is
0 where every mutant was noticed; after a run of all of them `docs/mutants.md` is written.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.conformance import mutants, results
from tests.conformance.catalogue import CATALOGUE, EQUIVALENT, EVERYDAY
from tests.conformance.interface import INTERFACE, ROOT
from tests.conformance.mutants import Mutant
from tests.conformance.page import ROWS

_SECONDS: Final = 120.0
_WARM_UP: Final = "tests/conformance/shared_broker.py"
NOTICED, SURVIVED = "noticed", "survived"


def named_by_rows() -> dict[str, tuple[str, ...]]:
    """The tests that each row names, by the key that mutants have: an operation's name and form, or an id."""
    named = {row.key: row.tests for row in ROWS}
    operations = [*INTERFACE.operations, *INTERFACE.added]
    return named | {str(each): named[each.declaration] for each in operations}


@dataclass
class Job:
    """A row's tests with one mutant, or any tests with none."""

    items: list[pytest.Item]
    mutant: Mutant | None = None
    outcome: str = ""
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return str(self.mutant or f"{len(self.items)} tests without a mutant")

    @property
    def is_right(self) -> bool:
        """The tests notice a mutant; they pass without one, and with one that changes nothing."""
        if self.mutant is None or (self.mutant.row, self.mutant.says) in EQUIVALENT:
            return self.outcome == SURVIVED
        return self.outcome.startswith(NOTICED)


class Run:
    """A pytest plugin: in place of running all tests once, the tests of a row for each mutant."""

    def __init__(
        self,
        chosen: Sequence[Mutant],
        jobs: int,
        folder: Path,
        *,
        tries_rows: bool,
        says_all: bool,
    ) -> None:
        self.chosen = chosen
        self._tries_rows = tries_rows
        self._says_all = says_all
        self.done: list[Job] = []
        self._at_a_time = jobs
        self._folder = folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            raise session.Failed("The tests could not be collected.")
        *items, warm_up = sorted(session.items, key=lambda item: item.nodeid.startswith(_WARM_UP))
        reports = runtestprotocol(
            warm_up, log=False, nextitem=items[0]
        )  # leaves its broker running
        if any(report.failed for report in reports):
            raise session.Failed(f"The broker did not start: {reports}")
        waiting = deque(self._jobs(items))
        running: dict[int, Job] = {}
        while waiting or running:
            while waiting and len(running) < self._at_a_time:
                job = waiting.popleft()
                running[self._fork(job, warm_up)] = job
            time.sleep(0.01)
            for pid, job in list(running.items()):
                if self._has_ended(pid, job):
                    del running[pid]
                    self.done.append(job)
                    if self._says_all or not job.is_right:
                        print(f"{job}: {job.outcome}", flush=True)
        return True

    def _jobs(self, items: Sequence[pytest.Item]) -> list[Job]:
        found = {}
        for row, tests in named_by_rows().items():
            chosen = [item for test in tests for item in items if is_of(item.nodeid, test)]
            # The engine makes no difference to a mutant of the client: SQLite is enough.
            found[row] = [item for item in chosen if "postgresql" not in item.nodeid]
        honest = []
        if self._tries_rows:
            once = list(dict.fromkeys(item for each in self.chosen for item in found[each.row]))
            honest = [Job(once[start :: self._at_a_time]) for start in range(self._at_a_time)]
        return honest + [Job(found[each.row], each) for each in self.chosen]

    def _fork(self, job: Job, warm_up: pytest.Item) -> int:
        job.began = time.monotonic()
        with warnings.catch_warnings():  # a thread of the parent reads the broker's output
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        try:
            outcome = in_the_child(job, warm_up)
        except BaseException:
            outcome = f"could not run: {traceback.format_exc()}"
        self._path(os.getpid()).write_text(json.dumps(outcome), "utf-8")
        os._exit(0)

    def _has_ended(self, pid: int, job: Job) -> bool:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if not ended and (job.mutant is None or time.monotonic() - job.began < _SECONDS):
            return False
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            job.outcome = f"had no end after {_SECONDS:.0f} s"
            return True
        path = self._path(pid)
        job.outcome = json.loads(path.read_text("utf-8")) if path.exists() else "the process died"
        return True

    def _path(self, pid: int) -> Path:
        return self._folder / f"{pid}.json"


def is_of(nodeid: str, test: str) -> bool:
    return nodeid == test or nodeid.startswith((f"{test}[", f"{test}::"))


def in_the_child(job: Job, warm_up: pytest.Item) -> str:
    """Runs the tests until one notices the mutant, or all of them without one; says which failed."""
    if not job.items:
        return "the row names no test that can run"
    failed = []
    if job.mutant is not None:
        job.mutant.install()
    # The broker is a fixture of the session, which the last test leaves alone as well.
    warm_up.session._setupstate.teardown_exact(job.items[0])
    for item, following in zip(job.items, [*job.items[1:], warm_up], strict=True):
        reports = runtestprotocol(item, log=False, nextitem=following)
        if mutants.FAULTS:
            return f"the mutant itself failed: {mutants.FAULTS[0]}"
        for report in reports:
            if report.failed and job.mutant is None:
                failed.append(f"{item.nodeid} fails: {report.longreprtext[-2000:]}")
                break
            if report.failed:
                return f"{NOTICED} by {item.nodeid}"
    return "\n".join(failed) or SURVIVED


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--everyday", action="store_true", help="the mutants of the everyday suite")
    parser.add_argument("--row", help="the mutants of this row alone")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--verbose", action="store_true", help="say what each test noticed")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in CATALOGUE
        if options.row in (None, mutant.row)
        and (not options.everyday or (mutant.row, mutant.says) in EVERYDAY)
    ]
    rows = {mutant.row for mutant in chosen}
    tests = {test for row, named in named_by_rows().items() if row in rows for test in named}
    arguments = [
        "-q",
        "--capture=sys",
        "--no-header",
        "--no-summary",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    began = time.monotonic()
    with TemporaryDirectory(prefix="mutants-") as folder:
        run = Run(
            chosen,
            options.jobs,
            Path(folder),
            tries_rows=not options.everyday,
            says_all=options.verbose,
        )
        os.chdir(ROOT)
        status: Any = pytest.main([*arguments, _WARM_UP, *sorted(tests)], plugins=[run])
    wrong = [job for job in run.done if not job.is_right]
    of_mutants = sum(job.mutant is not None for job in run.done)
    print(f"{of_mutants} mutants, {len(wrong)} wrong, in {time.monotonic() - began:.0f} s")
    if wrong or of_mutants < len(chosen) or not chosen or int(status) not in (0, 5):
        return 1
    if chosen == CATALOGUE:
        results.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
