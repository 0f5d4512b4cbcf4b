"""What every module and every public operation says of itself in its docstring."""

import ast
import inspect
import re
from pathlib import Path
from typing import Final

from scbroker import ServerProvider
from tests.kit.cases import in_one_case
from tests.kit.declared import HOMES, STREAMS

SOURCE: Final = Path(__file__).parent.parent / "src" / "scbroker"
RIDDLES: Final = {"Who", "What", "Of", "Whoever", "How"}
NOT_IMPERATIVE: Final = {"A", "All", "An", "Each", "Every", "One", "Returns", "That", "The", "This"}


def faults(first_line: str) -> list[str]:
    """Return what keeps the first line of a docstring from being a plain statement."""
    found = []
    if not re.match("[A-Z]", first_line):
        found.append("does not begin with a capital")
    if not first_line.endswith("."):
        found.append("does not end with a full stop on its line")
    if re.split(r"\W", first_line)[0] in RIDDLES:
        found.append("begins with a word that hides its subject")
    return found


def first_line_of(module: str) -> str:
    tree = ast.parse((SOURCE / module).read_text("utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


@in_one_case(
    "line, is_plain",
    [
        ("Store what this device has seen.", True),
        ("what a key is for.", False),
        ("Whoever sweeps claims a name before its object goes.", False),
        ("What operations return.", False),
        ("Store the marks of a user, which the", False),
        ("", False),
    ],
)
def test_a_plain_statement_begins_with_its_subject_and_ends_on_its_line(
    line: str, is_plain: bool
) -> None:
    assert (not faults(line)) == is_plain


@in_one_case("module", sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")))
def test_a_module_says_in_one_plain_statement_what_it_is_for(module: str) -> None:
    assert faults(first_line_of(module)) == []


each_operation = in_one_case("name", sorted([*HOMES, *STREAMS]))


def text_of(name: str) -> str:
    return inspect.getdoc(getattr(ServerProvider, name)) or ""


@each_operation
def test_an_operations_docstring_begins_with_an_imperative_statement(name: str) -> None:
    first = text_of(name).partition("\n")[0]
    assert faults(first) == []
    verb = first.split()[0]
    assert verb not in NOT_IMPERATIVE
    assert not verb.endswith("s"), "Return, not Returns"


@each_operation
def test_an_operation_says_what_it_raises_and_what_the_broker_learns(name: str) -> None:
    assert re.search(r"\bRaises\b", text_of(name))
    assert re.search(r"\bThe broker learns\b", text_of(name))
