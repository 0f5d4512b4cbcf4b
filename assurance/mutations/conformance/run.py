"""Break one operation at a time, and expect the tests that its row names to fail.

    python -m assurance.mutations.conformance.run [--everyday] [--row ROW] [--jobs 2]

One pytest collects the tests of all rows and starts one broker. For each mutant it forks: the child installs
the mutant, runs the tests of the row until one fails, and ends. Children without a mutant first run all of
the tests, which must pass; `--everyday` skips them, as the suite runs them anyway. The exit status is 0 if
every mutant was noticed.
"""

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

from assurance.mutations.conformance import contents, mutants, seam, sessions
from assurance.mutations.conformance.generic import generic, updates
from assurance.mutations.conformance.mutants import Mutant
from assurance.mutations.engine import NOTICED, ROOT, SURVIVED, Campaign, arguments, is_of
from tests.conformance.interface import INTERFACE
from tests.conformance.page import ROWS
from tests.kit.waiting import PATIENCE

CATALOGUE: Final = [
    *(mutant for each in (*INTERFACE.operations, *INTERFACE.added) for mutant in generic(each)),
    *updates(),
    *contents.MUTANTS,
    *sessions.MUTANTS,
    *seam.MUTANTS,
]
# The ten of the long suite. Each survived the tests of its row once. The eleventh, a wrong
# declared result, is in test_types.
EVERYDAY: Final = {
    ("updateContainerType", "ignores type"),
    ("updateContainerHeader", "unshares the container"),
    ("updateContainer", "ignores accessLevels"),
    ("getContainerHeader", "returns nothing"),
    ("getLatestActiveSigningKey", "returns the oldest key"),
    ("T4", "has an owner's permissions by default"),
    ("T4", "DefaultUserPermissions are an owner's"),
    ("register", "ignores reminder"),
    ("changeCredentials", "ignores reminder"),
    ("logout", "leaves the token alive"),
}
_SECONDS: Final = 5 * PATIENCE
"""Of a mutant: each test that waits in vain takes `PATIENCE`."""
_WARM_UP: Final = "assurance/mutations/conformance/shared_broker.py"
_PYTEST: Final = [
    "-q", "--long", "--capture=sys", "--no-header", "--no-summary", "-p", "no:cacheprovider",
    "-p", "no:xdist",
]  # fmt: skip


def named_by_rows() -> dict[str, tuple[str, ...]]:
    """Return the tests that each row names, by the key that mutants have: an operation's name, or an id."""
    named = {row.key: row.tests for row in ROWS}
    operations = [*INTERFACE.operations, *INTERFACE.added]
    return named | {str(each): named[each.declaration] for each in operations}


@dataclass
class Job:
    """A row's tests with one mutant, or any tests with none."""

    items: list[pytest.Item]
    mutant: Mutant | None = None
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return str(self.mutant or f"{len(self.items)} tests without a mutant")


def is_right(job: Job, outcome: str) -> bool:
    """Tests must notice a mutant, and pass without one."""
    return outcome == SURVIVED if job.mutant is None else outcome.startswith(NOTICED)


