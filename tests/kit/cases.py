"""Many cases of one test: some left to the long run, or all in one."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., None]


def some_daily(cases: Iterable[Any], each: int = 4) -> list[ParameterSet]:
    """Return the cases as parameters: every `each`-th runs every day, the others in `make test-all`.

    For cases that go the same way through the code, so that one of them shows most faults.
    """
    return [
        pytest.param(case, marks=() if number % each == 0 else pytest.mark.long)
        for number, case in enumerate(cases)
    ]


def in_one_case(names: str, *values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every value, as `pytest.mark.parametrize` does, in one case of many subtests.

    For what takes no time and touches nothing outside of it. Several iterables are combined.
    """
    parts = names.replace(",", " ").split()
    cases = [*itertools.product(*values)] if len(values) > 1 else [*values[0]]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for case in cases:
                given = dict(zip(parts, case if len(parts) > 1 else (case,), strict=True))
                with subtests.test(str(list(given.values()))[:200]):
                    test(**fixtures, **given)

        own = inspect.signature(test).parameters.values()
        taken = [inspect.signature(run, follow_wrapped=False).parameters["subtests"]]
        taken += [parameter for parameter in own if parameter.name not in parts]
        vars(run)["__signature__"] = inspect.Signature(taken)
        return run

    return decorate
