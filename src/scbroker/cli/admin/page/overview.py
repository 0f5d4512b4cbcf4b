"""Show a broker's load, the state of its stores, and the growth of what it stores."""

from __future__ import annotations

import datetime as dt
from typing import Final

from starlette.requests import Request

import scbroker
from scbroker.cli.admin.page.watch import DAYS, Watch
from scbroker.cli.output import Size
from scbroker.cli.web.charts import line_chart
from scbroker.cli.web.site import Shown, duration
from scbroker.server.admin.load import Reading

_OPERATIONS: Final = 10
_CLOCK_BOUND: Final = 30.0
"""Seconds of difference from which the broker logs a warning, too: docs/guide/cluster.md."""
_LITTLE: Final = 0.1
"""A disk with less than this share free is shown as nearly full."""


class Overview:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def show(self, request: Request) -> Shown:
        del request
        watch, health = self._watch, self._watch.health
        last, load = watch.last, watch.load
        return Shown(
            "overview.html",
            {
                "watch": watch,
                "last": last,
                "load": load,
                "refusals": _refusals(watch),
                "operations": [each for each in load.operations if each.rate][:_OPERATIONS]
                if load
                else [],
                "health": health,
                "clock_is_right": health is None or abs(health.clock_difference) <= _CLOCK_BOUND,
                "disks": [(disk, disk.free / disk.size >= _LITTLE) for disk in health.disks]
                if health
                else [],
                "version": scbroker.__version__,
                "broker_version": _label(last, "version"),
                "python": _label(last, "python"),
                "charts": [
                    line_chart("Requests per second", [*watch.requests], _rate, _clock),
                    line_chart("95th percentile", [*watch.latency], duration, _clock),
                ],
                "growth": [
                    line_chart("Size of the database", [*watch.database_bytes], _size, _clock),
                    line_chart("Users registered a day", _by_day(watch.registered), _whole, _day),
                ],
                "days": DAYS,
            },
        )


def _refusals(watch: Watch) -> list[tuple[str, str, float]]:
    """Return the refused requests of the last minute: how, their kind or code, and their number."""
    found = [
        ("refused at the head, because of overload", kind, n) for kind, n in watch.refused.items()
    ]
    load = watch.load
    if load is not None:
        errors = [(code, rate * load.seconds) for code, rate in load.problems.items() if rate]
        found += [("answered with an error", code, number) for code, number in errors]
    return found


def _label(reading: Reading | None, name: str) -> str | None:
    """Return a version from the metrics; None if the broker does not answer."""
    found = [] if reading is None else [*reading.by("scbroker_build_info", name)]
    return found[0][0] if found else None


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else ""


def _size(value: float) -> str:
    return Size(value).shown()


def _clock(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at).astimezone():%H:%M}"


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d}"


def _by_day(counts: list[int]) -> list[tuple[float, float | None]]:
    midnight = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight - dt.timedelta(days=len(counts) - 1)
    return [
        ((first + dt.timedelta(days=day)).timestamp(), float(count))
        for day, count in enumerate(counts)
    ]
