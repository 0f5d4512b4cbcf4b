"""Hold results, take times, and print the table."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

_ROUNDS: Final = 5


class Curve(msgspec.Struct, frozen=True):
    """A line of a plot: the milliseconds of a job as something grows."""

    plot: str
    """The title of a panel; lines with the same title are drawn together."""
    across: str
    line: str
    points: list[tuple[float, float]]


class Result(msgspec.Struct, frozen=True):
    """A job's figure beside its floor. `target` bounds the ratio, or the figure itself.

    If the figure is None it was not measured, and `floor_is` says why.
    """

    job: str
    figure: float | None
    unit: str
    floor: float | None = None
    floor_is: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    curve: Curve | None = None
    peers: dict[str, float | None] = {}
    """The figures of other programs at the same job in the same run; None if one is not installed."""


class Run(msgspec.Struct, frozen=True):
    """The results of one part of a run."""

    part: str
    where: str
    """The date and the machine, as a sentence."""
    results: list[Result]


def cost(
    job: str, seconds: float, floor: float, floor_is: str, at_most: float | None = None,
    curve: Curve | None = None,
) -> Result:  # fmt: skip
    """Return the result of a job timed in seconds, against its floor."""
    ratio = seconds / floor
    return Result(
        job, seconds * 1000, "ms", floor * 1000, floor_is, ratio,
        "" if at_most is None else f"<= {at_most:g}x",
        None if at_most is None else ratio <= at_most, curve,
    )  # fmt: skip


def amount(
    job: str, figure: float | None, unit: str, at_most: float | None = None,
    floor: float | None = None, floor_is: str = "", peers: Mapping[str, float | None] | None = None,
) -> Result:  # fmt: skip
    """Return the result of an amount of which less is better; None if it cannot be measured."""
    target = "" if at_most is None else f"<= {at_most:g} {unit}"
    if figure is None:
        return Result(job, None, unit, None, "the platform does not count it", None, target)
    met = None if at_most is None else figure <= at_most
    ratio = figure / floor if floor else None  # a peak may be 0
    return Result(
        job, figure, unit, floor, floor_is, ratio, target, met, None, dict(peers or {})
    )  # fmt: skip


def share(
    job: str, figure: float, unit: str, floor: float, floor_is: str, at_most: float
) -> Result:
    """Return the result of an amount, against the least possible amount."""
    ratio = figure / floor
    return Result(job, figure, unit, floor, floor_is, ratio, f"<= {at_most:g}x", ratio <= at_most)


def rate(
    job: str, each_second: float, unit: str, floor: float | None = None, floor_is: str = "",
    at_least: float | None = None, ratio_at_least: float | None = None,
    peers: Mapping[str, float | None] | None = None,
) -> Result:  # fmt: skip
    """Return the result of a rate, per second, of which more is better."""
    ratio, others = None if floor is None else each_second / floor, dict(peers or {})
    if ratio_at_least is not None and ratio is not None:
        return Result(
            job, each_second, unit, floor, floor_is, ratio,
            f">= {ratio_at_least:.2g}x", ratio >= ratio_at_least, None, others,
        )  # fmt: skip
    met = None if at_least is None else each_second >= at_least
    target = "" if at_least is None else f">= {at_least:g} {unit}"
    return Result(job, each_second, unit, floor, floor_is, ratio, target, met, None, others)


def interleaved(jobs: Sequence[Callable[[], object]], count: int) -> list[float]:
    """Return the median seconds of each job over rounds in which each runs `count` times.

    The jobs take turns, so that other load on the machine affects all of them alike.
    """

    def timed(job: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in range(count):
            job()
        return (time.perf_counter() - began) / count

    for job in jobs:
        job()
    return in_turn([partial(timed, job) for job in jobs], _ROUNDS)


def in_turn(measures: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Return the median of each measurement over rounds in which they take turns."""
    found = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(figures) for figures in zip(*found, strict=True)]


def seconds_of(job: Callable[[], object]) -> float:
    """Return the seconds of one run of a job."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table; a column for peers if a result has one."""
    has_peers = any(r.peers for r in results)
    lines = ["| job | figure | floor | ratio | target | |", "|---|--:|--:|--:|---|---|"]
    if has_peers:
        lines = [lines[0] + " peers |", lines[1] + "--:|"]
    for r in results:
        figure = "not measured" if r.figure is None else f"{_short(r.figure)} {r.unit}"
        floor = r.floor_is if r.floor is None else f"{_short(r.floor)} {r.unit}: {r.floor_is}"
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}x"
        mark = {None: "", True: "met", False: "**missed**"}[r.met]
        line = f"| {r.job} | {figure} | {floor} | {ratio} | {r.target} | {mark} |"
        lines.append(line + (f" {_beside(r)} |" if has_peers else ""))
    return "\n".join(lines)


def _beside(result: Result) -> str:
    """Return the figures of the peers, and this one compared with each."""
    found = []
    for peer, figure in result.peers.items():
        if figure is None:
            found.append(f"{peer}: not installed")
        else:
            compared = "" if result.figure is None else f" ({result.figure / figure:.2f}x)"
            found.append(f"{peer}: {_short(figure)} {result.unit}{compared}")
    return "; ".join(found)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
