"""Find the members of groups, prove their memberships to readers, and say which groups owe an epoch.

Spec: docs/spec/groups.md, sections 3, 9, 11 and 12. An epoch is owed while a former member still knows the
group's secret, or a member has a newer key.

Every change of a group's members locks the group's row of `users`. A writer that acts through a group takes a
shared lock of it, so that what it reads here holds until it commits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.errors import TooLargeError
from scbroker.records import merkle, roster
from scbroker.records.canonical import UserId, stored_user_id
from scbroker.records.container_record import Via
from scbroker.records.roster import SaltedMember
from scbroker.server.broker import RecentCache, not_found
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.groups import MAX_ACCEPTED
from scbroker.wire.rosters import GroupState, Leaf, Membership

WHAT: Final = "group"
NUMBERED: Final = bytes(28)
"""The places of a deleted group's leaves begin with it, and end with a number of 4 bytes."""

# The leaves of the roster in force at a version.
LEAVES_AT: Final = sql.find(
    t.leaves, "group", t.leaves.c.version <= b("number"), t.leaves.c.until > b("number")
).order_by(t.leaves.c.place)
_CACHED_LEAVES: Final = 16_384
"""Size of the cache in leaves, of about 300 bytes each."""
_MOST_LEAVES: Final = 8_192
"""An answer ends once so many leaves were read and hashed for it, which takes about 60 ms."""

# Those of the groups `some` that owe an epoch and have the user as a manager.
_MANAGER: Final = t.group_members.alias("manager")
OWING: Final = (
    sa.select(_MANAGER.c.group_id)
    .where(
        sql.among(_MANAGER.c.group_id),
        sql.of(_MANAGER, "user"),
        ~_MANAGER.c.gone,
        _MANAGER.c.permissions > 0,
        sa.exists().where(t.group_members.c.group_id == _MANAGER.c.group_id).where(sql.OWES),
    )
    .order_by(_MANAGER.c.group_id)
)


def find(connection: Connection, group_id: bytes, user_id: UserId) -> Row | None:
    """Return the membership of a user who is a member now; None for anybody else."""
    return sql.one(connection, sql.FIND_MEMBERSHIP, group=group_id, user=user_id)


def check(connection: Connection, group_id: bytes, user_id: UserId) -> Row:
    """Return the membership of a user; raise `NotFoundError` unless they are a member now."""
    found = find(connection, group_id, user_id)
    if found is None:
        raise not_found(WHAT)
    return found


def check_accepted(connection: Connection, user_id: UserId) -> None:
    """Raise `TooLargeError` if a user has accepted more groups than a list of containers covers."""
    if len(connection.execute(sql.ACCEPTED_GROUPS, {"user": user_id}).all()) > MAX_ACCEPTED:
        raise TooLargeError(f"A user takes part in at most {MAX_ACCEPTED} groups: leave one first.")


def leaves_at(connection: Connection, group_id: bytes, version: int) -> Sequence[Row]:
    """Return the leaves of the roster that was in force at a version, in their order."""
    return connection.execute(LEAVES_AT, {"group": group_id, "number": version})


def salted(leaf: Row) -> SaltedMember:
    return SaltedMember(leaf.salt, leaf.member)


