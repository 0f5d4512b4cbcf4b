"""Every decoder under its corpus, under bombs, and under inputs that nobody has seen: a short, fixed search.

For longer: `make fuzz`. What that finds goes into the corpus, and is tried here from then on.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

import pytest

from assurance.fuzz.engine import ACCEPTED, CORPUS, Report, Search, Target, stored
from assurance.fuzz.targets import TARGETS

SEED: Final = int(os.environ.get("FUZZ_SEED", "0"))
ROUNDS: Final = 150
BOMBS: Final = 50
MOST_CORPUS: Final = 300_000


def searched(target: Target) -> Report:
    bombs = list(target.bombs())
    inputs = [*stored(target.name), *target.seeds()]
    return Search(target, SEED).run(inputs, bombs[:: 1 + len(bombs) // BOMBS], rounds=ROUNDS)


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_gives_a_value_that_keeps_its_promise_or_a_documented_refusal(
    name: str,
) -> None:
    """Within bounded time and memory; and each refusal that is documented does happen."""
    target = TARGETS[name]
    report = searched(target)
    assert not {fault: data[:1000].hex() for fault, data in report.faults.items()}
    assert set(report.outcomes) == {ACCEPTED, *(kind.__name__ for kind in target.refusals)}


def test_the_corpus_is_small_and_every_target_has_its_own() -> None:
    paths = list(CORPUS.glob("*/*"))
    assert {path.parent.name for path in paths} == set(TARGETS)
    assert sum(path.stat().st_size for path in paths) <= MOST_CORPUS
    for path in paths:
        assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
