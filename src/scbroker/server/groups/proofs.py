"""Prove to readers that an author was a member of a group, and return version and epoch of groups.

Spec: docs/spec/groups.md, sections 3.1 and 12.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple
from uuid import UUID

import sqlalchemy as sa

from scbroker.records import merkle, roster
from scbroker.records.canonical import UserId, stored_user_id
from scbroker.records.container_record import Via
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.rosters import GroupState, Leaf, Membership

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
            if row.place.startswith(memberships.NUMBERED)
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


class TreeCache:
    """The trees of rosters; the least recently used are dropped beyond a number of leaves in all.

    To read 1,024 leaves and to hash their tree takes milliseconds, and every reader of a container needs the
    proof of its last author. The stored leaves of a version never change, except that the deletion of a group
    drops members whose proof nobody needs any more.
    """

    def __init__(self) -> None:
        self._trees: OrderedDict[tuple[bytes, int], _Tree] = OrderedDict()
        self._leaves = 0
        self._lock = Lock()

    def has(self, group_id: bytes, version: int) -> bool:
        """Return whether the tree of the roster in force at a version is cached."""
        with self._lock:
            return (group_id, version) in self._trees

    def get(self, connection: Connection, group_id: bytes, version: int) -> _Tree:
        """Return the tree of the roster that was in force at a version; the version must be committed."""
        key = group_id, version
        with self._lock:
            if (known := self._trees.get(key)) is not None:
                self._trees.move_to_end(key)
                return known
        tree = _Tree.of(memberships.leaves_at(connection, group_id, version))
        with self._lock:
            if self._trees.setdefault(key, tree) is tree:
                self._leaves += len(tree.leaves)
            while self._leaves > _CACHED_LEAVES:
                _, dropped = self._trees.popitem(last=False)
                self._leaves -= len(dropped.leaves)
        return tree


def leaves_at(connection: Connection, group_id: bytes, version: int) -> list[Leaf]:
    """Return the leaves of the roster that was in force at a version, in the form of the protocol."""
    leaves = _trees.get(connection, group_id, version).leaves
    return [leaf for leaf in leaves if leaf is not None]


_trees: Final = TreeCache()
"""One for the whole process: a group's id is a hash, so groups of two databases have different ids."""


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
        return _trees.has(stored_user_id(via.group), via.version)

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
        return [_state(group, owed=False) for group in found if group is not None]

    def states_of(self, groups: Iterable[Group | Row]) -> list[GroupState]:
        """Return groups' versions and epochs, and whether they owe an epoch and the reader manages them."""
        some = list(groups)
        owing = self.owing([group.id for group in some])
        return [_state(group, owed=group.id in owing) for group in some]

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
        is_known = _trees.has(group_id, version)
        tree = _trees.get(self.connection, group_id, version)
        self._leaves += 0 if is_known else len(tree.leaves)
        return tree.prove(author)


def _state(group: Group | Row, *, owed: bool) -> GroupState:
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
        if leaf.place == author:
            return index
    for index, leaf in enumerate(leaves):
        is_kept = leaf.place.startswith(memberships.NUMBERED) and leaf.member is not None
        if is_kept and roster.parse_member(leaf.member).fingerprint == author:
            return index
    return None
