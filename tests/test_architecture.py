"""docs/architecture.md names modules and functions: each of them exists, and each room is drawn."""

import importlib
import re
from pathlib import Path

import pytest

import scbroker
from tests.kit.cases import in_one_case

PACKAGE = Path(scbroker.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TEXT = PAGE.read_text("utf-8")
[DRAWING] = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
NAMES = sorted(set(re.findall(r"`([a-zA-Z_][\w.]*)`", TEXT.replace(DRAWING, ""))) - {"scbroker"})
NOT_OF_THE_SOURCE = {"pyproject.toml", "scenes.toml"}
ROOMS = {
    path.parent.relative_to(PACKAGE).as_posix()
    for end in ("client", "server")
    for path in (PACKAGE / end).glob("*/__init__.py")
}


def resolve(name: str) -> object:
    """Return what a dotted name below scbroker stands for; raise AttributeError if nothing does."""
    found: object = scbroker
    where = scbroker.__name__
    for part in name.split("."):
        where += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(where)
            except ModuleNotFoundError:
                raise AttributeError(f"scbroker has no {name}") from None
    return found


@in_one_case("name", [name for name in NAMES if name not in NOT_OF_THE_SOURCE])
def test_every_name_on_the_page_exists_in_the_source(name: str) -> None:
    resolve(name)


def test_a_name_that_does_not_exist_is_noticed() -> None:
    for name in ("client.containers.writing.no_such_function", "client.no_such_room", "nothing"):
        with pytest.raises(AttributeError, match="scbroker has no"):
            resolve(name)


def test_the_drawing_shows_every_room_and_none_that_does_not_exist() -> None:
    drawn = set(re.findall(r"\[([\w/]+)\]", DRAWING))
    assert drawn >= ROOMS
    for room in drawn:
        resolve(room.replace("/", "."))


def test_every_room_has_its_sentence() -> None:
    described = set(re.findall(r"^\| `([\w.]+)` \| [A-Z][^|]*\. \|$", TEXT, re.MULTILINE))
    assert described >= {room.replace("/", ".") for room in ROOMS}
