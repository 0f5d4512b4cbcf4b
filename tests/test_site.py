"""The built site: complete, alone, and readable on a wide screen and on a telephone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import scbroker
from tests.kit.declared import HOMES, STREAMS

if TYPE_CHECKING:
    pass

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
pytestmark = pytest.mark.long


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


def test_the_reference_has_every_operation_and_every_public_name(site: Path) -> None:
    ids = set[str]().union(*(Elements(page).ids for page in (site / "reference").glob("*.html")))
    names = {each.rpartition(".")[2] for each in ids if each.startswith("scbroker.")}
    assert set(scbroker.__all__) <= names
    homes = {**HOMES, **STREAMS}
    assert {f"scbroker.{home.__name__}.{name}" for name, home in homes.items()} <= ids


def test_the_built_site_takes_nothing_from_another_host(site: Path) -> None:
    """Neither its pages nor its styles. A diagram is drawn: with its source, the theme would load mermaid."""
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len([*DOCS.rglob("*.md")]) - len([*(DOCS / "adr").glob("*.md")])
    for page in pages:
        elements = Elements(page)
        assert elements.fetched
        assert [each for each in elements.fetched if re.match(r"(\w+:)?//", each)] == []
        assert 'class="mermaid"' not in page.read_text("utf-8")
    for sheet in site.rglob("*.css"):
        assert (
            re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")) == []
        )
