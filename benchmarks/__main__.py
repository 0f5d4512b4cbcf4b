"""`python -m benchmarks [--quick] [--only NAME ...] [--json FILE] [--markdown FILE] [--plots FOLDER]`."""

import argparse
import tempfile
from pathlib import Path
from typing import Final, Protocol

from benchmarks import (
    batches,
    bulk,
    command_line,
    crowd,
    follow,
    groups,
    growth,
    large,
    listing,
    names,
    overload,
    page,
    plots,
    postgresql,
    slow_disk,
    small,
    start,
)
from benchmarks.result import Result, Run, table


class Part(Protocol):
    def __call__(self, folder: Path, *, quick: bool) -> list[Result]: ...


PARTS: Final[dict[str, Part]] = {
    "small": small.run,
    "batches": batches.run,
    "bulk": bulk.run,
    "listing": listing.run,
    "names": names.run,
    "crowd": crowd.run,
    "follow": follow.run,
    "overload": overload.run,
    "slow-disk": slow_disk.run,
    "postgresql": postgresql.run,
    "large": large.run,
    "command-line": command_line.run,
    "growth": growth.run,
    "groups": groups.run,
    "start": start.run,
}


def main() -> int:
    options = _options()
    if options.plots:
        plots.check()  # now, not after hours of work
    runs = page.read_json(options.json) if options.json else dict[str, Run]()
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            found = PARTS[name](Path(folder), quick=options.quick)
        print(f"\n{name}\n\n{table(found)}", flush=True)
        runs[name] = page.run_of(name, found, quick=options.quick)
        if options.markdown:  # after each part: a later one may fail
            page.write(options.markdown, runs[name])
        if options.json:
            page.write_json(options.json, list(runs.values()))
    if options.plots:
        plots.draw(list(runs.values()), options.plots)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), metavar="PART",
                        help=f"some of {', '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="put the results in here; those of parts that do not run now stay")  # fmt: skip
    parser.add_argument("--markdown", type=Path, metavar="FILE",
                        help="put the tables between their comments in this page")  # fmt: skip
    parser.add_argument("--plots", type=Path, metavar="FOLDER",
                        help="plots of the results, and of those in the JSON file, as SVG")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
