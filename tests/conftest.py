"""Fixtures that any test may ask for."""

from collections.abc import Iterator

import pytest

from tests.engines import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, started when a test first asks for it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty PostgreSQL database of this test's own, as SQLAlchemy takes it."""
    return postgres_server.createdatabase()
