"""The command that finds out why scbroker does not work here."""

import datetime as dt
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scbroker.cli.commands import doctor
from scbroker.cli.findings import DoubtfulError, probe
from tests.kit.brokers import BrokerProcess
from tests.kit.people import Person, screen
from tests.kit.tcp import PROTOCOL, BadBroker, http
from tests.kit.tls import DAY, Terminator, certificate
from tests.kit.waiting import PATIENCE


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


@pytest.mark.long
def test_without_a_profile_the_doctor_checks_what_it_can(stranger: Person) -> None:
    found = examine(stranger)
    assert found["profile"].state == "warning"
    assert "scbroker register" in found["profile"].detail
    assert "broker" not in found
    found = examine(stranger, "--server", stranger.broker.url)
    assert found["broker"].state == found["clock"].state == "ok"
    assert "SCBROKER_API_KEY" in found["API key"].detail
    key = str(stranger.broker.api_key)
    found = examine(stranger, SCBROKER_SERVER_URL=stranger.broker.url, SCBROKER_API_KEY=key)
    assert found["API key"].state == found["origin"].state == "ok"
    assert "session" not in found


def test_the_api_key_of_a_profile_is_not_sent_to_another_server(alice: Person) -> None:
    with BadBroker([http(404, headers=b"")]) as other:
        found = examine(alice, "--server", other.url, status=1)
        assert "another broker" in found["profile"].detail
        assert "not a broker" in found["broker"].detail
        heads = b"".join(request.head for request in other.requests)
    assert str(alice.broker.api_key).encode() not in heads


@pytest.mark.long
def test_a_wrong_configuration_file_fails_with_what_to_do(alice: Person) -> None:
    alice.config.chmod(0o644)
    found = examine(alice, status=2)
    assert "chmod 600" in found["profile"].detail
    alice.config.chmod(0o600)
    alice.config.write_text("default = 7\n")
    assert "is wrong" in examine(alice, status=2)["profile"].detail
    found = examine(alice, "--profile", "none", "--server", alice.broker.url, status=2)
    assert found["broker"].state == "ok"


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
def test_a_broker_that_has_other_origins_is_named_before_a_log_in_fails(tmp_path: Path) -> None:
    with broker_of(tmp_path, origins="https://broker.example:443") as someone:
        found = examine(someone, "--server", someone.broker.url, status=4)
    assert found["origin"].state == "failed"
    assert "https://broker.example:443" in found["origin"].detail


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


def test_an_unknown_api_key_fails_with_status_4(alice: Person) -> None:
    text = alice.config.read_text()
    other = "00000000-0000-4000-8000-000000000000"
    alice.config.write_text(text.replace(str(alice.broker.api_key), other))
    found = examine(alice, status=4)
    assert found["API key"].state == "failed"
    assert other not in str(found)
    assert "session" not in found


def test_a_session_that_is_not_kept_fails_with_the_command_to_run(alice: Person) -> None:
    for path in (alice.home / "sessions").glob("*.key"):
        path.unlink()
    found = examine(alice, status=4)
    assert found["origin"].state == "ok"
    assert "scbroker login" in found["session"].detail


def test_folders_that_cannot_be_used_fail_with_the_reason(alice: Person) -> None:
    (alice.home / "trust").chmod(0o777)
    found = examine(alice, status=1)
    assert str(alice.home / "trust") in found["trust store"].detail
    (alice.home / "trust").chmod(0o700)
    (alice.home / "sessions").chmod(0o777)
    found = examine(alice, status=1)
    assert "session store" in found
    assert found["session store"].state == "failed"
    assert "--session-folder" in found["session store"].detail


def test_a_damaged_trust_store_fails_in_the_session(alice: Person) -> None:
    (path,) = (alice.home / "trust").glob("*.trust")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert examine(alice, status=1)["session"].state == "failed"


def test_little_free_space_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "free at" in doctor._space(tmp_path)
    monkeypatch.setattr(doctor, "_LEAST_SPACE", 2**80)
    with pytest.raises(DoubtfulError, match="may not fit"):
        doctor._space(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "name,ends,known,state,words",
    [
        ("localhost", 90 * DAY, True, "ok", "valid until"),
        ("localhost", 3 * DAY, True, "warning", "in 2 days"),
        ("localhost", 90 * DAY, False, "failed", "SSL_CERT_FILE"),
        ("localhost", -DAY, True, "failed", "certificate has expired"),
        ("broker.example", DAY, True, "failed", "Hostname mismatch"),
    ],
)
def test_certificates_are_judged_as_the_library_judges_them(
    tmp_path: Path, name: str, ends: dt.timedelta, known: bool, state: str, words: str
) -> None:
    pem = certificate(tmp_path, name, ends)
    terminator = Terminator(pem)
    with terminator.running() as url, broker_of(tmp_path, origins=url) as someone:
        terminator.backend = someone.broker.port
        env = {"SSL_CERT_FILE": str(pem)} if known else {}
        found = examine(someone, "--server", url, status=5 if state == "failed" else 0, **env)
    check = found["broker" if state == "failed" else "certificate"]
    assert (check.state, words in check.detail) == (state, True), check
    assert ("origin" in found) == (state != "failed")


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Foo 20000000 00:00:00 GMT"])
def test_a_missing_or_wrong_time_of_the_broker_is_a_warning(date: str) -> None:
    headers = PROTOCOL + (f"Date: {date}\r\n".encode() if date else b"")
    with BadBroker([http(200, headers=headers)]) as server:
        at = probe(server.url, PATIENCE)
    with pytest.raises(DoubtfulError):
        doctor._clock(at)


def test_a_small_difference_of_clocks_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_010.0)
    date = f"Date: {formatdate(1_700_000_000, usegmt=True)}\r\n".encode()
    with BadBroker([http(200, headers=PROTOCOL + date)]) as server:
        assert "ahead of the broker's" in doctor._clock(probe(server.url, PATIENCE))
