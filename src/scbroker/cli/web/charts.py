"""Draw a line chart as SVG, which a page shows without script and without inline style."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

_WIDTH: Final = 640
_HEIGHT: Final = 150
_LEFT: Final = 84
_RIGHT: Final = 8
_TOP: Final = 10
_BOTTOM: Final = 24
_STEPS: Final = (1, 2, 2.5, 5, 10)
_TICKS: Final = 3

Point = tuple[float, float | None]
"""A time (seconds since 1970) and a value, or None if it is not known."""


def line_chart(
    title: str,
    points: Sequence[Point],
    shown: Callable[[float], str],
    moment: Callable[[float], str],
) -> Markup:
    """Return a chart. `shown` writes a value, and `moment` a time, on the axes.

    The label has the last and the highest value, for screen readers.
    """
    values = [value for _, value in points if value is not None]
    if len(values) < 2:
        return Markup('<p class="empty">{}: not enough readings yet.</p>').format(title)
    first, last = points[0][0], points[-1][0]
    top = _round_up(max(values))

    def x(at: float) -> float:
        return _LEFT + (at - first) / (last - first or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    label = f"{title}: now {shown(values[-1])}, at most {shown(max(values))}"
    ticks = Markup().join(
        Markup('<line class="rule" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>'
               '<text x="{}" y="{text:.1f}" text-anchor="end">{}</text>').format(
            _LEFT, _WIDTH - _RIGHT, _LEFT - 8, shown(value), y=y(value), text=y(value) + 4
        )
        for value in (top * step / (_TICKS - 1) for step in range(_TICKS))
    )  # fmt: skip
    ends = Markup('<text x="{}" y="{y}">{}</text><text x="{}" y="{y}" text-anchor="end">{}</text>')
    times = ends.format(_LEFT, moment(first), _WIDTH - _RIGHT, moment(last), y=_HEIGHT - 6)
    pieces = [
        " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in piece) for piece in _pieces(points)
    ]
    lines = Markup().join(Markup('<polyline points="{}"/>').format(piece) for piece in pieces)
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, ticks, times, lines)


def _pieces(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Return the runs of known values: where a value is not known, the line has a gap."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is not None:
            pieces[-1].append((at, value))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _round_up(value: float) -> float:
    """Return the next value that is easy to read on an axis, at least as high as the given one."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in _STEPS if power * step >= value)
