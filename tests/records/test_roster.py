"""What the vectors do not show of rosters: docs/spec/groups.md, 2 and 3."""

import pytest
from msgspec.structs import replace

from scbroker.errors import IntegrityError, InvalidArgumentError
from scbroker.records import merkle, roster
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import Entry
from scbroker.records.roster import Info, SaltedMember
from scbroker.vocabulary import ContainerAccessLevel, GroupRole
from tests.independent import rosters as other
from tests.vectors.groups import Team
from tests.vectors.rosters import crowd

TEAM = Team()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 1000, 1024])
def test_a_proof_of_each_member_is_accepted_by_both_implementations(count: int) -> None:
    leaves = crowd()[:count]
    root = roster.members_root(leaves)
    places = sorted({0, 1, count // 2, count - 1} & set(range(count)))
    for index, proof in zip(places, roster.prove(leaves, places), strict=True):
        member = roster.proven(root, count, proof)
        assert member == roster.parse_member(leaves[index].member)
        shown = other.Proof(proof.leaf.salt, proof.leaf.member, proof.position, proof.path)
        assert other.proven(root, count, shown).stored() == proof.leaf.member


def test_a_proof_is_made_of_one_leaf_and_the_hashes_of_all() -> None:
    leaves = crowd()[:11]
    levels = merkle.levels(roster.node_of, [leaf.hash for leaf in leaves])
    for index, proof in enumerate(roster.prove(leaves, range(11))):
        assert merkle.path(levels, index) == proof.path


def test_a_role_leaves_of_an_entry_what_the_page_says() -> None:
    assert {role: roster.cut(511, role) for role in GroupRole} == other.MASKS


@pytest.mark.parametrize("role", GroupRole)
def test_the_cut_of_each_allowed_combination_is_allowed(role: GroupRole) -> None:
    for bits in range(1, 512):
        if not ContainerAccessLevel(bits).missing():
            left = ContainerAccessLevel(roster.cut(bits, role))
            assert not left.missing()
            assert left & bits == left


def test_a_cut_entry_has_the_name_the_end_and_the_wrap_of_the_group() -> None:
    entry = Entry(b"n" * 32, 7, 511, 5, b"w" * 32)
    assert roster.cut_entry(entry, GroupRole.Reader) == replace(entry, permissions=203)


def test_a_group_type_has_58_characters_and_that_of_no_other_container_begins_as_one() -> None:
    stored = TEAM.steps[0].stored
    text = roster.group_type(stored)
    assert len(text) == 58
    assert text == other.group_type(stored)
    assert roster.is_group_type(text)
    assert roster.is_group_type("scbroker-group:")
    for ordinary in (None, "", "note", "scbroker-group", " scbroker-group:", "Scbroker-group:"):
        assert not roster.is_group_type(ordinary)


def test_the_limits_of_sizes_hold_the_largest_objects() -> None:
    largest = replace(TEAM.steps[0].roster, version=2**53 - 1, epoch=16_383, count=1024)
    assert len(encode_object(largest)) <= roster.MAX_ROSTER
    assert roster.parse_roster(encode_object(largest)) == largest
    secrets: list[bytes | None] = [bytes(32)] * roster.LAST_EPOCH
    info = Info("n" * roster.MAX_NAME, "d" * roster.MAX_DESCRIPTION, secrets)
    assert roster.parse_info(encode_object(info), roster.LAST_EPOCH) == info


@pytest.mark.parametrize("name", ["team", " team ", "Größe ☃", "x" * 256, "ä" * 128])
@pytest.mark.parametrize("description", ["", "one\ntwo\n", "x" * 4096])
def test_a_name_and_a_description_that_the_page_allows(name: str, description: str) -> None:
    roster.check_texts(name, description)


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


def test_leaves_are_refused_unless_each_salt_has_32_bytes() -> None:
    step = TEAM.steps[0]
    short = [SaltedMember(leaf.salt[:-1], leaf.member) for leaf in step.leaves]
    found = replace(step.roster, members=roster.members_root(short))
    with pytest.raises(IntegrityError, match="strictly ascending"):
        roster.parse_leaves(found, short)


def test_an_info_shows_no_secret_and_no_text_of_its_own() -> None:
    shown = repr(Info("the name", "the description", [b"s" * 32]))
    assert not any(text in shown for text in ("the name", "the description", "ssss"))
