"""Every decoder under its corpus, under bombs, and under valid inputs with faults.

`make fuzz` searches for longer. What it finds joins the corpus, and is tried here from then on.
"""

import hashlib
import itertools
from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from assurance.fuzz.target import ACCEPTED, Target, run_one
from assurance.fuzz.targets import CORPUS, TARGETS, stored

EXAMPLES: Final = {"some": 40, "many": 75}
BOMBS: Final = {"some": 2, "many": 6}
MOST_CORPUS: Final = 300_000
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
some_and_many = pytest.mark.parametrize(
    "count", ["some", pytest.param("many", marks=pytest.mark.long)]
)


def outcomes(target: Target, inputs: Iterable[bytes], *, measured: bool = False) -> set[str]:
    """Run these inputs; return what became of them."""
    with target.around():
        return {run_one(target, data, measured=measured) for data in inputs}


def search(target: Target, examples: int) -> None:
    """Run inputs that Hypothesis draws, the same ones each time; the failing one is a small one."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=set(Phase) - {Phase.explain},
        suppress_health_check=list(HealthCheck),
    )
    @given(data=target.inputs())
    def any_input(data: bytes) -> None:
        run_one(target, data)

    with target.around():
        any_input()


@each_target
def test_the_corpus_is_accepted_or_refused_and_each_documented_refusal_happens(
    target: Target,
) -> None:
    inputs = [*stored(target.name), *target.seeds()]
    documented = {ACCEPTED, *(kind.__name__ for kind in target.refusals)}
    assert outcomes(target, inputs, measured=True) == documented


@some_and_many
@each_target
def test_a_valid_input_with_faults_gives_a_value_that_keeps_its_promise_or_a_documented_refusal(
    target: Target, count: str
) -> None:
    search(target, EXAMPLES[count])


@some_and_many
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_an_input_that_promises_much_takes_little_memory_and_ends(
    target: Target, count: str
) -> None:
    bombs = list(target.bombs())
    step = 1 + len(bombs) // BOMBS[count]
    outcomes(target, itertools.islice(bombs, 0, None, step), measured=True)


def test_the_corpus_is_small_and_every_target_has_its_own() -> None:
    paths = list(CORPUS.glob("*/*"))
    assert {path.parent.name for path in paths} == set(TARGETS)
    assert sum(path.stat().st_size for path in paths) <= MOST_CORPUS
    for path in paths:
        assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
