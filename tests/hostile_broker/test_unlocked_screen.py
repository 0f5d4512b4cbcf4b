"""Attacks on the user's page by somebody who finds the machine, after its user has left it."""

from __future__ import annotations

import asyncio
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from scbroker import Container, ServerProvider
from scbroker.cli.run import Run
from scbroker.cli.ui import listing
from scbroker.cli.ui.session import Session
from scbroker.desk.names import Entry, all_containers
from tests.hostile_broker.catalogue import attack
from tests.kit.brokers import BrokerProcess
from tests.kit.pages import UsersPage
from tests.kit.people import Person, put
from tests.kit.waiting import wait_until

left = attack(120, "screen that its user has left")
BY_SCRIPT = {"Sec-Fetch-Mode": "cors"}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def made(alice: Person) -> uuid.UUID:
    """A container of Alice's: a picture for the page, and too large for the buffers of a connection."""
    with alice.session() as session:
        return put(session, "zoo.png", PNG + bytes(24_000_000))


@pytest.fixture
def page(alice: Person, made: uuid.UUID) -> Iterator[UsersPage]:
    """Alice's page, which locks itself after four seconds, and which her browser has entered."""
    del made  # before the page: storing it takes seconds
    with UsersPage(alice, "--lock", "0.067") as opened:
        opened.enter().expect(200)
        yield opened


@contextmanager
def standing_still(page: UsersPage, line: str, *headers: str) -> Iterator[socket.socket]:
    """Send a request as the browser does; the caller neither reads the answer nor sends the body."""
    own = [f"Host: {page.host}:{page.port}", f"Origin: {page.origin}", f"Cookie: {page.cookie}"]
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((page.host, page.port))
        connection.sendall("\r\n".join([f"{line} HTTP/1.1", *own, *headers, "", ""]).encode())
        yield connection


def wait_until_locked(page: UsersPage) -> None:
    wait_until(lambda: page.get("/state", BY_SCRIPT).text == "locked")


@pytest.mark.long
@left
def test_a_download_that_is_paused_does_not_keep_the_page_open(
    page: UsersPage, made: uuid.UUID
) -> None:
    with standing_still(page, f"GET {page.root}/containers/{made}/download") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        wait_until_locked(page)


@pytest.mark.long
@left
def test_a_picture_that_the_browser_loads_is_not_a_use_of_the_page(page: UsersPage) -> None:
    made = page.upload("small.png", PNG)
    by_browser = {"Sec-Fetch-Mode": "no-cors"}
    wait_until(lambda: page.get(f"/containers/{made}/image", by_browser).status != 200)
    assert page.get("/state", BY_SCRIPT).text == "locked"


@pytest.mark.long
@left
def test_a_page_that_has_waited_for_the_broker_long_asks_for_the_passphrase(
    alice: Person, broker: BrokerProcess
) -> None:
    broker.stop()
    with UsersPage(alice, "--lock", "0.017") as page:
        shown = page.enter().expect(200).text
        [secret] = set(re.findall(r'name="form" value="([^"]*)"', shown))
        wait_until(lambda: "Try again" not in page.get("/start").text)
        broker.start()
        page.request("POST", page.root + "/resume", {"form": secret}).expect(303)
        assert page.get("/state", BY_SCRIPT).text == "locked"


@left
def test_a_list_that_is_read_while_the_page_is_locked_is_dropped(
    alice: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alice.session() as provider:
        put(provider, "letter.txt")
        real, session = all_containers, Session(None, 900)
        session._run = cast(Run, SimpleNamespace(session=provider, __exit__=bool))

        def locked_meanwhile(provider: ServerProvider) -> Iterator[Entry]:
            yield from real(provider)
            session.lock()

        monkeypatch.setattr(listing, "all_containers", locked_meanwhile)
        [read] = asyncio.run(listing.read(session))
        assert isinstance(read, Container)
        assert session.topics == {}
