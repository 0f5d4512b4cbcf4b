"""The provider's operations, the class that has each, and the forms that type checkers see."""

import ast
import inspect
from pathlib import Path
from typing import Any, Final

from scbroker import BrokerProvider, ContainerAccessLevel, KeyType, ServerProvider
from scbroker.client import provider, server_provider

_STUBS: Final = [
    Path(str(module.__file__)).with_suffix(".pyi") for module in (provider, server_provider)
]
_ALL: Final[dict[str, type]] = {
    name: home
    for home in (BrokerProvider, ServerProvider)
    for name, each in vars(home).items()
    if hasattr(each, "parameters")
}


def promise_forms(name: str) -> list[inspect.Signature]:
    """Return the declared forms of an operation in promise style, or of a stream without handlers."""
    return [form for form in _FORMS[name] if "handlers" not in form.parameters]


def _forms() -> dict[str, list[inspect.Signature]]:
    found: dict[str, list[inspect.Signature]] = {}
    future = ast.parse("from __future__ import annotations").body
    for path in _STUBS:
        for each in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(each, ast.FunctionDef) and each.name in _ALL:
                each.decorator_list = []
                made: dict[str, Any] = {
                    "ContainerAccessLevel": ContainerAccessLevel,
                    "KeyType": KeyType,
                }
                exec(compile(ast.Module([*future, each], []), path.name, "exec"), made)
                found.setdefault(each.name, []).append(inspect.signature(made[each.name]))
    return found


_FORMS: Final = _forms()


def _is_stream(name: str) -> bool:
    return str(promise_forms(name)[0].return_annotation).startswith("Stream[")


STREAMS: Final = {name: home for name, home in _ALL.items() if _is_stream(name)}
"""The operations that return a Stream."""
HOMES: Final = {name: home for name, home in _ALL.items() if name not in STREAMS}
"""All other operations: they return a Promise, or the provider if handlers are given."""
