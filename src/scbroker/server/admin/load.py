"""Read the metrics that a running broker serves, and compute its load between two readings."""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from scbroker.errors import BrokerFaultError, InvalidArgumentError, UnreachableError

T = TypeVar("T", bound=Hashable)
Labels = Mapping[str, str]
_MAX_PAGE: Final = 4 * 1_048_576
_SECONDS: Final = 5.0
_REQUESTS: Final = "scbroker_requests_total"
_BUCKETS: Final = "scbroker_request_seconds_bucket"


class Sample(NamedTuple):
    """One value of a metric."""

    labels: Labels
    value: float


@dataclass(frozen=True)
class Reading:
    """All metrics of a broker at a moment (monotonic seconds)."""

    at: float
    is_ready: bool
    """Whether the broker can use its database and its object store."""
    samples: Mapping[str, Sequence[Sample]]

    def value(self, name: str) -> float | None:
        """Return the sum of a metric over all labels, or None if the broker does not have it."""
        samples = self.samples.get(name)
        return None if samples is None else sum(each.value for each in samples)

    def info(self) -> Labels:
        """Return the broker's versions."""
        return next((each.labels for each in self.samples.get("scbroker_build_info", ())), {})


class Operation(NamedTuple):
    """The load of one operation: requests per second, and quantiles of its seconds."""

    method: str
    path: str
    per_second: float
    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class Load:
    """What a broker did between two readings. Quantiles are None without a request."""

    seconds: float
    per_second: float
    p50: float | None
    p95: float | None
    by_status: Mapping[str, float]
    """Answers by status."""
    refused: Mapping[str, float]
    """Requests refused at their head, by kind."""
    problems: Mapping[str, float]
    """Answers that are errors, by code."""
    slow: float
    operations: Sequence[Operation] = field(repr=False)
    """The operations that were asked for, the most frequent first."""


async def read(url: str) -> Reading:
    """Read the metrics of the broker at this address; raise `BrokerUnavailableError` if it is away."""
    base = url.rstrip("/")
    try:
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            ready, _ = await _get(session, f"{base}/health/ready")
            status, text = await _get(session, f"{base}/metrics")
    except aiohttp.InvalidURL:
        raise InvalidArgumentError(f"{url} is not a URL such as http://127.0.0.1:8400.") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        raise UnreachableError(
            f"No broker answers at {url} ({why}): check that it runs, and the address."
        ) from None
    if status != 200:
        raise UnreachableError(
            f"{url}/metrics answers {status}: name the broker's own address, not that of a proxy."
        )
    return Reading(time.monotonic(), ready == 200, _samples(text))


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url, allow_redirects=False) as answer:
        body = await answer.content.read(_MAX_PAGE + 1)
        while not answer.content.at_eof() and len(body) <= _MAX_PAGE:
            body += await answer.content.read(_MAX_PAGE + 1 - len(body))
        if len(body) > _MAX_PAGE:
            raise BrokerFaultError(f"{url} has more than {_MAX_PAGE} bytes: it is not a broker's.")
        return answer.status, body.decode("utf-8", "replace")


def _samples(text: str) -> Mapping[str, Sequence[Sample]]:
    found: dict[str, list[Sample]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                found[each.name].append(Sample(each.labels, each.value))
    except (ValueError, KeyError, IndexError):
        raise BrokerFaultError("The metrics cannot be parsed: they are not a broker's.") from None
    return found


def load(before: Reading, after: Reading) -> Load:
    """Return what the broker did between two readings."""
    seconds = max(after.at - before.at, 1e-3)
    requests = _grown(before, after, _REQUESTS, _operation)
    durations = _durations(before, after)
    operations = [
        Operation(
            *key,
            count / seconds,
            _quantile(durations.get(key, {}), 0.5),
            _quantile(durations.get(key, {}), 0.95),
        )
        for key, count in requests.items()
    ]
    everything: dict[float, float] = defaultdict(float)
    for bound, count in itertools.chain.from_iterable(each.items() for each in durations.values()):
        everything[bound] += count
    return Load(
        seconds,
        sum(requests.values()) / seconds,
        _quantile(everything, 0.5),
        _quantile(everything, 0.95),
        _grown(before, after, _REQUESTS, lambda labels: labels.get("status", "")),
        _grown(before, after, "scbroker_refused_total", lambda labels: labels.get("kind", "")),
        _grown(before, after, "scbroker_problems_total", lambda labels: labels.get("code", "")),
        sum(_grown(before, after, "scbroker_slow_requests_total", lambda _: "").values()),
        sorted(operations, key=lambda each: -each.per_second),
    )


def _operation(labels: Labels) -> tuple[str, str]:
    return labels.get("method", ""), labels.get("path", "")


def _durations(before: Reading, after: Reading) -> dict[tuple[str, str], dict[float, float]]:
    """Return by operation how many of its requests took at most so many seconds, by seconds."""
    found: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
    grown = _grown(
        before, after, _BUCKETS, lambda labels: (*_operation(labels), labels.get("le", ""))
    )
    for (method, path, bound), count in grown.items():
        found[method, path][float(bound)] = count
    return found


def _grown(
    before: Reading, after: Reading, name: str, key_of: Callable[[Labels], T]
) -> dict[T, float]:
    """Return by how much counters have grown, by key, without those that have not.

    A counter that is lower than before belongs to a broker that was started again.
    """
    earlier, later = _sums(before, name, key_of), _sums(after, name, key_of)
    grown = {
        key: value - earlier.get(key, 0.0) if value >= earlier.get(key, 0.0) else value
        for key, value in later.items()
    }
    return {key: value for key, value in grown.items() if value > 0}


def _sums(reading: Reading, name: str, key_of: Callable[[Labels], T]) -> dict[T, float]:
    sums: dict[T, float] = defaultdict(float)
    for labels, value in reading.samples.get(name, ()):
        sums[key_of(labels)] += value
    return sums


def _quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the quantile of a histogram, interpolated within its bucket as Prometheus does."""
    bounds = sorted(buckets)
    if not bounds:
        return None
    wanted = share * buckets[bounds[-1]]
    below, from_bound = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted and count > below:
            if bound == float("inf"):
                return from_bound
            return from_bound + (bound - from_bound) * (wanted - below) / (count - below)
        below, from_bound = count, bound
    return None