@dataclass(frozen=True, slots=True)
class _Tree:
    """The Merkle tree of a roster: its leaves, their positions by fingerprint, and all hashes by level."""

    indices: dict[bytes, int]
    """By fingerprint; of a deleted group only those leaves whose members are kept."""
    leaves: Sequence[Leaf | None]
    levels: Sequence[Sequence[bytes]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Tree:
        leaves = [
            None if row.member is None else Leaf(salt=row.salt, member=row.member) for row in rows
        ]
        indices = {
            roster.parse_member(leaf.member).fingerprint
            if row.place.startswith(NUMBERED)
            else bytes(row.place): index
            for index, (row, leaf) in enumerate(zip(rows, leaves, strict=True))
            if leaf is not None
        }
        return cls(indices, leaves, merkle.levels(roster.NODE, [row.hash for row in rows]))

    def prove(self, author: bytes) -> Membership | None:
        """Return the proof of an author's leaf, if it is kept."""
        index = self.indices.get(author)
        leaf = None if index is None else self.leaves[index]
        if index is None or leaf is None:
            return None
        path = merkle.path(self.levels, index)
        return Membership(salt=leaf.salt, member=leaf.member, index=index, path=path)


# One cache for the whole process: a group's id is a hash, so groups of two databases have different ids. To
# read 1,024 leaves and to hash their tree takes milliseconds, and every reader of a container needs the proof
# of its last author. The stored leaves of a version never change, except that the deletion of a group drops
# members whose proof nobody needs any more.
_trees: Final[RecentCache[tuple[bytes, int], _Tree]] = RecentCache(
    _CACHED_LEAVES, lambda tree: len(tree.leaves)
)


def _tree_of(connection: Connection, group_id: bytes, version: int) -> _Tree:
    """Return the tree of the roster that was in force at a version; the version must be committed."""
    tree = _trees.get((group_id, version))
    if tree is None:
        tree = _Tree.of(leaves_at(connection, group_id, version))
        _trees.keep((group_id, version), tree)
    return tree


def served_leaves(connection: Connection, group_id: bytes, version: int) -> list[Leaf]:
    """Return the leaves of the roster that was in force at a version, in the form of the protocol."""
    leaves = _tree_of(connection, group_id, version).leaves
    return [leaf for leaf in leaves if leaf is not None]


class Group(NamedTuple):
    """A group as its row of `users` has it."""

    id: bytes
    group_version: int
    encryption_index: int


@dataclass(slots=True)
class Proofs:
    """The states and proofs of groups that an answer needs, read once for each group."""

    connection: Connection
    reader: UserId
    _groups: dict[bytes, Group | Row | None] = field(default_factory=dict)
    """The rows that were read, by group id; None for an unknown id."""
    _owing: dict[bytes, bool] = field(default_factory=dict)
    """By group id: whether the group owes an epoch (a new key) that the reader, as a manager, can make."""
    _leaves: int = 0
    """The number of leaves that were read and hashed for the answer."""

    def add(self, group: Group, *, is_managed: bool) -> None:
        """Add a group that another statement has read, and whether the reader manages it."""
        self._groups.setdefault(group.id, group)
        if not is_managed:
            self._owing.setdefault(group.id, False)

    @property
    def is_spent(self) -> bool:
        """Return whether the answer has to end here, and to leave further records to the next page.

        Each of them can be made through another version of a large group.
        """
        return self._leaves > _MOST_LEAVES

    def is_known(self, via: Via) -> bool:
        """Return whether the tree that proves memberships at the version of a `via` is in memory."""
        return _trees.get((stored_user_id(via.group), via.version)) is not None

    def of(self, via: Via, author: bytes) -> Membership | None:
        """Return the proof of an author's membership at the version that a `via` names."""
        return self._proof(stored_user_id(via.group), via.version, author)

    def standing(self, via: Via, author: bytes) -> Membership | None:
        """Return the proof that an author is a member now, if the epoch of their `via` has ended."""
        group = self._group(stored_user_id(via.group))
        if group is None or group.encryption_index == via.epoch:
            return None
        return self._proof(group.id, group.group_version, author)

    def states(self, group_ids: Collection[bytes]) -> list[GroupState]:
        """Return version and epoch of groups, in the order of their ids.

        Whether they owe an epoch is for writers alone: of a thousand members it takes as long to find out as
        the rest of a view.
        """
        found = (self._group(each) for each in sorted(group_ids))
        return [state_of(group, owed=False) for group in found if group is not None]

    def owing(self, group_ids: Collection[bytes]) -> set[bytes]:
        """Return the groups that owe an epoch and have the reader as a manager."""
        if missing := [each for each in group_ids if each not in self._owing]:
            values: dict[str, Any] = {"some": missing, "user": self.reader}
            found = set(self.connection.execute(OWING, values).scalars())
            self._owing |= {each: each in found for each in missing}
        return {each for each in group_ids if self._owing[each]}

    def _group(self, group_id: bytes) -> Group | Row | None:
        if group_id not in self._groups:
            self._groups[group_id] = sql.one(self.connection, sql.FIND_GROUP, id=group_id)
        return self._groups[group_id]

    def _proof(self, group_id: bytes, version: int, author: bytes) -> Membership | None:
        is_known = _trees.get((group_id, version)) is not None
        tree = _tree_of(self.connection, group_id, version)
        self._leaves += 0 if is_known else len(tree.leaves)
        return tree.prove(author)


def state_of(group: Group | Row, *, owed: bool) -> GroupState:
    """Return a group's version and epoch, and whether it owes an epoch and the reader manages it."""
    return GroupState(
        groupId=str(UUID(bytes=group.id)),
        version=group.group_version,
        epoch=group.encryption_index,
        owed=owed,
    )


def position_of(leaves: Sequence[Row], author: bytes) -> int | None:
    """Return the position of the author's leaf, if it is kept.

    The places of a group that is not deleted are fingerprints; then no member has to be parsed.
    """
    for index, leaf in enumerate(leaves):
        name = leaf.place
        if name.startswith(NUMBERED) and leaf.member is not None:
            name = roster.parse_member(leaf.member).fingerprint
        if name == author:
            return index
    return None
