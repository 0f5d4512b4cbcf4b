"""Fixtures for tests of commands: Alice, Bob, and Alice's session as a program has it."""

from collections.abc import Callable, Iterator

import pytest

# Before any of its modules: commands are listed as they are imported.
import scbroker.cli.app  # noqa: F401
from scbroker import ServerProvider
from tests.kit.browsers import browser, view
from tests.kit.people import Person

__all__ = ["browser", "view"]  # fixtures


@pytest.fixture
def engine() -> str:
    """SQLite: commands know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def bob(person: Callable[[str], Person]) -> Person:
    return person("Bob")


@pytest.fixture
def session(alice: Person) -> Iterator[ServerProvider]:
    with alice.session() as provider:
        yield provider
