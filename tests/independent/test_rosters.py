"""rosters.json and membership_proofs.json: docs/spec/groups.md, 2 and 3."""

from typing import Any

import pytest

from tests.independent import rosters, trees
from tests.independent.rosters import Leaf, Proof
from tests.independent.vectors import Vector, cases, expect, load, octets


@cases("rosters")
def test_rosters_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """Format, leaves and root of a roster give the verdicts of the vectors."""
    expect(vector, lambda: check_roster(vector))


@cases("rosters", "valid")
def test_rosters_and_members_are_written_as_they_were_read(vector: Vector) -> None:
    """What was read of a roster is all that it says: writing it gives the same bytes."""
    stored = octets(vector["roster"])
    assert rosters.parse(stored).stored() == stored
    for leaf in _leaves(vector):
        assert rosters.parse_member(leaf.member).stored() == leaf.member


@cases("membership_proofs")
def test_proofs_are_judged_as_the_vectors_say(vector: Vector) -> None:
    """A proof shows one leaf, at one position of a tree of one size."""
    expect(vector, lambda: check_proof(vector))


@pytest.mark.parametrize("count", [*range(1, 34), 1023, 1024])
def test_the_proof_of_each_leaf_is_accepted(count: int) -> None:
    """Of trees that are full and of those that are not."""
    leaves = [leaf_of(one) for one in load("rosters")["given"]["leaves"][:count]]
    root = trees.root_of(rosters.node, [leaf.hash for leaf in leaves])
    for index in range(0, count, 1 if count < 34 else 97):
        member = rosters.proven(root, count, rosters.prove(leaves, index))
        assert member.stored() == leaves[index].member


def check_roster(vector: Vector) -> None:
    stored = octets(vector["roster"])
    roster = rosters.parse(stored)
    rosters.check_type(vector["type"], stored)
    members = rosters.check_leaves(roster, _leaves(vector))
    if vector["result"] == "valid":
        assert len(members) == roster.count


def check_proof(vector: Vector) -> None:
    member = rosters.proven(octets(vector["members"]), vector["count"], proof_of(vector["proof"]))
    if vector["result"] == "valid":
        assert member.fingerprint == octets(vector["fingerprint"])
        named = (member.key_index, member.role, member.version)
        assert named == (vector["keyIndex"], vector["role"], vector["version"])


def _leaves(vector: Vector) -> list[Leaf]:
    if "first" in vector:
        return [leaf_of(one) for one in load("rosters")["given"]["leaves"][: vector["first"]]]
    return [leaf_of(one) for one in vector["leaves"]]


def leaf_of(stored: dict[str, Any]) -> Leaf:
    return Leaf(octets(stored["salt"]), octets(stored["member"]))


def proof_of(stored: dict[str, Any]) -> Proof:
    salt, member = octets(stored["salt"]), octets(stored["member"])
    return Proof(salt, member, stored["index"], octets(stored["path"]))
