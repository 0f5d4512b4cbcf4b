"""Judge a record against what is stored, and store it. Spec: docs/spec/container.md, section 10.

`incoming` has parsed the record. `appending` verifies signatures and runs the transaction, in which it calls
`store` for one record after the other. What only groups have is in `rosters`.
"""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import bindparam as b

from scbroker import errors
from scbroker.crypto.verify import sha256
from scbroker.records import container_record as grammar
from scbroker.records import judge, roster
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import ContainerRecord, Entry, Part, Role, Via, parse_either
from scbroker.records.key_record import CLOCK_TOLERANCE
from scbroker.server.broker import SECOND, Charges, check_unexpired, not_found, refusing
from scbroker.server.containers import members, rosters, stored_groups, tombstones
from scbroker.server.containers.incoming import Incoming, Stored, Transaction
from scbroker.server.containers.stored_groups import StoredGroup
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import (
    MAX_GOVERNING,
    MAX_GOVERNING_WITHOUT_DELETE,
    MAX_INLINE,
    governing_size,
)
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK

CHANGED: Final = "The container was changed meanwhile: read it again."
LEFT: Final = "Somebody left meanwhile: read it again."
_SIGNED_AHEAD: Final = 60 * SECOND
PART_TAKEN: Final = "The part id is used already: a new part needs a new id."

SIGNED_UNTIL: Final = sql.change(
    t.users, t.users.c.id == b("user"), t.users.c.signed_until < b("time"), signed_until=b("until")
)
ADD_RECORD: Final = sa.insert(t.records)
ADD_LIST: Final = sa.insert(t.access_lists)
ADD_MEMBERS: Final = sa.insert(t.members)
# Members with ViewType have a copy of the container's type in their row.
SET_TYPE_OF_MEMBERS: Final = sql.change(
    t.members,
    sql.of(t.members, "container"),
    t.members.c.permissions.bitwise_and(int(ContainerAccessLevel.ViewType)) > 0,
    type=b("text"),
)
DROP_MEMBERS: Final = sa.delete(t.members).where(sql.of(t.members, "container"))
LEAF_AT: Final = sa.select(t.leaves.c.member).where(
    sql.of(t.leaves, "group"),
    t.leaves.c.place == b("leaf"),
    t.leaves.c.version <= b("number"),
    b("number") < sql.END,
)
ADD_GROUP_AUTHOR: Final = sql.if_new(
    container=t.group_authors.c.container_id,
    group=t.group_authors.c.group_id,
    user=t.group_authors.c.user_id,
)
PARTS_TAKEN: Final = sa.select(t.parts.c.part_id).where(sql.among(t.parts.c.part_id))
COMMIT_PART: Final = sql.change(
    t.parts, sql.of(t.parts, "part"), committed=True, hashes=b("all_hashes"), received=b("size")
)
REPLACE_PARTS: Final = sql.change(
    t.parts, sql.among(t.parts.c.part_id, "replaced"), replaced_at=b("now")
)
COUNT_CHUNKS: Final = sa.select(
    sa.func.count().label("arrived"), sa.func.max(t.chunks.c.chunk).label("last")
).where(sql.of(t.chunks, "part"))


