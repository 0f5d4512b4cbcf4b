"""The history of the account and of a container, and how it goes on while the view is open."""

from __future__ import annotations

import re
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from scbroker import ServerProvider
from tests.kit.pages import UsersPage
from tests.kit.people import Person, befriend, put, with_access
from tests.kit.waiting import PATIENCE, wait_until


def _after(text: str) -> int:
    found = re.search(r'data-after="(\d+)"', text)
    assert found is not None
    return int(found[1])


def _asked(page: UsersPage, path: str) -> socket.socket:
    """Return a connection on which a tab has asked for a view, until it is closed."""
    connection = socket.create_connection((page.host, page.port))
    head = {"Host": f"{page.host}:{page.port}", "Cookie": page.cookie}
    head |= {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


@pytest.mark.long
def test_the_history_says_who_did_what(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", accessLevels=with_access(session, user, 511))
    other = put(session, "other.txt", b"1")
    with bob.session() as his:
        his.updateContainerContent(made, b"2").result()
    shown = page.get(f"/containers/{made}/history").expect(200).words
    assert "Bob not verified changed content" in shown
    assert "You created it" in shown
    assert shown.index("changed content") < shown.index("created it")
    assert other.hex[:8] not in shown
    assert other.hex[:8] in page.get("/history").expect(200).words


@pytest.mark.long
def test_an_answer_has_what_others_wrote_while_the_browser_waited(
    page: UsersPage, session: ServerProvider, bob: Person
) -> None:
    user = befriend(session, bob, "Bob")
    made = put(session, "plan.txt", b"1", accessLevels=with_access(session, user, 511))
    after = _after(page.get("/history").text)
    with ThreadPoolExecutor(1) as pool, bob.session() as his:
        waiting = pool.submit(page.get, f"/history/new?after={after}", {"Sec-Fetch-Mode": "cors"})
        page.get("/containers").expect(200)
        assert not waiting.done()
        his.updateContainerContent(made, b"2").result()
        answer = waiting.result(PATIENCE).expect(200)
    assert "changed content" in answer.words
    assert _after(answer.text) > after


@pytest.mark.long
def test_a_closed_page_waits_for_nothing_and_eight_views_at_most_wait_at_once(
    page: UsersPage, session: ServerProvider
) -> None:
    put(session, "plan.txt")
    path = f"{page.root}/history/new?after={_after(page.get('/history').text)}"
    with ExitStack() as tabs:
        waiting = [tabs.enter_context(_asked(page, path)) for _ in range(9)]
        answered, _, _ = select.select(waiting, [], [], PATIENCE)
        assert [each.recv(12) for each in answered] == [b"HTTP/1.1 503"]
    after = _after(page.get("/history").text)
    put(session, "other.txt")
    wait_until(lambda: page.get(f"/history/new?after={after}").status == 200)
