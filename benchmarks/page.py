"""Write results as JSON for programs, and as tables into a page of the docs.

A part may have a pair of comments in the page; the text between them is replaced. Every part is in the JSON.
"""

import datetime as dt
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.result import Result, Run, table


def run_of(part: str, results: list[Result], *, quick: bool) -> Run:
    """Return results together with today's date and this machine."""
    return Run(part, machine("a quick run" if quick else "a full run"), results)


def machine(kind: str = "") -> str:
    """Return a sentence that names the date, Python, platform and processors."""
    day = dt.datetime.now(dt.UTC).date().isoformat()
    return (
        f"{day}{kind and ', '}{kind}: Python {platform.python_version()}, {platform.system()}, "
        f"{os.cpu_count()} processors ({_processor()})."
    )


def write(path: Path, run: Run) -> None:
    """Replace the table of a part in a page."""
    put(path, run.part, _text(run))


def put(path: Path, name: str, text: str) -> None:
    """Replace the text of this name in a page."""
    before = path.read_text("utf-8") if path.exists() else ""
    path.write_text(_with(before, name, text), "utf-8")


def _text(run: Run) -> str:
    """Return the table of a run under its date and machine.

    The JSON alone has bare figures, and what met its target of the library beside the command and of peaks of
    memory.
    """
    shown = [r for r in run.results if (r.floor_is or r.target or r.peers) and not _is_aside(r)]
    return table(shown).replace("| job |", f"| {run.where.rstrip('.')} |", 1)


def _is_aside(result: Result) -> bool:
    is_peak = result.unit == "MiB" and result.target.endswith("MiB")
    return result.met is not False and (is_peak or result.job.startswith("library: "))


def _with(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- results of {name} -->", f"<!-- end of {name} -->"
    if begin not in page or end not in page:
        return page
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def read_json(path: Path) -> dict[str, Run]:
    """Return the runs of a file by part; none if there is no file."""
    runs = msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []
    return {run.part: run for run in runs}


def write_json(path: Path, runs: Sequence[Run]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")


def _processor() -> str:
    """Return the processor's name on Linux, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
