"""docs/interface.toml, read: the rows that the page has to answer, in their order."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PATH: Final = ROOT / "docs" / "interface.toml"


@dataclass(frozen=True)
class Parameter:
    """A parameter as the interface gives it; `default` is None where the interface states none."""

    name: str
    type: str
    default: str | None = None

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {self.default}"
        return f"{self.name}: {self.type}{default}"


@dataclass(frozen=True)
class Operation:
    """One form of an operation."""

    name: str
    form: str
    provider: str
    parameters: tuple[Parameter, ...]
    result: str
    session: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> Operation:
        parameters = tuple(Parameter(**each) for each in row["parameters"])
        form = row.get("form", "")
        return cls(row["name"], form, row["class"], parameters, row["result"], row["session"])

    def __str__(self) -> str:
        return f"{self.name} {self.form}".rstrip()

    @property
    def declaration(self) -> str:
        parameters = ", ".join(map(str, self.parameters))
        return f"`{self.name}({parameters}) -> {self.result}`"

    @property
    def is_void(self) -> bool:
        return self.result == "Void"


class Interface:
    """The whole file."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.beyond: dict[str, list[dict[str, Any]]] = data["beyond"]
        self.python: dict[str, str] = data["python"]

    @classmethod
    def load(cls) -> Interface:
        return cls(tomllib.loads(PATH.read_text("utf-8")))

    @cached_property
    def operations(self) -> list[Operation]:
        """The interface's own, in its order."""
        return [Operation.of(row) for row in self.data["operation"]]

    @cached_property
    def added(self) -> list[Operation]:
        """Those of this project."""
        return [Operation.of(row) for row in self.beyond["operation"]]

    @cached_property
    def streams(self) -> list[Operation]:
        """Those of this project that return a Stream."""
        return [Operation.of(row) for row in self.beyond["stream"]]

    def rows(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.data[kind]
        return found

    @property
    def cells(self) -> list[str]:
        """The first cell of each row of the page, in order, without what is beyond the interface."""
        numbered = {
            kind: [f"{row['id']} {row['says']}" for row in self.rows(kind)] for kind in KINDS
        }
        declared = {part: [] for part in PARTS}  # type: dict[str, list[str]]
        for row, operation in zip(self.data["operation"], self.operations, strict=True):
            declared[row["section"]].append(operation.declaration)
        return [cell for part in ORDER for cell in (numbered | declared)[part]]

    @property
    def cells_beyond(self) -> list[str]:
        operations = [operation.declaration for operation in [*self.added, *self.streams]]
        members = [f"`{row['name']}` {row['says']}" for row in self.beyond["member"]]
        parameters = [f"`{row['name']} = {row['default']}`" for row in self.beyond["parameter"]]
        defaults = [
            f"`{row['operation']}`: `{row['parameter']} = {row['default']}`"
            for row in self.beyond["default"]
        ]
        rules = [f"{row['id']} {row['says']}" for row in self.beyond["rule"]]
        return operations + members + parameters + defaults + rules

    def python_type(self, name: str) -> str:
        """The interface's type as this project writes it."""
        if name.endswith("?"):
            return f"{self.python_type(name[:-1])} | None"
        return self.python.get(name, name)

    def default_beyond(self, operation: str, parameter: str) -> str | None:
        """The default of this project where the interface states none."""
        for row in self.beyond["default"]:
            if (row["operation"], row["parameter"]) == (operation, parameter):
                return str(row["default"])
        return None

    def parameters_beyond(self, operation: str) -> dict[str, str]:
        """The parameters of this project with their defaults, by name."""
        return {
            row["name"]: row["default"]
            for row in self.beyond["parameter"]
            if operation in row["operations"]
        }


PARTS: Final = ("4.1", "4.2", "4.3", "4.4", "4.5")
KINDS: Final = (
    "service", "provider", "style", "access", "event", "type", "field", "state",
    "authentication", "error",
)  # fmt: skip
ORDER: Final = (
    "service", "provider", "style", "4.1", "access", "4.2", "4.3", "4.4", "4.5", "event",
    "type", "field", "state", "authentication", "error",
)  # fmt: skip
INTERFACE: Final = Interface.load()
