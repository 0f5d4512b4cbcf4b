"""Every attack that is claimed to be answered has a test, and every test a defence that it needs."""

from __future__ import annotations

import pytest

from tests.hostile_broker import page
from tests.hostile_broker.catalogue import ATTACKS, shown_by
from tests.hostile_broker.mutations import MUTATIONS
from tests.hostile_broker.mutations.edits import Mutation


def test_the_catalogue_is_numbered_without_a_gap() -> None:
    assert sorted(ATTACKS) == list(range(1, 44))
    assert len(set(ATTACKS.values())) == len(ATTACKS)


@pytest.mark.parametrize("number", ATTACKS)
def test_every_attack_is_mounted_by_a_test_and_loses_its_defence_in_a_mutation(number: int) -> None:
    mounted = shown_by()[number]
    assert mounted, f"no test mounts {ATTACKS[number]}"
    named = [
        test.partition("[")[0] for item in MUTATIONS if item.attack == number for test in item.tests
    ]
    assert set(named) & set(mounted), f"no mutation takes out what is against {ATTACKS[number]}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda item: f"{item.attack}: {item.defence}")
def test_every_mutation_still_fits_the_code_and_names_tests_of_the_catalogue(
    mutation: Mutation,
) -> None:
    mutation.check()
    every = {name for names in shown_by().values() for name in names}
    assert {test.partition("[")[0] for test in mutation.tests} <= every


def test_a_mutation_whose_text_is_not_there_exactly_once_is_refused() -> None:
    def mutation(old: str) -> Mutation:
        return Mutation(1, "none", "src/scbroker/errors.py", old, "", ["tests/x.py::test"])

    mutation("class BrokerError(Exception):").check()
    for old in ("no such text", "class "):
        with pytest.raises(ValueError, match="times"):
            mutation(old).check()


def test_the_page_of_attacks_is_that_of_the_catalogue_and_the_mutations() -> None:
    """Written by a run of all mutations in which each was caught."""
    assert page.PATH.read_text("utf-8") == page.text()
