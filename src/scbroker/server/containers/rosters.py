"""Read a stored group, judge a record of it with its roster, and write its rows.

Spec: docs/spec/groups.md, sections 4 and 11.

The container of a group has records, lists and authors as any other container, and no rows of `members`.
So every other operation on containers answers as for an unknown id. `storing` calls this module for the
fields that only a group's record has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import WRAP_SIZE, sha256
from scbroker.records import group as rules
from scbroker.records import roster
from scbroker.records.canonical import UserId, stored_user_id, user_id_of
from scbroker.records.container_record import GROUP_TYPE, sealed_size
from scbroker.records.group import GroupChain, Moments
from scbroker.records.key_record import READER_TOLERANCE
from scbroker.records.roster import Member, SaltedMember
from scbroker.server.broker import SECOND, Charges, add_to_counter, not_found, refusing
from scbroker.server.containers import members as lists
from scbroker.server.containers import tombstones
from scbroker.server.containers.incoming import Incoming, Stored, Transaction
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel, ContainerEventType
from scbroker.wire.rosters import RosterRequest

_DAY: Final = 86_400 * SECOND
_LAST_EPOCHS: Final = 1024
"""The number of last possible epochs of a group that only an owner may start."""

_OTHER_ENTRY: Final = t.members.alias("other_entry")
# A container that the group can change or delete, and nobody else can reach.
STRANDED: Final = (
    sa.select(t.members.c.container_id)
    .where(
        t.members.c.user_id == b("group"),
        t.LISTED,
        sql.UNEXPIRED,
        t.members.c.permissions.bitwise_and(
            int(ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.Delete)
        )
        > 0,
        ~sa.exists()
        .where(_OTHER_ENTRY.c.container_id == t.members.c.container_id)
        .where(_OTHER_ENTRY.c.user_id != t.members.c.user_id)
        .where(_OTHER_ENTRY.c.expires_at.is_(None) | (_OTHER_ENTRY.c.expires_at > b("now")))
        .where(t.users.c.id == _OTHER_ENTRY.c.user_id, ~t.users.c.deleted),
    )
    .limit(1)
)
DROP_GROUP_MEMBER: Final = sql.drop(t.group_members, "group", "user")
END_LEAF: Final = sql.change(
    t.leaves, "group", t.leaves.c.place == b("leaf"), sql.END == sql.LATEST, until=b("number")
)
DROP_INFO: Final = sql.drop(t.group_infos, "group")


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is stored, with its row of `users` locked."""

    stored: Stored
    row: Row
    """The group's row of `users`."""
    chain: GroupChain
    leaves: Mapping[bytes, SaltedMember]
    """Those of the roster in force, by fingerprint, in their order."""
    parsed: Mapping[bytes, Member]
    """The members of these leaves."""
    members: Mapping[bytes, Row]
    """Rows of `statements.GROUP_MEMBERS` by user id."""


def members_of(connection: Connection, group_id: bytes) -> dict[bytes, Row]:
    """Return the rows of a group's members, by user id."""
    rows = connection.execute(sql.GROUP_MEMBERS, {"group": group_id})
    return {bytes(row.user_id): row for row in rows}


def departures(members: Mapping[bytes, Row]) -> int:
    """Return how many of the members of a roster have left."""
    return sum(member.departure is not None for member in members.values())


def lock(connection: Connection, incoming: Incoming, row: Row) -> tuple[Row, Mapping[bytes, Row]]:
    """Lock the group; return its row of `users`, and its members by user id.

    From here on no record that is made through the group is stored, until this transaction ends. Raises if
    the group is deleted, or the author is none of its managers.
    """
    if row.deleted:
        raise errors.DeletedError()
    locked = sql.the(connection, sql.LOCK_GROUP, id=row.id)
    found = members_of(connection, row.id)
    own = found.get(incoming.user.id)
    if own is None or own.gone or not own.permissions:
        raise not_found()
    return locked, found


