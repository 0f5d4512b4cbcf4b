"""Write the stubs of the modules that have operations, which show both call styles to type checkers.

A stub is the module without bodies, in which each operation has an overload for each of its forms in promise
style, and one in callback style, which adds the keywords of `Handlers`. ParamSpec cannot express these.
"""

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).parents[1] / "src"
MODULES: Final = (
    "scbroker.client.provider",
    "scbroker.client.server_provider",
    "scbroker.client.cached_provider",
    "scbroker.client.contacts",
)
_NAMES: Final = """\
import builtins
import datetime as dt
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, Unpack, overload, runtime_checkable
from scbroker.cards import ContactCard
from scbroker.client.calls.tasks import Promise
from scbroker.client.calls.operation import Handlers, Operations, VoidHandlers
from scbroker.client.calls.operation import EventHandlers, Stream
from scbroker.client.arguments import Progress
from scbroker.types import AccessChange, Link, NewContainer
from scbroker.vocabulary import (
    AccessLevel, ContainerAccessLevel, ContainerEventType, GroupManager, GroupRef, HolderRef, KeyType,
    MemberRole, UserRef,
)
"""
_HEAD: Final = "# Written by tools/make_stubs.py: change the module, and run it.\n"
_OPERATION: Final = ("operation", "operation_of_forms", "stream_operation", "function_operation")
_HANDLERS: Final = ("completionHandler", "eventHandler", "errorHandler", "queue")


def path_of(module: str) -> Path:
    """Return where the stub of a module is."""
    return SOURCE / f"{module.replace('.', '/')}.pyi"


def stub(module: str) -> str:
    """Return the text of a module's stub."""
    path = path_of(module).with_suffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    home = importlib.import_module(module)
    lines = [_HEAD, _NAMES]
    moved: list[str] = []
    for node in tree.body:
        match node:
            case ast.Expr():
                pass
            case ast.ClassDef(name="BrokerProvider"):
                own = list(_members(node, home.BrokerProvider))
                public = [text for name, text in own if not name.startswith("_")]
                moved = [text for name, text in own if name.startswith("_") and "__" not in name]
                lines += [
                    "@runtime_checkable",
                    "class BrokerProvider(Protocol):",
                    *(f"    {line}" for text in public for line in text.splitlines()),
                ]
            case ast.ClassDef():
                node.bases += [ast.Name("Operations")] if moved else []
                lines += [ast.unparse(_head(node)).removesuffix("\n    ...")]
                lines += [f"    {line}" for text in moved for line in text.splitlines()]
                moved = []
                for _, text in _members(node, getattr(home, node.name)):
                    lines += [f"    {line}" for line in text.splitlines()]
                lines += ["    ..."]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines += _function(node, getattr(home, node.name))
            case _:
                lines += [ast.unparse(node)]
    return _formatted("\n".join(lines), path_of(module))


def _head(node: ast.ClassDef) -> ast.ClassDef:
    return ast.ClassDef(
        name=node.name, bases=node.bases, keywords=node.keywords, body=[ast.Expr(ast.Constant(...))],
        decorator_list=node.decorator_list,
    )  # fmt: skip


def _members(node: ast.ClassDef, home: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each member of a class."""
    for each in node.body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if each.name == "__init__":
                    yield from _attributes(each)
                for text in _function(each, vars(home)[each.name]):
                    yield each.name, text
            case ast.AnnAssign():
                yield ast.unparse(each.target), ast.unparse(each)
            case ast.Assign():
                yield ast.unparse(each.targets[0]), ast.unparse(each)


def _attributes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the annotated attributes that a constructor sets."""
    for each in ast.walk(node):
        match each:
            case ast.AnnAssign(target=ast.Attribute(attr=name)):
                yield name, f"{name}: {ast.unparse(each.annotation)}"


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, function: Any) -> list[str]:
    """Return the text of a function: its overloads if it is an operation."""
    decorators = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
    if not decorators.isdisjoint(_OPERATION):
        return list(_overloads(function, is_method="function_operation" not in decorators))
    node.body = [ast.Expr(ast.Constant(...))]
    return [ast.unparse(node)]


def _overloads(operation: Any, *, is_method: bool) -> Iterator[str]:
    signature = inspect.signature(operation)
    known = {
        name: each
        for name, each in signature.parameters.items()
        if name not in ("self", *_HANDLERS)
    }
    kind, _, rest = str(signature.return_annotation).partition("[")
    result = rest.removesuffix(" | Self")[:-1]
    own = "self, " if is_method else ""
    forms = list(getattr(operation, "forms", {}).values()) or [" ".join(known)]
    for handled in (False, True):
        for form in forms:
            names, _, other = form.partition(" -> ")
            found = other or result
            parameters = own + _shown([known[name] for name in names.split()])
            returned = f"{kind}[{found}]"
            if handled:
                handlers = "VoidHandlers" if found == "None" else f"Handlers[{found}]"
                handlers = f"EventHandlers[{found}]" if kind == "Stream" else handlers
                parameters += f"**handlers: Unpack[{handlers}]"
                if kind != "Stream":
                    returned = "Self" if is_method else "None"
            yield f"@overload\ndef {operation.__name__}({parameters.removesuffix(', ')}) -> {returned}: ..."


def _shown(parameters: list[inspect.Parameter]) -> str:
    text, in_keywords = "", False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not in_keywords and each.name != "keyRing":
            text, in_keywords = f"{text}*, ", True
        annotation, default = str(each.annotation), ""
        if each.name == "keyRing":  # required in the only form that shows it, and the first there
            annotation = annotation.removesuffix(" | None")
        elif each.default is not each.empty:
            default = f" = {_value(each.default)}"
        text += f"{each.name}: {annotation}{default}, "
    return text


def _value(default: object) -> str:
    return (
        f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)
    )


def _formatted(text: str, path: Path) -> str:
    for command in (
        [
            "check",
            "--fix-only",
            "--quiet",
            "--select",
            "F401,I001",
            "--stdin-filename",
            str(path),
            "-",
        ],
        ["format", "--quiet", "--stdin-filename", str(path), "-"],
    ):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    for each in MODULES:
        path_of(each).write_text(stub(each), "utf-8")
