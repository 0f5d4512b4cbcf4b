"""tests/conformance/rows.txt, read: each row's first cell and the tests that it names."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.conformance.interface import ROOT

PATH: Final = Path(__file__).with_name("rows.txt")
BEYOND: Final = "## Beyond the interface"
TESTS: Final = ROOT / "tests"


@dataclass(frozen=True)
class Row:
    """One line of the file."""

    says: str
    tests: tuple[str, ...]
    """As pytest names them, from the project's folder on."""
    decided: str
    is_beyond: bool

    @property
    def key(self) -> str:
        """The id of a row, or the declaration of an operation."""
        return self.says if self.says.startswith("`") else self.says.split()[0]


def rows(text: str) -> list[Row]:
    """Every row; `ValueError` for a line that has not three cells."""
    found = []
    is_beyond = False
    for line in text.splitlines():
        is_beyond = is_beyond or line == BEYOND
        if not line.startswith("| "):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) != 3:
            raise ValueError(f"A row has three cells, not {len(cells)}: {line}")
        says, tests, decided = cells
        named = tuple(f"tests/{test}" for test in tests.split(", "))
        found.append(Row(says, named, decided, is_beyond))
    return found


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The tests of a file: functions, and classes that a runner collects."""
    tree = ast.parse(path.read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(name for name in names | assigned if name.startswith(("test_", "Test")))


ROWS: Final = rows(PATH.read_text("utf-8"))
