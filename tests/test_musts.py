"""tests/vectors/musts.txt has every sentence with MUST of docs/spec, and the tests that it names exist."""

import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.kit.cases import in_one_case

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "docs/spec"
VECTORS = ROOT / "tests/vectors"
MUSTS = VECTORS / "musts.txt"
CONFORMANCE = ROOT / "src/scbroker/conformance"
PAGES = ("ids.md", "keyfile.md", "container.md", "protocol.md", "links.md", "groups.md")
MEANING = "MUST, MUST NOT, SHOULD and MAY are meant as in RFC 2119."
_HEADING = re.compile(r"^##(?:#? (\d+(?:\.\d+)?)\b)?.*$", re.M)


class Row(NamedTuple):
    section: str
    """Page and number of the section."""
    demand: str
    shown: list[str]


def _rows() -> list[Row]:
    rows = re.findall(r"^\| (\w+\.md, \S+) \| (.*) \| (.*) \|$", MUSTS.read_text("utf-8"), re.M)
    return [
        Row(section, demand.replace("\\|", "|"), shown.split("; "))
        for section, demand, shown in rows
    ]


def _text(page: str) -> str:
    return (SPEC / page).read_text("utf-8")


def _sections(page: str) -> dict[str, str]:
    """The text of each numbered section, on one line; headings without a number belong to the one before."""
    text = _text(page).replace(MEANING, "")
    found, number, start = dict[str, str](), "intro", 0
    for heading in [*_HEADING.finditer(text), None]:
        end = len(text) if heading is None else heading.start()
        name = f"{page}, {number}"
        found[name] = found.get(name, "") + " " + " ".join(text[start:end].split())
        if heading is not None:
            number, start = heading[1] or number, heading.end()
    return found


SECTIONS = {name: text for page in PAGES for name, text in _sections(page).items()}
ROWS = _rows()


@in_one_case("section", [name for name, text in SECTIONS.items() if "MUST" in text])
def test_every_must_of_a_section_is_in_the_table_once(section: str) -> None:
    listed = []
    for row in ROWS:
        if row.section == section:
            assert SECTIONS[section].count(row.demand) == 1, row.demand
            start = SECTIONS[section].index(row.demand)
            listed += [start + found.start() for found in re.finditer("MUST", row.demand)]
    assert sorted(listed) == [found.start() for found in re.finditer("MUST", SECTIONS[section])]


def test_every_demand_of_the_table_is_a_sections_with_must() -> None:
    for row in ROWS:
        assert "MUST" in row.demand
        assert row.section in SECTIONS


def test_the_other_pages_of_the_specification_demand_nothing() -> None:
    for path in SPEC.glob("*.md"):
        if path.name not in PAGES:
            assert "MUST" not in path.read_text("utf-8"), path.name


def test_everything_that_the_table_names_exists() -> None:
    scenes = {
        scene["name"]
        for scene in tomllib.loads((CONFORMANCE / "scenes.toml").read_text("utf-8"))["scene"]
    }
    questions = "".join(
        (CONFORMANCE / f"{name}.py").read_text("utf-8") for name in ("stories", "faults")
    )
    sources = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    vectors = {
        path.stem: {vector["id"] for vector in json.loads(path.read_text("utf-8"))["vectors"]}
        for path in VECTORS.glob("*.json")
    }
    for row in ROWS:
        for item in row.shown:
            kind, name = item.split(": ", 1)
            if kind == "scene":
                assert name in scenes, item
            elif kind == "question":
                assert f'"{name}"' in questions, item
            elif kind == "test":
                assert any(f"def {name}(" in source for source in sources), item
            elif kind != "none":
                assert name in vectors[kind], item
