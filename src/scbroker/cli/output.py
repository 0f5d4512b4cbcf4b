"""Write results to standard output, and messages and progress to standard error.

A result is a table or lines on a terminal, tab-separated lines in a pipe, and JSON with `--json`. JSON has
the names of the library's fields, and the same keys each time.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import re
import sys
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Final, Self

import typer

from scbroker import errors
from scbroker.spelling import is_invisible

Row = Mapping[str, Any]
"""The fields of a result: None, bool, int, str, UUID, datetime, Size, an enum's member, or lists of these."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_INVISIBLE: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode's categories of characters that could steer a terminal or hide a part of a text."""
_MARKS: Final = ("Mn", "Me")
_MOST_MARKS: Final = 4
"""Maximum combining marks on a letter (Unicode TS 39, 5.4): more would draw over other rows."""
SHORT_ID: Final = 8
_SECRETS: Final = re.compile(
    r"(scbroker-link(?::|%3a))\s*[^\s'\"]+|(\w://)[^\s'\"]*@|(extra argument(?:s|\(s\))?) \(.*\)",
    re.IGNORECASE | re.DOTALL,
)
"""Secrets that a person may have typed in a wrong place: the key in a link's URL, the password before the
host of a URL, and words after the last argument of a command."""


class Size(int):
    """A number of bytes: with a unit on a terminal, as a number elsewhere."""

    @classmethod
    def of(cls, number: int | None) -> Self | None:
        """Return a number of bytes, if there is one."""
        return None if number is None else cls(number)

    def shown(self) -> str:
        size, unit = float(self), 0
        while size >= 1024 and unit < len(_UNITS) - 1:
            size, unit = size / 1024, unit + 1
        return f"{size:.1f} {_UNITS[unit]}" if unit else f"{self} B"


class ShortId(uuid.UUID):
    """An id of which a terminal shows the first digits; it is whole elsewhere."""

    def __init__(self, id: uuid.UUID) -> None:
        super().__init__(int=id.int)

    def shown(self) -> str:
        return self.hex[:SHORT_ID]


def masked(text: str) -> str:
    """Return a text without the secrets that it repeats from the command line."""
    return _SECRETS.sub(
        lambda each: f"{each[1]}…" if each[1] else f"{each[2]}…@" if each[2] else each[3], text
    )


def printable(text: str) -> str:
    """Return a text in which the characters that `harmless` and `is_invisible` are about are escaped.

    Names and types come from other users: two of them must not look the same, and none may draw over others.
    """
    if text.isascii() and text.isprintable():
        return text
    shown, marks = "", 0
    for each in text:
        is_mark = unicodedata.category(each) in _MARKS
        marks = marks + 1 if is_mark else 0
        is_hidden = marks > _MOST_MARKS or is_invisible(each)
        shown += _escaped(each) if is_hidden else harmless(each)
    return shown


def harmless(text: str) -> str:
    """Return a text, such as a content, in which characters that could steer a terminal are escaped."""
    return "".join(
        _escaped(each) if unicodedata.category(each) in _INVISIBLE else each for each in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def local(time: dt.datetime) -> dt.datetime:
    """Return a time in the zone of this machine; in UTC if the year would be after 9999.

    Other users choose the end of an access that they give.
    """
    try:
        return time.astimezone()
    except (OverflowError, ValueError, OSError):
        return time.astimezone(dt.UTC)


def fields_of(item: object, *names: str) -> dict[str, Any]:
    """Return these fields of one of the library's objects, as a row."""
    return {name: getattr(item, name) for name in names}


