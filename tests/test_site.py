"""The built site: complete, alone, and readable on a wide screen and on a telephone."""

from __future__ import annotations

import functools
import html
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

import scbroker
from tests.kit.declared import HOMES, STREAMS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
CHROMIUM: Final = shutil.which("chromium")
pytestmark = pytest.mark.long

ALIKE: Final = ("commands",)

# Whether a field has the keyboard, also one in the shadow of an element.
TYPES: Final = """() => {
  let active = document.activeElement;
  while (active?.shadowRoot) active = active.shadowRoot.activeElement;
  return active instanceof HTMLInputElement;
}"""

# Elements that leave the page to the side. What scrolls in a box of its own does not.
OVERFLOW: Final = """() => {
  const wide = document.scrollingElement.clientWidth + 1;
  const scrolls = (each) => each && (
    ["auto", "scroll", "hidden"].includes(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
  return [...document.querySelectorAll(".md-content *")]
    .filter((each) => each.getBoundingClientRect().right > wide && each.checkVisibility())
    .filter((each) => !scrolls(each.parentElement))
    .map((each) => each.outerHTML.slice(0, 100));
}"""
# Tables that need a scroll bar, with the number of their columns.
SCROLLED: Final = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => [each.querySelectorAll("thead th").length, each.innerText.slice(0, 60)])"""


class Elements(HTMLParser):
    """The ids of a built page, and the addresses of what a browser fetches for it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.fetched: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids.add(found.get("id", ""))
        self.fetched += [
            found[name]
            for name in ("src", "srcset", "data", "poster", "action", "href")
            if name in found and (name != "href" or tag != "a")
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, from a copy: a warning would be an error."""
    folder = tmp_path_factory.mktemp("site")
    for each in ("docs", "examples", "src", "tools"):
        shutil.copytree(ROOT / each, folder / each, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", folder)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the built site: a browser loads the index of the search over HTTP only."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def test_the_reference_has_every_operation_and_every_public_name(site: Path) -> None:
    ids = set[str]().union(*(Elements(page).ids for page in (site / "reference").glob("*.html")))
    names = {each.rpartition(".")[2] for each in ids if each.startswith("scbroker.")}
    assert set(scbroker.__all__) <= names
    homes = {**HOMES, **STREAMS}
    assert {f"scbroker.{home.__name__}.{name}" for name, home in homes.items()} <= ids


def test_the_page_of_an_example_has_its_program(site: Path) -> None:
    for page in (DOCS / "examples").glob("*.md"):
        programs = re.findall(r'^--8<-- "(.+)"$', page.read_text("utf-8"), re.MULTILINE)
        shown = (site / "examples" / f"{page.stem}.html").read_text("utf-8")
        text = html.unescape(re.sub(r"<[^>]+>", "", shown))
        assert [each for each in programs if (ROOT / each).read_text("utf-8") not in text] == []


def test_the_built_site_takes_nothing_from_another_host(site: Path) -> None:
    """Neither its pages nor its styles. A diagram is drawn: with its source, the theme would load mermaid."""
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len([*DOCS.rglob("*.md")]) - len([*(DOCS / "adr").glob("*.md")]) - 2
    for page in pages:
        elements = Elements(page)
        assert elements.fetched
        assert [each for each in elements.fetched if re.match(r"(\w+:)?//", each)] == []
        assert 'class="mermaid"' not in page.read_text("utf-8")
    for sheet in site.rglob("*.css"):
        assert (
            re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")) == []
        )


def test_pages_are_not_wider_than_the_screen_and_their_tables_need_no_scroll_bar(
    site: Path, served: str, browser: Browser
) -> None:
    """On a telephone a table of five columns or more may scroll in its own box.

    The pages of commands have one form: the three longest of them are visited,
    and all other pages. With SCBROKER_SCREENSHOTS, a folder that gets a picture of each page, all are.
    """
    pictures = os.environ.get("SCBROKER_SCREENSHOTS")
    pages = sorted(site.rglob("*.html"), key=lambda page: page.stat().st_size)
    if not pictures:
        left_out = [[page for page in pages if page.parent.name == each][:-3] for each in ALIKE]
        assert all(left_out)
        pages = [page for page in pages if page not in left_out[0]]
    faults: dict[str, object] = {}
    widths = [(1280, 99), (390, 4)]
    with browser.new_context() as context:
        # Each page would read the index of the search, 1.2 MB, which takes longer than the page.
        context.route("**/search.json", lambda route: route.abort())
        tab = context.new_page()
        for file in pages:
            name = file.relative_to(site).as_posix()
            tab.goto(f"{served}/{name}", wait_until="domcontentloaded")
            _shown(tab)
            for width, allowed in widths:
                tab.set_viewport_size({"width": width, "height": 900})
                wide = tab.evaluate(OVERFLOW)
                tables = [each for each in tab.evaluate(SCROLLED) if each[0] <= allowed]
                if wide or tables:
                    faults[f"{name} at {width}"] = (wide[:3], tables[:3])
                if pictures:
                    picture = Path(pictures) / f"{name.replace('/', '-')}-{width}.png"
                    tab.screenshot(path=picture, full_page=True)
            widths.reverse()  # the next page is loaded at the width that this one ended with
    assert faults == {}


def _shown(tab: Page) -> None:
    """Wait until the theme's script has put the tables into boxes."""
    tab.wait_for_function(
        "() => !document.querySelector('.md-content table:not([class])')"
        " || document.querySelector('.md-typeset__scrollwrap')"
    )


@pytest.mark.parametrize(
    "words, page, heading",
    [
        ("revokeAccess", "/guide/sharing-many.html", ""),
        ("what each request shows", "/what-the-broker-sees.html", "#what-each-request-shows"),
    ],
)
def test_the_search_finds_a_page_and_a_link_leads_there(
    words: str, page: str, heading: str, served: str, browser: Browser
) -> None:
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(f"{served}/index.html")
        tab.locator(".md-search__button").click()
        tab.wait_for_function(TYPES)
        tab.keyboard.type(words)
        of_heading = f'[href$="{heading}"]' if heading else ""
        found = tab.locator(f'a[role="option"][href*="{page}"]{of_heading}').first
        found.wait_for(state="attached")


@pytest.mark.parametrize("preferred, scheme", [("light", "default"), ("dark", "slate")])
def test_drawings_have_the_colours_of_light_and_dark_pages(
    preferred: Literal["light", "dark"], scheme: str, served: str, browser: Browser
) -> None:
    with browser.new_context(color_scheme=preferred) as context:
        tab = context.new_page()
        tab.goto(f"{served}/concepts.html")
        assert tab.locator("body").get_attribute("data-md-color-scheme") == scheme
        text = tab.locator(".diagram svg text").first
        ink = text.evaluate("each => getComputedStyle(each).fill")
        assert ink == tab.evaluate("() => getComputedStyle(document.body).color")
