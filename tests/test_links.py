"""The pages as files: links and anchors lead somewhere, every page is in the navigation, facts agree."""

from __future__ import annotations

import functools
import re
import tomllib
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
LEFT_OUT: Final = re.compile(r"adr/|attacks\.md|conformance\.md")
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


@in_one_case(
    "link", ["gone.md", "security.md#gone", "#gone", "images/gone.png", "guide/sharing.md#Expiry"]
)
def test_a_link_that_leads_nowhere_is_noticed(link: str) -> None:
    assert broken(DOCS / "index.md", f"Read [this]({link}).") == [link]


def test_a_link_to_a_heading_is_followed() -> None:
    assert (
        broken(DOCS / "index.md", "[one](guide/sharing.md#expiry), [two](#where-to-go-next)") == []
    )


@in_one_case("page", sorted(DOCS.rglob("*.md")))
def test_no_link_of_a_page_leaves_the_folder_of_the_site(page: Path) -> None:
    links = [link.partition("#")[0] for link in _LINK.findall(prose(page)) if "://" not in link]
    assert [each for each in links if not (page.parent / each).resolve().is_relative_to(DOCS)] == []


def entries(nav: list[Any]) -> Iterator[str]:
    for each in nav:
        values = each.values() if isinstance(each, dict) else [each]
        for value in values:
            yield from entries(value) if isinstance(value, list) else [value]


def test_every_page_is_in_the_navigation_once() -> None:
    named = sorted(entries(settings()["nav"]))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert named == sorted(page for page in pages if not LEFT_OUT.match(page))


@in_one_case(
    "page",
    [
        page
        for page in sorted(DOCS.rglob("*.md"))
        if not LEFT_OUT.match(page.relative_to(DOCS).as_posix())
    ],
)
def test_no_page_of_the_site_links_a_page_that_is_left_out_of_it(page: Path) -> None:
    links = [
        (page.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(page))
    ]
    names = [each.relative_to(DOCS).as_posix() for each in links if each.is_relative_to(DOCS)]
    assert [name for name in names if LEFT_OUT.match(name)] == []


def test_a_section_of_the_navigation_closes_and_has_at_most_ten_entries_at_once() -> None:
    """The theme opens every section with the features that are refused; lists from the program are longer."""
    assert not {"navigation.expand", "navigation.sections"} & set(settings()["theme"]["features"])
    sections = [(name, value) for each in settings()["nav"] for name, value in each.items()]
    assert len(sections) <= 9
    assert [name for name, value in sections if isinstance(value, list) and len(value) > 10] == []


def test_the_footer_has_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert settings()["copyright"].startswith(f"scbroker {version},")


def test_every_diagram_is_drawn_and_no_drawing_is_left_over() -> None:
    """If this fails, run `make images`."""
    wanted = {DIAGRAMS.file_of(source).name for source in DIAGRAMS.sources()}
    assert wanted == {file.name for file in (DOCS / "diagrams").glob("*.svg")}


def test_a_drawing_has_no_script_and_loads_nothing() -> None:
    for file in (DOCS / "diagrams").glob("*.svg"):
        text = file.read_text("utf-8")
        assert not re.search(r"<script|<image|<foreignObject|@import|url\((?!#)|\son\w+=", text), (
            file
        )


def test_every_term_of_the_glossary_is_a_name_in_the_code() -> None:
    source = "\n".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r"\w+", source))
    rows = re.findall(r"^\| ([^|]+) \| .+ \| `(\w+)` \|$", (DOCS / "concepts.md").read_text(), re.M)
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.casefold)
    assert len(terms) >= 40
    assert [name for _, name in rows if name not in names] == []


def test_each_cell_of_the_comparison_links_a_source_or_says_that_it_is_not_known() -> None:
    page = (DOCS / "comparison.md").read_text("utf-8")
    sources = dict(re.findall(r"^\[([\w-]+)\]: (https://\S+)$", page, re.MULTILINE))
    assert set(re.findall(r"\]\[([\w-]+)\]", page)) == set(sources)
    table = page.partition("## Side by side")[2].partition("##")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    assert [row[0] for row in rows[2:]] == ["Etebase", "Tahoe-LAFS", "rclone crypt", "age", "SOPS"]
    for row in rows[2:]:
        cells = [cell for cell in row[1:] if "][" not in cell and "not known" not in cell]
        assert cells == [], row[0]
