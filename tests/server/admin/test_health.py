"""A broker's load, from its metrics."""

import pytest

from scbroker.errors import BrokerFaultError, InvalidArgumentError, UnreachableError
from scbroker.server.admin.health import Reading, between, read
from tests.kit.answering import answering


def reading(time: float, requests: float, quick: float) -> Reading:
    at = (("method", "GET"), ("path", "/x"))
    return Reading(
        time,
        {
            ("scbroker_requests_total", (*at, ("status", "200"))): requests,
            ("scbroker_request_seconds_bucket", (("le", "0.1"), *at)): quick,
            ("scbroker_request_seconds_bucket", (("le", "1.0"), *at)): requests,
            ("scbroker_request_seconds_bucket", (("le", "+Inf"), *at)): requests,
            ("scbroker_problems_total", (("code", "throttled"),)): requests / 10,
            ("scbroker_refused_total", (("kind", "writing"),)): requests / 100,
            ("scbroker_slow_requests_total", at): requests / 200,
        },
    )


def test_figures_are_those_of_the_time_between_two_readings() -> None:
    load = between(reading(0, 100, 100), reading(10, 300, 200))
    assert load.requests == 20
    assert load.p50 == pytest.approx(0.1)
    assert load.p95 == pytest.approx(0.91)
    assert (load.refusals, load.problems) == ({"writing": 0.2}, {"throttled": 2})
    assert [(each.path, each.rate, each.slow) for each in load.operations] == [("/x", 20, 0.1)]


def test_a_broker_that_was_restarted_meanwhile_has_no_negative_figures() -> None:
    load = between(reading(0, 100, 100), reading(10, 20, 20))
    assert load.requests == 0
    assert load.p95 is None


@pytest.mark.parametrize(
    "url, error",
    [
        ("http://127.0.0.1:1", UnreachableError),
        ("nonsense", InvalidArgumentError),
        ("ftp://x", InvalidArgumentError),
    ],
)
def test_an_address_without_a_broker_is_an_error_that_names_the_option(
    url: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match="--url"):
        read(url)


@pytest.mark.parametrize(
    "status, body",
    [
        (404, b"nothing"),
        (200, b"<html>"),
        (200, b'a{b="c" 1'),
        (200, b"scbroker_followers NaN\n"),
        (200, b"scbroker_followers +Inf\n"),
    ],
)
def test_another_server_than_a_broker_is_refused_in_words(status: int, body: bytes) -> None:
    with answering(status, body) as url, pytest.raises(BrokerFaultError, match=f"{url}/metrics"):
        read(url)