def read(
    connection: Connection, stored: Stored, row: Row, members: Mapping[bytes, Row]
) -> StoredGroup:
    """Return a stored group. Its chain has what `group.extend` needs, and no older moments."""
    place = {"group": stored.row.id, "number": stored.row.version}
    body = bytes(sql.the(connection, sql.ROSTER_AT, **place).body)
    known, head = roster.parse_roster(body), stored.head
    chain = GroupChain(row.fingerprint, head, stored.in_force, known, body, Moments(), ())
    leaves = memberships.leaves_at(connection, stored.row.id, stored.row.version)
    by_name = {bytes(leaf.place): memberships.salted(leaf) for leaf in leaves}
    parsed = {name: roster.parse_member(leaf.member) for name, leaf in by_name.items()}
    return StoredGroup(stored, row, chain, by_name, parsed, members)


def judged(tx: Transaction, incoming: Incoming, before: StoredGroup | None) -> ChangedGroup:
    """Judge the record by C1 to C9; return the group with it, or raise the error that refuses it.

    C10 is the comparison of keys in `ChangedGroup.check`.
    """
    message, record = incoming.message, incoming.record
    request, leaves = message.roster, dict(before.leaves) if before else {}
    if incoming.access is not None and len(incoming.access.entries) > roster.MAX_MANAGERS:
        raise errors.TooLargeError(f"A group has at most {roster.MAX_MANAGERS} managers.")
    if request is None and incoming.has_group_type:
        raise errors.InvalidArgumentError("The request lacks the roster that its type names.")
    if request is not None:
        leaves = _leaves_after(leaves, incoming.leaves, request.removed)
        limit = tx.broker.settings.max_group_members
        if len(leaves) > limit:
            raise errors.TooLargeError(f"This broker takes at most {limit} members in a group.")
    text = None if message.type is None else (message.type.salt, message.type.type)
    data = None if request is None else request.roster
    served = rules.Served(incoming.known, incoming.access, text, data)
    members: Mapping[bytes, Member] = {}
    with refusing():
        if before is None:
            chain = rules.begin(served, tx.moment)
        else:
            chain, members = rules.extend(before.chain, served, tx.moment), before.parsed
        if request is not None:
            members = roster.parse_leaves(chain.roster, list(leaves.values()))
            if before is not None:
                rules.check_since((before.chain.roster, before.parsed), (chain.roster, members))
        rules.check_roster(chain, members)
        changed = {name: members[name] for name in incoming.leaves}
        if any(member.version != record.version for member in changed.values()):
            raise errors.IntegrityError("A new leaf is not of its roster's version (3.1).")
    rises = before is not None and chain.roster.epoch > before.chain.roster.epoch
    return ChangedGroup(tx, incoming, before, chain, leaves, members, changed, rises)


def _leaves_after(
    stored: dict[bytes, SaltedMember],
    changed: Mapping[bytes, SaltedMember],
    removed: Sequence[bytes],
) -> dict[bytes, SaltedMember]:
    """Return the leaves after a request, in their order."""
    if list(removed) != sorted({*removed}):
        raise errors.InvalidArgumentError("removed is not in strictly ascending order.")
    if changed.keys() & {*removed}:
        raise errors.InvalidArgumentError("A user is both in removed and in leaves.")
    for name in removed:
        if stored.pop(name, None) is None:
            raise errors.InvalidArgumentError("A user in removed has no leaf.")
    if any(stored.get(name) == leaf for name, leaf in changed.items()):
        raise errors.InvalidArgumentError("leaves has a leaf that is stored already: leave it out.")
    return dict(sorted({**stored, **changed}.items()))


