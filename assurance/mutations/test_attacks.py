"""Every attack that is claimed to be answered has a test, and every test a defence that it needs."""

import pytest

from assurance.mutations.attacks import MUTATIONS
from assurance.mutations.attacks.edits import Edit, Mutation, never, replace, skip
from tests.hostile_broker.catalogue import _ROWS, ATTACKS, EXPLANATIONS, shown_by


def test_the_catalogue_is_numbered_in_order_and_no_number_or_name_is_used_twice() -> None:
    assert list(ATTACKS) == sorted(ATTACKS)
    assert len(ATTACKS) == len(_ROWS)
    assert len(set(ATTACKS.values())) == len(ATTACKS)


def test_every_attack_is_explained_to_readers_under_a_title_of_its_own() -> None:
    assert EXPLANATIONS.keys() == ATTACKS.keys()
    assert len({each.title for each in EXPLANATIONS.values()}) == len(ATTACKS)


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


@pytest.mark.parametrize(
    "edit",
    [
        never("errors.py", "public", "ValueError"),
        skip("errors.py", "BrokerError", "no_such_function"),
        replace("errors.py", "", "annotations", "nothing"),
        replace("errors.py", "NoSuchClass", "1", "2"),
    ],
    ids=lambda edit: edit.says,
)
def test_an_edit_that_fits_no_place_or_several_is_refused(edit: Edit) -> None:
    with pytest.raises(ValueError, match=r"fits \d+ places|does not exist"):
        Mutation(1, "none", [edit], ["tests/x.py::test"]).check()
