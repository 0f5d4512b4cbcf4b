"""Judge a record against what is stored, and store it. Spec: docs/spec/container.md, section 10.

`incoming` has parsed the record. `appending` verifies signatures and runs the transaction, in which it calls
`store` for one record after the other. What only groups have is in `rosters`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

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
from scbroker.server.containers import members, rosters, tombstones
from scbroker.server.containers.incoming import Incoming, Stored, Transaction
from scbroker.server.containers.rosters import StoredGroup
from scbroker.server.events import log
from scbroker.server.groups import memberships
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import NewRows
from scbroker.server.storage.driver import Connection, Row
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire import containers as wire
from scbroker.wire.parts import CHUNK_SEGMENTS, MAX_CHUNK

CHANGED: Final = "The container was changed meanwhile: read it again."
LEFT: Final = "Somebody left meanwhile: read it again."
_SIGNED_AHEAD: Final = 60 * SECOND

SIGNED_UNTIL: Final = sql.change(
    t.users, t.users.c.id == b("user"), t.users.c.signed_until < b("time"), signed_until=b("until")
)
# Members with ViewType have a copy of the container's type in their row.
SET_TYPE_OF_MEMBERS: Final = sql.change(
    t.members,
    "container",
    t.members.c.permissions.bitwise_and(int(ContainerAccessLevel.ViewType)) > 0,
    type=b("text"),
)
DROP_MEMBERS: Final = sql.drop(t.members, "container")
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
    t.parts, "part", committed=True, hashes=b("all_hashes"), received=b("size")
)
REPLACE_PARTS: Final = sql.change(
    t.parts, sql.among(t.parts.c.part_id, "replaced"), replaced_at=b("now")
)
COUNT_CHUNKS: Final = sa.select(
    sa.func.count().label("arrived"), sa.func.max(t.chunks.c.chunk).label("last")
).where(sql.of(t.chunks, "part"))


@dataclass(slots=True)
class Storing:
    """One record that is being stored, with what its container has before it.

    Rows to insert are collected in `new`, and what they cost in `charges`: a refused record adds nothing to
    its transaction.
    """

    tx: Transaction
    incoming: Incoming
    row: Row | None
    """The container's row, which must be locked; None if it does not exist."""
    new: NewRows = field(default_factory=NewRows)
    charges: Charges = field(default_factory=Charges)
    stored: Stored | None = None
    users: members.Users = field(default_factory=dict)
    """The author and all users in the old and the new list, as far as the broker knows them."""

    def store(self) -> bool:
        """Store the record unless it is stored; return whether it is new, or raise what it is refused with.

        Rows of a group are written at once: a later record of the transaction may act through it.
        """
        tx, incoming, row, new = self.tx, self.incoming, self.row, self.new
        record, connection, moment = incoming.record, tx.connection, tx.moment
        group = acting = author = None
        if row is None:
            if not incoming.is_first:
                raise not_found()
        elif record.version <= row.version and is_stored(connection, incoming):
            return False
        elif incoming.is_first:
            raise errors.AlreadyExistsError("This container id is taken.")
        elif row.is_group:
            locked = rosters.lock(connection, incoming, row)
            self.stored = self._read_stored(row)
            group = rosters.read(connection, self.stored, *locked)
        else:
            membership = self._check_access(row)
            self.stored = self._read_stored(row)
            if record.via is not None and membership is not None:
                acting = acting_of(connection, record, record.via, membership)
        stored = self.stored
        parent = stored.head.record if stored else None
        if stored is not None:
            author = self._check_allowed(stored, acting)
            self._check_departures(stored, group)
        check_time(record, None if acting else parent, moment)
        self._check_type()
        changed = rosters.judged(tx, incoming, group) if incoming.is_of_group(row) else None
        after = changed.chain.in_force if changed else self._judge(acting)
        governing_bytes = self._governing_bytes(author)
        named = incoming.named
        self.users = {name: tx.users[name] for name in named if name in tx.users}
        if stored is not None and (others := stored.in_force.access.entries.keys() - named):
            # Members of the old list alone need no lock: whatever deletes them waits for the container's
            # lock.
            self.users = {**self.users, **members.users_of(connection, others)}
        if changed is not None:
            changed.check(self.users)
        groups = None if changed else self._check_list()
        if stored is not None and stored.in_force.access.has_expired(moment):
            log.record_expiry(connection, [stored.row], moment)
        # The container's row comes first: of two transactions that insert it, the second waits for the first.
        self._store_record(after, governing_bytes, groups)
        if changed is None:
            self._store_members()
            log.record_change(
                new,
                record,
                parent,
                stored.in_force if stored else None,
                after,
                type_before=stored.row.type if stored and not record.tombstone else None,
                type_now=self._type_now,
                who=log.who_of(incoming.user.id, incoming.application),
                living={name for name, user in self.users.items() if not user.deleted},
                moment=moment,
            )
        self._store_parts(parent)
        self._charge()
        if changed is not None:
            new.write(connection)
            changed.write(new, self.charges)
        elif record.tombstone and stored is not None:
            new.write(connection)
            tombstones.empty(connection, record, members.group_ids_of(stored.row), moment)
        return True

    def _check_access(self, row: Row) -> Row | None:
        """Raise if the author, or the group for which they act, has no access, or for a deleted container.

        Return the author's membership of this group.
        """
        connection, incoming = self.tx.connection, self.incoming
        user_id, group_id = incoming.user.id, incoming.group_id
        membership = None if group_id is None else memberships.check(connection, group_id, user_id)
        names = {"container": row.id, "user": group_id or user_id}
        check_unexpired(sql.one(connection, sql.FIND_MEMBER, **names), self.tx.moment)
        if row.deleted:
            raise errors.DeletedError()
        return membership

    def _read_stored(self, row: Row) -> Stored:
        """Return the container with its verified list; raise unless its head is the record's parent."""
        connection, record = self.tx.connection, self.incoming.record
        head = members.known_at(connection, row.id, row.version)
        if (record.version, record.parent) != (row.version + 1, head.hash):
            raise errors.ConflictError(CHANGED)
        governing = head
        if row.governing_version != row.version:
            governing = members.known_at(connection, row.id, row.governing_version)
        return Stored(row, head, members.in_force(connection, row.id, governing))

    def _check_allowed(self, stored: Stored, acting: judge.Acting | None) -> Entry:
        """Return the entry by which the author acts; a group's is cut by the author's role.

        The rules of validity check this as well. Here it is answered with an error that a user understands.
        """
        before, incoming = stored.in_force, self.incoming
        name = acting.group if acting else incoming.user.fingerprint
        entry = before.entry_of(name, self.tx.moment)
        if entry is None:
            raise not_found()
        if acting is not None:
            entry = replace(entry, permissions=roster.cut(entry.permissions, acting.role))
        needed = judge.needed_permissions(incoming.record, before)
        if incoming.record.changes_access and not stored.row.is_group:
            needed &= ~ContainerAccessLevel.ModifyAccess  # not needed to renew keys (rule 5)
        missing = ContainerAccessLevel(needed & ~entry.permissions)
        if missing:
            what = "group" if stored.row.is_group else "container"
            raise errors.PermissionDeniedError(f"Your access to this {what} lacks {missing.name}.")
        return entry

    def _check_departures(self, stored: Stored, group: StoredGroup | None) -> None:
        """Raise `ConflictError` if the author of a new list, part or roster has not seen every departure.

        The author may have drafted the record before somebody left. After the error the client reads the
        departure and drafts the record anew.
        """
        left, record = len(stored.in_force.left), self.incoming.record
        is_new = record.changes_access or self._has_new_part(stored)
        if group is not None:
            left, is_new = rosters.departures(group.members), not record.tombstone
        if is_new and self.incoming.message.departures != left:
            raise errors.ConflictError(LEFT)

    def _has_new_part(self, stored: Stored) -> bool:
        before, record = stored.head.record, self.incoming.record
        return not _part_ids(record) <= _part_ids(before)

    def _check_type(self) -> None:
        """Raise unless the request has the text of a type exactly if the record changes the type's hash."""
        governing = self.incoming.record.governing
        before = self.stored.in_force.governing if self.stored else None
        changes = governing is not None and (before is None or before.type != governing.type)
        if changes != (self.incoming.message.type is not None):
            fault = "lacks the text of" if changes else "has a text and does not change"
            raise errors.InvalidArgumentError(f"The request {fault} the type.")

    @refusing()
    def _judge(self, acting: judge.Acting | None) -> judge.InForce:
        """Return the state that the record puts in force; raise the error that refuses it."""
        incoming, stored, moment = self.incoming, self.stored, self.tx.moment
        known, access = incoming.known, incoming.access
        if stored is not None:
            after = judge.judge_next(known, stored.in_force, access, stored.head, moment, acting)
        elif access is not None:
            after = judge.judge_first(known, access, moment)
        else:
            raise errors.RejectedError("A first record needs an access list (rule 1).")
        if incoming.has_group_type:
            raise errors.RejectedError(
                "This container is not a group's: it cannot have such a type."
            )
        self._check_own_type(after)
        return after

    def _check_own_type(self, after: judge.InForce) -> None:
        """Refuse to give others access to a container whose type is reserved for a user's own documents."""
        if not (self._type_now or "").startswith(grammar.OWN_TYPES):
            return
        others = {*after.access.entries} - {self.incoming.user.fingerprint}
        if self.incoming.message.type is None and self.stored is not None:
            others -= self.stored.in_force.access.entries.keys()
        if others:
            raise errors.InvalidArgumentError(
                f"A type that begins with {grammar.OWN_TYPES} is for containers that nobody else has "
                "access to."
            )

    @property
    def _type_now(self) -> str | None:
        """The container's type after the record."""
        sent = self.incoming.message.type
        return sent.type if sent else self.stored.row.type if self.stored else None

    def _governing_bytes(self, author: Entry | None) -> int:
        """Return the size of the governing records with this one; raise `TooLargeError` above the bound.

        Every reader without a mark verifies all of them. Authors without Delete have a lower bound, so that a
        member with Delete can still remove them. A tombstone is always possible.
        """
        incoming = self.incoming
        before = 0 if self.row is None else int(self.row.governing_bytes)
        if incoming.record.governing is None:
            return before
        entries = 0 if incoming.access is None else len(incoming.access.entries)
        data = None if incoming.message.roster is None else incoming.message.roster.roster
        size = before + wire.governing_size(incoming.signed, entries, data)
        limit = wire.MAX_GOVERNING
        if author is not None and not author.allows(ContainerAccessLevel.Delete):
            limit = wire.MAX_GOVERNING_WITHOUT_DELETE
        if size > limit:
            raise errors.TooLargeError(
                "Access, type or members were changed too often: have a member with Delete create the "
                "container or group anew, and delete this one."
            )
        return size

    def _check_list(self) -> bytes | None:
        """Check the users of a new list, or the keys of the one in force; return the ids of its groups.

        Refuse a new part under a container key that somebody without access may know (rule 5).
        """
        stored, access, users = self.stored, self.incoming.access, self.users
        if access is None:
            if stored is None:
                return None
            if self._has_new_part(stored):
                if stored.in_force.needs_renewal(self.incoming.record.time):
                    raise errors.RejectedError(
                        "A former member knows the container key: renew it before storing anything new "
                        "(rule 5)."
                    )
                members.check_wraps_in_use(stored.in_force.access, users)
            groups: bytes | None = stored.row.groups
            return groups
        members.check_recipients(access, stored.in_force.access if stored else None, users)
        found = members.groups_among(access, users)
        limit = self.tx.broker.settings.max_listed_groups
        if len(found) > limit:
            raise errors.TooLargeError(
                f"This broker takes at most {limit} groups in an access list."
            )
        if stored is not None:
            gone = {*members.group_ids_of(stored.row)} - {*found}
            members.release_keys(self.tx.connection, gone)
        return b"".join(found) or None

    def _store_record(
        self, after: judge.InForce, governing_bytes: int, groups: bytes | None
    ) -> None:
        """Store the record with its list and the container's new state, and add the author to `authors`.

        The keys of users in `authors` are kept as long as the container needs them. No row is added for the
        author of the record before, who has one, and for the creator, whom the container's own row names.
        """
        incoming, stored, new = self.incoming, self.stored, self.new
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
            new.add(t.containers, [{**created, **state}])
        else:
            at = {"container": record.containerId}
            self.tx.connection.execute(sql.SET_CONTAINER, {**at, **state})
            head, via = stored.head.record, record.via
            is_other = head.author != user.fingerprint
            if is_other and stored.row.creator_id != user.id:
                new.add(sql.ADD_AUTHOR, [{**at, "user": user.id}])
            # The row exists already if the record before has the same author and group.
            if via is not None and (is_other or head.via is None or head.via.group != via.group):
                new.add(ADD_GROUP_AUTHOR, [{**at, "group": incoming.group_id, "user": user.id}])
        place = {"container_id": record.containerId, "version": record.version}
        body, signature = incoming.signed
        governs = record.governing is not None
        new.add(t.records, [{**place, "governing": governs, "body": body, "signature": signature}])
        if incoming.access is not None:
            salted = (item.salted for item in incoming.message.accessList or ())
            entries = members.StoredList.whole(incoming.access.entryHashes, salted).encode()
            place = {"container_id": record.containerId, "access_version": record.version}
            new.add(t.access_lists, [{**place, "entries": entries}])

    def _store_members(self) -> None:
        """Add a row for each group and each user of a new list who is not deleted.

        An entry that has expired by now counts as recorded: `record_expiry` or `record_change` adds the
        event.
        """
        access, message, users = self.incoming.access, self.incoming.message, self.users
        container_id, text = self.incoming.container_id, self._type_now
        if access is None:
            if message.type is not None:
                values = {"container": container_id, "text": text}
                self.tx.connection.execute(SET_TYPE_OF_MEMBERS, values)
            return
        if self.stored is not None:
            self.new.add(DROP_MEMBERS, [{"container": container_id}])
        rows = [
            {
                "container_id": container_id,
                "user_id": stored_user_id(fingerprint),
                "permissions": entry.permissions,
                "key_index": entry.keyIndex,
                "expires_at": entry.expiresAt,
                "wrap": item.wrap,
                # Nobody reads the log of a deleted group, so no event is due when its access expires: count
                # the expiry as recorded.
                "expiry_recorded": users[fingerprint].deleted or entry.is_expired(self.tx.moment),
                "type": text if entry.allows(ContainerAccessLevel.ViewType) else None,
            }
            for (fingerprint, entry), item in zip(
                access.entries.items(), message.accessList or (), strict=True
            )
            if not users[fingerprint].deleted or users[fingerprint].group_version is not None
        ]
        self.new.add(t.members, rows)

    @refusing()
    def _store_parts(self, parent: ContainerRecord | None) -> None:
        """Store inline parts, commit a content that was sent in chunks, and mark replaced parts."""
        connection, moment, record = self.tx.connection, self.tx.moment, self.incoming.record
        replaced = []
        for role, sealed in self.incoming.inline.items():
            part, before = record.part(role), parent.part(role) if parent else None
            carried = part is not None and before is not None and part.partId == before.partId
            if before is not None and not carried:
                replaced.append(before.partId)
            if part is None or carried:
                if sealed is not None:
                    raise errors.InvalidArgumentError("Sealed bytes were sent without a new part.")
            elif role is Role.Header or part.paddedLength <= wire.MAX_INLINE:
                self._store_inline(part, sealed)
            elif sealed is not None:
                raise errors.InvalidArgumentError(
                    f"A content of more than {wire.MAX_INLINE} bytes must be sent in chunks."
                )
            else:
                self._take_over(part)
        if replaced:
            connection.execute(REPLACE_PARTS, {"replaced": replaced, "now": moment})

    def _store_inline(self, part: Part, sealed: bytes | None) -> None:
        if sealed is None:
            raise errors.InvalidArgumentError(
                f"A new header, or a content of up to {wire.MAX_INLINE} bytes, must be sent with its record."
            )
        hashes = sha256(sealed)
        check_sealed(part, len(sealed), hashes)
        if part.partId in self.tx.parts_taken:
            raise errors.RejectedError("The part id is used already: a new part needs a new id.")
        row = {
            "part_id": part.partId,
            "container_id": self.incoming.container_id,
            "user_id": self.incoming.user.id,
            "touched_at": self.tx.moment,
            "committed": True,
            "received": len(sealed),
            "inline": sealed,
            "hashes": hashes,
        }
        self.new.add(t.parts, [row])

    def _take_over(self, part: Part) -> None:
        """Commit an uploaded part to its container; raise unless all of its segments are stored and match.

        From then on the part is charged with its size alone: small and replaced chunks counted for more.
        """
        connection, at = self.tx.connection, {"part": part.partId}
        row = sql.one(connection, sql.LOCK_PART, **at)
        owners = (self.incoming.user.id, self.incoming.container_id)
        if row is None or (row.user_id, row.container_id) != owners:
            raise errors.IncompleteUploadError(
                "No chunk of the content is stored: upload it first."
            )
        if row.committed:
            raise errors.RejectedError("This part belongs to another record already.")
        expected = -(-grammar.segment_count(part.paddedLength) // CHUNK_SEGMENTS)
        # Count first: the hashes of an incomplete part would cost much to read, again at each attempt.
        found = sql.the(connection, COUNT_CHUNKS, **at)
        if (found.arrived, found.last) != (expected, expected - 1):
            raise errors.IncompleteUploadError(
                f"{found.arrived} of {expected} chunks are stored: upload the others."
            )
        chunks = connection.execute(sql.CHUNKS, at).all()
        if any(chunk.size != MAX_CHUNK for chunk in chunks[:-1]):
            raise errors.RejectedError("A chunk before the last one has fewer than eight segments.")
        hashes = b"".join(chunk.hashes for chunk in chunks)
        size = sum(chunk.size for chunk in chunks)
        check_sealed(part, size, hashes)
        connection.execute(COMMIT_PART, {**at, "all_hashes": hashes, "size": size})
        self.charges.add(row.user_id, size=size - row.received)

    def _charge(self) -> None:
        """Charge the author for record, list and inline parts, and for a new container.

        A tombstone ends the charge of the container's creator, and is never refused: otherwise a user at
        their quota could not delete anything.
        """
        incoming, row, new = self.incoming, self.row, self.new
        tombstone = incoming.record.tombstone
        size = len(incoming.signed.body) + len(incoming.signed.signature)
        size += sum(len(each["entries"]) for each in new.of(t.access_lists))
        size += sum(each["received"] for each in new.of(t.parts))
        created, author = int(row is None), incoming.user.id
        self.charges.add(author, size=size, containers=created, refusable=not tombstone)
        if tombstone and row is not None and row.creator_id is not None:
            self.charges.add(row.creator_id, containers=-1)


def parts_taken(connection: Connection, items: Sequence[Incoming]) -> set[bytes]:
    """Return the ids of inline parts of these records that are stored, as parts of any container."""
    parts = ((item.record.part(role), data) for item in items for role, data in item.inline.items())
    some = sorted({part.partId for part, data in parts if part is not None and data is not None})
    if not some:
        return set()
    return {row.part_id for row in connection.execute(PARTS_TAKEN, {"some": some})}


def is_stored(connection: Connection, incoming: Incoming) -> bool:
    """Return whether this record is stored; after a deletion it is stored without its parts."""
    number = incoming.record.version
    row = sql.one(connection, sql.FIND_RECORD, container=incoming.container_id, number=number)
    return row is not None and parse_either(row.body).bare == incoming.known.bare


def _part_ids(record: ContainerRecord) -> set[bytes]:
    return {part.partId for part in (record.header, record.content) if part is not None}


def acting_of(
    connection: Connection, record: ContainerRecord, via: Via, group: Row
) -> judge.Acting:
    """Return what the broker knows of the group for which an author acts; `group` is their membership now.

    Raises `StaleKeysError` for an epoch that has ended, and `RejectedError` unless the `via` names a record
    of the group whose roster proves the membership in this epoch (V2).
    """
    if group.name != via.group:
        raise not_found()
    if via.epoch != group.epoch:
        raise errors.StaleKeysError(
            "The group has another epoch than the record names: read the group again."
        )
    at = {"group": group.group_id, "number": via.version}
    named = sql.one(connection, sql.FIND_RECORD, container=group.group_id, number=via.version)
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
