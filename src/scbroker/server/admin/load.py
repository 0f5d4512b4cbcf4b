"""Read a running broker's /metrics, and calculate its load between two readings."""

import http.client
import math
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from scbroker.errors import BrokerFaultError, InvalidArgumentError, UnreachableError

_SECONDS: Final = 10.0
_MOST: Final = 8 * 1_048_576
_SERIES = tuple[str, tuple[tuple[str, str], ...]]


class Reading(NamedTuple):
    """The samples of one reading by name and labels, and its time."""

    time: float
    samples: Mapping[_SERIES, float]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name that have these labels."""
        return sum(self.by(name, "", **labels).values())

    def by(self, name: str, *keys: str, **labels: str) -> dict[tuple[str, ...], float]:
        """Return the sums of a name's samples that have these labels, by the values of other labels."""
        found: dict[tuple[str, ...], float] = {}
        for (sample, pairs), value in self.samples.items():
            have = dict(pairs)
            if sample == name and labels.items() <= have.items():
                values = tuple(have.get(key, "") for key in keys)
                found[values] = found.get(values, 0.0) + value
        return found


class Operation(msgspec.Struct, frozen=True, rename="camel"):
    """One operation between two readings; times in seconds, None without a request."""

    method: str
    path: str
    rate: float
    p50: float | None
    p95: float | None
    slow: float


class Load(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A broker's load between two readings. Rates are per second; times in seconds, None without any."""

    seconds: float
    requests: float
    p50: float | None
    p95: float | None
    received: float
    sent: float
    present: int
    limit: int
    waiting: int
    followers: int
    connections: int
    refused: float
    refusals: dict[str, float]
    """Requests refused at their head, by kind."""
    throttled: float
    slow: float
    problems: dict[str, float]
    """Answers with an error, by its code."""
    database_in_use: int
    database_limit: int
    database_waiting: int
    database_wait_p95: float | None
    database_failures: float
    store: float
    store_p95: float | None
    store_failures: float
    operations: list[Operation]
    """The busiest first."""

    def row(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def read(url: str) -> Reading:
    """Read the metrics of the broker at this address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgumentError("--url must be an address such as http://127.0.0.1:8400.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=_SECONDS)
        connection.request("GET", f"{parts.path.rstrip('/')}/metrics")
        answer = connection.getresponse()
        body = answer.read(_MOST + 1)
        connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = type(error).__name__
        raise UnreachableError(
            f"No metrics at {url} ({why}): check --url, and whether the broker runs."
        ) from None
    if answer.status != 200 or len(body) > _MOST:
        raise BrokerFaultError(
            f"{url}/metrics answered {answer.status} with {len(body)} bytes: name the broker's own address "
            "with --url, not that of the proxy."
        )
    samples: dict[_SERIES, float] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if not math.isfinite(sample.value):
                    raise ValueError
                samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    except ValueError:
        raise BrokerFaultError(f"{url}/metrics is not in Prometheus' format.") from None
    return Reading(time.monotonic(), samples)


def between(before: Reading, after: Reading) -> Load:
    """Return the load between two readings; since the broker's start if `before` has no samples."""
    seconds = max(after.time - before.time, 1e-3)

    def rate(name: str, **labels: str) -> float:
        grown = max(0.0, after.total(name, **labels) - before.total(name, **labels))
        return round(grown / seconds, 4)

    def rates(name: str, label: str) -> dict[str, float]:
        return {value: rate(name, **{label: value}) for (value,) in after.by(name, label)}

    def now(name: str) -> int:
        return int(after.total(f"scbroker_{name}"))

    def percentile(share: float, name: str, **labels: str) -> float | None:
        return _percentile(share, before, after, f"scbroker_{name}_bucket", labels)

    return Load(
        seconds=round(seconds, 4),
        requests=rate("scbroker_requests_total"),
        p50=percentile(0.5, "request_seconds"),
        p95=percentile(0.95, "request_seconds"),
        received=rate("scbroker_received_bytes_total"),
        sent=rate("scbroker_sent_bytes_total"),
        present=now("requests_present"),
        limit=now("requests_limit"),
        waiting=now("requests_waiting"),
        followers=now("followers"),
        connections=now("connections"),
        refused=rate("scbroker_refused_total"),
        refusals=rates("scbroker_refused_total", "kind"),
        throttled=rate("scbroker_problems_total", code="throttled"),
        slow=rate("scbroker_slow_requests_total"),
        problems=rates("scbroker_problems_total", "code"),
        database_in_use=now("database_connections_in_use"),
        database_limit=now("database_connections_limit"),
        database_waiting=now("database_waiting"),
        database_wait_p95=percentile(0.95, "database_wait_seconds"),
        database_failures=rate("scbroker_database_failures_total"),
        store=rate("scbroker_store_seconds_count"),
        store_p95=percentile(0.95, "store_seconds"),
        store_failures=rate("scbroker_store_failures_total"),
        operations=sorted(
            (
                Operation(
                    method,
                    path,
                    rate("scbroker_requests_total", method=method, path=path),
                    percentile(0.5, "request_seconds", method=method, path=path),
                    percentile(0.95, "request_seconds", method=method, path=path),
                    rate("scbroker_slow_requests_total", method=method, path=path),
                )
                for method, path in after.by("scbroker_requests_total", "method", "path")
            ),
            key=lambda operation: -operation.rate,
        ),
    )


def _percentile(
    share: float, before: Reading, after: Reading, name: str, labels: dict[str, str]
) -> float | None:
    """Return a percentile of what a histogram has counted since `before`, interpolated in its bucket."""
    old = before.by(name, "le", **labels)
    grown = sorted(
        (float(le), value - old.get((le,), 0.0))
        for (le,), value in after.by(name, "le", **labels).items()
    )
    if not grown or grown[-1][1] <= 0:
        return None
    wanted = share * grown[-1][1]
    low, below = 0.0, 0.0
    for bound, count in grown:
        if count >= wanted:
            if bound == float("inf"):
                return low
            return round(low + (bound - low) * (wanted - below) / max(count - below, 1e-9), 4)
        low, below = bound, count
    return low
