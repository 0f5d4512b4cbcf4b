"""Marks for what has to hold on both database engines, and for what knows nothing of the engine."""

import pytest

from tests.kit.brokers import ENGINES

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
both_engines = pytest.mark.parametrize("engine", ENGINES, indirect=True)
