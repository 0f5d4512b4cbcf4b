"""Attacks on an open view by a server that listens at its address after the command has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.kit.answering import answering
from tests.kit.browsers import IN_CHROMIUM, browser
from tests.kit.pages import ServedPage, UsersPage
from tests.kit.people import Person
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser"]  # a fixture
pytestmark = IN_CHROMIUM
PASSPHRASE: Final = "battery Staple 8"
LOOK: Final = "() => document.dispatchEvent(new Event('visibilitychange'))"
DROP: Final = """() => {
  const data = new DataTransfer();
  data.items.add(new File(["Dear Bob"], "letter.txt"));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


UNLOCK: Final = """passphrase => {
  const field = document.getElementById("passphrase");  // none once the view is dropped
  if (field) field.value = passphrase;
  field?.form.requestSubmit();
}"""
ICON: Final = "GET /static/icon.svg "
"""The browser asks for it by itself, some time after it has loaded a view."""
ACTS: Final[dict[str, tuple[str, Callable[[Page], object]]]] = {
    "it is looked at": ("/containers", lambda tab: tab.evaluate(LOOK)),
    "a link is followed": ("/containers", lambda tab: tab.get_by_text("Links").click()),
    "a form is sent": ("/containers", lambda tab: tab.get_by_role("button", name="Lock").click()),
    "a file is dropped": ("/containers", lambda tab: tab.evaluate(DROP)),
    "it is read again": ("/history", lambda _: None),
    "the passphrase is typed": ("/start", lambda tab: tab.evaluate(UNLOCK, PASSPHRASE)),
}
"""What happens to an open view, by its path, after another server has taken its command's place."""


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@contextmanager
def replaced_by(page: ServedPage, body: bytes, status: int = 200) -> Iterator[list[str]]:
    """End the command, and answer in its place; yield what is asked there."""
    page.stop()
    got: list[str] = []
    headers = [("Content-Type", "text/html"), ("Location", f"{page.origin}/x")]
    with answering(status, body, headers, got, (page.host, page.port)):
        yield got


@contextmanager
def entered(page: ServedPage, browser: Browser) -> Iterator[tuple[Page, str]]:
    """Yield a tab of a browser that has entered the page, and the address below which its views are."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.printed["url"])
        tab.wait_for_url(lambda url: url.rpartition("/")[0] != page.origin)
        yield tab, tab.url.rpartition("/")[0]


def check_dropped(tab: Page, got: list[str]) -> None:
    """Check that the view says that its command has ended, shows nothing else, and asked for nothing else."""

    def asked() -> list[str]:
        return [each for each in got if not each.startswith(ICON)]

    wait_until(asked)
    assert asked()[0].split()[1].partition("?")[0].endswith(("/state", "/history")), got
    tab.get_by_text("its command has ended").wait_for()
    tab.wait_for_function("() => document.body.childElementCount === 1")
    before = asked()
    tab.evaluate(LOOK)
    assert tab.evaluate("() => fetch('/last', { redirect: 'manual' }).then(() => true)")
    assert asked()[len(before)].startswith("GET /last "), "the script asks no more"
    own = [each.split()[1].partition("?")[0].rpartition("/")[2] for each in before]
    assert set(own) <= {"state", "history"}, got
    assert not [each for each in got if PASSPHRASE in each or "Dear Bob" in each]


@pytest.mark.parametrize("act", ACTS)
def test_a_view_is_dropped_and_gives_nothing_to_a_server_in_the_place_of_its_command(
    person: Callable[[str], Person], browser: Browser, act: str
) -> None:
    path, happens = ACTS[act]
    with UsersPage(person("Alice")) as page, entered(page, browser) as (tab, root):
        if path == "/start":
            tab.get_by_role("button", name="Lock").click()
            tab.wait_for_url("**/start")
        else:
            tab.goto(root + path)
        tab.wait_for_load_state()
        with replaced_by(page, b"locked") as got:
            happens(tab)
            check_dropped(tab, got)
