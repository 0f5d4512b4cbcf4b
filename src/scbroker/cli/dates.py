"""Parse the time until which something lasts, and format times for people."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
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

UNTIL_HELP: Final = (
    "When the access ends: after a duration (90m, 12h, 7d, 4w), at the end of a day of your time zone "
    "(2026-12-31), or at a time with its zone (2026-12-31T18:00Z)."
)
Until = Annotated[str | None, typer.Option(metavar="TIME", help=UNTIL_HELP)]


def end_of(until: str, option: str = "--until") -> dt.datetime:
    """Return the time that an option means: in the future, and with a time zone.

    Raises `InvalidArgumentError` for anything else.
    """
    now = dt.datetime.now(dt.UTC)
    end = _checked(until, option, lambda: _parsed(until.strip(), now))
    if end <= now:
        raise errors.InvalidArgumentError(
            f"{option} {until!r} is in the past, at {local(end)}: {_HOW}."
        )
    return end


def past(text: str, option: str) -> dt.datetime:
    """Return the time that an option means: a duration before now, the beginning of a day, or a time.

    Raises `InvalidArgumentError` for anything else, and for a time without its zone.
    """

    def parsed() -> dt.datetime:
        now = dt.datetime.now(dt.UTC)
        if _DURATION.fullmatch(text.strip()):
            return now - (_parsed(text.strip(), now) - now)
        if _DAY.fullmatch(text.strip()):
            return dt.datetime.fromisoformat(text.strip()).astimezone()
        return dt.datetime.fromisoformat(text.strip())

    return _checked(text, option, parsed)


def _checked(text: str, option: str, parsed: Callable[[], dt.datetime]) -> dt.datetime:
    """Return what `parsed` returns; raise `InvalidArgumentError` if it fails or has no time zone."""
    try:
        time = parsed()
        time.astimezone(dt.UTC)
    except (ValueError, OverflowError, OSError):  # OSError: Windows knows no local time so far away
        raise errors.InvalidArgumentError(f"{option} cannot be {text!r}: {_HOW}.") from None
    if time.tzinfo is None:
        raise errors.InvalidArgumentError(
            f"{option} {text!r} lacks a time zone: add Z for UTC, or the offset of yours, such as +01:00."
        )
    return time


def local(time: dt.datetime) -> str:
    """Return a time for a person: local, with the time zone."""
    return f"{output.local(time):%Y-%m-%d %H:%M %Z}"


def day_after(days: int) -> dt.date:
    """Return the day in so many days, in the zone of this machine."""
    return (dt.datetime.now().astimezone() + dt.timedelta(days=days)).date()


def _parsed(text: str, now: dt.datetime) -> dt.datetime:
    if found := _DURATION.fullmatch(text):
        return now + dt.timedelta(**{_UNITS[found[2].lower()]: int(found[1])})
    if not _DAY.fullmatch(text):
        return dt.datetime.fromisoformat(text)
    # The local midnight at the day's end: astimezone() knows the offset of that date.
    midnight = dt.datetime.fromisoformat(text) + dt.timedelta(days=1)
    return midnight.astimezone()
