"""The pages as files: links and anchors lead somewhere, every page is in the navigation, facts agree."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped] # its stubs are not pinned
from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped] # no stubs pinned

from tests.kit.cases import in_one_case
from tests.kit.scripts import loaded

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
DIAGRAMS: Final = loaded(DOCS.parent / "tools" / "diagrams.py")
LEFT_OUT: Final = re.compile(r"adr/")
"""Pages of the repository that are not on the site: `exclude_docs` in mkdocs.yml."""
_FENCE: Final = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1$", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} (.+?)(?: *\{#([\w-]+)\})?$", re.MULTILINE)
_LINK: Final = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_DOCUMENTED: Final = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


class Settings(yaml.SafeLoader):  # type: ignore[misc] # untyped
    """Reads mkdocs.yml without its tags, which name functions and variables."""


Settings.add_multi_constructor("", lambda *_: None)


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Settings)
    return found


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


@functools.cache
def anchors(page: Path) -> set[str]:
    """The ids of a page's headings, as Python-Markdown makes them, and of the names that it documents."""
    text, found = prose(page), set[str]()
    for heading, own in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        unique(own or slugify(plain, "-"), found)
    return found | set(_DOCUMENTED.findall(text))


def broken(page: Path, text: str) -> list[str]:
    """The links of a page's text that lead to no file, or to no heading of a page."""
    found = []
    for link in _LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" in link or link.startswith("mailto:"):
            continue
        is_page = target.suffix == ".md" and target.is_file()
        if not target.exists() or (anchor and is_page and anchor not in anchors(target)):
            found.append(link)
    return found


@in_one_case("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page, prose(page)) == []


def entries(nav: list[Any]) -> Iterator[str]:
    for each in nav:
        values = each.values() if isinstance(each, dict) else [each]
        for value in values:
            yield from entries(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_navigation_once() -> None:
    named = sorted(entries(settings()["nav"]))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert named == sorted(page for page in pages if not LEFT_OUT.match(page))


def test_every_diagram_is_drawn_and_no_drawing_is_left_over() -> None:
    """If this fails, run `make images`."""
    wanted = {DIAGRAMS.file_of(source).name for source in DIAGRAMS.sources()}
    assert wanted == {file.name for file in (DOCS / "diagrams").glob("*.svg")}
