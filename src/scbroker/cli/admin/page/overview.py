"""Show a broker's load, the state of its stores, and the growth of what it stores."""

from __future__ import annotations

import datetime as dt
from typing import Final

from starlette.requests import Request

import scbroker
from scbroker.cli.admin.page.watch import DAYS, Watch
from scbroker.cli.output import Size, duration
from scbroker.cli.web.charts import line_chart
from scbroker.cli.web.site import Shown
from scbroker.server.admin.health import Load, Reading

_OPERATIONS: Final = 10


class Overview:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def show(self, request: Request) -> Shown:
        del request
        watch, last, load = self._watch, self._watch.last, self._watch.load
        operations = [] if load is None else [each for each in load.operations if each.rate]
        return Shown(
            "overview.html",
            {
                "watch": watch,
                "last": last,
                "load": load,
                "refusals": _refusals(load),
                "operations": operations[:_OPERATIONS],
                "health": watch.health,
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


def _refusals(load: Load | None) -> list[tuple[str, str, float]]:
    """Return the refused, failed and slow requests of the last minute: how, kind or name, and number."""
    if load is None:
        return []
    slow = {f"{each.method} {each.path}": each.slow for each in load.operations}
    rates = (
        ("refused at the head, because of overload", load.refusals),
        ("answered with an error", load.problems),
        ("logged as slow", slow),
    )
    return [
        (what, name, rate * load.seconds)
        for what, found in rates
        for name, rate in found.items()
        if rate
    ]


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
