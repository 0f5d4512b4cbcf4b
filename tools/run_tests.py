"""Run parts of the tests, try failed cases once more alone, and sum up.

    python tools/run_tests.py everyday -k access -x     # what follows the parts is pytest's
    python tools/run_tests.py "long assurance"
    python tools/run_tests.py all                       # goes on where a run of the same code stopped

A case that fails, and then passes with nothing beside it, is flaky: the run is green, and the case is a
defect. .cache/tests has what each part gave, and the summary as summary.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).parents[1]
KEPT: Final = ROOT / ".cache" / "tests"
MACHINE: Final = ("tests/deploy/test_image.py", "tests/deploy/test_machine.py")
# What stores objects; `--engines cluster tests` runs all of it.
STORES: Final = (
    "tests/server/admin/test_check.py",
    "tests/server/admin/test_sweep.py",
    "tests/server/containers/test_tombstones.py",
    "tests/server/parts",
    "tests/server/storage",
    "tests/server/test_large.py",
    "tests/server/test_partitions.py",
    "tests/server/test_slow_store.py",
    "tests/client/test_model.py",
    *sorted(str(each) for each in Path("tests/client").glob("test_parts_*.py")),
)
PARTS: Final = {
    # Each claim at its cheapest.
    "everyday": ("tests", "examples", "assurance/exhaustive", "--ignore=tests/independent"),
    # The same claims on PostgreSQL, for further cases, at terminals and in browsers; kills and faults.
    "long": (
        "tests", "examples", "assurance", "--long", "-m", "long",
        *(f"--ignore={path}" for path in (*MACHINE, "assurance/cluster")),
    ),
    # A second implementation; fuzzing, mutants, flipped bytes.
    "assurance": ("tests/independent", "assurance", "--ignore=assurance/exhaustive"),
    "stores": (*STORES, "--long", "--engines", "cluster"),
    # These tests end engines, and start brokers of their own: one process.
    "cluster": ("assurance/cluster", "--long", "--engines", "cluster", "-n0"),
    "machine": (*MACHINE, "--long", "-m", "long"),
}  # fmt: skip
# Processes that run tests wait for brokers about half of their time.
WORKERS: Final = f"-n{min(8, 2 * (os.cpu_count() or 1))}"


@dataclass
class Result:
    """What a part gave."""

    part: str
    digest: str
    """Of the code that was tested, and of the further arguments."""
    status: int = 0
    seconds: int = 0
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.part}: {self.passed} passed, {len(self.failed)} failed, {len(self.flaky)} flaky, "
            f"{self.skipped} left out, in {self.seconds} s, exit status {self.status}"
        )


def main() -> int:
    """Run the parts; return 0 if no case failed twice."""
    parser = argparse.ArgumentParser(usage='%(prog)s "PART ..." [PYTEST_ARGUMENT ...]')
    parser.add_argument("parts", type=str.split, help=f"all, or some of {', '.join(PARTS)}")
    parser.add_argument("further", nargs=argparse.REMAINDER, help="for pytest")
    given = parser.parse_args()
    is_all = given.parts == ["all"]
    parts = [*PARTS] if is_all else given.parts
    if unknown := {*parts} - {*PARTS}:
        parser.error(f"not a part: {', '.join(unknown)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    digest = _digest(given.further)
    results = [
        (is_all and _earlier(part, digest)) or _run(part, digest, given.further) for part in parts
    ]
    lines = [str(result) for result in results]
    lines += [f"FLAKY {case}" for result in results for case in result.flaky]
    lines += [f"FAILED {case}" for result in results for case in result.failed]
    (KEPT / "summary.txt").write_text("\n".join(lines) + "\n", "utf-8")
    print(*lines, sep="\n")
    return max(result.status for result in results)


def _digest(further: list[str]) -> str:
    """Return a digest of the working tree and the arguments."""
    found = hashlib.sha256(repr(further).encode())
    for command in ("git rev-parse HEAD", "git diff HEAD", "git status --porcelain"):
        found.update(subprocess.run(command.split(), cwd=ROOT, capture_output=True).stdout)
    return found.hexdigest()


def _earlier(part: str, digest: str) -> Result | None:
    """Return what an earlier run of the same code gave, if it was green."""
    kept = KEPT / f"{part}.json"
    found = Result(**json.loads(kept.read_text("utf-8"))) if kept.exists() else None
    return found if found and found.digest == digest and found.status == 0 else None


def _run(part: str, digest: str, further: list[str]) -> Result:
    began, result = time.monotonic(), Result(part, digest)
    own = [WORKERS, "--dist=worksteal", *PARTS[part], *further, f"-ocache_dir={KEPT / part}"]
    own += ["-ojunit_family=xunit1"]  # with the file of each case
    report = KEPT / f"{part}.xml"
    report.unlink(missing_ok=True)
    result.status = _pytest(*own, "--cache-clear", f"--junitxml={report}")
    passed, result.skipped, result.failed = _read(report)
    if result.status == 1:
        print(f"{len(result.failed)} cases of {part} once more, alone:", flush=True)
        result.status = _pytest(
            *own, "-n0", "--last-failed", "--last-failed-no-failures=none", f"--junitxml={report}"
        )
        again, _, failed = _read(report)
        passed += again
        result.flaky = [case for case in result.failed if case not in failed]
        result.failed = failed
    result.passed, result.seconds = passed, round(time.monotonic() - began)
    (KEPT / f"{part}.json").write_text(json.dumps(asdict(result)), "utf-8")
    return result


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT).returncode


def _read(report: Path) -> tuple[int, int, list[str]]:
    """Return how many cases of a JUnit report passed and were skipped, and those that failed."""
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('file')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failed


if __name__ == "__main__":
    sys.exit(main())
