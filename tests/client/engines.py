"""A mark for what has to hold on both database engines."""

import pytest

from tests.brokers import ENGINES

both_engines = pytest.mark.parametrize("engine", ENGINES, indirect=True)
