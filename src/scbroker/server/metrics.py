"""Count what the broker does, in the format of Prometheus.

Labels are operations, statuses and versions, never ids.
"""

import functools
import importlib.metadata
import platform
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)

REGISTRY: Final = CollectorRegistry()
_SECONDS: Final = Histogram(
    "scbroker_request_seconds",
    "Seconds from a request's head to its answer.",
    ("method", "path"),
    registry=REGISTRY,
)
_REQUESTS: Final = Counter(
    "scbroker_requests",
    "Requests answered, by operation and status.",
    ("method", "path", "status"),
    registry=REGISTRY,
)
_REFUSED: Final = Counter(
    "scbroker_refused", "Requests refused at their head, by kind.", ("kind",), registry=REGISTRY
)
_PRESENT: Final = Gauge(
    "scbroker_requests_present", "Requests admitted and not ended.", registry=REGISTRY
)
_WAITING: Final = Gauge(
    "scbroker_requests_aside", "Requests waiting on client I/O.", registry=REGISTRY
)
Info("scbroker_build", "Versions of scbroker and Python.", registry=REGISTRY).info(
    {"version": importlib.metadata.version("scbroker"), "python": platform.python_version()}
)


def refused(kind: str) -> None:
    """Count one refused request."""
    _refused(kind).inc()


def present(admitted: int, waiting: int) -> None:
    """Set the numbers of admitted requests and of requests that wait on client I/O."""
    _PRESENT.set(admitted)
    _WAITING.set(waiting)


@functools.cache
def _refused(kind: str) -> Counter:
    return _REFUSED.labels(kind)


@functools.cache
def _of_operation(method: str, path: str, status: int) -> tuple[Counter, Histogram]:
    return _REQUESTS.labels(method, path, str(status)), _SECONDS.labels(method, path)


def observe(method: str, path: str, status: int, seconds: float) -> None:
    """Count one answered request of an operation, and its duration in seconds."""
    count, durations = _of_operation(method, path, status)
    count.inc()
    durations.observe(seconds)


def exposition() -> tuple[bytes, str]:
    """Return all metrics of this process, and their content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