def store(
    tx: Transaction, incoming: Incoming, row: Row | None, new: NewRows, charges: Charges
) -> bool:
    """Store a record unless it is stored already; return whether it is new, raise what it is refused with.

    The container's `row` must be locked; None if it does not exist. Rows to insert are added to `new`, which
    the caller writes before it reads anything of this container; what they cost is added to `charges`. Those
    of a group are written at once: a later record of the transaction may act through it.
    """
    record, connection, moment = incoming.record, tx.connection, tx.moment
    if _was_stored(connection, incoming, row):
        return False
    stored = group = acting = author = None
    if row is not None:
        if row.is_group:
            locked = rosters.lock(connection, incoming, row)
            stored = _read_stored(connection, incoming, row)
            group = stored_groups.read(connection, stored, *locked)
        else:
            _check_access(tx, incoming, row)
            stored = _read_stored(connection, incoming, row)
            if record.via is not None:
                acting = acting_of(connection, record, record.via)
        author = _check_allowed(incoming, stored, acting, moment)
        _check_departures(incoming, stored, group)
    parent = stored.head.record if stored else None
    check_time(record, None if acting else parent, moment)
    _check_type(incoming, stored)
    changed = rosters.judged(tx, incoming, group) if incoming.is_of_group(row) else None
    after = changed.chain.in_force if changed else _judge(incoming, stored, acting, moment)
    governing_bytes = _governing_bytes(incoming, stored, author)
    users = _concerned_users(tx, incoming, stored)
    groups = None
    if changed is not None:
        rosters.check(tx, incoming, group, changed, users)
    else:
        groups = _check_list(tx, incoming, stored, users)
    if stored is not None and stored.in_force.access.has_expired(moment):
        log.record_expiry(connection, [stored.row], moment)
    # The container's row comes first: of two transactions that insert it, the second waits for the first.
    _store_record(tx, incoming, stored, after, new, governing_bytes, groups)
    if incoming.access is not None:
        salted = (item.salted for item in incoming.message.accessList or ())
        whole = members.StoredList.whole(incoming.access.entryHashes, salted)
        place = {"container_id": incoming.container_id, "access_version": record.version}
        new.add(ADD_LIST, [{**place, "entries": whole.encode()}])
    if changed is None:
        _store_members(tx, incoming, stored, users, new)
        log.record_change(
            new,
            record,
            parent,
            stored.in_force if stored else None,
            after,
            type_before=stored.row.type if stored and not record.tombstone else None,
            type_now=_type_now(incoming, stored),
            author=incoming.user.id,
            application=incoming.application,
            living={fingerprint for fingerprint, user in users.items() if not user.deleted},
            moment=moment,
        )
    _store_parts(tx, incoming, parent, new, charges)
    _charge(incoming, stored, new, charges)
    if changed is not None:
        new.write(connection)
        rosters.write(tx, incoming, group, changed, new, charges)
    elif record.tombstone and stored is not None:
        new.write(connection)
        tombstones.empty(connection, record, members.group_ids_of(stored.row), moment)
    return True


def _charge(incoming: Incoming, stored: Stored | None, new: NewRows, charges: Charges) -> None:
    """Charge the author for record, list and inline parts, and for a new container.

    A tombstone ends the charge of the container's creator, and is never refused: otherwise a user at their
    quota could not delete anything.
    """
    author, tombstone = incoming.user.id, incoming.record.tombstone
    size = len(incoming.signed.body) + len(incoming.signed.signature)
    size += sum(len(row["entries"]) for row in new.of(ADD_LIST))
    size += sum(row["received"] for row in new.of(sql.ADD_PART))
    charges.add(author, size=size, containers=int(stored is None), refusable=not tombstone)
    if tombstone and stored is not None and stored.row.creator_id is not None:
        charges.add(stored.row.creator_id, containers=-1)


def parts_taken(connection: Connection, items: Sequence[Incoming]) -> set[bytes]:
    """Return the ids of inline parts of these records that are stored, as parts of any container."""
    some = sorted({part_id for item in items for part_id in item.inline_parts})
    if not some:
        return set()
    return {row.part_id for row in connection.execute(PARTS_TAKEN, {"some": some})}


def is_stored(connection: Connection, incoming: Incoming) -> bool:
    """Return whether this record is stored; after a deletion it is stored without its parts."""
    number = incoming.record.version
    row = sql.one(connection, sql.FIND_RECORD, container=incoming.container_id, number=number)
    return row is not None and parse_either(row.body).bare == incoming.known.bare


def _was_stored(connection: Connection, incoming: Incoming, row: Row | None) -> bool:
    """Return whether this record is stored already; raise if it is the first of a container that exists."""
    if row is None:
        if incoming.is_first:
            return False
        raise not_found()
    if incoming.record.version > row.version:
        return False
    if not is_stored(connection, incoming):
        if incoming.is_first:
            raise errors.AlreadyExistsError("This container id is taken.")
        return False
    return True


def _check_access(tx: Transaction, incoming: Incoming, row: Row) -> None:
    """Raise if the author, or the group for which they act, has no access, or if the container is deleted."""
    group_id = incoming.group_id
    if group_id is not None:
        memberships.check(tx.connection, group_id, incoming.user.id)
    names = {"container": incoming.container_id, "user": group_id or incoming.user.id}
    check_unexpired(sql.one(tx.connection, sql.FIND_MEMBER, **names), tx.moment)
    if row.deleted:
        raise errors.DeletedError()


