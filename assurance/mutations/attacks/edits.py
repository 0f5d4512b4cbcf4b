"""A defence as the change to the code that takes it out, and the tests that must fail without it.

A change names a file and a symbol in it, so that it survives a new layout of the code around it. The code is
compared as a syntax tree: line breaks, quotes and comments make no difference.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SOURCE: Final = "src/scbroker"


@dataclass(frozen=True)
class Edit:
    """One change within `symbol` of `file`, a path below src/scbroker.

    `symbol` is a function, a class, `Class.method` or a name that is assigned to; "" is the whole module.
    """

    file: str
    symbol: str
    change: Callable[[ast.AST], int]
    """Change the symbol's tree in place, and return how many places were changed."""
    says: str

    def apply(self, tree: ast.Module) -> None:
        """Change the tree of the file; `ValueError` unless exactly one place was changed."""
        count = self.change(_symbol(tree, self.symbol))
        if count != 1:
            raise ValueError(
                f"{self.file}, {self.symbol}: {self.says} fits {count} places, not one"
            )


def never(file: str, symbol: str, error: str, about: str = "") -> Edit:
    """Ignore a check: the condition under which `error` is raised is False.

    With several checks that raise the same error, `about` is a text that only one of them contains.
    """

    def change(tree: ast.AST) -> int:
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.If)
            and isinstance(node.body[-1], ast.Raise)
            and _name(node.body[-1].exc) == error
            and about in f"{ast.unparse(node.test)} {ast.unparse(node.body[-1])}"
        ]
        for node in found:
            node.test = ast.Constant(False)
        return len(found)

    return Edit(file, symbol, change, f"the check that raises {error} {about}".rstrip())


def skip(file: str, symbol: str, call: str) -> Edit:
    """Leave out the one statement that calls `call` and does nothing else."""

    def change(tree: ast.AST) -> int:
        found = [
            (body, place)
            for body in _bodies(tree)
            for place, node in enumerate(body)
            if isinstance(node, ast.Expr) and _name(node.value) == call
        ]
        for body, place in found:
            body[place] = ast.Pass()
        return len(found)

    return Edit(file, symbol, change, f"the call of {call}")


def option(file: str, symbol: str, name: str, value: str) -> Edit:
    """Give the keyword `name` of a call, or of a class's head, another value."""

    def change(tree: ast.AST) -> int:
        found = [n for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg == name]
        for node in found:
            node.value = ast.parse(value, mode="eval").body
        return len(found)

    return Edit(file, symbol, change, f"the argument {name}")


def replace(file: str, symbol: str, old: str, new: str) -> Edit:
    """Put `new` in place of `old`: an expression, or statements that follow one another."""
    wanted, given = ast.parse(old).body, ast.parse(new).body
    if _dump(wanted) == _dump(given):
        raise ValueError(f"{old!r} becomes what it was")

    def change(tree: ast.AST) -> int:
        match wanted, given:
            case [ast.Expr(before)], [ast.Expr(after)]:
                swap = _Swap(before, after)
                swap.visit(tree)
                return swap.count
        count = 0
        for body in _bodies(tree):
            for place in range(len(body) - len(wanted) + 1):
                if _dump(body[place : place + len(wanted)]) == _dump(wanted):
                    body[place : place + len(wanted)] = given or [ast.Pass()]
                    count += 1
        return count

    return Edit(file, symbol, change, repr(old))


@dataclass(frozen=True)
class Mutation:
    """Without the defence that `edits` take out, each of `tests` must fail."""

    attack: int
    defence: str
    edits: Sequence[Edit]
    tests: Sequence[str]

    def apply(self, root: Path) -> None:
        """Change the files of a copy of the project."""
        for file, changed in self.changed(root).items():
            (root / _SOURCE / file).write_text(changed, "utf-8")

    def changed(self, root: Path) -> dict[str, str]:
        """Return the files as they become; `ValueError` unless every edit fits the code as it is now."""
        trees = {
            edit.file: ast.parse((root / _SOURCE / edit.file).read_text("utf-8"))
            for edit in self.edits
        }
        for edit in self.edits:
            edit.apply(trees[edit.file])
        return {file: ast.unparse(ast.fix_missing_locations(tree)) for file, tree in trees.items()}


OPERATIONS: Final[dict[str, Callable[..., Edit]]] = {
    operation.__name__: operation for operation in (never, skip, option, replace)
}


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old, self._new, self.count = _dump([old]), new, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and _dump([node]) == self._old:
            self.count += 1
            return self._new
        return self.generic_visit(node)


def _symbol(tree: ast.Module, symbol: str) -> ast.AST:
    found: ast.AST = tree
    for part in symbol.split(".") if symbol else ():
        defined = (node for body in _bodies(found) for node in body)
        found = next((node for node in defined if part in _names(node)), tree)
        if found is tree:
            raise ValueError(f"{symbol} does not exist")
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                yield body


def _name(node: ast.AST | None) -> str:
    """Return the last name of what is called or raised: `f` for `await a.f(x)`."""
    while isinstance(node, (ast.Call, ast.Await)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _dump(nodes: Sequence[ast.AST]) -> str:
    """Return a text of trees that is the same for the same code, also where it is assigned to."""
    return "".join(ast.dump(node).replace("ctx=Store()", "ctx=Load()") for node in nodes)
