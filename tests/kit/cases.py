"""Many cases of one test in one."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


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