def _read_stored(connection: Connection, incoming: Incoming, row: Row) -> Stored:
    """Return the container with its verified access list; raise unless its head is the record's parent."""

    def read(version: int) -> judge.Known:
        found = sql.the(connection, sql.FIND_RECORD, container=row.id, number=version)
        return judge.Known.parse(found.body)

    if incoming.record.version != row.version + 1:
        raise errors.ConflictError(CHANGED)
    head = read(row.version)
    if incoming.record.parent != head.hash:
        raise errors.ConflictError(CHANGED)
    governing = head if row.governing_version == row.version else read(row.governing_version)
    return Stored(row, head, members.in_force(connection, row.id, governing))


def acting_of(connection: Connection, record: ContainerRecord, via: Via) -> judge.Acting:
    """Return what the broker knows of the group for which an author acts; they must be a member now.

    Raises `StaleKeysError` for an epoch that has ended, and `RejectedError` unless the `via` names a record
    of the group whose roster proves the membership in this epoch (V2).
    """
    group_id = stored_user_id(via.group)
    group = memberships.check(connection, group_id, stored_user_id(record.author))
    if group.name != via.group:
        raise not_found()
    if via.epoch != group.epoch:
        raise errors.StaleKeysError(
            "The group has another epoch than the record names: read the group again."
        )
    at = {"group": group_id, "number": via.version}
    named = sql.one(connection, sql.FIND_RECORD, container=group_id, number=via.version)
    leaf = sql.one(connection, LEAF_AT, **at, leaf=record.author)
    known = None if named is None else judge.Known.parse(named.body)
    if known is None or known.hash != via.hash or leaf is None:
        raise errors.RejectedError(
            "The via does not name a record of the group whose roster has the author (V2)."
        )
    if sql.the(connection, sql.ROSTER_AT, **at).epoch != via.epoch:
        raise errors.RejectedError(
            "The via names another epoch than the group's record has that it names (V2)."
        )
    role = roster.parse_member(leaf.member).role
    return judge.Acting(via.group, role, known.record.time, None, None)


def check_time(record: ContainerRecord, parent: ContainerRecord | None, moment: int) -> None:
    """Raise `ClockError` for a record dated more than five minutes off, unless it has its parent's time.

    No record may be older than its parent. If a broker whose clock was ahead stored the parent, the container
    could otherwise get no record until the other clocks reach that time.
    """
    latest = moment + CLOCK_TOLERANCE
    if parent is not None:
        latest = max(latest, parent.time)
    if not moment - CLOCK_TOLERANCE <= record.time <= latest:
        raise errors.ClockError(
            "The record is dated more than five minutes off: set the clock right."
        )


def _check_allowed(
    incoming: Incoming, stored: Stored, acting: judge.Acting | None, moment: int
) -> Entry:
    """Return the entry by which the author acts; a group's is cut by the author's role.

    The rules of validity check this as well. Here it is answered with an error that a user understands.
    """
    before, is_group = stored.in_force, stored.row.is_group
    entry = before.entry_of(acting.group if acting else incoming.user.fingerprint, moment)
    if entry is None:
        raise not_found()
    if acting is not None:
        entry = replace(entry, permissions=roster.cut(entry.permissions, acting.role))
    needed = judge.needed_permissions(incoming.record, before)
    if incoming.record.changes_access and not is_group:
        needed &= ~ContainerAccessLevel.ModifyAccess  # not needed to renew keys (rule 5)
    missing = ContainerAccessLevel(needed & ~entry.permissions)
    if missing:
        what = "group" if is_group else "container"
        raise errors.PermissionDeniedError(f"Your access to this {what} lacks {missing.name}.")
    return entry


def _check_departures(incoming: Incoming, stored: Stored, group: StoredGroup | None) -> None:
    """Raise `ConflictError` if the author of a new list, part or roster has not seen every departure.

    The author may have drafted the record before somebody left. After the error the client reads the
    departure and drafts the record anew.
    """
    left, record = len(stored.in_force.left), incoming.record
    is_new = record.changes_access or _has_new_part(incoming, stored)
    if group is not None:
        left, is_new = stored_groups.departures(group.members), not record.tombstone
    if is_new and incoming.message.departures != left:
        raise errors.ConflictError(LEFT)


def _has_new_part(incoming: Incoming, stored: Stored) -> bool:
    return not _part_ids(incoming.record) <= _part_ids(stored.head.record)


