"""docs/spec/labels.md lists the labels of both implementations."""

import ast
import itertools
import re
from pathlib import Path

import pytest

from scbroker.crypto.verify import label

ROOT = Path(__file__).parents[1]
LISTED = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/spec/labels.md").read_text("utf-8"), re.M)
OWN = {"label", "labelled_hash", "sign", "check_signature", "check_latest", "mac"}


def _texts(folder: str) -> set[str]:
    """Every text in the code of a folder."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _labels() -> set[str]:
    """The labels of the second implementation, by the functions that take one; its tests are left out."""
    found = set()
    for path in (ROOT / "tests/independent").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not path.name.startswith("test_") and isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", None))
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                found |= {text for text in texts if isinstance(text, str)} if name in OWN else set()
    return found


def test_the_page_lists_the_labels_of_the_second_implementation() -> None:
    assert sorted(_labels()) == LISTED


@pytest.mark.long
def test_scbroker_has_every_label_of_the_page() -> None:
    assert set(LISTED) <= _texts("src/scbroker")


def test_no_label_is_a_prefix_of_another() -> None:
    for one, two in itertools.permutations(map(label, LISTED), 2):
        assert not two.startswith(one)
