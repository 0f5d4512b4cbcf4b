"""The operator's page in a real browser: how it opens, how it looks, and what other sites can do to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kit.answering import answering
from tests.kit.brokers import BrokerProcess
from tests.kit.browsers import IN_CHROMIUM, check_views
from tests.kit.pages import OperatorsPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VIEWS: Final = ("/overview", "/users", "/api-keys", "/audit")
pytestmark = IN_CHROMIUM


@pytest.fixture
def engine() -> str:
    """SQLite: the page knows nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def page(broker: BrokerProcess) -> Iterator[OperatorsPage]:
    """A page whose URL no browser has used."""
    with OperatorsPage(broker) as opened:
        yield opened


def entered(page: OperatorsPage, view: Page) -> str:
    """Open the page as the command prints it; return the address below which its views are."""
    view.goto(page.printed["url"])
    view.wait_for_url("**/overview")
    return view.url.removesuffix("/overview")


def test_the_printed_url_opens_the_page_and_leaves_no_secret_in_the_history(
    page: OperatorsPage, view: Page
) -> None:
    entered(page, view)
    assert view.title() == "Overview · scbroker"
    assert page.code not in view.url
    view.go_back()
    assert page.code not in view.url


def test_a_person_without_script_enters_the_code_by_hand(
    page: OperatorsPage, browser: Browser
) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        tab = context.new_page()
        tab.goto(page.origin)
        tab.get_by_label("Code").fill(page.code)
        tab.get_by_role("button", name="Open").click()
        tab.wait_for_url("**/overview")
        assert tab.title() == "Overview · scbroker"


@pytest.mark.parametrize("scheme, width", [("light", 360), ("dark", 1120)])
def test_every_view_is_readable_usable_and_fits_a_phone(
    page: OperatorsPage, browser: Browser, broker: BrokerProcess, scheme: Any, width: int
) -> None:
    user = f"/users/{broker.new_user().userId}"
    more = [f"{user}{each}" for each in ("", "/quota", "/suspend")]
    size: Any = {"width": width, "height": 740}
    with browser.new_context(color_scheme=scheme, viewport=size) as context:
        tab = context.new_page()
        root = entered(page, tab)
        paths = (*VIEWS, *more, "/nothing", "/api-keys/none/revoke")
        check_views(tab, [*(root + path for path in paths), page.origin], width)


@pytest.mark.parametrize("host", [None, "evil.example"])
def test_a_site_in_the_operators_browser_neither_reads_nor_changes_anything(
    page: OperatorsPage, browser: Browser, broker: BrokerProcess, host: str | None
) -> None:
    """Even one that knows the secret path, and the secret of the page's forms."""
    user = broker.new_user().userId
    with browser.new_context() as context:
        tab = context.new_page()
        root = entered(page, tab)
        tab.goto(f"{root}/users/{user}/suspend")
        secret = tab.locator("input[name=form]").get_attribute("value")
        html = f"""<!doctype html><iframe name="frame" src="{root}/overview"></iframe>
            <form method="post" action="{root}/users/{user}/suspend" target="frame">
            <input name="form" value="{secret}"></form><script>
            window.read = fetch("{root}/overview", {{credentials: "include", mode: "no-cors"}})
                .then((answer) => answer.text()).catch((error) => "refused");
            setTimeout(() => document.forms[0].submit(), 300);
            </script>"""
        got: list[str] = []
        headers = [("Content-Type", "text/html; charset=utf-8")]
        # Another user of the machine can have a site on another port of the page's address.
        at = ("127.0.0.1" if host else page.host, 0)
        with answering(200, html.encode(), headers, got, at) as site:
            evil = context.new_page()
            with evil.expect_response(lambda answer: answer.request.method == "POST") as posted:
                evil.goto(site.replace("127.0.0.1", host) if host else site)
            assert posted.value.status == 403
            assert "Overview" not in str(evil.evaluate("() => window.read"))
        assert got
        assert all("scbroker-page" not in headers for headers in got)
        tab.goto(f"{root}/users/{user}")
        assert "active" in tab.inner_text("main")
