"""Searches for inputs that break what `targets` promises, for as long as there is time.

    python -m assurance.fuzz.run --seconds 600 [--seed N] [target ...]

Each target has a process of its own and its share of the time. What goes where nothing went before is kept
in `corpus/`, and so is what failed. The exit status is 0 where nothing did. The target `openapi` is a
broker under requests made from its own description.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from assurance.fuzz import engine
from assurance.fuzz.engine import Report, Search
from assurance.fuzz.targets import TARGETS

OPENAPI: Final = "openapi"
_MEMORY: Final = 4 << 30
_LARGEST: Final = 2 << 20
_PATIENCE: Final = 300.0
_MOST_CORPUS: Final = (300 << 10) // len(TARGETS)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    known = [*TARGETS, OPENAPI]
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(known))
    given = parser.parse_args()
    names = given.targets or known
    if unknown := set(names) - {*known}:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if given.child:
        return _child(names[0], given.seconds, given.seed, given.child)
    share = given.seconds / len(names)
    print(f"seed {given.seed}, {share:.1f} s each", flush=True)
    failed = [name for name in names if not _search(name, share, given.seed)]
    print(f"{len(failed)} of {len(names)} targets failed {', '.join(failed)}")
    return 1 if failed else 0


def _search(name: str, seconds: float, seed: int) -> bool:
    """Whether the target did nothing that it may not."""
    if name == OPENAPI:
        return _broker(seconds, seed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        current = Path(folder) / "current"
        options = ["--seconds", str(seconds), "--seed", str(seed), "--child", str(current), name]
        command = [sys.executable, "-m", "assurance.fuzz.run", *options]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, timeout=seconds + _PATIENCE)
        except subprocess.TimeoutExpired:
            why = "came to no end"
        else:
            if done.returncode == 0:
                return _told(msgspec.msgpack.decode(done.stdout, type=Report))
            why = f"ended with status {done.returncode}"
        print(f"{name} {why} at {engine.store(name, _watched(current))}", flush=True)
    return False


def _told(report: Report) -> bool:
    room = _MOST_CORPUS - sum(map(len, engine.stored(report.target)))
    added = 0
    for data in report.kept:
        if len(data) <= room and engine.store(report.target, data):
            added, room = added + 1, room - len(data)
    counts = sorted(report.outcomes.items(), key=lambda item: -item[1])
    print(
        f"{report.target:16} {report.executions:9,} inputs {report.executions / report.seconds:7,.0f}/s "
        f"{report.edges:5} edges, {added:3} new in the corpus; "
        + ", ".join(f"{name} {count:,}" for name, count in counts),
        flush=True,
    )
    for name, data in report.faults.items():
        path = engine.store(report.target, data)
        print(f"  FAULT {name}: {len(data)} bytes in {path}", flush=True)
    return not report.faults


def _child(name: str, seconds: float, seed: int, current: Path) -> int:
    """A search in this very process, which an input may well end; the parent then reads which it was."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    target = TARGETS[name]
    with _watch(current) as watch, target.around():
        inputs = [*engine.stored(name), *target.seeds()]
        search = Search(target, seed, guided=True, watch=watch)
        report = search.run(inputs, target.bombs(), seconds=seconds)
    sys.stdout.buffer.write(msgspec.msgpack.encode(report))
    return 0


@contextlib.contextmanager
def _watch(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Writes every input where it outlives the process."""
    path.write_bytes(bytes(4 + _LARGEST))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:

        def write(data: bytes) -> None:
            size = min(len(data), _LARGEST)
            memory[:4] = size.to_bytes(4, "big")
            memory[4 : 4 + size] = data[:size]

        yield write


def _watched(path: Path) -> bytes:
    data = path.read_bytes() if path.exists() else bytes(4)
    return data[4 : 4 + int.from_bytes(data[:4], "big")]


def _broker(seconds: float, seed: int) -> bool:
    """Whether requests made from the broker's own description did not make it fail."""
    test = Path(__file__).with_name("test_broker_from_its_openapi.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    variables = {**os.environ, "FUZZ_SECONDS": str(seconds), "FUZZ_SEED": str(seed)}
    return subprocess.run(command, env=variables, cwd=Path(__file__).parents[2]).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
