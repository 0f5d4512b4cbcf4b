"""A mark for what has to hold on both database engines."""

import pytest

from tests.kit.brokers import ENGINES

both_engines = pytest.mark.parametrize("engine", ENGINES, indirect=True)
# On PostgreSQL where there is time: what both have to do is long, and has been seen on SQLite.
postgresql_when_long = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)
