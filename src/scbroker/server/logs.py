"""Write the log: lines of JSON, or lines for people if standard error is a terminal.

docs/reference/log.md lists every event; a test compares it with the source. No line has a secret or the
address of a client: the proxy's log has the address, under the same request id.

Each request has an id, which its answer and every line of the log about it have. The broker makes the id,
or accepts that of a trusted proxy (docs/spec/protocol.md, section 1). `measured` times the parts of a
request, for the metrics and traces too.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from types import FrameType
from typing import Any, Final, Literal, Self, TextIO, cast, get_args

import structlog
from structlog.typing import EventDict, Processor
from uvicorn.middleware.proxy_headers import _TrustedHosts

from scbroker import tracing
from scbroker.server import metrics
from scbroker.wire.codec import REQUEST_ID_HEADER, is_request_id

_log: Final = structlog.get_logger("scbroker.server")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _StandardError:
    """Write the log to standard error. A line that cannot be written, as on a full disk, fails no request."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        pass


def configure() -> None:
    """Configure the log of this process."""
    renderers: list[Processor] = [structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        # Rich's tracebacks, the default if rich is installed, show the values of variables.
        plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        renderers = [_printable, plain]
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.add_log_level,
            _add_request,
            structlog.processors.format_exc_info,
            *renderers,
        ],
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _StandardError())),
    )
    logging.lastResort = _OfLibraries(logging.WARNING)
    traces = logging.getLogger("opentelemetry")
    traces.handlers, traces.propagate = [_OfTraces(logging.WARNING)], False


class _OfLibraries(logging.Handler):
    """Writes what a library logs as a line like all others, so that programs can read the whole log."""

    def emit(self, record: logging.LogRecord) -> None:
        entry = current()
        if entry is None or not entry.is_fault:  # uvicorn repeats the traceback of the line `fault`
            text = record.getMessage()
            _log.warning("library", name=record.name, text=text, exc_info=record.exc_info)


class _OfTraces(logging.Handler):
    """Writes OpenTelemetry's messages, such as one about an absent receiver, into the broker's log."""

    def emit(self, record: logging.LogRecord) -> None:
        _traces.info("traces", text=record.getMessage())


def _add_request(logger: object, name: str, event: EventDict) -> EventDict:
    """Add the id of the request for which a line is written."""
    del logger, name
    entry = current()
    if entry is not None:
        event.setdefault("request", entry.id)
    return event


def _printable(logger: object, name: str, event: EventDict) -> EventDict:
    """Escape characters that could control the terminal."""
    del logger, name
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = value.split("\n") if key == "exception" else [value]
            event[key] = "\n".join(
                each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
                for each in lines
            )
    return event


@contextlib.contextmanager
def noting_stop() -> Iterator[Callable[[], str]]:
    """Provide a function that returns the name of the signal that ended the process, or another reason.

    Enter it after uvicorn has set its handlers: they are still called.
    """
    received: list[int] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        handlers[number](number, frame)

    for each in _SIGNALS if threading.current_thread() is threading.main_thread() else ():
        if callable(handler := signal.getsignal(each)):
            handlers[each] = handler
            signal.signal(each, note)
    try:
        yield lambda: signal.Signals(received[0]).name if received else "the server ended"
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Seldom:
    """Logs an event at most `most` times a minute, and then the number left out: strangers can cause it."""

    def __init__(self, most: int = 30) -> None:
        self._most = most
        self._until = 0.0
        self._count = 0

    def info(self, event: str, **fields: object) -> None:
        """Log an event, unless it was logged too often within this minute."""
        if self._is_due(event):
            _log.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log a warning, likewise."""
        if self._is_due(event):
            _log.warning(event, **fields)

    def _is_due(self, event: str) -> bool:
        now = time.monotonic()
        if now >= self._until:
            if self._count > self._most:
                _log.info("lines left out", of=event, count=self._count - self._most)
            self._until, self._count = now + 60, 0
        self._count += 1
        return self._count <= self._most


_traces: Final = Seldom()

# Requests

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
current: Callable[[], Entry | None] = _current.get
"""Return the entry of the request that the caller works for; None in background work."""


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
        # Uvicorn's class: uvicorn accepts X-Forwarded-For from the same peers.
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

    def refused(self, id: str, method: str, kind: str) -> None:
        """Log a request that was refused at its head."""
        if self.is_complete:
            _log.info("request refused", request=id, method=method, kind=kind)
