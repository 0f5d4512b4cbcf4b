"""Check what an operation of the library does not tell, and write a line for each check."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from scbroker import errors
from scbroker.cli import status_of
from scbroker.cli.output import Output
from scbroker.cli.words import sentence

_CERTIFICATE_DAYS: Final = 14
_WIDTHS: Final = {"state": 7, "check": 13, "detail": 0}


class DoubtfulError(Exception):
    """A finding that stops nothing: its message is a warning."""


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
        row = {"check": each.check, "state": each.state, "detail": each.detail}
        if out.as_json:
            rows.append(row)
        elif each.state != "ok" or not out.quiet:
            out.item(row, _WIDTHS)
    if out.as_json:
        out.rows(rows, {})
    return status


class Probe(NamedTuple):
    """The findings that follow from an answer of any kind."""

    ends: dt.datetime | None
    """When the server's certificate ends; None without TLS."""
    ahead: float | None
    """Seconds by which this machine's clock is ahead; None if the answer has no time."""

    def certificate(self) -> str:
        """Return until when the certificate is valid; raise `DoubtfulError` if it ends soon."""
        if self.ends is None:
            return "the address has none: it is without TLS"
        left = self.ends - dt.datetime.now(dt.UTC)
        if left.days < _CERTIFICATE_DAYS:
            raise DoubtfulError(
                f"The certificate ends on {self.ends:%Y-%m-%d}, in {left.days} days: the broker's operator "
                "must renew it."
            )
        return f"valid until {self.ends:%Y-%m-%d}"


def probe(url: str, seconds: float) -> Probe:
    """Return what an answer tells of the server at an address. Raises `UnreachableError` without one.

    The path is one that proxies pass on, unlike `/health/ready` (deploy/proxy).
    """
    import ssl
    from email.utils import parsedate_to_datetime
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    parts, ends, ahead = urlsplit(url), None, None
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            certificate = connection.sock.getpeercert() or {}
            ends = dt.datetime.fromtimestamp(
                ssl.cert_time_to_seconds(str(certificate["notAfter"])), dt.UTC
            )
        before = time.time()
        connection.request("GET", f"{parts.path.rstrip('/')}/v1/events")
        date = connection.getresponse().headers.get("Date")
        with contextlib.suppress(ValueError, OverflowError):
            ahead = (before + time.time()) / 2 - parsedate_to_datetime(date or "").timestamp()
    except (OSError, HTTPException, ValueError) as error:
        raise errors.UnreachableError(f"{url} does not answer: {error}.") from None
    finally:
        connection.close()
    return Probe(ends, ahead)
