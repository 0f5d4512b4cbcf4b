"""The command that finds out why scbroker does not work here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person, screen
from tests.kit.tcp import BadBroker, http


class Found(NamedTuple):
    """What the doctor says of one check."""

    state: str
    detail: str


def examine(someone: Person, *options: str, status: int = 0, **env: str) -> dict[str, Found]:
    """Run the doctor, and return what it says of each check."""
    lines = someone.run("doctor", *options, status=status, stdin=b"", **env).lines
    rows = [line.split("\t") for line in lines]
    return {check: Found(state, detail) for state, check, detail in rows}


@pytest.mark.long
def test_a_right_set_up_is_ok_in_all_checks(alice: Person) -> None:
    found = examine(alice)
    assert {each.state for each in found.values()} == {"ok"}, found
    assert list(found) == [
        "profile", "trust store", "session store", "disk", "broker", "clock", "API key", "origin", "session",
    ]  # fmt: skip
    rows = alice.json("doctor")
    assert [row["check"] for row in rows] == list(found)
    assert alice.run("doctor", "--quiet").output == ""
    assert "ok       clock" in screen(alice, "doctor")


def test_the_api_key_of_a_profile_is_not_sent_to_another_server(alice: Person) -> None:
    with BadBroker([http(404, headers=b"")]) as other:
        found = examine(alice, "--server", other.url, status=1)
        assert "another broker" in found["profile"].detail
        assert "not a broker" in found["broker"].detail
        heads = b"".join(request.head for request in other.requests)
    assert str(alice.broker.api_key).encode() not in heads


def test_a_broker_that_is_away_fails_with_status_5_and_the_device_is_checked_nevertheless(
    alice: Person,
) -> None:
    text = alice.config.read_text()
    alice.config.write_text(text.replace(alice.broker.url, "http://127.0.0.1:9"))
    found = examine(alice, status=5)
    assert found["trust store"].state == found["disk"].state == "ok"
    assert "connection refused" in found["broker"].detail
    assert "session" not in found


@contextmanager
def broker_of(tmp_path: Path, **settings: Any) -> Iterator[Person]:
    """A person without a user, and a broker with these settings."""
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        someone = Person(tmp_path / "home", broker)
        someone.environment["SCBROKER_API_KEY"] = str(broker.api_key)
        yield someone


@pytest.mark.long
@pytest.mark.parametrize(
    "ahead,state,words",
    [
        (7200, "failed", "1:59:5|2:00:0"),
        (-7200, "failed", "ahead of"),
        (120, "warning", "set it right"),
    ],
)
def test_a_different_clock_is_reported_with_the_difference(
    tmp_path: Path, ahead: int, state: str, words: str
) -> None:
    with broker_of(tmp_path, clock_ahead=ahead) as someone:
        found = examine(
            someone, "--server", someone.broker.url, status=1 if state == "failed" else 0
        )
    assert found["clock"].state == state
    assert re.search(words, found["clock"].detail)


def test_a_session_that_is_not_kept_fails_with_the_command_to_run(alice: Person) -> None:
    for path in (alice.home / "sessions").glob("*.key"):
        path.unlink()
    found = examine(alice, status=4)
    assert found["origin"].state == "ok"
    assert "scbroker login" in found["session"].detail
