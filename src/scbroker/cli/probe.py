"""Send one request to a broker's address, and say what is wrong on the way to the broker."""

from __future__ import annotations

import datetime as dt
import threading
import time
from dataclasses import dataclass
from typing import Final

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors

_PROTOCOL: Final = "1"
"""The version of the protocol that this program speaks; docs/spec/protocol.md."""
_CLOCK_FAILS: Final = 300
"""Seconds that clocks may differ: docs/spec/protocol.md, code `clock`."""
_CLOCK_WARNS: Final = 30
_CERTIFICATE_DAYS: Final = 14


class DoubtfulError(Exception):
    """A finding that stops nothing: its message is a warning."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A server's answer to the probe."""

    status: int
    protocol: list[str]
    date: str | None
    moment: float
    """Our clock, in the middle between request and answer; seconds since 1970."""
    moved_to: str | None


class Probe:
    """One request to a broker's address, without API key, session or redirect.

    Each answer of a broker carries its protocol's version, also a refusal (docs/spec/protocol.md, section 1).
    The request ends after `seconds`, however slowly the server answers. The default path is one that proxies
    pass on, unlike `/health/ready` (deploy/proxy).
    """

    def __init__(self, url: str, seconds: float, path: str = "/v1/events") -> None:
        from urllib.parse import urlsplit

        self._url, self._seconds, self._path = url.rstrip("/"), seconds, path
        self._parts = urlsplit(self._url)
        self._answer: _Answer | None = None
        self._certificate: str | None = None
        self._error: BaseException | None = None
        thread = threading.Thread(target=self._ask, daemon=True)
        thread.start()
        thread.join(seconds)

    def _ask(self) -> None:
        import http.client
        import ssl

        host, port = self._parts.hostname or "", self._parts.port
        connection = (
            http.client.HTTPSConnection(
                host, port, timeout=self._seconds, context=ssl.create_default_context()
            )
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=self._seconds)
        )
        try:
            connection.connect()
            if isinstance(connection.sock, ssl.SSLSocket):
                self._certificate = str((connection.sock.getpeercert() or {}).get("notAfter"))
            before = time.time()
            connection.request("GET", f"{self._parts.path}{self._path}")
            answer = connection.getresponse()
            self._answer = _Answer(
                answer.status,
                answer.headers.get_all("Scbroker-Protocol", []),
                answer.headers.get("Date"),
                (before + time.time()) / 2,
                answer.headers.get("Location"),
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._error = error
        finally:
            connection.close()

    @property
    def reached_tls(self) -> bool:
        """Return whether TLS was tried: a connection was made to an https address."""
        import ssl

        return self._certificate is not None or isinstance(self._error, ssl.SSLError)

    def tls(self) -> str:
        """Return until when the certificate is valid; raise if the server's TLS is not acceptable."""
        import ssl

        if isinstance(self._error, ssl.SSLCertVerificationError):
            raise errors.UnreachableError(
                f"The certificate of {self._url} is refused: {self._error.verify_message}. If an "
                "authority of your own issued it, set SSL_CERT_FILE to a file with the authority's "
                "certificate; "
                "otherwise ask the broker's operator."
            )
        if self._certificate is None and not isinstance(self._error, ssl.SSLError):
            self._answered()  # raises: no connection was made
        if self._certificate is None:
            raise errors.UnreachableError(
                f"The server at {self._url} does not speak TLS, or no version that this machine allows: "
                "check the port of the address."
            )
        ends = dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(self._certificate), dt.UTC)
        left = ends - dt.datetime.now(dt.UTC)
        if left < dt.timedelta(days=_CERTIFICATE_DAYS):
            raise DoubtfulError(
                f"The certificate ends on {ends:%Y-%m-%d}, in {left.days} days: the broker's operator must "
                "renew it."
            )
        return f"the certificate is valid until {ends:%Y-%m-%d}"

    def broker(self) -> str:
        """Return that a broker answers; raise if something else does, or nothing."""
        answer = self._answered()
        if 300 <= answer.status < 400:
            raise errors.UnsupportedVersionError(
                f"{self._url} redirects to {answer.moved_to!r:.200}, and redirects are not followed: use "
                "the broker's own address."
            )
        if not answer.protocol and answer.status in (502, 503, 504):
            raise errors.UnreachableError(
                f"A proxy answers {answer.status} at {self._url} in the broker's place: ask the broker's "
                "operator whether it runs."
            )
        if not answer.protocol:
            raise errors.UnsupportedVersionError(
                f"The server at {self._url} is not a broker: its answer (status {answer.status}) has no "
                "version of the protocol. Check the address."
            )
        if answer.status == 503:
            raise errors.OverloadedError(
                "The broker is overloaded, or cannot reach its database or object store: ask its operator."
            )
        return "answers"

    def clock(self) -> str:
        """Compare the broker's clock, or that of the proxy before it, with ours."""
        from email.utils import parsedate_to_datetime

        answer = self._answered()
        try:
            theirs = parsedate_to_datetime(answer.date or "").timestamp()
        except (ValueError, OverflowError):
            raise DoubtfulError("The broker's answer has no time to compare with.") from None
        ahead = round(answer.moment - theirs)
        by = f"{dt.timedelta(seconds=abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} the broker's"
        if abs(ahead) > _CLOCK_FAILS:
            raise errors.ClockError(
                f"This machine's clock is {by}, and five minutes are allowed: set it right, or tell the "
                "broker's operator."
            )
        if abs(ahead) > _CLOCK_WARNS:
            raise DoubtfulError(f"This machine's clock is {by}: set it right.")
        return "agrees with the broker's within a second or two" if abs(ahead) < 3 else by

    def protocol(self) -> str:
        """Return the version of the protocol; raise if the broker speaks another one."""
        version = ", ".join(self._answered().protocol)
        if version != _PROTOCOL:
            raise errors.UnsupportedVersionError(
                f"The broker speaks version {version!r:.40} of the protocol, and scbroker "
                f"{scbroker.__version__} speaks {_PROTOCOL}: update the older of the two."
            )
        return f"version {_PROTOCOL}, as scbroker {scbroker.__version__} speaks it"

    def _answered(self) -> _Answer:
        if self._answer is not None:
            return self._answer
        import socket

        if self._error is None:
            why = f"no answer within {self._seconds:g} seconds"
        elif isinstance(self._error, socket.gaierror):
            why = "its host name is unknown"
        elif isinstance(self._error, OSError):
            why = (self._error.strerror or "no connection could be made").lower()
        else:
            why = "the answer is not HTTP"
        hint = "" if self._url.startswith("https:") else " If this port expects TLS, use https://."
        raise errors.UnreachableError(
            f"No broker answers at {self._url} ({why}): check the address, the network, and whether "
            f"the broker runs.{hint}"
        )