class Output:
    """The output of one command. `as_json` and `quiet` are the options `--json` and `--quiet`."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.on_terminal: bool = sys.stdout.isatty() and not as_json
        self._bar: Any = None
        """The bar that is shown now; results on the same terminal are written above it."""

    def rows(self, rows: Iterable[Row], columns: Mapping[str, str]) -> None:
        """Write a list: as a JSON array, as a table with these headings by key, or a line for each row.

        JSON has all keys of the rows; table and lines have those that `columns` names.
        """
        if self.as_json:
            _print_json(rows)
        elif self.on_terminal:
            self._table(rows, columns)
        else:
            for row in rows:
                print("\t".join(_cell(row[key]) for key in columns))

    def item(self, row: Row, columns: Mapping[str, int]) -> None:
        """Write a row of a stream at once: as a line of JSON, or with these columns, tab-separated in a pipe.

        On a terminal a column has the given width, or more.
        """
        if self.as_json:
            text = _as_json(row)
        elif self.on_terminal:
            text = "  ".join(f"{_shown(row[key]):<{width}}" for key, width in columns.items())
        else:
            text = "\t".join(_cell(row[key]) for key in columns)
        self._print(text.rstrip(" "))

    def fields(self, row: Row) -> None:
        """Write one result: as a JSON object, or a line for each field that is not None."""
        if self.as_json:
            _print_json(row)
            return
        given = {key: value for key, value in row.items() if value is not None}
        width = max(map(len, given), default=0)
        for key, value in given.items():
            if self.on_terminal:
                print(f"{key + ':':<{width + 1}} {_shown(value)}")
            else:
                print(f"{key}\t{_cell(value)}")

    def line(self, row: Row, text: str) -> None:
        """Write an item of a stream at once: as a line of JSON, or the text."""
        self._print(_as_json(row) if self.as_json else printable(text))

    def done(self, row: Row, text: str) -> None:
        """Report a command's result: as a JSON object on standard output, or as a message."""
        if self.as_json:
            _print_json(row)
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Write a message to standard error, unless `--quiet`."""
        if not self.quiet:
            with self._without_bar():
                print(printable(text), file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        """Write an error to standard error, also with `--quiet`."""
        with self._without_bar():
            shown = printable(masked(text))
            print(f"scbroker: {shown}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(
        self, what: str, total: int | None, *, of_bytes: bool = True
    ) -> Iterator[Callable[[int], None]]:
        """Yield a function that takes how much is done of `total`, and shows a bar, rate and time left.

        `total` is None if it is not known; then the amount and the rate are shown. No bar is shown without a
        terminal, with `--quiet` or `--json`, or if there is nothing to do.
        """
        is_hidden = self.quiet or self.as_json or not sys.stderr.isatty()
        if is_hidden or total == 0:
            yield lambda _: None
            return
        from rich import progress as bars
        from rich.console import Console

        columns: list[bars.ProgressColumn] = [
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.DownloadColumn(binary_units=True) if of_bytes else bars.MofNCompleteColumn(),
            *([bars.TransferSpeedColumn()] if of_bytes else []),
            bars.TimeRemainingColumn(),
        ]
        console = Console(file=sys.stderr, highlight=False)
        # The bar's library must not redirect standard output: results would go to the bar's stream.
        with bars.Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as self._bar:
            task = self._bar.add_task(printable(what), total=total)
            show = self._bar.update
            try:
                yield lambda done: show(task, completed=done)
            finally:
                self._bar = None

    @contextmanager
    def _without_bar(self) -> Iterator[None]:
        """Hide the progress bar while something is written to the terminal."""
        if (bar := self._bar) is None:
            yield
            return
        bar.stop()
        try:
            yield
        finally:
            bar.start()

    def _print(self, text: str) -> None:
        with self._without_bar() if self.on_terminal else nullcontext():
            print(text, flush=True)

    def _table(self, rows: Iterable[Row], columns: Mapping[str, str]) -> None:
        """Write a table. The terminal wraps long lines: cut ones could end in half an id."""
        from rich.cells import cell_len

        listed = [[row[key] for key in columns] for row in rows]
        cells = [list(columns.values()), *([_shown(each) for each in row] for row in listed)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        is_number = [
            any(isinstance(e, int) for e in column) for column in zip(*listed, strict=True)
        ]
        if self._bar is not None:  # the rows have come to their end, and the work with them
            self._bar.stop()
            self._bar = None
        for line in cells:
            padded = []
            for text, width, right in zip(
                line, widths, is_number or [False] * len(line), strict=True
            ):
                space = " " * (width - cell_len(text))
                padded.append(space + text if right else text + space)
            print("  ".join(padded).rstrip())


def _as_json(value: Any) -> str:
    import json  # lazy: the help of a command does not need it

    return json.dumps(_plain(value))


def _print_json(value: Any) -> None:
    import msgspec

    # The encoder of `json` that indents is written in Python, and takes five times as long.
    print(msgspec.json.format(_as_json(value), indent=2))


_PLAIN: Final = (str, type(None), int, bool, float)


def _plain(value: Any) -> Any:
    """Convert a value of a row to one that `json` can encode."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, enum.Flag):
        return _names_of(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int | str):
        return value
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Iterable):
        return [_plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} is not a value for output")


@functools.cache  # thousands of rows share a few values
def _names_of(flags: enum.Flag) -> list[str | None]:
    return [each.name for each in flags]


def _cell(value: Any) -> str:
    """Return a value for a line in a pipe: exact, without tab and line break."""
    plain = _plain(value)
    if isinstance(plain, list):
        return ",".join(map(_cell, plain))
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    return "" if plain is None else printable(str(plain))


def _shown(value: Any) -> str:
    """Return a value for a person: sizes with units, local times, short lists."""
    if isinstance(value, Size | ShortId):
        return value.shown()
    if isinstance(value, dt.datetime):
        return f"{local(value):%Y-%m-%d %H:%M}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return _cell(value)


_DURATION: Final = re.compile(r"([0-9]{1,6})\s*(m|min|h|d|w)", re.IGNORECASE)
_LENGTHS: Final = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
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
            f"{option} {until!r} is in the past, at {in_zone(end)}: {_HOW}."
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
            length = dt.timedelta(**{_LENGTHS[found[2].lower()]: int(found[1])})
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


def in_zone(time: dt.datetime) -> str:
    """Return a time for a person: local, with the time zone."""
    return f"{local(time):%Y-%m-%d %H:%M %Z}"


def until_text(end: dt.datetime | None) -> str:
    """Return the words for the end of an access, such as " until 2026-12-31 18:00 CET"; "" without one."""
    return "" if end is None else f" until {in_zone(end)}"


def day_after(days: int) -> dt.date:
    """Return the day in so many days, in the zone of this machine."""
    return (dt.datetime.now().astimezone() + dt.timedelta(days=days)).date()
