"""A page is served on the loopback address alone, and the browser gets its URL by a private file."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from scbroker.cli.web.serving import listening, opened_in_browser
from tests.kit.waiting import wait_until

URL = 'http://127.0.0.1:1/#secret&"'


def test_a_page_listens_on_a_loopback_address_alone() -> None:
    with listening(0) as bound:
        host, port = bound.getsockname()
        assert ipaddress.ip_address(host).is_loopback
        with socket.create_connection((host, port), 5):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="how a browser is chosen differs by system")
def test_the_browser_gets_a_private_file_and_not_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, got = tmp_path / "browser", tmp_path / "got"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {got}.new; mv {got}.new {got}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setenv("DISPLAY", ":0")
    with opened_in_browser(URL, pytest.fail):
        wait_until(got.exists)
        argument = got.read_text()
        assert "secret" not in argument
        file = Path(argument.removeprefix("file://"))
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.stat().st_uid == os.geteuid()
        text = file.read_text()
        assert 'content="0; url=http://127.0.0.1:1/#secret&amp;&quot;"' in text
    assert not file.parent.exists()
