"""That no operation is forgotten in `operations.py`, which the type checkers alone read."""

import ast
from pathlib import Path

import pytest

from tests.kit.declared import HOMES

OPERATIONS = sorted(HOMES)
SOURCE = Path(__file__).with_name("operations.py").read_text("utf-8")
LINES = SOURCE.splitlines()


def kinds(name: str) -> set[str]:
    """How `operations.py` calls an operation."""
    tree = ast.parse(SOURCE)
    inside = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != name:
            continue
        if any(keyword.arg == "completionHandler" for keyword in node.keywords):
            text = "\n".join(LINES[node.lineno - 1 : node.end_lineno])
            found.add("wrong handler" if "pyright: ignore" in text else "handler")
            assert ("type: ignore" in text) == ("pyright: ignore" in text)
            continue
        outer = inside[node]
        if isinstance(outer, ast.Call):  # assert_type(promise, Promise[None])
            outer = inside[outer]
        found.add("waited for" if isinstance(outer, ast.Attribute) else type(outer).__name__)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_expected_awaited_waited_for_and_with_a_right_and_a_wrong_handler(
    name: str,
) -> None:
    assert kinds(name) == {"Await", "waited for", "handler", "wrong handler"}
