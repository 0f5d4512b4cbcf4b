"""A page is served on the loopback address alone, and the browser gets its URL by a private file."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from scbroker.cli.web.serving import listening, opened_in_browser, serve
from scbroker.errors import InvalidArgumentError
from tests.kit.waiting import PATIENCE, wait_until

URL = 'http://127.0.0.1:1/#secret&"'


def test_a_page_listens_on_a_loopback_address_alone() -> None:
    with listening(0) as bound:
        host, port = bound.getsockname()
        assert ipaddress.ip_address(host).is_loopback
        with socket.create_connection((host, port), 5):
            pass


def test_a_system_with_one_loopback_address_gives_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.create_server

    def create_server(address: tuple[str, int]) -> socket.socket:
        if address[0] != "127.0.0.1":
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        return real(address)

    monkeypatch.setattr(socket, "create_server", create_server)
    with listening(0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(InvalidArgumentError, match=f"127.0.0.1:{port}"), listening(port):
            pass


async def test_a_page_ends_by_itself() -> None:
    async def no_page(_scope: object, _receive: object, _send: object) -> None:
        raise AssertionError("nobody asked")

    with listening(0) as bound:
        await asyncio.wait_for(serve(no_page, bound, 0.2), PATIENCE)


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no variable for a display")
def test_without_a_display_no_browser_of_the_terminal_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    failures: list[bool] = []
    with opened_in_browser(URL, lambda: failures.append(True)):
        pass
    assert failures == [True]
