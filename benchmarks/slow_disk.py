"""Measure a broker on SQLite whose disk takes milliseconds for each commit.

strace runs this broker and lets each fsync and fdatasync return some milliseconds late. A second broker
on the same disk without delay does the same work in turn.
"""

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.batches import create
from benchmarks.crowd import USERS, together
from benchmarks.result import Result, cost, in_turn, interleaved, rate, seconds_of
from benchmarks.small import HEADER, Stage
from tests.kit.brokers import BrokerProcess

DELAY_MS: Final = 4
_BATCH: Final = 64
_LARGE: Final = 64 << 20
_PATIENCE: Final = 120.0
_SYNCS: Final = "fsync,fdatasync"


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run on two brokers. Without strace nothing is measured, and the run fails."""
    if shutil.which("strace") is None:
        raise RuntimeError("strace is not installed: apt-get install strace")
    late = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", str(folder / "strace"),
            "-e", f"trace={_SYNCS}",
            "-e", f"inject={_SYNCS}:delay_exit={DELAY_MS * 1000}"]  # fmt: skip
    with ExitStack() as stack:
        slow = stack.enter_context(BrokerProcess(folder / "slow", under=late))
        fast = stack.enter_context(BrokerProcess(folder / "fast"))
        on_slow, on_fast = Stage(slow, stack), Stage(fast, stack)
        return [
            _one(on_slow, on_fast),
            _many(on_slow, on_fast),
            _large(on_slow, on_fast, 16 << 20 if quick else _LARGE),
            _crowd(slow, fast, "create", quick=quick),
            _crowd(slow, fast, "get", quick=quick),
        ]


def _one(slow: Stage, fast: Stage) -> Result:
    late, usual = interleaved([slow.create, fast.create], 20)
    return cost("createContainer", late, usual + DELAY_MS / 1000, "without delay, and one delay")


def _many(slow: Stage, fast: Stage) -> Result:
    late, usual = interleaved([lambda: create(slow), lambda: create(fast)], 3)
    return cost(
        f"createContainers, {_BATCH} in a call", late, usual + DELAY_MS / 1000,
        "without delay, and one delay",
    )  # fmt: skip


def _large(slow: Stage, fast: Stage, size: int) -> Result:
    content = bytes(size)

    def save(stage: Stage) -> float:
        return seconds_of(lambda: stage.alice.createContainer(content, HEADER).result(_PATIENCE))

    late, usual = in_turn([lambda: save(slow), lambda: save(fast)], 3)
    return rate(
        f"createContainer of {size >> 20} MiB", size / late / 1e6, "MB/s", size / usual / 1e6,
        "without delay",
    )  # fmt: skip


def _crowd(slow: BrokerProcess, fast: BrokerProcess, job: str, *, quick: bool) -> Result:
    seconds, rounds = (2.0, 1) if quick else (4.0, 3)
    late, usual = in_turn(
        [partial(together, broker, job, USERS, seconds) for broker in (slow, fast)], rounds
    )
    return rate(f"{job}Container, {USERS} users at once", late, "/s", usual, "without delay")