@refusing()
def _judge(
    incoming: Incoming, stored: Stored | None, acting: judge.Acting | None, moment: int
) -> judge.InForce:
    """Return the state that the record puts in force; raise the error that refuses it."""
    access = incoming.access
    if stored is not None:
        after = judge.judge_next(
            incoming.known, stored.in_force, access, stored.head, moment, acting
        )
    elif access is not None:
        after = judge.judge_first(incoming.known, access, moment)
    else:
        raise errors.RejectedError("A first record needs an access list (rule 1).")
    if incoming.has_group_type:
        raise errors.RejectedError("This container is not a group's: it cannot have such a type.")
    _check_own_type(incoming, stored)
    return after


def _check_type(incoming: Incoming, stored: Stored | None) -> None:
    """Raise unless the request has the text of a type exactly if the record changes the type's hash."""
    governing, before = incoming.record.governing, stored.in_force.governing if stored else None
    changes = governing is not None and (before is None or before.type != governing.type)
    if changes != (incoming.message.type is not None):
        fault = "lacks the text of" if changes else "has a text and does not change"
        raise errors.InvalidArgumentError(f"The request {fault} the type.")


def _check_own_type(incoming: Incoming, stored: Stored | None) -> None:
    """Refuse to give others access to a container whose type is reserved for a user's own documents."""
    if not (_type_now(incoming, stored) or "").startswith(grammar.OWN_TYPES):
        return
    access = incoming.access or (stored.in_force.access if stored else None)
    others = {*access.entries} if access else set[bytes]()
    if incoming.message.type is None and stored is not None:
        others -= stored.in_force.access.entries.keys()
    if others - {incoming.user.fingerprint}:
        raise errors.InvalidArgumentError(
            f"A type that begins with {grammar.OWN_TYPES} is for containers that nobody else has access to."
        )


def _type_now(incoming: Incoming, stored: Stored | None) -> str | None:
    """Return the container's type after the record."""
    sent = incoming.message.type
    return sent.type if sent else stored.row.type if stored else None


def _check_list(
    tx: Transaction, incoming: Incoming, stored: Stored | None, users: members.Users
) -> bytes | None:
    """Check the users of a new list, or the keys of the one in force; return the ids of the list's groups."""
    if stored is not None:
        _check_container_key(incoming, stored, users)
    if incoming.access is None:
        return stored.row.groups if stored else None
    known = stored.in_force.access if stored else None
    members.check_recipients(incoming.access, known, users)
    found = members.groups_among(incoming.access, users)
    limit = tx.broker.settings.max_listed_groups
    if len(found) > limit:
        raise errors.TooLargeError(f"This broker takes at most {limit} groups in an access list.")
    if stored is not None:
        members.release_groups(tx.connection, {*members.group_ids_of(stored.row)} - {*found})
    return b"".join(found) or None


def _check_container_key(incoming: Incoming, stored: Stored, users: members.Users) -> None:
    """Refuse a new part under a container key that somebody without access may know (rule 5)."""
    record = incoming.record
    if record.changes_access or not _has_new_part(incoming, stored):
        return
    if stored.in_force.needs_renewal(record.time):
        raise errors.RejectedError(
            "A former member knows the container key: renew it before storing anything new (rule 5)."
        )
    members.check_wraps_in_use(stored.in_force.access, users)


def _governing_bytes(incoming: Incoming, stored: Stored | None, author: Entry | None) -> int:
    """Return the size of the governing records with this one; raise `TooLargeError` above the bound.

    Every reader without a mark verifies all of them. Authors without Delete have a lower bound, so that a
    member with Delete can still remove them. A tombstone is always possible.
    """
    before = 0 if stored is None else int(stored.row.governing_bytes)
    if incoming.record.governing is None:
        return before
    entries = 0 if incoming.access is None else len(incoming.access.entries)
    data = None if incoming.message.roster is None else incoming.message.roster.roster
    size = before + governing_size(incoming.signed, entries, data)
    limit = MAX_GOVERNING
    if author is not None and not author.allows(ContainerAccessLevel.Delete):
        limit = MAX_GOVERNING_WITHOUT_DELETE
    if size > limit:
        raise errors.TooLargeError(
            "Access, type or members were changed too often: have a member with Delete create the container "
            "or group anew, and delete this one."
        )
    return size


def _part_ids(record: ContainerRecord) -> set[bytes]:
    return {part.partId for part in (record.header, record.content) if part is not None}


