"""docs/conformance.md: every row is there, names tests that exist, and declares what the code has."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, get_overloads

import pytest

from scbroker import ServerProvider
from tests.declared import HOMES

ROOT = Path(__file__).parent
PAGE = (ROOT.parent / "docs" / "conformance.md").read_text("utf-8")
DECLARED = re.compile(r"`(\w+)\((.*)\) -> (.+)`")

# What the interface has beside its operations; the operations are those of the protocol.
ROWS = {
    "A": 5,  # access levels
    "V": 2,  # events
    "P": 5,  # the provider and its call styles
    "T": 6,  # types
    "S": 8,  # states
    "E": 5,  # errors
    "R": 7,  # the rest
}
# The interface's types as ours. What it calls a list of access levels is any iterable of them.
TYPES = {
    "UUID": "uuid.UUID",
    "Data": "bytes",
    "String": "str",
    "Bool": "bool",
    "Int": "int",
    "Int?": "int | None",
    "Path": "os.PathLike[str]",
    "Void": "None",
    "T?": "object",
    "Container": "Container[Any]",
    "Header?": "Header[Any] | None",
    "[AccessLevel]": "Iterable[AccessLevel] | None",
    "[PublicKey]": "Sequence[PublicKey]",
    "[ContainerEvent]": "Sequence[ContainerEvent]",
    "[NewContainer]": "Iterable[NewContainer]",
    "[UUID]": "Iterable[uuid.UUID]",
    "[Result<SecuredContainer>]": "list[SecuredContainer | BrokerError]",
    "[Result<Container>]": "list[Container[Any] | BrokerError]",
    "[ContainerEventType]?": "ContainerEventType | str | Iterable[ContainerEventType | str] | None",
    "KeyType": "KeyType | int | str",
}
DEFAULTS = {"nil": None, "[]": None}


def cells() -> list[list[str]]:
    """The rows of all tables, without their heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in rows if row[0] != "interface"]


def declarations() -> list[tuple[str, str, str]]:
    found = [DECLARED.fullmatch(row[0]) for row in cells()]
    return [match.groups() for match in found if match is not None]  # type: ignore[misc]


def named(parameters: str) -> list[tuple[str, str, str | None]]:
    """Name, type and default of each parameter."""
    found = []
    for text in filter(None, re.split(r", (?=\w+:)", parameters)):
        name, _, rest = text.partition(": ")
        kind, _, default = rest.partition(" = ")
        found.append((name, kind, default or None))
    return found


def ours(kind: str, name: str) -> str:
    if name == "content":
        return "ContentSource | None"
    if kind in TYPES:
        return TYPES[kind]
    if kind.endswith("?"):
        inner = kind.removesuffix("?")
        return f"{TYPES.get(inner, inner)} | None"
    return kind


@cache
def functions(path: Path) -> set[str]:
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
    return {name for name in names | assigned if name.startswith(("test_", "Test"))}


def test_every_row_of_the_interface_has_its_place() -> None:
    numbered = [row[0].split()[0] for row in cells() if not DECLARED.fullmatch(row[0])]
    assert numbered == [
        f"{letter}{number}" for letter, count in ROWS.items() for number in range(1, count + 1)
    ]
    assert {name for name, _, _ in declarations()} == HOMES.keys()


def ids_of(rows: list[Any]) -> list[str]:
    """What a row begins with; `logIn` has two."""
    names = [re.match(r"\W*(\w+)", row[0]).group(1) for row in rows]  # type: ignore[union-attr]
    return [f"{name}{names[:n].count(name) or ''}" for n, name in enumerate(names)]


@pytest.mark.parametrize("row", cells(), ids=ids_of(cells()))
def test_a_row_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 3
    references = row[1].split(", ")
    assert references
    for reference in references:
        file, _, test = reference.partition("::")
        found = functions(ROOT / file)
        assert test in found, reference


@pytest.mark.parametrize("name, parameters, result", declarations(), ids=ids_of(declarations()))
def test_a_declaration_is_the_signature_in_the_code(
    name: str, parameters: str, result: str
) -> None:
    """The same names, in the same order, with the same types and defaults; more only with defaults."""
    wanted = named(parameters)
    signature = _form(name, [parameter for parameter, _, _ in wanted])
    for parameter, kind, default in wanted:
        found = signature.parameters[parameter]
        assert found.annotation == ours(kind, parameter)
        if default is None:
            required = found.default is inspect.Parameter.empty
            assert required or (name, parameter) == ("getLatestActiveSigningKey", "keyType")
        else:
            assert found.default is DEFAULTS[default]
    names = [parameter for parameter, _, _ in wanted]
    assert [parameter for parameter in signature.parameters if parameter in names] == names
    more = [p for key, p in signature.parameters.items() if key not in {"self", *names}]
    assert all(p.default is not inspect.Parameter.empty for p in more)
    assert signature.return_annotation == f"Promise[{ours(result, '')}]"


def _form(name: str, names: list[str]) -> inspect.Signature:
    """The first promise-style form of an operation that has these parameters."""
    forms: list[Any] = [
        inspect.signature(each) for each in get_overloads(getattr(ServerProvider, name))
    ]
    found: inspect.Signature = next(
        form
        for form in forms
        if "completionHandler" not in form.parameters and set(names) <= set(form.parameters)
    )
    return found


def test_each_declared_operation_is_the_providers() -> None:
    for name, _, _ in declarations():
        assert callable(getattr(ServerProvider, name))
