"""One line of the table, and how times are taken."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

_ROUNDS: Final = 5


class Curve(msgspec.Struct, frozen=True):
    """A line of a plot: what a job takes, in milliseconds, as something grows."""

    plot: str
    """The name of the plot's file; lines of one name are drawn together."""
    across: str
    line: str
    points: list[tuple[float, float]]


class Result(msgspec.Struct, frozen=True):
    """A job's figure beside its floor. `target` bounds the ratio, or the figure itself.

    Without a figure it was not measured, and `floor_is` says why.
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


class Run(msgspec.Struct, frozen=True):
    """The results of one part, and of what run they are."""

    part: str
    where: str
    """The machine and the day, in words."""
    results: list[Result]


def cost(
    job: str, seconds: float, floor: float, floor_is: str, at_most: float | None = None,
    curve: Curve | None = None,
) -> Result:  # fmt: skip
    """A job that takes so many seconds each, and what its parts take."""
    ratio = seconds / floor
    return Result(
        job, seconds * 1000, "ms", floor * 1000, floor_is, ratio,
        "" if at_most is None else f"<= {at_most:g}x",
        None if at_most is None else ratio <= at_most, curve,
    )  # fmt: skip


def amount(
    job: str, figure: float | None, unit: str, at_most: float | None = None,
    floor: float | None = None, floor_is: str = "",
) -> Result:  # fmt: skip
    """So much of something of which less is better; None where there is no way to tell."""
    target = "" if at_most is None else f"<= {at_most:g} {unit}"
    if figure is None:
        return Result(job, None, unit, None, "the platform does not tell", None, target)
    met = None if at_most is None else figure <= at_most
    ratio = None if floor is None else figure / floor
    return Result(job, figure, unit, floor, floor_is, ratio, target, met)


def share(
    job: str, figure: float, unit: str, floor: float, floor_is: str, at_most: float
) -> Result:
    """So much of something, against the least that it must be."""
    ratio = figure / floor
    return Result(job, figure, unit, floor, floor_is, ratio, f"<= {at_most:g}x", ratio <= at_most)


def rate(
    job: str, each_second: float, unit: str, floor: float | None = None, floor_is: str = "",
    at_least: float | None = None, ratio_at_least: float | None = None,
) -> Result:  # fmt: skip
    """A job that is done so often a second, or so many MB of it."""
    ratio = None if floor is None else each_second / floor
    if ratio_at_least is not None and ratio is not None:
        return Result(
            job, each_second, unit, floor, floor_is, ratio,
            f">= {ratio_at_least:.2g}x", ratio >= ratio_at_least,
        )  # fmt: skip
    met = None if at_least is None else each_second >= at_least
    target = "" if at_least is None else f">= {at_least:g} {unit}"
    return Result(job, each_second, unit, floor, floor_is, ratio, target, met)


def interleaved(jobs: Sequence[Callable[[], object]], count: int) -> list[float]:
    """Seconds that each job takes, the median over rounds in which all have their turn.

    What else the machine does meanwhile falls on all of them alike.
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
    """The median of each measure, over rounds in which all have their turn."""
    found = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(figures) for figures in zip(*found, strict=True)]


def seconds_of(job: Callable[[], object]) -> float:
    """What it takes once."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table."""
    lines = ["| job | figure | floor | ratio | target | |", "|---|--:|--:|--:|---|---|"]
    for r in results:
        figure = "not measured" if r.figure is None else f"{_short(r.figure)} {r.unit}"
        floor = r.floor_is if r.floor is None else f"{_short(r.floor)} {r.unit}: {r.floor_is}"
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}x"
        mark = {None: "", True: "met", False: "**missed**"}[r.met]
        lines.append(f"| {r.job} | {figure} | {floor} | {ratio} | {r.target} | {mark} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
