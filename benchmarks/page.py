"""Where results go: for programs as JSON, for readers in a page of the docs.

Each part has its place in the page, between two comments; what stands between them is replaced.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.result import Result, Run, table


def run_of(part: str, results: list[Result], *, quick: bool) -> Run:
    """The results of a run that ended now, on this machine."""
    kind = "a quick run" if quick else "a full run"
    day = dt.datetime.now(dt.UTC).date().isoformat()
    where = (
        f"{day}, {kind}: Python {platform.python_version()}, {platform.system()}, "
        f"{os.cpu_count()} processors ({_processor()})."
    )
    return Run(part, where, results)


def write(path: Path, run: Run) -> None:
    """Puts a part's table in its place in a page."""
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(replaced(before, run), "utf-8")


def replaced(page: str, run: Run) -> str:
    """The page with this part's table in its place, or at the end where it has none."""
    begin, end = f"<!-- results of {run.part} -->", f"<!-- end of {run.part} -->"
    block = f"{begin}\n\n{run.where}\n\n{table(run.results)}\n\n{end}"
    if begin not in page or end not in page:
        return f"{page}\n{block}\n".lstrip("\n")
    head, _, rest = page.partition(begin)
    return head + block + rest.partition(end)[2]


def write_json(path: Path, runs: Sequence[Run]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")


def _processor() -> str:
    """Its name as Linux says it, or the kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
