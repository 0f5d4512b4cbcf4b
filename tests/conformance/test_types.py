"""A type checker knows the types that the interface gives: of parameters, results and handlers."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.conformance import typed
from tests.conformance.interface import INTERFACE, ROOT

PROVIDERS = [Path("scbroker", "client", f"{name}.pyi") for name in ("provider", "server_provider")]


@pytest.mark.long
def test_mypy_says_of_each_call_what_the_interface_says(tmp_path: Path) -> None:
    assert typed.misjudged(tmp_path) == []


@pytest.mark.long
def test_a_wrong_declared_result_is_noticed_for_every_operation_in_both_styles(
    tmp_path: Path,
) -> None:
    """All results are declared as something else at once, in a copy."""
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in PROVIDERS:
        changed = OtherResults().visit(ast.parse((copy / path).read_text("utf-8")))
        (copy / path).write_text(ast.unparse(changed), "utf-8")
    noticed = {(line.operation, line.says) for line in typed.misjudged(tmp_path, copy)}
    for operation in [*INTERFACE.operations, *INTERFACE.added]:
        assert (str(operation), "all by name") in noticed
        assert (str(operation), "handlers, by name") in noticed


class OtherResults(ast.NodeTransformer):
    """Every `Promise[...]` that is returned carries a complex, and every handler takes one."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if isinstance(node.returns, ast.Subscript) and ast.unparse(node.returns.value) == "Promise":
            node.returns = ast.parse("Promise[complex]", mode="eval").body
        if node.args.kwarg is not None and node.args.kwarg.arg == "handlers":
            other = ast.parse("Unpack[Handlers[complex]]", mode="eval").body
            node.args.kwarg.annotation = other
        return node
