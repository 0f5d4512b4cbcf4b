"""The attacks that the project answers for, by number, and the tests that mount them.

    @attack(13, "revocation bypassed")
    def test_...

A module in which every test mounts the same attack says so once, by `all_mount`.

`assurance/mutations/test_attacks.py` fails when one of them has no test.
"""

import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import tests.hostile_broker as package

F = TypeVar("F", bound=Callable[..., Any])


class Explanation(NamedTuple):
    """An attack in a reader's words."""

    title: str
    attack: str
    defence: str


_ROWS: Final = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text("utf-8"))["attack"]
ATTACKS: Final[dict[int, str]] = {row["number"]: row["name"] for row in _ROWS}
EXPLANATIONS: Final = {
    row["number"]: Explanation(row["title"], row["attack"], row["defence"]) for row in _ROWS
}
_shown_by: Final[dict[int, list[str]]] = {number: [] for number in ATTACKS}
_shown_by_modules: Final[dict[str, int]] = {}


def attack(number: int, name: str) -> Callable[[F], F]:
    """Registers a test that mounts this attack. It may mount several."""
    assert ATTACKS[number] == name, f"attack {number} is called {ATTACKS[number]!r}"

    def register(test: F) -> F:
        _shown_by[number].append(f"{test.__module__.replace('.', '/')}.py::{test.__name__}")
        return test

    return register


def all_mount(module: str, number: int, name: str) -> None:
    """Registers all tests of a module, each of which mounts this attack."""
    assert ATTACKS[number] == name, f"attack {number} is called {ATTACKS[number]!r}"
    _shown_by_modules[module] = number


def shown_by() -> dict[int, list[str]]:
    """The tests of each attack, from every test module beside this one, in whatever order they came."""
    for found in pkgutil.iter_modules(package.__path__):
        if found.name.startswith("test_"):
            importlib.import_module(f"{package.__name__}.{found.name}")
    for name, number in _shown_by_modules.items():
        tests = [each for each in vars(sys.modules[name]) if each.startswith("test_")]
        _shown_by[number] += [f"{name.replace('.', '/')}.py::{test}" for test in tests]
    _shown_by_modules.clear()
    return {
        number: sorted(tests, key=lambda test: test.partition("::")[0])
        for number, tests in _shown_by.items()
    }
