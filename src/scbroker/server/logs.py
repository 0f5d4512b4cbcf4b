"""Configure the log: lines of JSON, or lines for people if standard error is a terminal.

docs/reference/log.md lists every event; a test compares it with the source. No line has a secret or an
address of a client: the proxy's log has that, under the same request id.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from scbroker.server import request_log

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
        entry = request_log.current()
        if entry is None or not entry.is_fault:  # uvicorn repeats the traceback of the line `fault`
            text = record.getMessage()
            _log.warning("library", name=record.name, text=text, exc_info=record.exc_info)


class _OfTraces(logging.Handler):
    """Writes what OpenTelemetry logs, such as that its receiver is away, into the broker's log."""

    def emit(self, record: logging.LogRecord) -> None:
        _traces.info("traces", text=record.getMessage())


def _add_request(logger: object, name: str, event: EventDict) -> EventDict:
    """Add the id of the request for which a line is written."""
    del logger, name
    entry = request_log.current()
    if entry is not None:
        event.setdefault("request", entry.id)
    return event


def _printable(logger: object, name: str, event: EventDict) -> EventDict:
    """Escape characters that could steer the terminal."""
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