class Run:
    """A pytest plugin that runs, in place of all tests once, the tests of a row for each mutant."""

    def __init__(
        self, chosen: Sequence[Mutant], jobs: int, folder: Path, *, tries_rows: bool, says_all: bool
    ) -> None:
        self.campaign = Campaign[Job]([Job([], mutant) for mutant in chosen], is_right)
        self._tries_rows, self._says_all = tries_rows, says_all
        self._at_a_time, self._folder = jobs, folder
        self._is_mutant = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Have every test use the broker's process: no thread of this one goes on in a fork."""
        for item in items:
            item.add_marker(pytest.mark.process)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a mutant's test at its first failed subtest: the others may each wait in vain as well.

        Only subtests are logged in a child.
        """
        if self._is_mutant and report.failed:
            pytest.fail("A subtest failed.")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            raise session.Failed("The tests could not be collected.")
        *items, warm_up = sorted(session.items, key=lambda item: item.nodeid.startswith(_WARM_UP))
        # It leaves its broker running.
        reports = runtestprotocol(warm_up, log=False, nextitem=items[0])
        if any(report.failed for report in reports):
            raise session.Failed(f"The broker did not start: {reports}")
        waiting, running = deque(self._jobs(items)), dict[int, Job]()
        while waiting or running:
            while waiting and len(running) < self._at_a_time:
                job = waiting.popleft()
                running[self._fork(job, warm_up)] = job
            time.sleep(0.01)  # about time
            for pid, job in list(running.items()):
                outcome = self._outcome(pid, job)
                if outcome:
                    del running[pid]
                    counts = job.mutant is not None
                    self.campaign.add(job, outcome, silent=not self._says_all, counts=counts)
        return True

    def _jobs(self, items: Sequence[pytest.Item]) -> list[Job]:
        chosen = [job.mutant for job in self.campaign.chosen if job.mutant is not None]
        # The engine makes no difference to a mutant of the client: SQLite is enough.
        here = [item for item in items if "postgresql" not in item.nodeid]
        found = {
            row: [item for test in tests for item in here if is_of(item.nodeid, test)]
            for row, tests in named_by_rows().items()
        }
        honest = []
        if self._tries_rows:
            once = list(dict.fromkeys(item for mutant in chosen for item in found[mutant.row]))
            count = min(self._at_a_time, len(once))
            honest = [Job(once[start::count]) for start in range(count)]
        return honest + [Job(found[mutant.row], mutant) for mutant in chosen]

    def _fork(self, job: Job, warm_up: pytest.Item) -> int:
        job.began = time.monotonic()  # about time
        with warnings.catch_warnings():  # a thread of the parent reads the broker's output
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        self._is_mutant = job.mutant is not None
        try:
            outcome = in_the_child(job, warm_up)
        except BaseException:
            outcome = f"could not run: {traceback.format_exc()}"
        self._path(os.getpid()).write_text(json.dumps(outcome), "utf-8")
        os._exit(0)

    def _outcome(self, pid: int, job: Job) -> str:
        """Return what became of a child, or nothing while it runs."""
        ended, _ = os.waitpid(pid, os.WNOHANG)
        seconds = time.monotonic() - job.began  # about time
        if not ended and (job.mutant is None or seconds < _SECONDS):
            return ""
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"had no end after {_SECONDS:.0f} s"
        path = self._path(pid)
        return json.loads(path.read_text("utf-8")) if path.exists() else "the process died"

    def _path(self, pid: int) -> Path:
        return self._folder / f"{pid}.json"


def in_the_child(job: Job, warm_up: pytest.Item) -> str:
    """Run the tests until one notices the mutant, or all of them without one; return which failed."""
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
            # Only here does pytest mark a test as failed whose subtests have failed.
            item.ihook.pytest_report_teststatus(report=report, config=item.config)
            if report.failed and job.mutant is None:
                failed.append(f"{item.nodeid} fails: {report.longreprtext[-2000:]}")
                break
            if report.failed:
                return f"{NOTICED} by {item.nodeid}"
    return "\n".join(failed) or SURVIVED


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--everyday", action="store_true", help="the mutants of the everyday suite")
    parser.add_argument("--row", help="the mutants of this row alone")
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
    os.chdir(ROOT)
    with TemporaryDirectory(prefix="mutants-") as folder:
        honest = not options.everyday
        run = Run(chosen, options.jobs, Path(folder), tries_rows=honest, says_all=options.verbose)
        status: Any = pytest.main([*_PYTEST, _WARM_UP, *sorted(tests)], plugins=[run])
    ended = run.campaign.end()
    return ended if int(status) in (0, 5) else 1


if __name__ == "__main__":
    sys.exit(main())
