"""A defence as the edit that takes it out, and the tests that have to fail then."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]


class Edit(NamedTuple):
    """`old`, which stands in `file` exactly once, becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        text = path.read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.old!r} occurs {text.count(self.old)} times in {self.file}")
        if self.old == self.new:
            raise ValueError(f"{self.old!r} in {self.file} becomes what it was")
        path.write_text(text.replace(self.old, self.new), "utf-8")


@dataclass(frozen=True)
class Mutation:
    """Once `old` is `new` the defence is gone, and each of `tests` has to fail.

    `also` takes out what else would be in the way, where there are defences behind one another.
    """

    attack: int
    defence: str
    file: str
    old: str
    new: str
    tests: Sequence[str]
    also: Sequence[Edit] = ()

    def apply(self, root: Path) -> None:
        """Makes the mutation in a copy of the tree."""
        for edit in (Edit(self.file, self.old, self.new), *self.also):
            edit.apply(root)

    def check(self) -> None:
        """Raises `ValueError` unless the mutation fits the code as it is now."""
        if not self.tests:
            raise ValueError(f"{self.defence}: no test is named")
        with TemporaryDirectory(prefix="mutation-") as name:
            for file in {self.file, *(edit.file for edit in self.also)}:
                target = Path(name) / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, target)
            self.apply(Path(name))


def against(attack: int, defence: str, edit: Edit, tests: list[str], *also: Edit) -> Mutation:
    return Mutation(attack, defence, *edit, tests=tests, also=also)


def tests_of(module: str, *names: str) -> list[str]:
    """Tests of a module beside these: `tests_of("keys", "a_claim")`."""
    return [f"tests/hostile_broker/test_{module}.py::test_{name}" for name in names]
