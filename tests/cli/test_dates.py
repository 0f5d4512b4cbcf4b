"""The time until which something lasts is read exactly, and refused where it could mean two times."""

import datetime as dt
import time

import pytest

from scbroker import BrokerError
from scbroker.cli.output import end_of, in_zone
from tests.kit.cases import in_one_case

INVALID = BrokerError.invalidArgumentError


@pytest.mark.parametrize(
    "text,duration",
    [
        ("90m", dt.timedelta(minutes=90)),
        (" 7D ", dt.timedelta(days=7)),
        ("4 w", dt.timedelta(weeks=4)),
    ],
)
def test_a_duration_ends_that_long_after_now(text: str, duration: dt.timedelta) -> None:
    before = dt.datetime.now(dt.UTC)
    assert before <= end_of(text) - duration <= dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    "zone,day,end",
    [
        ("UTC", "2200-12-31", "2201-01-01T00:00:00+00:00"),
        ("Europe/Berlin", "2030-03-30", "2030-03-31T00:00:00+01:00"),
        ("America/New_York", "2032-02-29", "2032-03-01T00:00:00-05:00"),
    ],
)
def test_a_day_ends_at_the_local_midnight_after_it(
    monkeypatch: pytest.MonkeyPatch, zone: str, day: str, end: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        found = end_of(day)
        shown = in_zone(found)
    time.tzset()
    assert found == dt.datetime.fromisoformat(end)
    assert shown.startswith(f"{end[:10]} 00:00 ")


@in_one_case(
    "text,words",
    [
        ("", "cannot be ''"),
        ("7", "pass a duration such as 90m, 12h, 7d or 4w"),
        ("999999w", "cannot be '999999w'"),
        ("\u0667d", "cannot be"),
        ("2200-12-31T18:00", "lacks a time zone: add Z for UTC"),
        ("0d", "is in the past"),
        ("2020-01-01T00:00Z", "is in the past"),
    ],
)
def test_anything_else_is_refused_and_the_message_says_what_to_pass(text: str, words: str) -> None:
    with pytest.raises(INVALID, match=words):
        end_of(text)
