"""Every attack that is claimed to be answered has a test, and every test a defence that it needs."""

import tomllib
from typing import Final

import pytest

from assurance.mutations.attacks import MUTATIONS
from assurance.mutations.attacks.edits import Mutation
from assurance.mutations.engine import ROOT

FOLDER: Final = "tests/hostile_broker"
ATTACKS: Final = tomllib.loads((ROOT / FOLDER / "attacks.toml").read_text("utf-8"))["attack"]
NUMBERS: Final = [attack["number"] for attack in ATTACKS]


def test_the_attacks_are_numbered_in_order_and_have_names_and_titles_of_their_own() -> None:
    assert sorted(set(NUMBERS)) == NUMBERS
    for field in ("name", "title"):
        assert len({attack[field] for attack in ATTACKS}) == len(ATTACKS)
    assert all(attack["attack"] and attack["defence"] for attack in ATTACKS)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_attack_is_mounted_by_a_test_that_notices_a_defence_taken_out(number: int) -> None:
    named = [test for item in MUTATIONS if item.attack == number for test in item.tests]
    assert any(test.startswith(FOLDER) for test in named)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda item: f"{item.attack}: {item.defence}")
def test_every_mutation_still_fits_the_code_and_names_an_attack_and_tests(
    mutation: Mutation,
) -> None:
    mutation.changed(ROOT)
    assert mutation.attack in NUMBERS
    assert mutation.tests
    for test in mutation.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), test
