"""Build responses, and count them in the format of Prometheus.

Errors are answered as problems (RFC 9457). Labels of metrics are operations, statuses and versions,
never ids.
"""

import functools
import importlib.metadata
import platform
from typing import Final

import msgspec
import prometheus_client as prometheus
from starlette.responses import Response

from scbroker.errors import BrokerError, BrokerUnavailableError
from scbroker.wire import codec
from scbroker.wire.problems import problem_of

HEADERS: Final = {
    codec.PROTOCOL_HEADER: codec.PROTOCOL,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_REGISTRY: Final = prometheus.CollectorRegistry()
_SECONDS: Final = prometheus.Histogram(
    "scbroker_request_seconds",
    "Seconds from a request's head to its answer.",
    ("method", "path"),
    registry=_REGISTRY,
)
_REQUESTS: Final = prometheus.Counter(
    "scbroker_requests",
    "Requests answered, by operation and status.",
    ("method", "path", "status"),
    registry=_REGISTRY,
)
_REFUSED: Final = prometheus.Counter(
    "scbroker_refused", "Requests refused at their head, by kind.", ("kind",), registry=_REGISTRY
)
_PRESENT: Final = prometheus.Gauge(
    "scbroker_requests_present", "Requests admitted and not ended.", registry=_REGISTRY
)
_WAITING: Final = prometheus.Gauge(
    "scbroker_requests_waiting", "Requests waiting on client I/O.", registry=_REGISTRY
)
_FOLLOWERS: Final = prometheus.Gauge(
    "scbroker_followers", "Requests waiting for an event.", registry=_REGISTRY
)
_CLOCK_DIFFERENCE: Final = prometheus.Gauge(
    "scbroker_clock_difference_seconds",
    "Seconds by which this machine's clock is ahead of the database's.",
    registry=_REGISTRY,
)
prometheus.Info("scbroker_build", "Versions of scbroker and Python.", registry=_REGISTRY).info(
    {"version": importlib.metadata.version("scbroker"), "python": platform.python_version()}
)


def answer(body: bytes | memoryview, status: int, media_type: str = codec.MESSAGE) -> Response:
    """Return a response of this media type, by default a MessagePack message."""
    return Response(body, status, headers={**HEADERS, "Content-Type": media_type})


def problem(error: BrokerError) -> Response:
    """Return the response for an error, with Retry-After if another attempt may succeed."""
    found = problem_of(error)
    response = answer(msgspec.json.encode(found), found.status, codec.PROBLEM)
    if isinstance(error, BrokerUnavailableError):
        response.headers["Retry-After"] = str(max(1, round(error.retryAfter or 1)))
    return response


@functools.cache
def _of_operation(
    method: str, path: str, status: int
) -> tuple[prometheus.Counter, prometheus.Histogram]:
    return _REQUESTS.labels(method, path, str(status)), _SECONDS.labels(method, path)


def count_answered(method: str, path: str, status: int, seconds: float) -> None:
    """Count one answered request of an operation, and its duration in seconds."""
    count, durations = _of_operation(method, path, status)
    count.inc()
    durations.observe(seconds)


def count_refused(kind: str) -> None:
    """Count one request that was refused at its head."""
    _REFUSED.labels(kind).inc()


def set_clock_difference(seconds: float) -> None:
    """Set by how many seconds this machine's clock is ahead of the database's."""
    _CLOCK_DIFFERENCE.set(seconds)


def metrics(present: int, waiting: int, followers: int) -> Response:
    """Return all metrics of this process.

    `present` requests are admitted, `waiting` wait on client I/O, `followers` wait for an event.
    """
    _PRESENT.set(present)
    _WAITING.set(waiting)
    _FOLLOWERS.set(followers)
    body = prometheus.generate_latest(_REGISTRY)
    return answer(body, 200, prometheus.CONTENT_TYPE_LATEST)
