"""Each sentence of docs/security.md on groups is shown by a test."""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SHOWN: Final = tomllib.loads((ROOT / "tests/limits_of_groups.toml").read_text("utf-8"))["shown"]
_BOLD_HEAD: Final = re.compile(r"^\*\*[^*]+\*\* *")
_ANNOUNCED: Final = "**What a group promises:**", "**What it does not promise:**"


def _section(page: str, heading: str) -> str:
    text = (ROOT / page).read_text("utf-8")
    return text.split(f"\n{heading}\n")[1].split("\n## ")[0]


def _said() -> list[str]:
    """Return the bullets, the first cells of the table's rows, and the sentences of the section on groups."""
    found = []
    for block in re.split(r"\n\n|\n(?=- )", _section("docs/security.md", "## Groups")):
        block = block.strip()
        if block.startswith("|"):
            found += [row.split("|")[1].strip() for row in block.splitlines()[2:]]
        elif block.startswith("- "):
            found.append(" ".join(block[2:].split()))
        elif block and not block.startswith(_ANNOUNCED):
            text = _BOLD_HEAD.sub("", " ".join(block.split()))
            found += re.split(r"(?<=\.) (?=[A-Z])", text)
    return found


def test_everything_that_is_said_of_groups_is_shown_by_a_test() -> None:
    beginnings = [row["says"] for row in SHOWN]
    for said in _said():
        assert sum(said.startswith(each) for each in beginnings) == 1, said


def test_every_row_says_what_the_page_says() -> None:
    said = _said()
    for row in SHOWN:
        assert any(each.startswith(row["says"]) for each in said), row["says"]
        assert row["tests"], row["says"]


def test_each_test_that_is_named_exists() -> None:
    for row in SHOWN:
        for each in row["tests"]:
            path, name = each.split("::")
            assert f"def {name}(" in (ROOT / "tests" / path).read_text("utf-8"), each
