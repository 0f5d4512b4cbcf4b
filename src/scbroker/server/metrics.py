"""Count what a broker does, in Prometheus' format. Reference: docs/reference/metrics.md.

Labels are operations, statuses, codes and versions, never ids. With several workers each value is in a file
of the folder that PROMETHEUS_MULTIPROC_DIR names, so that every worker answers for all of them. The `mode` of
a gauge says how the values of the workers are combined.
"""

import contextlib
import functools
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import prometheus_client as prometheus
from prometheus_client import multiprocess
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scbroker.errors import BrokerError, BrokerFaultError
from scbroker.wire.problems import STATUS

CONTENT_TYPE: Final = prometheus.CONTENT_TYPE_LATEST
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_REGISTRY: Final = prometheus.CollectorRegistry()
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]


def _counter(name: str, meaning: str, *labels: str) -> prometheus.Counter:
    return prometheus.Counter(f"scbroker_{name}", meaning, labels, registry=_REGISTRY)


def _histogram(name: str, meaning: str, *labels: str) -> prometheus.Histogram:
    return prometheus.Histogram(
        f"scbroker_{name}", meaning, labels, registry=_REGISTRY, buckets=_BUCKETS
    )


def _gauge(
    name: str,
    meaning: str,
    *labels: str,
    mode: Literal["livesum", "livemax", "mostrecent"] = "mostrecent",
) -> prometheus.Gauge:
    return prometheus.Gauge(
        f"scbroker_{name}", meaning, labels, registry=_REGISTRY, multiprocess_mode=mode
    )


# Requests
_REQUESTS: Final = _counter(
    "requests", "Requests answered, by operation and status.", "method", "path", "status"
)
_REQUEST_SECONDS: Final = _histogram(
    "request_seconds", "Seconds from a request's head to its answer.", "method", "path"
)
SLOW: Final = _counter("slow_requests", "Requests logged as slow.", "method", "path")
_PROBLEMS: Final = _counter("problems", "Requests answered with an error, by its code.", "code")
REFUSED: Final = _counter("refused", "Requests refused at their head, by kind.", "kind")
LOG_INS_REFUSED: Final = _counter(
    "log_ins_refused", "Log-ins refused for a wrong signature or passphrase, by kind.", "kind"
)
RECEIVED: Final = _counter("received_bytes", "Bytes of requests' bodies.")
SENT: Final = _counter("sent_bytes", "Bytes of answers' bodies.")
PRESENT: Final = _gauge("requests_present", "Requests admitted and not ended.", mode="livesum")
WAITING: Final = _gauge("requests_waiting", "Requests waiting on client I/O.", mode="livesum")
FOLLOWERS: Final = _gauge("followers", "Requests waiting for an event.", mode="livesum")
CONNECTIONS: Final = _gauge("connections", "Connections of clients.", mode="livesum")
MAX_REQUESTS: Final = _gauge(
    "requests_limit", "Requests that may be present at once.", mode="livesum"
)
# Database and object store
_DATABASE_SECONDS: Final = _histogram(
    "database_seconds", "Seconds that work in the database took, including its wait.", "kind"
)
DATABASE_WAIT_SECONDS: Final = _histogram(
    "database_wait_seconds", "Seconds waited for a connection, thread or the writer."
)
DATABASE_FAILURES: Final = _counter(
    "database_failures", "Temporary failures of work in the database."
)
DATABASE_IN_USE: Final = _gauge(
    "database_connections_in_use", "Connections or threads in use now.", mode="livesum"
)
DATABASE_LIMIT: Final = _gauge(
    "database_connections_limit",
    "Connections or threads that can be in use at once.",
    mode="livesum",
)
DATABASE_WAITING: Final = _gauge(
    "database_waiting", "Requests waiting for the database now.", mode="livesum"
)
_STORE_SECONDS: Final = _histogram(
    "store_seconds", "Seconds that a request to the object store took.", "action"
)
_DURATIONS: Final = {"database": _DATABASE_SECONDS, "store": _STORE_SECONDS}
STORE_FAILURES: Final = _counter(
    "store_failures", "Requests to the object store that failed, by action.", "action"
)
# Stored containers, users and bytes: read from the database once a minute
STORED: Final = {
    name: _gauge(name, meaning)
    for name, meaning in (
        ("users", "Registered users."),
        ("groups", "Groups that are not deleted."),
        ("containers", "Containers with which users are charged."),
        ("stored_bytes", "Bytes with which users are charged."),
        ("objects_due", "Objects that the sweeper must delete, counted up to 100,000."),
        ("parts_due", "Replaced and abandoned parts that the sweeper must remove, likewise."),
        ("replicas", "Standbys that stream from this PostgreSQL."),
        ("replication_lag_seconds", "Seconds by which the slowest standby is behind."),
        ("replication_lag_bytes", "Bytes of log that the slowest standby has not applied."),
    )
}
DISK_FREE: Final = _gauge(
    "disk_free_bytes", "Bytes free on the disk of the database or the objects.", "of"
)
# The process
BACKGROUND_FAILURES: Final = _counter(
    "background_failures", "Failures of background work, by work.", "work"
)
CLOCK_DIFFERENCE: Final = _gauge(
    "clock_difference_seconds", "Seconds by which this machine's clock is ahead of the database's."
)
_gauge(
    "build_info", "Versions of scbroker and Python.", "version", "python", mode="livemax"
).labels(importlib.metadata.version("scbroker"), platform.python_version()).set(1)


