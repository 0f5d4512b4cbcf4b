"""Write what a command has checked: a line for each check, with its state, the reason and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from scbroker import errors
from scbroker.cli import status_of
from scbroker.cli.output import Output, masked
from scbroker.cli.probe import DoubtfulError
from scbroker.cli.words import sentence

_WIDTHS: Final = {"state": 7, "check": 13, "detail": 0}


class Finding(NamedTuple):
    check: str
    state: str
    """ok, warning or failed."""
    detail: str
    status: int
    """The exit status that it gives the command."""


def found(name: str, check: Callable[[], str]) -> Finding:
    """Return what a check finds: its text, or the text of the error that it raises."""
    try:
        return Finding(name, "ok", check(), 0)
    except DoubtfulError as doubt:
        return Finding(name, "warning", str(doubt), 0)
    except errors.BrokerError as error:
        return Finding(name, "failed", sentence(error), status_of(error))


def write(out: Output, findings: Iterable[Finding]) -> int:
    """Write findings as they come; return the exit status of the first failure, or 0."""
    status = 0
    rows = []
    for each in findings:
        status = status or each.status
        row = {"check": each.check, "state": each.state, "detail": masked(each.detail)}
        if out.as_json:
            rows.append(row)
        elif each.state != "ok" or not out.quiet:
            out.item(row, _WIDTHS)
    if out.as_json:
        out.rows(rows, {})
    return status
