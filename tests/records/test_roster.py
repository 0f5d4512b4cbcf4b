"""What the vectors do not show of rosters: docs/spec/groups.md, 2 and 3."""

import pytest
from msgspec.structs import replace

from scbroker.errors import IntegrityError, InvalidArgumentError
from scbroker.records import roster
from scbroker.records.roster import Info, SaltedMember
from scbroker.vocabulary import ContainerAccessLevel, GroupRole
from tests.independent import rosters as other
from tests.vectors.groups import Team

TEAM = Team()


def test_a_role_leaves_of_an_entry_what_the_page_says() -> None:
    assert {role: roster.cut(511, role) for role in GroupRole} == other.MASKS


@pytest.mark.parametrize("role", GroupRole)
def test_the_cut_of_each_allowed_combination_is_allowed(role: GroupRole) -> None:
    for bits in range(1, 512):
        if not ContainerAccessLevel(bits).missing():
            left = ContainerAccessLevel(roster.cut(bits, role))
            assert not left.missing()
            assert left & bits == left


@pytest.mark.parametrize(
    "name, description, says",
    [
        ("", "", "must not be blank"),
        (" \u2003\u00a0", "", "must not be blank"),
        ("ä" * 128 + "a", "", "more than 256 bytes"),
        ("a\nb", "", r"name must be printable: character 1 is U\+000A"),
        ("a", "b\tc", r"description must be printable: character 1 is U\+0009"),
        ("a", "ä" * 2048 + "a", "more than 4,096 bytes"),
        ("\ud800", "", "half a surrogate pair"),
    ],
)
def test_the_caller_reads_what_is_wrong_with_a_name_or_a_description(
    name: str, description: str, says: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        roster.check_texts(name, description)


@pytest.mark.parametrize("cut", [1, -1])
def test_a_leaf_does_not_end_where_another_member_does(cut: int) -> None:
    """All members are decoded at once, and their bytes alone do not say to which leaf each belongs."""
    first, *others = TEAM.steps[0].leaves
    second = others[0]
    both = first.member + second.member
    end = len(first.member) + cut
    leaves = [
        SaltedMember(first.salt, both[:end]),
        SaltedMember(second.salt, both[end:]),
        *others[1:],
    ]
    signed = replace(TEAM.steps[0].roster, members=roster.members_root(leaves))
    with pytest.raises(IntegrityError, match="not of its format"):
        roster.parse_leaves(signed, leaves)


def test_an_info_shows_no_secret_and_no_text_of_its_own() -> None:
    shown = repr(Info("the name", "the description", [b"s" * 32]))
    assert not any(text in shown for text in ("the name", "the description", "ssss"))