# Without a sample of 0 before, Prometheus would not see that a counter was raised for the first time.
for _code in {kind.code for kind in STATUS}:
    _PROBLEMS.labels(_code)
for _kind in ("signature", "passphrase"):
    LOG_INS_REFUSED.labels(_kind)
for _kind in ("reading", "writing", "reserved", "logout"):
    REFUSED.labels(_kind)
for _action in ("put", "get", "head", "delete", "list", "sign"):
    STORE_FAILURES.labels(_action)


@functools.cache
def durations(part: Literal["database", "store"], action: str) -> prometheus.Histogram:
    """Return the histogram of an action's seconds in the database or the object store."""
    return _DURATIONS[part].labels(action)


def count_answered(method: str, path: str, status: int, seconds: float) -> None:
    """Count one answered request of an operation, and its duration in seconds."""
    _REQUESTS.labels(method, path, str(status)).inc()
    _REQUEST_SECONDS.labels(method, path).observe(seconds)


def count_problem(error: BrokerError) -> None:
    """Count an answer, or an item of a batch's answer, that is this error."""
    kind = type(error) if type(error) in STATUS else BrokerFaultError
    _PROBLEMS.labels(kind.code).inc()


def page() -> bytes:
    """Return all metrics of this process, or with several workers of all of them."""
    folder = os.environ.get(_FOLDER)
    if folder is None:
        return prometheus.generate_latest(_REGISTRY)
    for pid in _pids(Path(folder)):
        try:
            os.kill(pid, 0)
        except (
            ProcessLookupError
        ):  # drop the gauges of an ended worker; its counters stay in the sums
            with contextlib.suppress(FileNotFoundError):  # a concurrent request did the same
                multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
    registry = prometheus.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(_Processes(Path(folder)))
    return prometheus.generate_latest(registry)


@contextlib.contextmanager
def shared_by_workers() -> Iterator[None]:
    """Give the worker processes that start in the block a folder for their metrics."""
    with tempfile.TemporaryDirectory(prefix="scbroker-metrics-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def _pids(folder: Path) -> set[int]:
    """Return the workers whose gauges are in the folder."""
    return {int(path.stem.rpartition("_")[2]) for path in folder.glob("gauge_live*.db")}


class _Processes(Collector):
    """Memory, processor time and open files of each worker, with its process id as label."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for pid in sorted(_pids(self._folder)):
            process = prometheus.ProcessCollector(pid=functools.partial(str, pid), registry=None)
            for metric in process.collect():
                merged = found.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    merged.add_sample(sample.name, {"pid": str(pid)}, sample.value)
        return found.values()


if _FOLDER not in os.environ:
    prometheus.ProcessCollector(registry=_REGISTRY)
