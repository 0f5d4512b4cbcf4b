"""Tests lie where the module that they test lies."""

from pathlib import Path
from typing import Final

from tests.kit.cases import in_one_case

TESTS: Final = Path(__file__).parent
SOURCE: Final = TESTS.parent / "src" / "scbroker"
IN_ROOMS: Final = sorted(
    path.relative_to(TESTS).as_posix()
    for end in ("client", "server")
    for path in (TESTS / end).glob("*/test_*.py")
)


@in_one_case("file", IN_ROOMS)
def test_a_test_in_a_room_is_named_after_a_module_of_that_room(file: str) -> None:
    """A test of several rooms lies one folder up."""
    path = Path(file)
    tested = path.stem.removeprefix("test_")
    modules = [module.stem for module in (SOURCE / path.parent).glob("*.py")]
    assert any(f"{tested}_".startswith(f"{module}_") for module in modules), modules
