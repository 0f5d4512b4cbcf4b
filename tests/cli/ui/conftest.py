"""Fixtures for tests of the user's page."""

from collections.abc import Iterator

import pytest

from tests.kit.pages import UsersPage
from tests.kit.people import Person


@pytest.fixture
def page(alice: Person) -> Iterator[UsersPage]:
    """Alice's page, which her browser has entered."""
    with UsersPage(alice) as opened:
        opened.enter().expect(200)
        yield opened
