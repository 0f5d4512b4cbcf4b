"""The defences against each attack, as changes to the code that take them out.

Each mutation removes one defence and leaves a program that works otherwise. The tests that it names must fail
then. The data is in attacks.toml.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

from assurance.mutations.attacks.edits import OPERATIONS, Mutation


def _mutation(row: dict[str, Any]) -> Mutation:
    edits = [OPERATIONS[operation](*given) for operation, *given in row["edits"]]
    tests = [_path(*test.split("::")) for test in row["tests"]]
    return Mutation(row["attack"], row["defence"], edits, tests)


def _path(module: str, name: str) -> str:
    folder, _, module = module.rpartition("/")
    return f"tests/{folder or 'hostile_broker'}/test_{module}.py::test_{name}"


_DATA: Final = Path(__file__).with_name("attacks.toml").read_text("utf-8")
MUTATIONS: Final[list[Mutation]] = [_mutation(row) for row in tomllib.loads(_DATA)["mutation"]]
