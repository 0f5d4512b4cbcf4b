"""The command that finds out why scbroker does not work here."""

from typing import NamedTuple

import pytest

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
        "profile", "trust store", "session store", "broker", "API key", "origin", "session",
    ]  # fmt: skip
    rows = alice.json("doctor")
    assert [row["check"] for row in rows] == list(found)
    assert alice.run("doctor", "--quiet").output == ""
    assert "ok       origin" in screen(alice, "doctor")


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
    assert found["trust store"].state == "ok"
    assert "connection refused" in found["broker"].detail
    assert "session" not in found


def test_a_session_that_is_not_kept_fails_with_the_command_to_run(alice: Person) -> None:
    for path in (alice.home / "sessions").glob("*.key"):
        path.unlink()
    found = examine(alice, status=4)
    assert found["origin"].state == "ok"
    assert "scbroker login" in found["session"].detail
