"""This package shares no code with `src`, and reads every file of vectors."""

import ast
import sys
from pathlib import Path

import pytest

from tests.independent.readers import READERS
from tests.independent.vectors import FOLDER

PACKAGE = Path(__file__).parent
COMPARING = {"test_against_scbroker.py", "test_through_a_broker.py"}
MODULES = sorted(path.name for path in PACKAGE.glob("*.py"))
ALLOWED = sys.stdlib_module_names - {"importlib", "pkgutil", "runpy"}
ALLOWED |= {"cryptography", "hypothesis", "pytest"}


@pytest.mark.parametrize("name", sorted(set(MODULES) - COMPARING))
def test_no_module_but_the_comparing_ones_knows_scbroker(name: str) -> None:
    """Imports are of the standard library, the primitives, the test tools, and of this package."""
    for imported in _imports(PACKAGE / name):
        parts = imported.split(".")
        if parts[:2] == ["tests", "independent"]:
            assert f"{'.'.join(parts[2:3])}.py" not in COMPARING, imported
        else:
            assert parts[0] in ALLOWED, imported


@pytest.mark.parametrize("name", sorted(COMPARING))
def test_imports_are_found(name: str) -> None:
    """Of the comparing modules, as they would be of the others."""
    assert any(imported.startswith("scbroker.") for imported in _imports(PACKAGE / name))


def test_every_file_of_vectors_is_read() -> None:
    """A new file of vectors has to be read here as well."""
    read = READERS.keys() | {"people", "exchange"}
    assert read == {path.stem for path in FOLDER.glob("*.json")}


def _imports(path: Path) -> set[str]:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                imported |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                imported |= {f"{module}.{alias.name}" for alias in names}
            case ast.ImportFrom():
                imported.add("a relative import")
            case ast.Name(id="__import__" | "exec" | "eval" as name):
                imported.add(name)
    return imported
