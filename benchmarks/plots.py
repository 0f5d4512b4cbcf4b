"""Draw a plot for each question as SVG: `python -m benchmarks.plots RESULTS.json FOLDER`.

The same results give the same bytes, so that a plot under version control changes only with its data.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.result import Curve, Result, Run

_SETTINGS: Final[Any] = {
    "svg.hashsalt": "scbroker",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_METADATA: Final = {"Date": None, "Creator": None}
_WIDTH: Final = 7.4
_ROW: Final = 0.36
_PANEL: Final = 2.5
_COLOURS: Final = ("#1f6feb", "#b35900")
_PEERS: Final = ("#b35900", "#8250df", "#1a7f37", "#bf3989")
_LONGEST_LABEL: Final = 58

BARS: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "one": (("small", "postgresql"), "ms"),
    "many": (("batches", "crowd", "bulk", "postgresql"), "/s"),
    "large": (("large", "command-line", "bulk"), "MB/s"),
    "too-much": (("overload",), "/s"),
}
"""Plots of bars: the parts whose results of this unit they show, where there is something beside it."""
LINES: Final = {"grows": "growth", "groups": "groups"}
"""Plots of lines: the part whose curves they show."""


def check() -> None:
    """Exit with a message if matplotlib is missing, before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("Plots need matplotlib: run `make install`, or leave --plots out.")


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write one SVG for each question that the results answer; return the files."""
    check()
    written = []
    for name, (parts, unit) in BARS.items():
        shown = [
            result
            for part in parts
            for run in runs
            if run.part == part
            for result in run.results
            if result.unit == unit and (result.target or result.floor or result.peers)
        ]
        if shown:
            height = _ROW * len(shown) + 1
            written.append(_save(folder / f"{name}.svg", height, partial(_bars, results=shown)))
    for name, part in LINES.items():
        panels: dict[str, list[Curve]] = defaultdict(list)
        for run in runs:
            for curve in (result.curve for result in run.results if run.part == part):
                if curve is not None:
                    panels[curve.plot].append(curve)
        if panels:
            rows = (len(panels) + 1) // 2
            fill = partial(_panels, panels=panels)
            written.append(_save(folder / f"{name}.svg", _PANEL * rows, fill))
    return written


def _save(path: Path, height: float, fill: Callable[[Any], None]) -> Path:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        fill(figure)
        figure.savefig(path, format="svg", metadata=_METADATA)
    return path


def _bars(figure: Any, results: Sequence[Result]) -> None:
    """Draw a bar for each result, a line at its floor, and a point for each peer."""
    axes = figure.add_subplot()
    places = range(len(results))
    axes.barh(
        places, [each.figure or 0 for each in results], 0.55, color="#9cc3f7", label="scbroker"
    )
    floors = [(each.floor, place) for place, each in zip(places, results, strict=True)]
    floors = [each for each in floors if each[0] is not None]
    if floors:
        axes.plot(
            *zip(*floors, strict=True), "k|", markersize=13, markeredgewidth=1.6, label="floor"
        )
    named = dict.fromkeys(peer for each in results for peer in each.peers)
    for peer, colour in zip(named, _PEERS, strict=False):
        points = [
            (each.peers.get(peer), place) for place, each in zip(places, results, strict=True)
        ]
        points = [each for each in points if each[0] is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "o", markersize=5, color=colour, label=peer)
    axes.set_yticks(places, [_label(each.job) for each in results])
    axes.invert_yaxis()
    axes.set_xlabel(results[0].unit)
    figure.legend(frameon=False, loc="outside upper right", ncols=4)


def _label(job: str) -> str:
    job = job.replace("`", "")
    return job if len(job) <= _LONGEST_LABEL else job[: _LONGEST_LABEL - 1] + "…"


def _panels(figure: Any, panels: Mapping[str, Sequence[Curve]]) -> None:
    """Draw a panel for each thing that grows."""
    rows = (len(panels) + 1) // 2
    for number, (title, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, 2, number)
        axes.set_title(title, fontsize=9)
        _lines(axes, curves)


def _lines(axes: Any, curves: Sequence[Curve]) -> None:
    steps = sorted({across for curve in curves for across, _ in curve.points})
    for curve, colour in zip(curves, _COLOURS, strict=False):
        places = [steps.index(across) for across, _ in curve.points]
        axes.plot(
            places, [each for _, each in curve.points], marker="o", markersize=4, color=colour,
            label=curve.line,
        )  # fmt: skip
    # From zero upwards, or noise would look like growth; steps side by side, as they are far apart.
    axes.set_ylim(0, 1.5 * max(each for curve in curves for _, each in curve.points))
    axes.set_xlim(-0.3, len(steps) - 0.7)
    axes.set_xticks(range(len(steps)), [f"{step:,.0f}" for step in steps])
    axes.set_xlabel(curves[0].across)
    axes.set_ylabel("ms")
    axes.legend(frameon=False, loc="upper left")


def main(results: str, folder: str) -> None:
    runs = msgspec.json.decode(Path(results).read_bytes(), type=list[Run])
    for path in draw(runs, Path(folder)):
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
