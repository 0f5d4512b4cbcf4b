"""A real browser: Debian's chromium, and what it says of a view's use for all people."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kit.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM: Final = shutil.which("chromium")
IN_CHROMIUM: Final = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]
"""The marks of a module whose tests use the browser."""

# Text whose contrast with its ground is below the 4.5 of WCAG 2.2 (AA); 3.0 for large or bold text.
FAINT: Final = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (!text || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const color = element.closest("svg") ? style.fill : style.color;
    const [one, other] = [light(parse(color)), light(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    if (contrast < (size >= 24 ? 3 : 4.5)) found.push(`${text}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""

# What assistive technology cannot use: fields without label, and so on.
UNUSABLE: Final = """() => {
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  if (!document.documentElement.lang) found.push("no language");
  if (!document.title.trim()) found.push("no title");
  if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) found.push("not one main");
  for (const each of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!each.labels.length && !each.ariaLabel) say("no label", each);
  for (const each of document.querySelectorAll("img:not([alt])")) say("no alt", each);
  for (const each of document.querySelectorAll("svg:not([aria-label]), meter:not([aria-label])"))
    say("no name", each);
  for (const each of document.querySelectorAll("a, button"))
    if (!(each.textContent.trim() || each.ariaLabel)) say("no text", each);
  for (const each of document.querySelectorAll("th:not([scope])")) say("no scope", each);
  for (const each of document.querySelectorAll("nav:not([aria-label]), section:not([aria-label])"))
    say("no name", each);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: ${id}`);
  let last = 1;
  for (const each of document.querySelectorAll("h1, h2, h3")) {
    const level = Number(each.tagName[1]);
    if (level > last + 1) say("level left out", each);
    last = level;
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=CHROMIUM,
            timeout=PATIENCE * 1000,
            args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
        )
        yield found
        found.close()


@pytest.fixture
def view(browser: Browser) -> Iterator[Page]:
    """A tab of a browser of its own; whatever the browser complains of fails the test."""
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE * 1000)
        tab = context.new_page()
        complaints: list[str] = []
        tab.on("console", lambda each: complaints.append(each.text))
        tab.on("pageerror", lambda each: complaints.append(str(each)))
        yield tab
        assert complaints == [], complaints


def press(view: Page, name: str) -> None:
    """Press tab until the link or button of this name has the focus, which must be visible; then enter."""
    focused: Any = None
    for _ in range(60):
        view.keyboard.press("Tab")
        focused = view.evaluate(
            "() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return [e.textContent.trim(), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2] }"
        )
        if focused == [name, True]:
            view.keyboard.press("Enter")
            return
    raise AssertionError(f"{name} cannot be reached: the last one was {focused}")


def check_views(tab: Page, addresses: Iterable[str], width: int) -> None:
    """Open views: each must be readable, usable for all people, and not wider than the screen."""
    for each in addresses:
        tab.goto(each)
        assert tab.evaluate(FAINT) == [], each
        assert tab.evaluate(UNUSABLE) == [], each
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, each
