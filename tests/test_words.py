"""How we write: pages use the trade's words and name the agent.

CONTRIBUTING.md, "Words", says why. Code blocks, names in backticks and tables that a run writes are left out.
"""

import re
from pathlib import Path

from tests.kit.cases import in_one_case

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# What tests and defences are called: these tables are written from the names in the code.
FROM_NAMES = {"docs/attacks.md", "docs/conformance.md"}
RIDDLES = re.compile(
    r"\b(doomed|buried|hopeful|whoever|whomever|of whom|reckoned|taken out|told of|let go)\b",
    re.IGNORECASE,
)
NO_AGENT = re.compile(r"(?:^(?:- |\d+\. )?|[.!?] |\| )((?:Who|Of|Whatever) [^|.?]*)(.)")


def prose(page: Path) -> list[tuple[int, str]]:
    """The numbered lines of a page without code blocks, names in backticks and quoted words."""
    found, inside = [], False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside and not line.startswith("    "):
            found.append((number, re.sub(r"`[^`]*`|\"[^\"]*\"", "", line)))
    return found


def faults(lines: list[tuple[int, str]]) -> list[str]:
    found = [f"{number}: {match[0]}" for number, line in lines for match in RIDDLES.finditer(line)]
    for number, line in lines:
        found += [f"{number}: {match[1]}" for match in NO_AGENT.finditer(line) if match[2] != "?"]
    return found


@in_one_case(
    "page", [page for page in PAGES if page.relative_to(ROOT).as_posix() not in FROM_NAMES]
)
def test_a_page_uses_the_trades_words_and_names_who_acts(page: Path) -> None:
    if page.name == "CONTRIBUTING.md":
        lines = [line for line in prose(page) if "Use the trade's words" not in line[1]]
    else:
        lines = prose(page)
    assert faults(lines) == []


@in_one_case(
    "line",
    ["Whoever reads is told.", "Who reads, learns.", "Of a page nothing is kept.", "A doomed row."],
)
def test_a_sentence_without_an_agent_and_a_riddle_are_noticed(line: str) -> None:
    assert len(faults([(1, line)])) == 1


def test_a_question_may_begin_with_who() -> None:
    assert faults([(1, "Who gets which event? The members.")]) == []
