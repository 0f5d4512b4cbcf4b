"""`python -m benchmarks [--quick] [--only NAME ...] [--json FILE]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import batches, crowd, small
from benchmarks.result import Result, table

PARTS: Final = {"small": small.run, "batches": batches.run, "crowd": crowd.run}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip("."))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="the results for programs")
    options = parser.parse_args()
    results: list[Result] = []
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            found = PARTS[name](Path(folder))
        print(table(found), flush=True)
        results += found
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
