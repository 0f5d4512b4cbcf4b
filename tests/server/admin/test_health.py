"""A broker's metrics."""

import pytest

from scbroker.errors import BrokerFaultError, InvalidArgumentError, UnreachableError
from scbroker.server.admin.health import Reading, read
from tests.kit.answering import answering


def test_a_counter_grows_by_kind_and_a_broker_that_was_restarted_has_no_negative_figures() -> None:
    def reading(writing: float, reading: float) -> Reading:
        of = {"writing": writing, "reading": reading}
        return Reading(0, {("refused", (("kind", kind),)): each for kind, each in of.items()})

    assert reading(5, 3).since(reading(2, 3), "refused", "kind") == {"writing": 3}
    assert reading(1, 1).since(reading(2, 3), "refused", "kind") == {}


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
