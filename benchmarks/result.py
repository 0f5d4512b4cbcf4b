"""One line of the table, and how times are taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

_ROUNDS: Final = 5


class Result(msgspec.Struct, frozen=True):
    """A job's figure beside its floor. `target` bounds the ratio, or the figure where there is no floor."""

    job: str
    figure: float
    unit: str
    floor: float | None = None
    floor_is: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


def cost(
    job: str, seconds: float, floor: float, floor_is: str, at_most: float | None = None
) -> Result:
    """A job that takes so many seconds each, and what its parts take."""
    ratio = seconds / floor
    return Result(
        job, seconds * 1000, "ms", floor * 1000, floor_is, ratio,
        "" if at_most is None else f"<= {at_most:g}x",
        None if at_most is None else ratio <= at_most,
    )  # fmt: skip


def rate(
    job: str, each_second: float, unit: str, floor: float | None = None, floor_is: str = "",
    at_least: float | None = None, ratio_at_least: float | None = None,
) -> Result:  # fmt: skip
    """A job that is done so often a second, or so many MB of it."""
    ratio = None if floor is None else each_second / floor
    if ratio_at_least is not None and ratio is not None:
        return Result(
            job, each_second, unit, floor, floor_is, ratio,
            f">= {ratio_at_least:g}x", ratio >= ratio_at_least,
        )  # fmt: skip
    met = None if at_least is None else each_second >= at_least
    target = "" if at_least is None else f">= {at_least:g} {unit}"
    return Result(job, each_second, unit, floor, floor_is, ratio, target, met)


def interleaved(jobs: Sequence[Callable[[], object]], count: int) -> list[float]:
    """Seconds that each job takes, the median over rounds in which all have their turn.

    What else the machine does meanwhile falls on all of them alike.
    """
    rounds: list[list[float]] = [[] for _ in jobs]
    for job in jobs:
        job()
    for _ in range(_ROUNDS):
        for job, times in zip(jobs, rounds, strict=True):
            began = time.perf_counter()
            for _ in range(count):
                job()
            times.append((time.perf_counter() - began) / count)
    return [statistics.median(times) for times in rounds]


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table."""
    lines = ["| job | figure | floor | ratio | target | |", "|---|--:|--:|--:|---|---|"]
    for r in results:
        floor = "" if r.floor is None else f"{_short(r.floor)} {r.unit}: {r.floor_is}"
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}x"
        mark = {None: "", True: "met", False: "**missed**"}[r.met]
        lines.append(
            f"| {r.job} | {_short(r.figure)} {r.unit} | {floor} | {ratio} | {r.target} | {mark} |"
        )
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
