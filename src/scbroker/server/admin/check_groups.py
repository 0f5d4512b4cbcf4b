"""Check that a broker keeps records, rosters, leaves and members of a group completely and unchanged.

The records are judged by the same code as in brokers and clients. A deleted group has no members. Of its
leaves only those of users who signed a record for the group still have salt and member.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sqlalchemy import bindparam, select

from scbroker.crypto.verify import sha256
from scbroker.errors import IntegrityError
from scbroker.records import group, judge, merkle, roster
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import Via
from scbroker.records.group import GroupChain, Served
from scbroker.records.key_record import KeyChain, Signed
from scbroker.server.broker import now
from scbroker.server.containers.members import StoredList
from scbroker.server.groups import memberships
from scbroker.server.groups.proofs import position_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection, Row
from scbroker.wire.containers import governing_size

b: Final = bindparam
_MORE_THAN_ANY: Final = 100_000
FIND_PENDING_GROUP: Final = select(t.pending_groups).where(t.pending_groups.c.group_id == b("id"))
ANY_LEAF: Final = select(t.leaves.c.version).where(t.leaves.c.group_id == b("group")).limit(1)
# The version of the record that ended an epoch by beginning the next one.
END_OF_EPOCH: Final = (
    select(t.rosters.c.version)
    .where(sql.of(t.rosters, "group"), t.rosters.c.epoch > b("epoch"))
    .order_by(t.rosters.c.version)
    .limit(1)
)
Chains = Callable[[bytes, str], KeyChain]
"""Returns the keys of the user with a fingerprint; the text names the user in a report."""


class GroupCheck:
    """The check of one group, in one transaction."""

    def __init__(
        self,
        connection: Connection,
        row: Row,
        records: Iterator[tuple[judge.Known, Row]],
        chains: Chains,
    ) -> None:
        self._connection, self._row, self._records, self._chains = connection, row, records, chains
        self._at = {"group": row.id}
        self._rosters: Mapping[int, Row] = {
            each.version: each
            for each in connection.execute(
                sql.ROSTERS, {**self._at, "from": 0, "count": _MORE_THAN_ANY}
            )
        }
        self._lists: set[int] = set()
        self._introduced: set[int] = set()
        self._governing_bytes = 0

    def run(self) -> None:
        """Raise `IntegrityError` for the first fault that is found."""
        chain = self._judge_all()
        principal = sql.one(self._connection, sql.FIND_GROUP, id=self._row.id)
        if principal is None:
            raise IntegrityError("Its row among the users is missing.")
        if chain is None:
            self._check_removed()
            return
        self._check_rows(chain, principal)
        if self._row.deleted:
            self._check_ended()
        else:
            self._check_members(chain)

    def _judge_all(self) -> GroupChain | None:
        chain: GroupChain | None = None
        for known, row in self._records:
            expected = 1 if chain is None else chain.version + 1
            if row.version != expected:
                raise IntegrityError(f"Version {expected} is missing.")
            try:
                chain = self._judged(chain, known, row)
                self._check_tree(chain)
            except IntegrityError as error:
                raise IntegrityError(f"version {row.version}: {error}") from None
        if chain is not None and self._rosters.keys() != self._introduced:
            raise IntegrityError("It has rosters that no record names.")
        return chain

    def _judged(self, chain: GroupChain | None, known: judge.Known, row: Row) -> GroupChain:
        access, record = None, known.record
        if record.changes_access:
            values = {"container": self._row.id, "number": record.version}
            found = sql.one(self._connection, sql.FIND_LIST, **values)
            if found is None:
                raise IntegrityError("Its access list is missing.")
            access = StoredList.decode(found.entries).verified()
            self._lists.add(record.version)
        stored = self._rosters.get(record.version)
        body = None if stored is None else bytes(stored.body)
        text = None if stored is None else (stored.type_salt, roster.group_type(stored.body))
        served = Served(known, access, text, body)
        after = group.begin(served, now()) if chain is None else group.extend(chain, served, now())
        if not record.tombstone:
            entries = 0 if access is None else len(access.entries)
            self._governing_bytes += governing_size(Signed(row.body, row.signature), entries, body)
        if stored is not None:
            self._introduced.add(stored.version)
            if stored.epoch != after.roster.epoch:
                raise IntegrityError("The row of its roster names another epoch.")
        return after

    def _check_tree(self, chain: GroupChain) -> None:
        """Check the stored leaves of the roster in force against the Merkle root that was signed."""
        leaves = memberships.leaves_at(self._connection, self._row.id, chain.version)
        hashes = [leaf.hash for leaf in leaves]
        if len(hashes) != chain.roster.count:
            raise IntegrityError("Its roster has another number of leaves.")
        if merkle.root(roster.NODE, hashes) != chain.roster.members:
            raise IntegrityError("The leaves of its roster are not those that were signed.")
        for leaf in leaves:
            if leaf.member is not None and memberships.salted(leaf).hash != leaf.hash:
                raise IntegrityError("A leaf of its roster is not the one that was signed.")

    def _check_rows(self, chain: GroupChain, principal: Row) -> None:
        row = self._row
        said = (principal.fingerprint, principal.encryption_index, principal.group_version)
        if said != (chain.name, chain.roster.epoch, chain.version):
            raise IntegrityError("Its row among the users has another name, epoch or version.")
        found = (row.version, row.governing_version, row.access_version)
        in_force = chain.in_force
        if found != (chain.version, in_force.record.version, in_force.governing.accessVersion):
            raise IntegrityError("Its row does not agree with its records.")
        if row.governing_bytes != self._governing_bytes:
            raise IntegrityError("Its row names another size of its records.")
        if principal.deleted != row.deleted or (chain.ended is not None and not row.deleted):
            raise IntegrityError("Its rows do not agree whether it was deleted.")
        stored = self._connection.execute(sql.LIST_VERSIONS, {"container": row.id}).scalars()
        if set(stored) != self._lists:
            raise IntegrityError("It has access lists that no record names.")

    def _check_members(self, chain: GroupChain) -> None:
        """Compare the members' rows, wraps, info and departures with the roster in force."""
        leaves = memberships.leaves_at(self._connection, self._row.id, chain.version)
        members = roster.parse_leaves(chain.roster, [memberships.salted(leaf) for leaf in leaves])
        group.check_roster(chain, members)
        if [bytes(leaf.place) for leaf in leaves] != sorted(members):
            raise IntegrityError("The places of its leaves are not those of its members.")
        if self._row.type != roster.group_type(chain.roster_bytes):
            raise IntegrityError("Its type is not that of its roster.")
        found = self._connection.execute(sql.GROUP_MEMBERS, self._at)
        rows = {bytes(row.user_id): row for row in found}
        if rows.keys() != {stored_user_id(name) for name in members}:
            raise IntegrityError("Its members are not those of its roster.")
        for name, member in members.items():
            row = rows[stored_user_id(name)]
            entry = chain.managers.get(name)
            permissions = 0 if entry is None else entry.permissions
            said = (row.version, row.role, row.key_index, row.permissions)
            if said != (member.version, member.role, member.keyIndex, permissions):
                raise IntegrityError("A member's row does not agree with the roster.")
            # A deleted manager keeps the leaf (C8) and gets no wrap; the purge marks the row as gone later.
            if row.wrap is None and not (row.gone or row.deleted):
                raise IntegrityError("A member has no wrap of the secret.")
            if row.departure is not None:
                signed = Signed(row.departure, row.departure_signature)
                keys = self._chains(name, "A user who left it")
                if (
                    not row.gone
                    or group.verify_departure(signed, chain, members, keys, now()) != name
                ):
                    raise IntegrityError("A departure from it is another user's, or has no effect.")
        info = sql.one(self._connection, sql.FIND_INFO, **self._at)
        if info is None or sha256(info.info) != chain.roster.info:
            raise IntegrityError("Its info is not the one that its roster names.")

    def _check_ended(self) -> None:
        """Check that a deleted group keeps no more than readers need, unless a purge is pending."""
        if any(self._any(each) for each in (sql.GROUP_MEMBERS, sql.FIND_INFO)):
            raise IntegrityError("It was deleted, but its members or its info were not.")
        if sql.one(self._connection, FIND_PENDING_GROUP, id=self._row.id) is not None:
            return
        kept = set(self._connection.execute(sql.AUTHORS_OF_GROUP, self._at).scalars())
        for leaf in self._connection.execute(sql.KEPT_LEAVES, self._at):
            if stored_user_id(roster.parse_member(leaf.member).fingerprint) not in kept:
                raise IntegrityError("It was deleted, but a leaf that nobody needs was not.")
        if not self._any(sql.ANY_AUTHOR_OF_GROUP) and not self._any(sql.ANY_ENTRY_OF_GROUP):
            raise IntegrityError(
                "It was deleted and no container needs it, but its records were not."
            )

    def _check_removed(self) -> None:
        if not self._row.deleted:
            raise IntegrityError("Its records are missing.")
        if self._rosters or any(
            self._any(each) for each in (ANY_LEAF, sql.GROUP_MEMBERS, sql.FIND_INFO)
        ):
            raise IntegrityError("Its records were deleted, but some of its rows were not.")

    def _any(self, statement: Any) -> bool:
        return self._connection.execute(statement, self._at).first() is not None


