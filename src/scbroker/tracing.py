"""Trace operations and requests with OpenTelemetry. Guide: docs/guide/watching.md.

A program that uses the SDK of OpenTelemetry gets spans of this library in its traces. The broker and the
command line set the SDK up themselves if a variable OTEL_EXPORTER_OTLP_… names a receiver. Otherwise nothing
of OpenTelemetry is imported, and a span costs one lookup. No span has a secret, a name, or the id of a
container or user.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, MutableMapping
from typing import Any, Final, Self, TypeVar

from scbroker.errors import BrokerError, InvalidArgumentError
from scbroker.extras import install

_API: Final = "opentelemetry.trace"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADER: Final = "traceparent"
_PROTOCOL: Final = "/v1/"
"""The beginning of traced paths. The others are for operators, whose monitors read them every second."""
T = TypeVar("T")
_stop: list[Callable[[], None]] = []


def start(service: str) -> None:
    """Send the spans of this process to the receiver that the standard variables name, if one does.

    Raises `InvalidArgumentError` if they do and the packages are missing.
    """
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or _stop or not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        raise InvalidArgumentError(
            f"OTEL_EXPORTER_OTLP_… is set, and OpenTelemetry is missing: run {install('otel')}, or set "
            "OTEL_SDK_DISABLED=true."
        ) from None
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: service}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _stop.append(provider.shutdown)


def stop() -> None:
    """Send the spans that were not sent yet, and end tracing."""
    while _stop:
        _stop.pop()()


def _is_used() -> bool:
    """Return whether this program imported OpenTelemetry."""
    return _API in sys.modules


@functools.cache
def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer("scbroker")  # works also if the program sets its provider later


class _Span:
    """A span around a block. An error is noted by its code: its message and its frames are not sent."""

    __slots__ = ("_manager", "_name", "_span")

    def __init__(self, name: str, kind: str, context: Any = None, **attributes: str) -> None:
        from opentelemetry.trace import SpanKind

        self._name = name
        self._manager = _tracer().start_as_current_span(
            name,
            context,
            SpanKind[kind],
            attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def __enter__(self) -> Self:
        self._span = self._manager.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is not None:
            self._fail(error.code if isinstance(error, BrokerError) else type(error).__name__)
        self._manager.__exit__(None, None, None)

    def end(self, status: int, request_id: str | None, route: str = "") -> None:
        """Note the status of an answer, the id of its request, and the path of the operation served."""
        self._span.set_attribute("http.response.status_code", status)
        if request_id is not None:
            self._span.set_attribute("scbroker.request_id", request_id)
        if route:
            self._span.update_name(f"{self._name} {route}")
            self._span.set_attribute("http.route", route)
        if status >= 500:
            self._fail(str(status))

    def _fail(self, kind: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)


class _Sent(_Span):
    """A span around a request that is sent."""

    __slots__ = ("_headers",)

    def __init__(self, name: str, headers: MutableMapping[str, str] | None) -> None:
        super().__init__(name, "CLIENT")
        self._headers = headers

    def __enter__(self) -> Self:
        super().__enter__()
        if self._headers is not None:
            carrier: dict[str, str] = {}
            _propagator().inject(carrier)
            if _HEADER in carrier:  # no tracestate or baggage, which may be private
                self._headers[_HEADER] = carrier[_HEADER]
        return self


@functools.cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


class _NoSpan(contextlib.nullcontext["_NoSpan"]):
    """A span that does nothing, for a program without OpenTelemetry."""

    def __init__(self) -> None:
        super().__init__(self)

    def end(self, status: int, request_id: str | None, route: str = "") -> None:
        pass


Span = _Span | _NoSpan
_NO_SPAN: Final = _NoSpan()


def span(name: str) -> Span:
    """Return a span around a block; without OpenTelemetry a context manager that does nothing."""
    return _Span(name, "INTERNAL") if _is_used() else _NO_SPAN


def sent(name: str, headers: MutableMapping[str, str] | None = None) -> Span:
    """Return a span around a request to a server, whose `headers` get a `traceparent` (W3C Trace Context)."""
    if not _is_used():
        return _NO_SPAN
    return _Sent(name, headers)


def served(method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Span:
    """Return a span around a request to the protocol's paths, in the trace that its `traceparent` names."""
    if not (_is_used() and path.startswith(_PROTOCOL)):
        return _NO_SPAN
    given = {name: value.decode("latin-1") for name, value in headers if name == _HEADER.encode()}
    context = _propagator().extract({_HEADER: given.get(_HEADER.encode(), "")})
    return _Span(method, "SERVER", context, **{"http.request.method": method})


def traced(name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Return an operation that runs in a span; without OpenTelemetry the same operation."""
    return _traced(name, work) if _is_used() else work


async def _traced(name: str, work: Coroutine[Any, Any, T]) -> T:
    with span(name):
        return await work
