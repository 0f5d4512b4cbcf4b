"""Each claim of docs/security.md is shown by a test."""

import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from scbroker.server.settings import Settings

ROOT: Final = Path(__file__).parents[1]
CLAIMS: Final = tomllib.loads((ROOT / "tests/claims.toml").read_text("utf-8"))["claim"]


def _said() -> list[str]:
    """Return the bullets and the rows of the tables whole, and the sentences of all other text."""
    page = re.sub(r"\n\|.*\n\|---.*", "", (ROOT / "docs/security.md").read_text("utf-8"))
    found = []
    for block in re.split(r"\n\n|\n(?=- |\|)", page):
        text = " ".join(block.split())
        if text.startswith(("- ", "| ")):
            found.append(text[2:])
        elif not text.startswith("#"):
            text = re.sub(r"^\*\*[^*]+[.:]\*\* ?", "", text)  # the name of the paragraph
            found += filter(None, re.split(r"(?<=[.*]) (?=[A-Z`*\[])", text))
    return found


def test_everything_that_is_said_is_shown_by_a_test_or_has_a_reason() -> None:
    beginnings = [claim["says"] for claim in CLAIMS]
    for said in _said():
        assert sum(said.startswith(each) for each in beginnings) == 1, said


def test_every_claim_of_the_table_is_on_the_page() -> None:
    said = _said()
    for claim in CLAIMS:
        assert sum(each.startswith(claim["says"]) for each in said) == 1, claim["says"]
        assert claim.get("tests") or claim["why"], claim["says"]


def test_each_test_that_is_named_exists() -> None:
    for claim in CLAIMS:
        for each in claim.get("tests", ()):
            path, name = each.split("::")
            file = ROOT / path if path.startswith("assurance/") else ROOT / "tests" / path
            assert f"def {name}(" in file.read_text("utf-8"), each


def test_a_number_of_the_page_is_that_of_the_code() -> None:
    for claim in CLAIMS:
        for name, number in claim.get("numbers", {}).items():
            found = resolve_name(name) if ":" in name else getattr(Settings(), name)
            assert found == number, (claim["says"], name)
