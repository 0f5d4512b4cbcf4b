"""The pages of docs/spec have the labels of the implementation, and none is a prefix of another."""

import ast
import itertools
import re
from pathlib import Path

import pytest

from tests.kit.crypto import label

ROOT = Path(__file__).parents[1]
LISTED = {
    name
    for page in (ROOT / "docs/spec").glob("*.md")
    for name in re.findall(r'\b[HL]\("([a-z-]+)"', page.read_text("utf-8"))
}


def _texts(folder: str) -> set[str]:
    """Every text in the code of a folder."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


@pytest.mark.long
def test_scbroker_has_every_label_of_the_pages() -> None:
    assert len(LISTED) > 40
    assert _texts("src/scbroker") >= LISTED


def test_no_label_is_a_prefix_of_another() -> None:
    for one, two in itertools.permutations(map(label, LISTED), 2):
        assert not two.startswith(one)
