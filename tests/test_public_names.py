"""What `import scbroker` gives: these names and no others, each loaded when it is used."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scbroker
from scbroker import BrokerError, errors
from tests.kit.cases import in_one_case

PUBLIC = [
    "AccessChange",
    "AccessLevel",
    "Availability",
    "BaseProvider",
    "BrokerError",
    "BrokerProvider",
    "CachedProvider",
    "Contact",
    "ContactCard",
    "Contacts",
    "Container",
    "ContainerAccessLevel",
    "ContainerEvent",
    "ContainerEventType",
    "ContainerPage",
    "ContentReader",
    "FileSessionStore",
    "FileTrustStore",
    "Group",
    "GroupManager",
    "GroupMember",
    "GroupRenewal",
    "GroupRole",
    "Head",
    "Header",
    "Heads",
    "KeyFile",
    "KeyRing",
    "KeyType",
    "KeychainSessionStore",
    "Link",
    "LinkProvider",
    "Marks",
    "MemberRole",
    "MemoryTrustStore",
    "NewContainer",
    "Promise",
    "PublicKey",
    "SealedKeys",
    "SecuredContainer",
    "SentChange",
    "ServerProvider",
    "SessionStore",
    "Stream",
    "TrustStore",
    "UnsettledAccess",
    "Usage",
    "WriteOutcome",
    "mainQueue",
    "openLink",
]


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running this."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_the_public_names_are_these_in_alphabetical_order() -> None:
    assert scbroker.__all__ == PUBLIC
    assert sorted(PUBLIC) == PUBLIC
    assert dir(scbroker) == PUBLIC


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
    assert {name for name, _ in homes} == set(PUBLIC)


def test_the_version_is_the_installed_packages_and_is_read_when_it_is_used() -> None:
    """It is not in `__all__`: a star import does not take it."""
    assert scbroker.__version__ == importlib.metadata.version("scbroker")
    assert "importlib.metadata" not in modules_after("import scbroker")


@in_one_case("name", PUBLIC)
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


def test_an_access_level_needs_no_library() -> None:
    loaded = modules_after("from scbroker import AccessLevel, BrokerError, KeyType")
    assert not loaded & {"aiohttp", "cryptography", "msgspec", "scbroker.client"}


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(str(scbroker.__file__)).parent / "py.typed").is_file()


def drawn_tree() -> dict[str, str]:
    """Each class in the drawing at the head of errors.py, with the one it stands under."""
    found: dict[str, str] = {}
    path = ["BrokerError"]
    for line in str(errors.__doc__).splitlines():
        match = re.match(r" {4}((?:│   |    )*)[├└]── (\w+)", line)
        if match:
            depth = len(match[1]) // 4 + 1
            path[depth:] = [match[2]]
            found[match[2]] = path[depth - 1]
    return found


def subclasses(kind: type[BrokerError]) -> list[type[BrokerError]]:
    """All below, as far as they belong to the package."""
    return [
        each
        for child in kind.__subclasses__()
        if child.__module__ == errors.__name__
        for each in (child, *subclasses(child))
    ]


def test_the_tree_drawn_in_errors_is_that_of_the_classes() -> None:
    drawn = drawn_tree()
    assert len(drawn) > 20
    assert drawn == {kind.__name__: kind.__mro__[1].__name__ for kind in subclasses(BrokerError)}


@in_one_case("kind", subclasses(BrokerError))
def test_each_error_has_a_code_of_its_own_and_a_camel_case_attribute(
    kind: type[BrokerError],
) -> None:
    assert "code" in vars(kind), "the code is its own, not inherited"
    assert [other for other in subclasses(BrokerError) if other.code == kind.code] == [kind]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)
    attribute = kind.__name__[0].lower() + kind.__name__[1:]
    assert getattr(BrokerError, attribute) is kind
    assert attribute in BrokerError.__annotations__, "and type checkers know it"
    assert kind.retryable is issubclass(
        kind, (BrokerError.brokerUnavailableError, BrokerError.brokerFaultError)
    )


@in_one_case("kind", subclasses(BrokerError))
def test_each_error_says_by_itself_what_happened_and_is_raised_again_afresh(
    kind: type[BrokerError],
) -> None:
    assert kind().message == str(kind()) == str(kind.__doc__).splitlines()[0]
    error: Any = kind("what happened")
    if isinstance(error, BrokerError.brokerUnavailableError):
        error = type(error)("what happened", retryAfter=3.0)
    with pytest.raises(kind):
        raise error from KeyError()
    again = error.fresh()
    assert type(again) is kind
    assert again is not error
    assert (again.message, vars(again)) == ("what happened", vars(error))
    assert (again.__traceback__, again.__context__, again.__cause__) == (None, None, None)


def test_an_argument_error_is_a_value_error_and_a_conflict_has_its_kinds() -> None:
    assert issubclass(BrokerError.invalidArgumentError, ValueError)
    assert issubclass(BrokerError.staleKeysError, BrokerError.conflictError)
    assert issubclass(BrokerError.partGoneError, BrokerError.conflictError)
