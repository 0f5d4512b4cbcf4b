"""What an operator watches, in Prometheus' format. Labels are operations and statuses, never ids."""

from __future__ import annotations

import functools
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as _generate

REGISTRY: Final = CollectorRegistry()
_LABELS: Final = ("method", "path", "status")
_SECONDS: Final = Histogram(
    "scbroker_request_seconds",
    "Seconds from a request's head to its answer.",
    ("method", "path"),
    registry=REGISTRY,
)
_REQUESTS: Final = Counter(
    "scbroker_requests", "Requests answered, by operation and status.", _LABELS, registry=REGISTRY
)
_REFUSED: Final = Counter(
    "scbroker_refused", "Requests refused at their head, by kind.", ("kind",), registry=REGISTRY
)
_PRESENT: Final = Gauge("scbroker_requests_present", "Requests taken on.", registry=REGISTRY)
_ASIDE: Final = Gauge(
    "scbroker_requests_aside", "Requests that wait for their clients.", registry=REGISTRY
)


def refused(kind: str) -> None:
    """Counts one refused request."""
    _refused(kind).inc()


def present(now: int, aside: int) -> None:
    """How many requests there are now."""
    _PRESENT.set(now)
    _ASIDE.set(aside)


@functools.cache
def _refused(kind: str) -> Counter:
    return _REFUSED.labels(kind)


@functools.cache
def _requests(method: str, path: str, status: int) -> Counter:
    return _REQUESTS.labels(method, path, str(status))


@functools.cache
def _seconds(method: str, path: str) -> Histogram:
    return _SECONDS.labels(method, path)


def observe(method: str, path: str, status: int, seconds: float) -> None:
    """Counts one answered request of an operation."""
    _requests(method, path, status).inc()
    _seconds(method, path).observe(seconds)


def exposition() -> tuple[bytes, str]:
    """All metrics of this process, and their content type."""
    return _generate(REGISTRY), CONTENT_TYPE_LATEST
