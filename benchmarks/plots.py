"""Draw the curves of the results as SVG: `python -m benchmarks.plots RESULTS.json FOLDER`.

The same results give the same bytes, so that a plot under version control changes only with its data.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.result import Curve, Run

_SETTINGS: Final[Any] = {
    "svg.hashsalt": "scbroker",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_METADATA: Final = {"Date": None, "Creator": None}
_SIZE: Final = (4.4, 2.6)
_LINES: Final = ("#1f6feb", "#b35900")


def check() -> None:
    """Exit with a message if matplotlib is missing, before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("Plots need matplotlib: run `make install`, or leave --plots out.")


def draw(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write one SVG for each plot that the results name; return the files."""
    check()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    plots: dict[str, list[Curve]] = defaultdict(list)
    for curve in (result.curve for run in runs for result in run.results):
        if curve is not None:
            plots[curve.plot].append(curve)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_SETTINGS):
        for name, curves in plots.items():
            figure = Figure(figsize=_SIZE, layout="constrained")
            _fill(figure.add_subplot(), curves)
            path = folder / f"{name}.svg"
            figure.savefig(path, format="svg", metadata=_METADATA)
            written.append(path)
    return written


def _fill(axes: Any, curves: Sequence[Curve]) -> None:
    steps = sorted({across for curve in curves for across, _ in curve.points})
    for curve, colour in zip(curves, _LINES, strict=False):
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
