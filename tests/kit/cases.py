"""Leave some cases of a test to the long run."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def some_daily(cases: Iterable[Any], each: int = 4) -> list[ParameterSet]:
    """Return the cases as parameters: every `each`-th runs every day, the others in `make test-long`.

    For cases that go the same way through the code, so that one of them shows most faults.
    """
    return [
        pytest.param(case, marks=() if number % each == 0 else pytest.mark.long)
        for number, case in enumerate(cases)
    ]
