"""Judge the records of groups with their rosters. Spec: docs/spec/groups.md, sections 4 and 11.

The container of a group has records, lists and authors as any other container, and no rows of `members`.
So every other operation on containers answers as for an unknown id. `storing.store` calls this module for the
fields that only a group's record has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import sha256
from scbroker.records import group as rules
from scbroker.records import roster
from scbroker.records.canonical import stored_user_id, user_id_of
from scbroker.records.container_record import sealed_size
from scbroker.records.key_record import READER_TOLERANCE
from scbroker.records.roster import Roster, SaltedMember
from scbroker.server.broker import SECOND, Charges, add_to_counter, not_found, refusing
from scbroker.server.containers import members as lists
from scbroker.server.containers import stored_groups, tombstones
from scbroker.server.containers.incoming import Incoming, Transaction
from scbroker.server.containers.stored_groups import ChangedGroup, StoredGroup
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel
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


def lock(connection: Connection, incoming: Incoming, row: Row) -> tuple[Row, Mapping[bytes, Row]]:
    """Lock the group; return its row of `users`, and its members by user id.

    From here on no record that is made through the group is stored, until this transaction ends. Raises if
    the group is deleted, or the author is none of its managers.
    """
    if row.deleted:
        raise errors.DeletedError()
    locked = sql.the(connection, sql.LOCK_GROUP, id=row.id)
    found = stored_groups.members_of(connection, row.id)
    own = found.get(incoming.user.id)
    if own is None or own.gone or not own.permissions:
        raise not_found()
    return locked, found


def _check_sizes(tx: Transaction, incoming: Incoming, before: StoredGroup | None) -> None:
    """Raise `TooLargeError` for too many managers or members: C3 and C7 would give a less clear error."""
    if incoming.access is not None and len(incoming.access.entries) > roster.MAX_MANAGERS:
        raise errors.TooLargeError(f"A group has at most {roster.MAX_MANAGERS} managers.")
    request = incoming.message.roster
    if request is None:
        return
    names = before.leaves.keys() if before else set[bytes]()
    count = len((names | incoming.leaves.keys()) - set(request.removed))
    limit = tx.broker.settings.max_group_members
    if count > limit:
        raise errors.TooLargeError(f"This broker takes at most {limit} members in a group.")


def judged(tx: Transaction, incoming: Incoming, before: StoredGroup | None) -> ChangedGroup:
    """Judge the record by C1 to C9; return the group with it, or raise the error that refuses it.

    C10 is the comparison of keys in `_check_members`.
    """
    _check_sizes(tx, incoming, before)
    message, record = incoming.message, incoming.record
    if message.roster is None and incoming.has_group_type:
        raise errors.InvalidArgumentError("The request lacks the roster that its type names.")
    leaves, changed = _leaves_after(incoming, before)
    text = None if message.type is None else (message.type.salt, message.type.type)
    data = None if message.roster is None else message.roster.roster
    served = rules.Served(incoming.known, incoming.access, text, data)
    removed = () if message.roster is None else message.roster.removed
    with refusing():
        chain = (
            rules.begin(served, tx.moment)
            if before is None
            else rules.extend(before.chain, served, tx.moment)
        )
        if data is None:
            members = before.parsed if before else {}
        else:
            members = roster.parse_leaves(chain.roster, list(leaves.values()))
            if before is not None:
                rules.check_since((before.chain.roster, before.parsed), (chain.roster, members))
        rules.check_roster(chain, members)
        new = {name: members[name] for name in changed}
        if any(member.version != record.version for member in new.values()):
            raise errors.IntegrityError("A new leaf is not of its roster's version (3.1).")
    rises = before is not None and chain.roster.epoch > before.chain.roster.epoch
    return ChangedGroup(chain, leaves, members, new, removed, rises)


def _leaves_after(
    incoming: Incoming, before: StoredGroup | None
) -> tuple[dict[bytes, SaltedMember], Collection[bytes]]:
    """Return the leaves after the request, in their order, and the fingerprints of those it changes."""
    stored = dict(before.leaves) if before else {}
    request = incoming.message.roster
    if request is None:
        return stored, ()
    changed = incoming.leaves
    if list(request.removed) != sorted({*request.removed}):
        raise errors.InvalidArgumentError("removed is not in strictly ascending order.")
    if changed.keys() & {*request.removed}:
        raise errors.InvalidArgumentError("A user is both in removed and in leaves.")
    for name in request.removed:
        if stored.pop(name, None) is None:
            raise errors.InvalidArgumentError("A user in removed has no leaf.")
    if any(stored.get(name) == leaf for name, leaf in changed.items()):
        raise errors.InvalidArgumentError("leaves has a leaf that is stored already: leave it out.")
    stored |= changed
    return {name: stored[name] for name in sorted(stored)}, changed.keys()


def check(
    tx: Transaction,
    incoming: Incoming,
    before: StoredGroup | None,
    after: ChangedGroup,
    users: lists.Users,
) -> None:
    """Check a judged record against the users whom it names and the stored group."""
    people = {name: user for name, user in users.items() if user.group_version is None}
    if incoming.access is not None:
        known = before.stored.in_force.access if before else None
        lists.check_recipients(incoming.access, known, people)
    if before is not None and after.new_epoch:
        _count_epoch(tx, incoming, before, after)
    tombstone = incoming.record.tombstone
    if tombstone:
        _check_end(tx, incoming, before)
    elif incoming.message.roster is not None:
        _check_members(tx, incoming, incoming.message.roster, before, after, people)
    if before is not None and (after.new_epoch or tombstone):
        _check_end_of_epoch(incoming, before)


def _check_members(
    tx: Transaction,
    incoming: Incoming,
    request: RosterRequest,
    before: StoredGroup | None,
    after: ChangedGroup,
    people: lists.Users,
) -> None:
    """Check a new roster against the stored state of its users; `judged` has checked its form (C7 to C9)."""
    old = before.parsed if before else {}
    for name, member in after.changed.items():
        user = people.get(name)
        if user is None or user.deleted:
            raise errors.NotFoundError(f"The broker knows no user {user_id_of(name)}.")
        known = old.get(name)
        is_new = known is None or known.keyIndex != member.keyIndex
        if is_new and member.keyIndex != user.encryption_index:
            raise errors.StaleKeysError(f"User {user_id_of(name)} has newer keys: read them again.")
    if before is not None:
        if not after.new_epoch and memberships.is_owed(tx.connection, incoming.container_id):
            raise errors.StaleKeysError(
                "A former member knows the secret of this epoch, or a member has a newer key: raise "
                "the epoch."
            )
        _check_leavers(incoming, before, after)
    _check_wraps(request, before.members if before else {}, after)
    _check_info(request, before.chain.roster if before else None, after.chain.roster)


def _check_leavers(incoming: Incoming, before: StoredGroup, after: ChangedGroup) -> None:
    """Raise `RejectedError` if a user who has left or was deleted keeps the leaf.

    Only an owner can remove a manager, and every manager needs a leaf (C8). So the leaf of a manager may stay
    if the author is not an owner.
    """
    is_owner = before.chain.is_owner(incoming.user.fingerprint)
    for name in after.leaves.keys() - after.changed.keys():
        member = before.members[stored_user_id(name)]
        if (member.gone or member.deleted) and (is_owner or name not in after.chain.managers):
            raise errors.RejectedError(
                f"User {user_id_of(name)} has left or was deleted: drop the leaf of this user."
            )


def _check_wraps(request: RosterRequest, stored: Mapping[bytes, Row], after: ChangedGroup) -> None:
    """Check that exactly the members who need the secret get it.

    In the same epoch these are the users who were not members before; in a new one all who have not left.
    """
    needed = set[bytes]()
    for name in after.leaves:
        member, has_new_leaf = stored.get(stored_user_id(name)), name in after.changed
        is_member = member is not None and not (member.gone or member.deleted)
        if (is_member or has_new_leaf) if after.new_epoch else (has_new_leaf and not is_member):
            needed.add(name)
    given = [item.fingerprint for item in request.wraps]
    if given != sorted(needed):
        raise errors.InvalidArgumentError(
            "wraps must have one wrap of the secret for each member who needs one, in ascending order."
        )


def _check_info(request: RosterRequest, before: Roster | None, after: Roster) -> None:
    """Check the sealed info: it must be sent if it is new, have the signed hash, and a possible size."""
    if (request.info is not None) != (before is None or before.info != after.info):
        raise errors.InvalidArgumentError(
            "The request must have an info exactly if its roster names another one than before."
        )
    if request.info is None:
        return
    # The smallest and the largest info: version byte, array of three, name of 1 to 256 bytes, description,
    # array of secrets or nil.
    least = sealed_size(6 + after.epoch)
    most = min(
        roster.MAX_SEALED_INFO,
        sealed_size(roster.MAX_INFO - 34 * (roster.LAST_EPOCH + 1) + 34 * after.epoch),
    )
    if sha256(request.info) != after.info or not least <= len(request.info) <= most:
        raise errors.InvalidArgumentError(
            "info has another hash than the roster names, or a wrong size."
        )


def _check_end_of_epoch(incoming: Incoming, before: StoredGroup) -> None:
    """Raise `ClockError` if a stored record of the epoch is later than the end that this one sets (V4)."""
    if before.row.signed_until >= incoming.record.time + READER_TOLERANCE:
        raise errors.ClockError(
            "A stored record that was made through the group has a later time: wait until your clock has "
            "passed it."
        )


def _count_epoch(
    tx: Transaction, incoming: Incoming, before: StoredGroup, after: ChangedGroup
) -> None:
    """Count a new epoch; raise `ThrottledError` if the group has used up its epochs of a day.

    Half of a day's epochs, and the last epochs of the group, are reserved for owners: another manager could
    otherwise use up all of them, so that nobody can remove this manager.
    """
    limit = tx.broker.settings.max_new_epochs
    if not before.chain.is_owner(incoming.user.fingerprint):
        limit = -(-limit // 2)
        if after.chain.roster.epoch > roster.LAST_EPOCH - _LAST_EPOCHS:
            raise errors.TooLargeError(
                "The key of this group was changed so often that only an owner may change it again: create "
                "another group, and replace this one by it."
            )
    what = f"The key of this group was changed more than {limit} times in a day"
    bucket = tx.broker.keyed("epochs", incoming.container_id)
    add_to_counter(tx.connection, bucket, limit, _DAY, tx.moment, what=what)


def _check_end(tx: Transaction, incoming: Incoming, before: StoredGroup | None) -> None:
    """Check that a group may be deleted: it has no other member, and no container needs it."""
    if before is None or before.leaves.keys() != {incoming.user.fingerprint}:
        raise errors.RejectedError("The group has other members: remove them first.")
    values = {"group": incoming.container_id, "now": tx.moment}
    found = tx.connection.execute(STRANDED, values).scalar_one_or_none()
    if found is not None:
        raise errors.RejectedError(
            f"Nobody else has access to container {UUID(bytes=found)}: give somebody access, or delete it."
        )


def write(
    tx: Transaction,
    incoming: Incoming,
    before: StoredGroup | None,
    after: ChangedGroup,
    new: NewRows,
    charges: Charges,
) -> None:
    """Write a group's roster, leaves, members and info; add its events to `new`."""
    record, connection, group_id = incoming.record, tx.connection, incoming.container_id
    request, text = incoming.message.roster, incoming.message.type
    stored_groups.add_events(incoming, before, after, new, tx.moment)
    if before is not None and record.tombstone:
        tombstones.add_purge(connection, group_id, record.version, record.time)
        connection.execute(sql.SET_USER, {"user": group_id, "group_version": record.version})
        stored_groups.end(connection, group_id, charges)
        return
    stored_groups.write_group(tx, incoming, before, after)
    if request is not None and text is not None:
        stored_groups.write_roster(tx, incoming, request, text.salt, before, after, charges)
    stored_groups.write_members(tx, incoming, before, after, charges)
    if before is None:
        memberships.check_accepted(connection, incoming.user.id)
