"""Define `scbroker admin top`, a live view of a broker's load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from scbroker.cli.admin.command import Admin, Url, command
from scbroker.cli.output import Row, Size, duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from scbroker.server.admin.load import Load

_OPERATIONS: Final = 12
_WIDTHS: Final = {
    "requests": 9, "p50": 9, "p95": 9, "present": 8, "waiting": 8, "refused": 8, "throttled": 9,
    "databaseWaiting": 9, "store": 8,
}  # fmt: skip


@command()
def top(
    run: Admin,
    url: Url = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds between two readings.", min=0.1)
    ] = 2.0,
    once: Annotated[bool, typer.Option(help="End after one reading.")] = False,
) -> None:
    """Show a broker's load, and how fast it answers.

    The figures come from /metrics, for all processes of one `scbroker serve`. On a terminal they are updated
    until Ctrl-C. In a pipe, or with --json, each reading is a line: requests per second; median and 95th
    percentile of their time in seconds; requests present and waiting on clients; refused and throttled
    requests per second; requests that wait for the database; requests to the object store per second.
    """
    address = url or run.address
    loads = _loads(address, every)
    if once:
        _write_once(run, next(loads))
    elif run.out.on_terminal:
        _show(loads, address)
    else:
        for load in loads:
            run.out.item(_line(run, load), _WIDTHS)


def _loads(url: str, seconds: float) -> Iterator[Load]:
    from scbroker.server.admin import load

    before = load.read(url)
    while True:
        time.sleep(seconds)
        after = load.read(url)
        yield load.between(before, after)
        before = after


def _line(run: Admin, load: Load) -> Row:
    row = load.row()
    return row if run.out.as_json else {key: row[key] for key in _WIDTHS}


def _write_once(run: Admin, load: Load) -> None:
    row = load.row()
    if not run.out.as_json:
        del row["operations"], row["problems"], row["refusals"]
        row |= {key: Size(row[key]) for key in ("received", "sent")}
    run.out.fields(row)


def _show(loads: Iterator[Load], url: str) -> None:
    """Show the figures in place, until Ctrl-C."""
    from rich.live import Live

    with Live(f"Reading {url}/metrics …", screen=True, auto_refresh=False) as live:
        for load in loads:
            live.update(_drawn(load, url), refresh=True)


def _drawn(load: Load, url: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = Table.grid(padding=(0, 2))
    for label, value in _figures(load):
        figures.add_row(Text(label, "bold"), Text(printable(value)))
    operations = Table(box=None, pad_edge=False, header_style="bold")
    operations.add_column("OPERATION", no_wrap=True)
    for heading in ("PER SECOND", "P50", "P95"):
        operations.add_column(heading, justify="right")
    for each in load.operations[:_OPERATIONS]:
        name = Text(printable(f"{each.method} {each.path}"))
        operations.add_row(name, f"{each.rate:.1f}", duration(each.p50), duration(each.p95))
    return Group(Text(f"{url}   Ctrl-C ends", "dim"), figures, Text(""), operations)


def _figures(load: Load) -> Iterator[tuple[str, str]]:
    size: Callable[[float], str] = lambda value: f"{Size(int(value)).shown()}/s"  # noqa: E731
    yield "Requests", f"{load.requests:.1f}/s, p50 {duration(load.p50)}, p95 {duration(load.p95)}"
    yield "Bodies", f"{size(load.received)} in, {size(load.sent)} out"
    yield (
        "Now",
        f"{load.present} of {load.limit} requests, {load.waiting} waiting on clients, "
        f"{load.followers} following, {load.connections} connections",
    )
    yield (
        "Refused",
        f"{load.refused:.1f}/s overloaded, {load.throttled:.1f}/s throttled, {load.slow:.1f}/s slow",
    )
    yield (
        "Database",
        f"{load.database_in_use} of {load.database_limit} in use, {load.database_waiting} waiting, "
        f"wait p95 {duration(load.database_wait_p95)}, {load.database_failures:.1f}/s failed",
    )
    yield (
        "Store",
        f"{load.store:.1f}/s, p95 {duration(load.store_p95)}, {load.store_failures:.1f}/s failed",
    )
    errors = sorted(load.problems.items(), key=lambda each: -each[1])
    shown = ", ".join(f"{code} {rate:.1f}/s" for code, rate in errors if rate)
    yield "Errors", shown or "none"
