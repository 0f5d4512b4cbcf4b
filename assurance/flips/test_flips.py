"""One flipped byte in each column and in an object; `make flips` flips every stored byte."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from assurance.flips.population import OBJECT, Flip, Population
from scbroker.server.storage.tables import metadata


@pytest.fixture
def population(tmp_path: Path) -> Iterator[Population]:
    with Population(tmp_path) as found:
        yield found


@pytest.mark.long
def test_after_a_flip_in_any_column_or_object_a_read_gives_what_was_written_or_an_error(
    population: Population,
) -> None:
    """`outcomes` raises if a read gives anything else."""
    places: dict[tuple[str, str], list[Flip]] = {}
    for flip in population.flips():
        places.setdefault((flip.table, flip.column), []).append(flip)
    kept = {OBJECT, *metadata.tables}
    kept -= {
        "nonces",
        "guesses",
        "accesses",
        "pending_blobs",
        "pending_users",
        "pending_groups",
        "containers_to_purge",
    }
    assert {table for table, _ in places} == kept
    choice, outcomes = random.Random(1), {}
    for place, flips in places.items():
        flip = choice.choice(flips)
        with population.flipped(flip) as taken:
            outcomes[place] = population.outcomes(flip) if taken else Counter()
    assert outcomes[(OBJECT, "")] == Counter(["IntegrityError"])
    assert sum(found["IntegrityError"] for found in outcomes.values()) > len(metadata.tables) // 2


def test_flips_are_taken_back(population: Population) -> None:
    flips = list(population.flips())
    untouched = population.outcomes(flips[0])
    for flip in flips[:: len(flips) // 50]:
        with population.flipped(flip):
            pass
    assert population.outcomes(flips[0]) == untouched
    assert set(untouched) == {"as written", "DeletedError"}