def _concerned_users(
    tx: Transaction, incoming: Incoming, stored: Stored | None
) -> dict[bytes, Row]:
    """Return the author and all users in the old and the new list, as far as the broker knows them.

    Members who are in the old list alone need no lock: whatever deletes them waits for the lock of the
    container.
    """
    named = incoming.named
    users = {name: tx.users[name] for name in named if name in tx.users}
    if stored is not None and (others := stored.in_force.access.entries.keys() - named):
        users |= members.users_of(tx.connection, others)
    return users


def _store_record(
    tx: Transaction,
    incoming: Incoming,
    stored: Stored | None,
    after: judge.InForce,
    new: NewRows,
    governing_bytes: int,
    groups: bytes | None,
) -> None:
    """Store the record and the container's new state, and add the author to `authors`.

    The keys of users in `authors` are kept as long as the container needs them. No row is added for the
    author of the record before, who has one, and for the creator, whom the container's own row names.
    """
    record, text, user = incoming.record, incoming.message.type, incoming.user
    state: dict[str, object] = {
        "version": record.version,
        "governing_version": after.record.version,
        "access_version": after.governing.accessVersion,
        "governing_bytes": governing_bytes,
        "deleted": record.tombstone,
        "groups": groups,
    }
    if text is not None:
        state |= {"type": text.type, "type_salt": text.salt}
    if stored is None:
        is_group = incoming.is_of_group(None) or None
        created = {"id": record.containerId, "creator_id": user.id, "is_group": is_group}
        new.add(sql.ADD_CONTAINER, [{**created, **state}])
    else:
        tx.connection.execute(sql.SET_CONTAINER, {"container": record.containerId, **state})
        if stored.row.creator_id != user.id and stored.head.record.author != user.fingerprint:
            new.add(sql.ADD_AUTHOR, [{"container": record.containerId, "user": user.id}])
        head, via = stored.head.record, record.via
        # The row exists already if the record before has the same author and group.
        if via is not None and (
            head.author != user.fingerprint or head.via is None or head.via.group != via.group
        ):
            acted = {"container": record.containerId, "group": incoming.group_id, "user": user.id}
            new.add(ADD_GROUP_AUTHOR, [acted])
    row = {
        "container_id": record.containerId,
        "version": record.version,
        "governing": record.governing is not None,
        "body": incoming.signed.body,
        "signature": incoming.signed.signature,
    }
    new.add(ADD_RECORD, [row])


def _store_members(
    tx: Transaction, incoming: Incoming, stored: Stored | None, users: members.Users, new: NewRows
) -> None:
    """Add a row for each group and each user of a new list who is not deleted.

    An entry that has expired by now counts as recorded: `record_expiry` or `record_change` adds the event.
    """
    access, sent, given = incoming.access, incoming.message.accessList, incoming.message.type
    container_id = incoming.container_id
    if access is None or sent is None:
        if given is not None:
            values = {"container": container_id, "text": given.type}
            tx.connection.execute(SET_TYPE_OF_MEMBERS, values)
        return
    if stored is not None:
        new.add(DROP_MEMBERS, [{"container": container_id}])
    text = _type_now(incoming, stored)
    rows = [
        {
            "container_id": container_id,
            "user_id": stored_user_id(fingerprint),
            "permissions": entry.permissions,
            "key_index": entry.keyIndex,
            "expires_at": entry.expiresAt,
            "wrap": item.wrap,
            # Nobody reads the log of a deleted group, so no event is due when its access expires: count the
            # expiry as recorded.
            "expiry_recorded": users[fingerprint].deleted or entry.is_expired(tx.moment),
            "type": text if entry.allows(ContainerAccessLevel.ViewType) else None,
        }
        for (fingerprint, entry), item in zip(access.entries.items(), sent, strict=True)
        if not users[fingerprint].deleted or users[fingerprint].group_version is not None
    ]
    new.add(ADD_MEMBERS, rows)


