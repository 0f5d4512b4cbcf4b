"""What `import scbroker` gives: these names and no others, each loaded when it is used."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import scbroker
from tests.kit.cases import in_one_case


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running this."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_a_type_checker_is_told_of_every_public_name() -> None:
    """The names imported under TYPE_CHECKING, the lazy table and __all__ are the same."""
    tree = ast.parse(Path(str(scbroker.__file__)).read_text("utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        (alias.name, node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {(name, f"scbroker.{home}") for name, home in scbroker._HOME.items()}
    assert imported == homes
    assert {name for name, _ in homes} == set(scbroker.__all__) == set(dir(scbroker))


@in_one_case("name", scbroker.__all__)
def test_a_public_name_is_its_homes_own(name: str) -> None:
    home = importlib.import_module(f"scbroker.{scbroker._HOME[name]}")
    assert getattr(scbroker, name) is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'scbroker' has no attribute 'ServrProvider'"):
        _ = scbroker.ServrProvider


def test_importing_the_package_loads_nothing_else_of_it() -> None:
    loaded = modules_after("import scbroker")
    assert {name for name in loaded if name.startswith("scbroker")} == {"scbroker"}
    assert not loaded & {"aiohttp", "cryptography", "msgspec", "asyncio"}


@pytest.mark.long
def test_the_provider_loads_neither_the_server_nor_http_before_the_first_request() -> None:
    loaded = modules_after("from scbroker import ServerProvider, mainQueue")
    assert not {name for name in loaded if name.startswith("scbroker.server")}
    assert not loaded & {"aiohttp", "sqlalchemy", "starlette", "uvicorn", "typer", "keyring"}
