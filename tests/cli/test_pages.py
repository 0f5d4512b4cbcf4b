"""The pages of the commands: they are those that the program makes, and their examples are understood."""

import shlex
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.cases import in_one_case
from tests.kit.scripts import loaded

DOCS: Final = Path(__file__).parents[2] / "docs"


MAKER: Final = loaded(DOCS.parent / "tools" / "make_commands.py")
COMMANDS: Final[dict[str, Any]] = dict(MAKER.leaves(MAKER.root()))
EXTRA: Final = tomllib.loads((DOCS / "commands.toml").read_text("utf-8"))


def test_the_pages_are_those_that_the_program_makes(tmp_path: Path) -> None:
    """If this fails, run `make pages`."""
    MAKER.write(tmp_path)
    made = {each.name: each.read_text("utf-8") for each in tmp_path.iterdir()}
    assert made == {each.name: each.read_text("utf-8") for each in (DOCS / "commands").glob("*.md")}


@in_one_case("name", sorted(COMMANDS))
def test_the_program_understands_the_example_of_a_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCBROKER_API_KEY", "0dcb8cfd-2dce-4d4f-ac19-b81a84dbd55a")
    example = EXTRA[name]["example"].partition(" | ")[0].partition(" < ")[0]
    words = shlex.split(example)
    length = 1 + len(name.split())
    assert words[:length] == ["scbroker", *name.split()]
    COMMANDS[name].make_context(name, words[length:])  # raises for what it does not understand