@refusing()
def _store_parts(
    tx: Transaction,
    incoming: Incoming,
    parent: ContainerRecord | None,
    new: NewRows,
    charges: Charges,
) -> None:
    """Store inline parts, commit a content that was sent in chunks, and mark replaced parts."""
    message = incoming.message
    inline = {Role.Header: message.header, Role.Content: message.content}
    replaced, rows = [], []
    for role in Role:
        part, before = incoming.record.part(role), parent.part(role) if parent else None
        carried = part is not None and before is not None and part.partId == before.partId
        if before is not None and not carried:
            replaced.append(before.partId)
        if part is None or carried:
            if inline[role] is not None:
                raise errors.InvalidArgumentError("Sealed bytes were sent without a new part.")
        elif role is Role.Header or part.paddedLength <= MAX_INLINE:
            rows.append(_inline_row(incoming, part, inline[role], tx.moment))
        elif inline[role] is not None:
            raise errors.InvalidArgumentError(
                f"A content of more than {MAX_INLINE} bytes must be sent in chunks."
            )
        else:
            _take_over(tx.connection, incoming, part, charges)
    if any(row["part_id"] in tx.parts_taken for row in rows):
        raise errors.RejectedError(PART_TAKEN)
    new.add(sql.ADD_PART, rows)
    if replaced:
        tx.connection.execute(REPLACE_PARTS, {"replaced": replaced, "now": tx.moment})


def _inline_row(
    incoming: Incoming, part: Part, sealed: bytes | None, moment: int
) -> dict[str, Any]:
    if sealed is None:
        raise errors.InvalidArgumentError(
            f"A new header, or a content of up to {MAX_INLINE} bytes, must be sent with its record."
        )
    hashes = sha256(sealed)
    check_sealed(part, len(sealed), hashes)
    return {
        "part_id": part.partId,
        "container_id": incoming.container_id,
        "user_id": incoming.user.id,
        "touched_at": moment,
        "committed": True,
        "received": len(sealed),
        "inline": sealed,
        "hashes": hashes,
    }


def _take_over(connection: Connection, incoming: Incoming, part: Part, charges: Charges) -> None:
    """Commit an uploaded part to its container; raise unless all of its segments are stored and match.

    From then on the part is charged with its size alone: small and replaced chunks counted for more.
    """
    row = sql.one(connection, sql.LOCK_PART, part=part.partId)
    owners = (incoming.user.id, incoming.container_id)
    if row is None or (row.user_id, row.container_id) != owners:
        raise errors.IncompleteUploadError("No chunk of the content is stored: upload it first.")
    if row.committed:
        raise errors.RejectedError("This part belongs to another record already.")
    expected = -(-grammar.segment_count(part.paddedLength) // CHUNK_SEGMENTS)
    # Count first: the hashes of an incomplete part would cost much to read, again at each attempt.
    stored = sql.the(connection, COUNT_CHUNKS, part=part.partId)
    if (stored.arrived, stored.last) != (expected, expected - 1):
        raise errors.IncompleteUploadError(
            f"{stored.arrived} of {expected} chunks are stored: upload the others."
        )
    chunks = connection.execute(sql.CHUNKS, {"part": part.partId}).all()
    if any(chunk.size != MAX_CHUNK for chunk in chunks[:-1]):
        raise errors.RejectedError("A chunk before the last one has fewer than eight segments.")
    hashes = b"".join(chunk.hashes for chunk in chunks)
    size = sum(chunk.size for chunk in chunks)
    check_sealed(part, size, hashes)
    commit = {"part": part.partId, "all_hashes": hashes, "size": size}
    connection.execute(COMMIT_PART, commit)
    charges.add(row.user_id, size=size - row.received)


def check_sealed(part: Part, size: int, hashes: bytes) -> None:
    """Raise `IntegrityError` unless a part's sealed segments have this size in all, and these hashes."""
    count = grammar.segment_count(part.paddedLength)
    last = part.paddedLength - (count - 1) * grammar.SEGMENT
    if size != (count - 1) * grammar.SEALED_SEGMENT + grammar.sealed_size(last):
        raise errors.IntegrityError(
            "The sealed bytes have another size than the length of their part gives."
        )
    grammar.check_segment_hashes(part, hashes)


def check_same_keys(author: Row, chain_length: int) -> None:
    """Raise `OverloadedError` if the author's key records changed since the signature was verified."""
    if author.chain_length != chain_length:
        raise errors.OverloadedError("Your keys changed meanwhile: try again.", 1)


def raise_signed_until(connection: Connection, author: Row, time: int) -> None:
    """Raise the author's bound above the time of a record or departure that was stored.

    The bound is a minute above: a user who writes often has the row written once a minute.
    """
    if time > author.signed_until:
        until = time + _SIGNED_AHEAD
        connection.execute(SIGNED_UNTIL, {"user": author.id, "time": time, "until": until})
