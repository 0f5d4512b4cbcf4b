"""Rosters and their leaves: docs/spec/groups.md, 2 and 3."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from scbroker.crypto.verify import labelled_hash
from scbroker.records import merkle, roster
from scbroker.records.canonical import VERSION, encode_object, encode_value
from scbroker.records.roster import Member, Roster, SaltedMember
from tests.vectors.cast import chosen
from tests.vectors.files import Vector, encoded, invalid, put, store, valid
from tests.vectors.groups import Team

INTEGRITY = "integrity"
MANY = roster.MAX_MEMBERS
LAST = roster.LAST_EPOCH


def make() -> None:
    story = Team()
    store(
        "rosters",
        "docs/spec/groups.md, 2 and 3.1. A Roster with all its leaves, each with its salt. `first` gives the "
        "number of leaves of `given` that it has. `type` is the type text of the group's container.",
        [*_valid(story), *_formats(story), *_leaves(story)],
        leaves=[_shown(leaf) for leaf in crowd()],
    )


def crowd() -> list[SaltedMember]:
    """As many members as a group can have."""
    users = sorted(chosen("member", n) for n in range(MANY))
    return [
        SaltedMember(chosen("leaf", n), encode_value(Member(user, n % 256, n % 3, 1 + n % 7)))
        for n, user in enumerate(users)
    ]


def _shown(leaf: SaltedMember) -> dict[str, bytes]:
    return {"salt": leaf.salt, "member": leaf.member}


def given(
    found: Roster | bytes, leaves: Sequence[SaltedMember], first: int | None = None
) -> dict[str, Any]:
    octets = found if isinstance(found, bytes) else encode_object(found)
    fields: dict[str, Any] = {"roster": octets, "type": roster.group_type(octets)}
    if first is not None:
        return {**fields, "first": first}
    return {**fields, "leaves": [_shown(leaf) for leaf in leaves]}


def of(story: Team, leaves: Sequence[SaltedMember], **changes: Any) -> Roster:
    """A roster of version 7 with these leaves."""
    fields = {"version": 7, "members": roster.members_root(leaves), "count": len(leaves), **changes}
    return replace(story.steps[0].roster, **fields)


def _valid(story: Team) -> list[Vector]:
    many = crowd()

    def first(count: int) -> dict[str, Any]:
        return given(of(story, many[:count]), [], count)

    return [
        valid("one leaf", "The root is the leaf.", **given(of(story, many[:1]), many[:1])),
        valid("two leaves", "The least tree.", **given(of(story, many[:2]), many[:2])),
        valid("three leaves", "Two in the left subtree.", **given(of(story, many[:3]), many[:3])),
        valid("1,023 leaves", "One below a power of two.", **first(MANY - 1)),
        valid("1,024 leaves", "The most.", **first(MANY)),
        valid("last epoch", "16,383.", **given(of(story, many[:3], epoch=LAST), many[:3])),
        valid("member of the roster's version", "7.", **given(
            of(story, [salted(many, 0, version=7)]), [salted(many, 0, version=7)])),
        valid("largest key index", "255.", **given(
            of(story, [salted(many, 0, keyIndex=255)]), [salted(many, 0, keyIndex=255)])),
    ]  # fmt: skip


def salted(leaves: Sequence[SaltedMember], n: int, **changes: Any) -> SaltedMember:
    """A leaf with another Member."""
    member = replace(roster.parse_member(leaves[n].member), **changes)
    return SaltedMember(leaves[n].salt, encode_value(member))


def _formats(story: Team) -> list[Vector]:
    leaves = crowd()[:3]
    good = of(story, leaves)
    body, row = encode_object(good), msgspec.structs.astuple(good)
    key, found = good.publicKey, list[Vector]()

    def spoiled(name: str, comment: str, changed: bytes) -> None:
        if changed == body:
            raise ValueError(f"{name} changes nothing.")
        found.append(invalid(name, comment, INTEGRITY, **given(changed, leaves)))

    spoiled("wrong version byte", "02 in place of 01.", b"\x02" + body[1:])
    spoiled("trailing byte", "One zero byte behind the value.", body + b"\0")
    spoiled("truncated", "The last byte is missing.", body[:-1])
    spoiled("empty", "No bytes.", b"")
    spoiled("integer not shortest", "Version 7 as cc 07.", body.replace(b"\x07", b"\xcc\x07", 1))
    spoiled("bin not shortest", "The group with c5 0020.", body.replace(
        b"\xc4\x20", b"\xc5\0\x20", 1))  # fmt: skip
    spoiled("array not shortest", "Eight elements as dc 0008.", b"\x01\xdc\0\x08" + body[2:])
    spoiled("one element more", "Nine elements.", encoded([*row, None]))
    spoiled("one element fewer", "No info.", encoded(row[:-1]))
    spoiled("short group", "31 bytes.", put(row, 0, good.group[:-1]))
    spoiled("roster of version 0", "Versions count from 1.", put(row, 1, 0))
    spoiled("epoch too large", "16,384.", put(row, 2, LAST + 1))
    spoiled("negative epoch", "-1.", put(row, 2, -1))
    high = b"\xff" * 31 + b"\x7f"
    spoiled("short public key", "1,215 bytes.", put(row, 3, key[:-1]))
    spoiled(
        "public key of small order", "The X25519 half is zero.", put(row, 3, key[:1184] + bytes(32))
    )
    spoiled(
        "public key not canonical", "The X25519 half is 2^255 - 1.", put(row, 3, key[:1184] + high)
    )
    spoiled(
        "public key that is no encoding",
        "A coefficient of the ML-KEM half is 4,095.",
        put(row, 3, b"\xff\xff" + key[2:]),
    )
    spoiled("long commitment", "33 bytes.", put(row, 4, good.commitment + b"\0"))
    spoiled("short root", "31 bytes.", put(row, 5, good.members[:-1]))
    spoiled("no leaf", "count 0.", put(row, 6, 0))
    spoiled("count too large", "1,025.", put(row, 6, MANY + 1))
    spoiled("info left out", "nil.", put(row, 7, None))
    return found


def _leaves(story: Team) -> list[Vector]:
    many = crowd()[:3]

    def refused(name: str, comment: str, leaves: list[SaltedMember], **changes: Any) -> Vector:
        return invalid(name, comment, INTEGRITY, **given(of(story, leaves, **changes), leaves))

    def unread(name: str, comment: str, member: bytes) -> Vector:
        """A Member that does not decode, in the place of another one."""
        leaves = [SaltedMember(many[0].salt, member), *many[1:]]
        return invalid(name, comment, INTEGRITY, **given(of(story, many), leaves))

    def with_member(name: str, comment: str, row: list[Any]) -> Vector:
        return unread(name, comment, msgspec.msgpack.encode(row))

    row = list(msgspec.structs.astuple(roster.parse_member(many[0].member)))
    good = many[0].member
    node = labelled_hash("roster-node", many[0].salt, many[0].member)
    root = merkle.tree(roster.NODE, [node, many[1].hash, many[2].hash])[0]
    again = salted(many, 0, role=2)
    return [
        refused("leaves that descend", "The second before the first.", [many[1], many[0], many[2]]),
        refused("user twice", "With another role.", [many[0], again, many[2]]),
        refused("another number of leaves", "count is 4, of 3 leaves.", many, count=4),
        refused("another root", "A hash of nothing.", many, members=chosen("no root")),
        refused("a leaf labelled as a node", "The first one.", many, members=root),
        refused("leaf of a later roster", "Version 8, in a roster of version 7.", [
            salted(many, 0, version=8), *many[1:]]),
        refused("short salt", "31 bytes.", [SaltedMember(many[0].salt[:-1], good), *many[1:]]),
        with_member("role 3", "0 to 2.", [*row[:2], 3, row[3]]),
        with_member("role as bool", "false.", [*row[:2], False, row[3]]),
        with_member("member's key index 256", "At most 255.", [row[0], 256, *row[2:]]),
        with_member("member of version 0", "Versions count from 1.", [*row[:3], 0]),
        with_member("short fingerprint", "31 bytes.", [row[0][:-1], *row[1:]]),
        with_member("member with an element more", "nil.", [*row, None]),
        with_member("member with an element fewer", "No version.", row[:3]),
        unread("member with a version byte", "It has none.", VERSION + good),
        refused("member with a trailing byte", "00.", [
            SaltedMember(many[0].salt, good + b"\0"), *many[1:]]),
        refused("member not shortest", "keyIndex 0 as cc 00.", [
            SaltedMember(many[0].salt, good[:35] + b"\xcc" + good[35:]), *many[1:]]),
    ]  # fmt: skip
