"""The load between two readings of a broker's metrics."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from scbroker import BrokerError
from scbroker.server.admin.load import Load, Reading, Sample, load, read
from tests.kit.brokers import BrokerProcess, Wire

BUCKETS: Final = ("0.01", "0.1", "1.0", "+Inf")
PUT: Final = {"method": "PUT", "path": "/v1/a"}


def reading(at: float, **samples: Sequence[tuple[Mapping[str, str], float]]) -> Reading:
    named = {
        f"scbroker_{name}": [Sample(*each) for each in found] for name, found in samples.items()
    }
    return Reading(at, True, named)


def requests(at: float, count: float, *buckets: float, labels: Mapping[str, str] = PUT) -> Reading:
    """A reading with one operation: how many of its requests took at most each of BUCKETS."""
    bounds = [({**labels, "le": le}, number) for le, number in zip(BUCKETS, buckets, strict=True)]
    return reading(
        at, requests_total=[({**labels, "status": "200"}, count)], request_seconds_bucket=bounds
    )


def between(before: Reading, after: Reading) -> Load:
    return load(before, after)


def test_rates_are_of_the_time_between_the_readings() -> None:
    found = between(requests(10, 100, 50, 90, 100, 100), requests(12, 300, 150, 290, 300, 300))
    assert found.per_second == 100
    [operation] = found.operations
    assert (operation.method, operation.path, operation.per_second) == ("PUT", "/v1/a", 100)
    assert found.by_status == {"200": 200}


def test_quantiles_are_of_the_requests_between_the_readings() -> None:
    found = between(
        requests(0, 1000, 1000, 1000, 1000, 1000), requests(1, 1100, 1050, 1100, 1100, 1100)
    )
    assert found.p50 == pytest.approx(0.01)
    assert found.p95 == pytest.approx(0.01 + 0.09 * 45 / 50)


def test_a_quantile_above_the_last_bound_is_that_bound() -> None:
    assert between(requests(0, 0, 0, 0, 0, 0), requests(1, 10, 0, 0, 0, 10)).p95 == 1.0


def test_without_a_request_there_is_no_quantile_and_no_operation() -> None:
    same = requests(0, 5, 1, 2, 3, 5)
    found = between(same, same)
    assert (found.per_second, found.p50, found.p95, found.operations) == (0, None, None, [])


def test_a_broker_that_was_started_again_has_no_negative_rate() -> None:
    found = between(requests(0, 1000, 900, 950, 1000, 1000), requests(1, 10, 5, 10, 10, 10))
    assert found.per_second == 10
    assert found.p50 == pytest.approx(0.01)


def test_refusals_errors_and_slow_requests_are_counted_by_kind() -> None:
    before = reading(0, refused_total=[({"kind": "Reading"}, 4)])
    after = reading(
        60,
        refused_total=[({"kind": "Reading"}, 6), ({"kind": "Writing"}, 1)],
        problems_total=[({"code": "throttled"}, 3)],
        slow_requests_total=[(PUT, 2)],
    )
    found = between(before, after)
    assert found.refused == {"Reading": 2, "Writing": 1}
    assert found.problems == {"throttled": 3}
    assert found.slow == 2


def test_the_metrics_of_a_real_broker_are_read(broker: BrokerProcess) -> None:
    ring = broker.new_user()
    first = asyncio.run(read(broker.url))
    with Wire(broker).log_in(ring) as wire:
        for _ in range(5):
            wire.call("GET", "/v1/events").expect(200)
    found = load(first, asyncio.run(read(f"{broker.url}/")))
    assert first.is_ready
    assert first.info()["version"]
    events = [each for each in found.operations if each.path == "/v1/events"]
    assert sum(each.per_second for each in events) * found.seconds == pytest.approx(5)
    assert found.p95 is not None
    assert first.value("scbroker_requests_present") is not None
    assert first.value("scbroker_nothing") is None


@contextmanager
def server(status: int, body: bytes) -> Iterator[str]:
    """A web server that is not a broker."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.mark.parametrize(
    "status, body, says",
    [
        (404, b"", "answers 404"),
        (302, b"", "answers 302"),
        (200, bytes(5_000_000), "more than 4194304 bytes"),
        (200, b'a{b="c} 1', "cannot be parsed"),
    ],
    ids=["not found", "redirect", "endless", "not metrics"],
)
def test_a_server_that_is_not_a_broker_is_said(status: int, body: bytes, says: str) -> None:
    with server(status, body) as url, pytest.raises(BrokerError, match=says):
        asyncio.run(read(url))


@pytest.mark.parametrize(
    "url, says", [("http://127.0.0.1:1", "No broker answers"), ("nothing", "not a URL")]
)
def test_an_address_without_a_broker_is_said(url: str, says: str) -> None:
    with pytest.raises(BrokerError, match=says):
        asyncio.run(read(url))
