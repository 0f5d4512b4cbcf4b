"""Proofs of membership: docs/spec/groups.md, 3.1."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.crypto.verify import labelled_hash
from scbroker.records import merkle, roster
from scbroker.records.canonical import encode_value
from scbroker.records.roster import MembershipProof, SaltedMember
from tests.vectors.cast import chosen
from tests.vectors.files import Vector, invalid, store, valid
from tests.vectors.groups import shown_proof
from tests.vectors.rosters import crowd, salted

INTEGRITY = "integrity"


def make() -> None:
    store(
        "membership_proofs",
        "docs/spec/groups.md, 3.1. `proof` is a membership proof for a Roster with this `members` and "
        "`count`. A valid one shows the member with these fields.",
        [*_valid(), *_invalid()],
    )


def given(leaves: Sequence[SaltedMember], proof: MembershipProof, **changes: Any) -> dict[str, Any]:
    shown = {**shown_proof(proof), **changes}
    return {"members": roster.members_root(leaves), "count": len(leaves), "proof": shown}


def _valid() -> list[Vector]:
    many = crowd()
    found = []
    for count, indices in ((1, [0]), (2, range(2)), (3, range(3)), (5, range(5)), (8, range(8)),
                           (1024, [0, 511, 1023])):  # fmt: skip
        leaves = many[:count]
        for index, proof in zip(indices, roster.prove(leaves, indices), strict=True):
            member = roster.parse_member(proof.leaf.member)
            fields = {name: getattr(member, name) for name in member.__struct_fields__}
            found.append(
                valid(f"leaf {index} of {count:,}", f"{len(proof.path) // 32} hashes.",
                      **given(leaves, proof), **fields)
            )  # fmt: skip
    return found


def _invalid() -> list[Vector]:
    leaves = crowd()[:5]
    proof = roster.prove(leaves, [2])[0]
    last = roster.prove(leaves, [4])[0]
    two = roster.prove(leaves[:2], [1])[0]
    member = roster.parse_member(proof.leaf.member)
    row = list(msgspec.structs.astuple(member))
    others = [*leaves[:3], salted(leaves, 3, role=1), leaves[4]]
    hashes = [leaf.hash for leaf in leaves]
    hashes[2] = labelled_hash("roster-node", proof.leaf.salt, proof.leaf.member)
    as_node = merkle.tree(roster.NODE, hashes)
    path = [proof.path[at : at + 32] for at in range(0, len(proof.path), 32)]

    def refused(name: str, comment: str, **changes: Any) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(leaves, proof, **changes))

    return [
        refused("index of another leaf", "3 in place of 2.", index=3),
        invalid("index far beyond the end", "2^53 - 1, of one leaf.", INTEGRITY,
                **given(leaves[:1], roster.prove(leaves[:1], [0])[0], index=2**53 - 1)),
        invalid("index at count", "2 of 2 leaves, with the path of 1.", INTEGRITY,
                **given(leaves[:2], two, index=2)),
        invalid("path one hash short", "Without the last one.", INTEGRITY,
                **given(leaves, last, path=b"")),
        invalid("path one hash long", "A hash before the sibling.", INTEGRITY,
                **given(leaves[:2], two, path=chosen("more") + two.path)),
        refused("path longer by a byte", "A zero byte.", path=proof.path + b"\0"),
        refused("hashes exchanged", "The first and the second.", path=path[1] + path[0] + path[2]),
        refused("another hash", "The last one.", path=path[0] + path[1] + chosen("no hash")),
        refused("another salt", "That of another leaf.", salt=leaves[3].salt),
        invalid("short salt", "31 bytes; so is it in the tree.", INTEGRITY, **_of_leaf(
            leaves, 2, SaltedMember(proof.leaf.salt[:-1], proof.leaf.member))),
        refused("another role", "2 in place of the leaf's.",
                member=encode_value(replace(member, role=(member.role + 1) % 3))),
        refused("another user", "The fingerprint of another leaf.",
                member=encode_value(replace(member, fingerprint=leaves[3].member[3:35]))),
        invalid("proof of another roster", "In which one leaf is another.", INTEGRITY,
                **{**given(leaves, proof), "members": roster.members_root(others)}),
        invalid("a node taken for a leaf", "The leaf has the label of a node in this tree.", INTEGRITY,
                **{**given(leaves, proof), "members": as_node[0]}),
        refused("member with role 3", "0 to 2.", member=msgspec.msgpack.encode([*row[:2], 3, row[3]])),
        refused("member with an element more", "nil.", member=msgspec.msgpack.encode([*row, None])),
        refused("member truncated", "The last byte is missing.", member=proof.leaf.member[:-1]),
        invalid("member with a trailing byte", "00; so is it in the tree.", INTEGRITY, **_of_leaf(
            leaves, 2, SaltedMember(proof.leaf.salt, proof.leaf.member + b"\0"))),
        invalid("member not shortest", "Version 3 as cc 03; so is it in the tree.", INTEGRITY, **_of_leaf(
            leaves, 2, SaltedMember(proof.leaf.salt, (
                proof.leaf.member[:-1] + b"\xcc" + proof.leaf.member[-1:])))),
        refused("no member", "No bytes.", member=b""),
    ]  # fmt: skip


def _of_leaf(leaves: Sequence[SaltedMember], index: int, leaf: SaltedMember) -> dict[str, Any]:
    """What a proof of another leaf at this index needs, in the tree that has it."""
    changed = [*leaves[:index], leaf, *leaves[index + 1 :]]
    return given(changed, roster.prove(changed, [index])[0])
