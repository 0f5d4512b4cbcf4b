"""Rosters, their leaves, and proofs of membership: docs/spec/groups.md, 2 and 3."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tests.independent import encodings as e
from tests.independent import trees
from tests.independent.encodings import decodes, labelled_hash, need
from tests.independent.keys import check_encryption_key

READER, WRITER, SHARER = 0, 1, 2
MASKS = {READER: 203, WRITER: 239, SHARER: 511}
MOST = 1024


@dataclass(frozen=True)
class Member(e.Object):
    prefix = b""
    fingerprint: e.Hash
    key_index: e.KeyIndex
    role: Annotated[int, lambda value: e.integer(value, READER, SHARER)]
    version: e.Version
    """Of the roster that introduced the leaf."""


parse_member = Member.parse  # the limit of 64 bytes needs no check: no Member is longer


class Leaf(NamedTuple):
    salt: bytes
    member: bytes

    @property
    def hash(self) -> bytes:
        return labelled_hash("roster-leaf", self.salt + self.member)


def node(left: bytes, right: bytes) -> bytes:
    return labelled_hash("roster-node", left + right)


@dataclass(frozen=True)
class Roster(e.Object):
    group: e.Hash
    version: e.Version
    epoch: e.EntryIndex
    public_key: Annotated[bytes, lambda value: e.octets(value, 1216)]
    commitment: e.Hash
    members: e.Hash
    """The root of the tree of leaves."""
    count: Annotated[int, lambda value: e.integer(value, 1, MOST)]
    info: e.Hash


def parse(stored: bytes) -> Roster:
    roster = Roster.parse(stored)
    check_encryption_key(roster.public_key)
    return roster


def group_type(stored: bytes) -> str:
    digest = base64.urlsafe_b64encode(labelled_hash("roster", stored)).decode()
    return "scbroker-group:" + digest.rstrip("=")


def is_group_type(text: str | None) -> bool:
    return text is not None and text.startswith("scbroker-group:")


def check_type(text: str | None, stored: bytes) -> None:
    need(text == group_type(stored), "C2: not the type of the roster")


def check_leaves(roster: Roster, leaves: Sequence[Leaf]) -> dict[bytes, Member]:
    """C7: the members by fingerprint."""
    members = [parse_member(leaf.member) for leaf in leaves]
    need(all(len(leaf.salt) == 32 for leaf in leaves), "C7: a salt of another length")
    users = [member.fingerprint for member in members]
    need(users == sorted(set(users)), "C7: members that do not ascend")
    newest = max((member.version for member in members), default=0)
    need(newest <= roster.version, "C7: a member of a later roster")
    need(len(leaves) == roster.count, "C7: another number of leaves")
    root = trees.root_of(node, [leaf.hash for leaf in leaves])
    need(root == roster.members, "C7: another root of the leaves")
    return dict(zip(users, members, strict=True))


@dataclass(frozen=True)
class Proof:
    salt: bytes
    member: bytes
    index: int
    path: bytes


def prove(leaves: Sequence[Leaf], index: int) -> Proof:
    path = trees.path_of(node, index, [leaf.hash for leaf in leaves])
    return Proof(*leaves[index], index, b"".join(path))


def proven(root: bytes, count: int, proof: Proof) -> Member:
    """3.1: the member whom a proof shows in a tree with this root and number of leaves."""
    member = parse_member(proof.member)
    need(len(proof.salt) == 32, "a proof with a salt of another length")
    need(proof.index < count, "a proof beyond the last leaf")
    decodes(len(proof.path) % 32 == 0, "a proof whose path is not of whole hashes")
    path = [proof.path[at : at + 32] for at in range(0, len(proof.path), 32)]
    need(len(path) == trees.levels(proof.index, count), "a proof with a path of another length")
    leaf = Leaf(proof.salt, proof.member).hash
    need(trees.root_from(node, leaf, proof.index, count, path) == root, "a proof of another root")
    return member
