"""Parse the time until which something lasts, and format times for people."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Final

import typer

from scbroker import errors
from scbroker.cli import output

_DURATION: Final = re.compile(r"([0-9]{1,6})\s*(m|min|h|d|w)", re.IGNORECASE)
_UNITS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOW: Final = (
    "pass a duration such as 90m, 12h, 7d or 4w, a day such as 2026-12-31, or a time with its zone such as "
    "2026-12-31T18:00+01:00"
)

Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="When the access ends: after a duration (90m, 12h, 7d, 4w), at the end of a day of your time "
        "zone (2026-12-31), or at a time with its zone (2026-12-31T18:00Z).",
    ),
]


def end_of(until: str, option: str = "--until") -> dt.datetime:
    """Return the time that an option means: in the future, and with a time zone.

    Raises `InvalidArgumentError` for anything else.
    """
    end = _parsed(until, option, is_end=True)
    if end <= dt.datetime.now(dt.UTC):
        raise errors.InvalidArgumentError(
            f"{option} {until!r} is in the past, at {local(end)}: {_HOW}."
        )
    return end


def past(text: str, option: str) -> dt.datetime:
    """Return the time that an option means: a duration before now, the beginning of a day, or a time.

    Raises `InvalidArgumentError` for anything else, and for a time without its zone.
    """
    return _parsed(text, option, is_end=False)


def _parsed(given: str, option: str, *, is_end: bool) -> dt.datetime:
    text, now = given.strip(), dt.datetime.now(dt.UTC)
    try:
        if found := _DURATION.fullmatch(text):
            length = dt.timedelta(**{_UNITS[found[2].lower()]: int(found[1])})
            return now + length if is_end else now - length
        time = dt.datetime.fromisoformat(text)
        if _DAY.fullmatch(text):  # local midnight: astimezone() knows the offset of that date
            return (time + dt.timedelta(days=is_end)).astimezone()
        time.astimezone(dt.UTC)
    except (ValueError, OverflowError, OSError):  # OSError: Windows knows no local time so far away
        raise errors.InvalidArgumentError(f"{option} cannot be {given!r}: {_HOW}.") from None
    if time.tzinfo is None:
        raise errors.InvalidArgumentError(
            f"{option} {given!r} lacks a time zone: add Z for UTC, or the offset of yours, such as +01:00."
        )
    return time


def local(time: dt.datetime) -> str:
    """Return a time for a person: local, with the time zone."""
    return f"{output.local(time):%Y-%m-%d %H:%M %Z}"


def day_after(days: int) -> dt.date:
    """Return the day in so many days, in the zone of this machine."""
    return (dt.datetime.now().astimezone() + dt.timedelta(days=days)).date()
