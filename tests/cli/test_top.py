"""`scbroker admin top`: figures of a broker, from its metrics."""

from io import StringIO

import pexpect
import pytest
from rich.console import Console

from scbroker.cli.admin import top
from scbroker.server.admin.load import Reading, between
from tests.kit.answering import answering
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.people import Person


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
    assert (load.throttled, load.problems) == (2, {"throttled": 2})
    assert (load.refused, load.refusals) == (0.2, {"writing": 0.2})
    assert [(each.path, each.rate, each.slow) for each in load.operations] == [("/x", 20, 0.1)]
    assert load.store_p95 is None


def test_a_broker_that_was_restarted_meanwhile_has_no_negative_figures() -> None:
    load = between(reading(0, 100, 100), reading(10, 20, 20))
    assert load.requests == 0
    assert load.p95 is None


@pytest.mark.long
@on_sqlite
def test_once_and_json_give_all_figures(stranger: Person, broker: BrokerProcess) -> None:
    options = ("admin", "top", "--url", broker.url, "--every", "0.2", "--once")
    with Wire(broker) as wire:
        wire.nonce()
    found = stranger.json(*options)
    assert found["limit"] == 128
    assert found["databaseLimit"] == 5
    assert "/v1/session-challenges" in {each["path"] for each in found["operations"]}
    shown = dict(line.split("\t") for line in stranger.run(*options).lines)
    assert shown["limit"] == "128"


@on_sqlite
@pytest.mark.long
def test_on_a_terminal_the_figures_are_shown_until_an_interrupt(
    stranger: Person, broker: BrokerProcess
) -> None:
    terminal = stranger.at_terminal("admin", "top", "--url", broker.url, "--every", "0.2")
    terminal.expect("of 128 requests")
    terminal.expect("OPERATION")
    terminal.sendintr()
    terminal.expect(r"\x1b\[\?1049l")  # the screen from before is back
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


@on_sqlite
def test_an_address_without_a_broker_is_an_error_in_words(stranger: Person) -> None:
    for url, status in (("http://127.0.0.1:1", 5), ("nonsense", 2), ("ftp://x", 2)):
        done = stranger.run("admin", "top", "--url", url, "--once", status=status)
        assert "--url" in done.error


@pytest.mark.long
@on_sqlite
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
def test_another_server_than_a_broker_is_refused_in_words(
    stranger: Person, status: int, body: bytes
) -> None:
    with answering(status, body) as url:
        done = stranger.run("admin", "top", "--url", url, "--once", status=1)
    assert f"{url}/metrics" in done.error


def test_what_another_program_answers_on_the_port_cannot_steer_the_terminal() -> None:
    labels = (("method", "G\x1b[2JET"), ("path", "/\x1b]0;x\x07"))
    samples = {
        ("scbroker_requests_total", labels): 1.0,
        ("scbroker_problems_total", (("code", "a\x1b[31m"),)): 1.0,
    }
    found = between(Reading(0.0, {}), Reading(1.0, samples))
    console = Console(file=StringIO(), width=120)
    console.print(top._drawn(found, "http://127.0.0.1:8400"))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "2JET" in text
    assert text.replace("\n", "").isprintable()