def acting_of(connection: Connection, via: Via, author: bytes) -> judge.Acting:
    """Return the group for which an author acted; raise `IntegrityError` unless it is stored (V2)."""
    group_id = stored_user_id(via.group)
    group = sql.one(connection, sql.FIND_GROUP, id=group_id)
    known = _record(connection, group_id, via.version)
    if group is None or group.fingerprint != via.group or known is None or known.hash != via.hash:
        raise IntegrityError("It names a record of a group that is not stored (V2).")
    leaves = memberships.leaves_at(connection, group_id, via.version)
    position = position_of(leaves, author)
    if position is None:
        raise IntegrityError("The leaf of its author in the group is missing (V2).")
    found = sql.one(connection, sql.ROSTER_AT, group=group_id, number=via.version)
    if found is None or found.epoch != via.epoch:
        raise IntegrityError("It names another epoch than the record of its group (V2).")
    role = roster.parse_member(memberships.salted(leaves[position]).member).role
    head = _record(connection, group_id, group.group_version)
    deleted = head.record.time if head is not None and head.record.tombstone else None
    after = {"group": group_id, "epoch": via.epoch}
    end = connection.execute(END_OF_EPOCH, after).scalar_one_or_none()
    ended = None if end is None else _record(connection, group_id, end)
    return judge.Acting(
        via.group, role, known.record.time, None if ended is None else ended.record.time, deleted
    )


def _record(connection: Connection, group_id: bytes, version: int) -> judge.Known | None:
    row = sql.one(connection, sql.FIND_RECORD, container=group_id, number=version)
    return None if row is None else judge.Known.parse(row.body)
