"""docs/reference/log.md lists every event of the broker's log, with its level and fields."""

import ast
import asyncio
import functools
import re
import time
import urllib.request
from pathlib import Path

import pytest
import structlog
from starlette.requests import Request

from scbroker.errors import OverloadedError
from scbroker.server import logs, requests
from scbroker.server.settings import Settings, changed
from tests.kit.people import Person
from tests.kit.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "src/scbroker/server"
LEVELS = ("info", "warning", "error")
LOGGERS = ("_log", "_refused", "_throttled", "_traces", "unavailable")
Event = tuple[str, str]


@functools.cache
def in_source() -> dict[Event, set[str]]:
    """The fields of each event, by its name and level."""
    found: dict[Event, set[str]] = {}
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            on = node.func.value
            if not (isinstance(on, ast.Name) and on.id in LOGGERS and node.func.attr in LEVELS):
                continue
            [event] = node.args
            if isinstance(event, ast.Constant):
                fields = {each.arg or "**" for each in node.keywords}
                found.setdefault((str(event.value), node.func.attr), set()).update(fields)
    return found


def on_page() -> dict[Event, set[str]]:
    text = (ROOT / "docs/reference/log.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|([^|]*)\|", text, re.MULTILINE)
    return {
        (event, level): {each.strip() for each in fields.split(",") if each.strip()}
        for event, level, fields in rows
        if level in LEVELS
    }


@pytest.mark.long
def test_the_page_has_every_event_of_the_source_and_no_other() -> None:
    assert set(in_source()) == set(on_page())


@pytest.mark.sampled
@pytest.mark.parametrize("event", sorted(in_source()))
def test_the_page_has_the_fields_of_each_event(event: Event) -> None:
    given, listed = in_source()[event], on_page()[event]
    if "exc_info" in given:
        given = given - {"exc_info"} | {"exception"}
    if "**" in given:  # the fields that several lines about requests share
        given = given - {"**"} | (listed - given)
    assert given == listed


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://me:sec/ret@host/x", "postgresql://…@host/x"),
        ("postgresql://me:sec@ret@host:5432/x", "postgresql://…@host:5432/x"),
        ("postgresql://me@host:5432/x?password=secret", "postgresql://me@host:5432/x?…"),
        ("postgresql://me:secret@host/x?ssl=require", "postgresql://…@host/x?…"),
        ("sqlite:////srv/broker.sqlite", "sqlite:////srv/broker.sqlite"),
    ],
)
def test_no_password_of_an_address_is_shown_however_it_is_written(url: str, shown: str) -> None:
    assert changed(Settings(database_url=url)) == {"database_url": shown}


def test_what_could_steer_a_terminal_is_escaped() -> None:
    found = logs._printable(None, "", {"event": "x", "error": "a\x1b[2Jb", "count": 3})
    assert found == {"event": "x", "error": "a\\x1b[2Jb", "count": 3}
    found = logs._printable(None, "", {"exception": "Traceback:\n  raise\nValueError: \x1b[2J"})
    assert found == {"exception": "Traceback:\n  raise\nValueError: \\x1b[2J"}


def test_beyond_a_number_lines_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    seldom = logs.Seldom(2)
    with structlog.testing.capture_logs() as written:
        for _ in range(5):
            seldom.info("x")
        clock[0] += 61
        seldom.info("x")
    assert [line["event"] for line in written] == ["x", "x", "lines left out", "x"]
    assert written[2]["count"] == 3


def test_users_who_send_too_many_requests_neither_fill_the_log_nor_hide_a_failure_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_unavailable", {True: logs.Seldom(), False: logs.Seldom()})
    failed, request = OverloadedError("The store failed."), Request({"type": "http"})
    failed.__cause__ = OSError("disk")
    with structlog.testing.capture_logs() as written:
        for _ in range(100):
            asyncio.run(requests.refused(request, OverloadedError("Too many requests wait.")))
        asyncio.run(requests.refused(request, failed))
    assert len(written) == 31
    assert "disk" in written[-1]["cause"]


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_on_a_terminal_the_log_is_for_people(stranger: Person, tmp_path: Path) -> None:
    terminal = stranger.at_terminal("serve", "--port", "0", "--data-dir", tmp_path / "data")
    terminal.expect("started")
    terminal.expect(r"scbroker serves (http://127.0.0.1:\d+)")
    assert isinstance(terminal.match, re.Match)
    with urllib.request.urlopen(f"{terminal.match[1]}/health/live", timeout=PATIENCE) as answer:
        assert answer.status == 200
    terminal.sendintr()
    terminal.expect("stopped.*SIGINT")
    assert '{"' not in (terminal.before or "")
    terminal.close()
