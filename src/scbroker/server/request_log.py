"""Log requests: each one if the operator wants it, and the slow ones with what they waited for.

Each request has an id, which its answer and every line of the log about it have. The broker makes the id,
or accepts that of a trusted proxy. `measured` times the parts of a request, for the metrics and traces too.
Spec: docs/spec/protocol.md, section 1. Reference: docs/reference/log.md.
"""

from __future__ import annotations

import contextlib
import contextvars
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal, Self, get_args

import structlog
from uvicorn.middleware.proxy_headers import _TrustedHosts

from scbroker import tracing
from scbroker.server import metrics
from scbroker.wire.codec import REQUEST_ID_HEADER, is_request_id

_log: Final = structlog.get_logger("scbroker.server")
_HEADER: Final = REQUEST_ID_HEADER.lower().encode()
Part = Literal["wait", "database", "store", "idle"]
"""The phases of a request: waiting for a database connection or thread; database; store; client."""


@dataclass(slots=True)
class Entry:
    """The log line of one request. The parts of its time are in seconds."""

    id: str
    method: str = ""
    path: str = ""
    """The operation's path, with the names of its parameters in place of ids."""
    user: str | None = None
    status: int = 0
    received: int = 0
    sent: int = 0
    wait: float = 0.0
    database: float = 0.0
    store: float = 0.0
    idle: float = 0.0
    """Waiting on client I/O or for an event: it does not make a request slow."""
    is_fault: bool = False
    """Whether the log has a line `fault` about it."""
    started: float = field(default_factory=time.perf_counter)
    answered: float = 0.0
    """When the answer began."""


_current: Final = contextvars.ContextVar[Entry | None]("scbroker.request", default=None)


def current() -> Entry | None:
    """Return the entry of the request that the caller works for; None in background work."""
    return _current.get()


class idling:  # noqa: N801 - used as a function
    """Count the block's time as waiting for the client, which does not make the present request slow."""

    __slots__ = ("_started",)

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if (entry := current()) is not None:
            entry.idle += time.perf_counter() - self._started


class measured:  # noqa: N801 - used as a function
    """Time a block that asks the database or the object store, for the log, the metrics and the trace."""

    __slots__ = ("_action", "_part", "_span", "_started")

    def __init__(self, part: Literal["database", "store"], action: str) -> None:
        self._part: Final[Literal["database", "store"]] = part
        self._action = action

    def __enter__(self) -> Self:
        self._span = tracing.span(f"{self._part} {self._action}")
        self._span.__enter__()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        seconds = time.perf_counter() - self._started
        self._span.__exit__(*error)
        metrics.durations(self._part, self._action).observe(seconds)
        if (entry := current()) is not None:
            setattr(entry, self._part, getattr(entry, self._part) + seconds)


def count_wait(seconds: float) -> None:
    """Count a wait for a connection, a thread or the writer of the database."""
    metrics.DATABASE_WAIT_SECONDS.observe(seconds)
    if (entry := current()) is not None:
        entry.wait += seconds


class RequestLog:
    """Decides which requests are logged, and accepts the ids of trusted proxies."""

    def __init__(
        self, trusted_proxies: str = "", slow_seconds: float = 2.0, *, access_log: bool = False
    ) -> None:
        # As uvicorn does, which reads X-Forwarded-For of the same peers.
        self._trusted: _TrustedHosts = _TrustedHosts(trusted_proxies)
        self._slow_seconds = slow_seconds
        self.is_complete: bool = access_log

    def id_for(self, peer: str | None, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Return the id of a request: a new one, or a trusted proxy's."""
        if peer in self._trusted:
            given = [value for name, value in headers if name == _HEADER]
            if len(given) == 1 and is_request_id(text := given[0].decode("latin-1")):
                return text
        return secrets.token_hex(8)

    @contextlib.contextmanager
    def entry(self, id: str, method: str) -> Iterator[Entry]:
        """Provide the entry of a request; at the end count it, and log it if it is to be logged."""
        entry = Entry(id, method)
        _current.set(entry)  # each request has a context of its own
        try:
            yield entry
        finally:
            self._finish(entry)

    def refused(self, id: str, method: str, kind: str) -> None:
        """Log a request that was refused at its head."""
        if self.is_complete:
            _log.info("request refused", request=id, method=method, kind=kind)

    def _finish(self, entry: Entry) -> None:
        metrics.RECEIVED.inc(entry.received)
        metrics.SENT.inc(entry.sent)
        ended = time.perf_counter()
        seconds = ended - entry.started
        if entry.path:
            answered = (entry.answered or ended) - entry.started
            metrics.count_answered(entry.method, entry.path, entry.status or 500, answered)
        shared: dict[str, Any] = {
            "method": entry.method,
            "path": entry.path or None,
            "status": entry.status,
            "seconds": round(seconds, 4),
            "user": entry.user,
        }
        # Proxies and monitors check the broker's health every second: only failures are logged.
        if self.is_complete and (entry.path or entry.status >= HTTPStatus.BAD_REQUEST):
            _log.info("request", received=entry.received, sent=entry.sent, **shared)
        if entry.path and seconds - entry.idle >= self._slow_seconds:
            metrics.SLOW.labels(entry.method, entry.path).inc()
            waits = {part: round(getattr(entry, part), 4) for part in get_args(Part)}
            _log.warning("slow request", **shared, **waits)
