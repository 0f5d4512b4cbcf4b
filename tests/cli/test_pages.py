"""The page of the commands: it is the one that the program makes, and its examples are understood."""

import re
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


def test_the_page_is_the_one_that_the_program_makes() -> None:
    """If this fails, run `make pages`."""
    assert MAKER.page() == (DOCS / "commands.md").read_text("utf-8")


def test_no_option_or_argument_takes_a_secret_itself() -> None:
    """Other users of the machine can read arguments. `--password` of `link` is a flag that asks for one."""
    for name, command in COMMANDS.items():
        for each in command.params:
            if re.search("pass(word|phrase)|api_key(?!s)", each.name):
                assert each.name.endswith("_file") or getattr(each, "is_flag", False), (name, each)


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