@dataclass(frozen=True, slots=True)
class ChangedGroup:
    """A group with the record that is being stored."""

    tx: Transaction
    incoming: Incoming
    before: StoredGroup | None
    chain: GroupChain
    leaves: Mapping[bytes, SaltedMember]
    members: Mapping[bytes, Member]
    changed: Mapping[bytes, Member]
    """New and changed members, by fingerprint."""
    new_epoch: bool

    @property
    def request(self) -> RosterRequest | None:
        return self.incoming.message.roster

    @property
    def group_id(self) -> bytes:
        return self.incoming.container_id

    def check(self, users: lists.Users) -> None:
        """Check a judged record against the users whom it names and the stored group."""
        incoming, before = self.incoming, self.before
        people = {name: user for name, user in users.items() if user.group_version is None}
        if incoming.access is not None:
            known = before.stored.in_force.access if before else None
            lists.check_recipients(incoming.access, known, people)
        if before is not None and self.new_epoch:
            self._count_epoch(before)
        tombstone = incoming.record.tombstone
        if tombstone:
            self._check_end()
        elif self.request is not None:
            self._check_members(self.request, people)
        if before is not None and (self.new_epoch or tombstone):
            self._check_end_of_epoch(before)

    def _check_members(self, request: RosterRequest, people: lists.Users) -> None:
        """Check a new roster against the stored state of its users; `judged` checked its form (C7 to C9)."""
        before = self.before
        old = before.parsed if before else {}
        for name, member in self.changed.items():
            user, known = people.get(name), old.get(name)
            if user is None or user.deleted:
                raise errors.NotFoundError(f"The broker knows no user {user_id_of(name)}.")
            is_new = known is None or known.keyIndex != member.keyIndex
            if is_new and member.keyIndex != user.encryption_index:
                raise errors.StaleKeysError(
                    f"User {user_id_of(name)} has newer keys: read them again."
                )
        if before is not None:
            at = {"group": self.group_id}
            if not self.new_epoch and self.tx.connection.execute(sql.OWED, at):
                raise errors.StaleKeysError(
                    "A former member knows the secret of this epoch, or a member has a newer key: raise "
                    "the epoch."
                )
            # A user who has left or was deleted must lose the leaf. Only an owner can remove a manager, and
            # every manager needs a leaf (C8): so the leaf of a manager may stay if the author is not an
            # owner.
            is_owner = before.chain.is_owner(self.incoming.user.fingerprint)
            for name in self.leaves.keys() - self.changed.keys():
                row = before.members[stored_user_id(name)]
                if (row.gone or row.deleted) and (is_owner or name not in self.chain.managers):
                    raise errors.RejectedError(
                        f"User {user_id_of(name)} has left or was deleted: drop the leaf of this user."
                    )
        self._check_wraps(request)
        self._check_info(request)

    def _check_wraps(self, request: RosterRequest) -> None:
        """Check that exactly the members who need the secret get it.

        In the same epoch these are the users who were not members before; in a new one all who have not left.
        """
        stored, needed = self.before.members if self.before else {}, set[bytes]()
        for name in self.leaves:
            member, has_new_leaf = stored.get(stored_user_id(name)), name in self.changed
            is_member = member is not None and not (member.gone or member.deleted)
            if (is_member or has_new_leaf) if self.new_epoch else (has_new_leaf and not is_member):
                needed.add(name)
        if [item.fingerprint for item in request.wraps] != sorted(needed):
            raise errors.InvalidArgumentError(
                "wraps must have one wrap of the secret for each member who needs one, in ascending order."
            )

    def _check_info(self, request: RosterRequest) -> None:
        """Check the sealed info: it must be sent if it is new, have the signed hash, and a possible size."""
        after, info = self.chain.roster, request.info
        is_new = self.before is None or self.before.chain.roster.info != after.info
        if (info is not None) != is_new:
            raise errors.InvalidArgumentError(
                "The request must have an info exactly if its roster names another one than before."
            )
        if info is None:
            return
        # The smallest and the largest info: version byte, array of three, name of 1 to 256 bytes,
        # description, array of secrets or nil.
        least = sealed_size(6 + after.epoch)
        most = sealed_size(roster.MAX_INFO - 34 * (roster.LAST_EPOCH + 1) + 34 * after.epoch)
        most = min(roster.MAX_SEALED_INFO, most)
        if sha256(info) != after.info or not least <= len(info) <= most:
            raise errors.InvalidArgumentError(
                "info has another hash than the roster names, or a wrong size."
            )

    def _check_end_of_epoch(self, before: StoredGroup) -> None:
        """Raise `ClockError` if a stored record of the epoch is later than the end that this sets (V4)."""
        if before.row.signed_until >= self.incoming.record.time + READER_TOLERANCE:
            raise errors.ClockError(
                "A stored record that was made through the group has a later time: wait until your clock has "
                "passed it."
            )

    def _count_epoch(self, before: StoredGroup) -> None:
        """Count a new epoch; raise `ThrottledError` if the group has used up its epochs of a day.

        Half of a day's epochs, and the last epochs of the group, are reserved for owners: another manager
        could otherwise use up all of them, so that nobody can remove this manager.
        """
        tx, limit = self.tx, self.tx.broker.settings.max_new_epochs
        if not before.chain.is_owner(self.incoming.user.fingerprint):
            limit = -(-limit // 2)
            if self.chain.roster.epoch > roster.LAST_EPOCH - _LAST_EPOCHS:
                raise errors.TooLargeError(
                    "The key of this group was changed so often that only an owner may change it again: "
                    "create another group, and replace this one by it."
                )
        what = f"The key of this group was changed more than {limit} times in a day"
        bucket = tx.broker.keyed("epochs", self.group_id)
        add_to_counter(tx.connection, bucket, limit, _DAY, tx.moment, what=what)

    def _check_end(self) -> None:
        """Check that a group may be deleted: it has no other member, and no container needs it."""
        if self.before is None or self.before.leaves.keys() != {self.incoming.user.fingerprint}:
            raise errors.RejectedError("The group has other members: remove them first.")
        values = {"group": self.group_id, "now": self.tx.moment}
        found = self.tx.connection.execute(STRANDED, values).scalar_one_or_none()
        if found is not None:
            raise errors.RejectedError(
                f"Nobody else has access to container {UUID(bytes=found)}: give somebody access, or "
                "delete it."
            )

    def write(self, new: NewRows, charges: Charges) -> None:
        """Write the group's rows; add its events to `new`."""
        record, connection, group_id = self.incoming.record, self.tx.connection, self.group_id
        self._add_events(new)
        if self.before is not None and record.tombstone:
            tombstones.add_purge(connection, group_id, record.version, record.time)
            connection.execute(sql.SET_USER, {"user": group_id, "group_version": record.version})
            end(connection, group_id, charges)
            return
        state = {"encryption_index": self.chain.roster.epoch, "group_version": self.chain.version}
        if self.before is not None:
            connection.execute(sql.SET_USER, {"user": group_id, **state})
        else:
            row = {**sql.NEW_USER, "id": group_id, "fingerprint": self.chain.name, **state}
            connection.add(t.users, row)
        if self.request is not None:
            self._write_roster(self.request, charges)
        self._write_members(charges)
        if self.before is None:
            memberships.check_accepted(connection, self.incoming.user.id)

    def _write_roster(self, request: RosterRequest, charges: Charges) -> None:
        """Write roster, leaves and info, and charge the author for them."""
        connection, group_id, text = self.tx.connection, self.group_id, self.incoming.message.type
        version, author = self.incoming.record.version, self.incoming.user.id
        at = {"group_id": group_id, "version": version}
        old = self.before.leaves if self.before else {}
        ended = [*request.removed, *(self.changed.keys() & old.keys())]
        ends = [{"group": group_id, "number": version, "leaf": name} for name in ended]
        connection.execute(END_LEAF, ends)
        rows: list[dict[str, Any]] = [
            {
                **at,
                "place": name,
                "until": sql.LATEST,
                "hash": self.leaves[name].hash,
                "salt": self.leaves[name].salt,
                "member": self.leaves[name].member,
            }
            for name in self.changed
        ]
        connection.add(t.leaves, rows)
        size = len(request.roster) + sum(len(row["salt"]) + len(row["member"]) for row in rows)
        new = {
            **at,
            "author_id": author,
            "epoch": self.chain.roster.epoch,
            "type_salt": text.salt if text else b"",
            "body": request.roster,
            "size": size,
        }
        connection.add(t.rosters, new)
        if request.info is not None:
            _drop_info(connection, group_id, charges)
            info = {"group_id": group_id, "info": request.info, "author_id": author}
            connection.add(t.group_infos, info)
            size += len(request.info)
        charges.add(author, size=size)

    def _write_members(self, charges: Charges) -> None:
        """Write the rows of members that differ. Wraps that are replaced or dropped are no longer charged."""
        wraps = {item.fingerprint: item.wrap for item in self.request.wraps} if self.request else {}
        old = self.before.members if self.before else {}
        kept, rows = set[bytes](), dict[bytes, dict[str, Any]]()
        for name in self.leaves:
            user_id = stored_user_id(name)
            kept.add(user_id)
            known = old.get(user_id)
            row = self._row_of(name, known, wraps.get(name))
            if known is None or any(getattr(known, each) != value for each, value in row.items()):
                rows[user_id] = row
        gone = sorted(old.keys() - kept) + sorted(old.keys() & rows.keys())
        _drop_members(
            self.tx.connection, self.group_id, [old[each] for each in gone], rows, charges
        )
        added = [{"group_id": self.group_id, "user_id": each, **row} for each, row in rows.items()]
        self.tx.connection.add(t.group_members, added)
        charges.add(self.incoming.user.id, size=WRAP_SIZE * len(wraps))

    def _row_of(self, name: bytes, known: Row | None, wrap: bytes | None) -> dict[str, Any]:
        """Return the columns of a member's row; unchanged values come from the former row, if any."""
        member, manager = self.members[name], self.chain.managers.get(name)
        row: dict[str, Any] = {
            "version": member.version,
            "role": member.role,
            "key_index": member.keyIndex,
            "permissions": 0 if manager is None else manager.permissions,
            # A new member has to accept the group, except the author of the record.
            "accepted": name == self.incoming.user.fingerprint,
            "gone": False,
            "wrap": None,
            "wrap_author_id": None,
            "departure": None,
            "departure_signature": None,
        }
        kept: list[str] = []
        if known is not None:
            kept += [] if known.gone else ["accepted"]
            kept += [] if self.new_epoch else ["wrap", "wrap_author_id"]
            if name not in self.changed:
                kept += ["gone", "departure", "departure_signature"]
        row |= {column: getattr(known, column) for column in kept}
        if wrap is not None:
            row |= {"wrap": wrap, "wrap_author_id": self.incoming.user.id}
        return row

    def _add_events(self, new: NewRows) -> None:
        """Add the events of a record: for users who become or cease to be members, and one for the group."""
        incoming, old = self.incoming, self.before.members if self.before else {}
        record = incoming.record
        rows: list[dict[str, Any]] = []

        def add(users: Collection[bytes], kind: ContainerEventType, changes: int = 0) -> None:
            who = log.who_of(incoming.user.id, incoming.application)
            columns = {"container_type": GROUP_TYPE, "changes": changes, **who}
            of = record.containerId, record.version, self.tx.moment
            rows.extend(log.event_row(each, kind, *of, columns) for each in sorted(users))

        were = {user_id for user_id, member in old.items() if not (member.gone or member.deleted)}
        if record.tombstone:
            add(were, ContainerEventType.Deleted)
        else:
            removed = self.request.removed if self.request else ()
            add({*map(stored_user_id, self.changed)} - were, ContainerEventType.Added)
            add(were & {*map(stored_user_id, removed)}, ContainerEventType.Deleted)
            if self.before is not None:
                changes = log.ACCESS if record.changes_access else 0
                changes |= log.TYPE if self.request is not None else 0
                add([self.group_id], ContainerEventType.Updated, changes)
        log.add_events(new, rows)


def _drop_info(connection: Connection, group_id: bytes, charges: Charges) -> None:
    found = sql.one(connection, sql.FIND_INFO, group=group_id)
    if found is not None:
        charges.add(found.author_id, size=-len(found.info))
        connection.execute(DROP_INFO, {"group": group_id})


def _drop_members(
    connection: Connection,
    group_id: bytes,
    dropped: Collection[Row],
    changed: Mapping[bytes, Mapping[str, Any]],
    charges: Charges,
) -> None:
    """Delete rows of members, and credit the authors of their wraps.

    A deleted user's keys were kept to verify the departure in the row: now they may be deleted too.
    """
    released = []
    for member in dropped:
        after = changed.get(member.user_id)
        if member.wrap is not None and (after is None or after["wrap"] != member.wrap):
            charges.add(member.wrap_author_id, size=-len(member.wrap))
        if member.departure is not None and (after is None or after["departure"] is None):
            released.append(UserId(member.user_id))
    rows = [{"group": group_id, "user": member.user_id} for member in dropped]
    connection.execute(DROP_GROUP_MEMBER, rows)
    lists.release_keys(connection, released)


def end(connection: Connection, group_id: bytes, charges: Charges) -> None:
    """End a group: delete what only its members need, and mark the rest as pending deletion.

    The group's rows must be locked.
    """
    _drop_members(connection, group_id, members_of(connection, group_id).values(), {}, charges)
    _drop_info(connection, group_id, charges)
    connection.execute(sql.SET_USER, {"user": group_id, "deleted": True})
    connection.execute(sql.ADD_PENDING_GROUP, {"group": group_id})
    connection.woken.update([group_id])
