"""Judge one record against what is stored, and store it. Spec: docs/spec/container.md, section 10.

`appending` verifies signatures and runs the transaction; `store` is called in it, for one record after
the other.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker import errors
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Part, Role, bare_body, check_segment_hashes
from scbroker.records.judge import (
    InForce,
    Known,
    governing_of,
    judge_first,
    judge_next,
    needed_permissions,
)
from scbroker.records.key_record import CLOCK_TOLERANCE
from scbroker.server.broker import check_unexpired, not_found
from scbroker.server.containers import members, tombstones
from scbroker.server.containers.incoming import Incoming
from scbroker.server.events import log
from scbroker.server.parts import chunks
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE

_CHANGED: Final = "The container was changed meanwhile: read it again."
PART_TAKEN: Final = "The part id is used already: a new part needs a new id."


@dataclass(frozen=True, slots=True)
class Transaction:
    """State that the records of one transaction share. All records have one author."""

    connection: Connection
    chain_length: int
    """The number of the author's key records when their signatures were verified."""
    users: members.Users
    """The author and all users in new lists, locked."""
    moment: int
    """The time after the locks were taken, so that records of one container are stored in its order."""
    optimistic: bool
    """Assume that container and parts are new; if they are not, the database raises an IntegrityError."""


def store(tx: Transaction, incoming: Incoming, container: Row[Any] | None, new: NewRows) -> bool:
    """Store a record unless it is stored already; return whether it is new, raise what it is refused with.

    The row of the container must be locked; None if it does not exist. Rows to insert are added to `new`,
    which the caller writes before it reads anything of this container.
    """
    connection = tx.connection
    if _was_stored(tx, incoming, container):
        return False
    if abs(incoming.known.record.time - tx.moment) > CLOCK_TOLERANCE:
        raise errors.ClockError(
            "The record is dated more than five minutes off: set the clock right."
        )
    before = parent = None
    if container is not None:
        before = in_force(connection, incoming.container_id, container.governing_version)
        parent = _parent(connection, incoming, container)
        _check_allowed(incoming, before, tx.moment)
    after = _judge(incoming, before, parent, tx.moment)
    _check_type_sent(incoming, before)
    _check_renewed(incoming, before, parent)
    users = members.concerned_users(connection, incoming, before, tx.chain_length, tx.users)
    if incoming.access is not None:
        members.check_recipients(incoming.access, before, users)
    if container is not None and before is not None and before.access.has_expired(tx.moment):
        log.record_expiry(connection, [container], tx.moment)
    # The container's row comes first: of two transactions that insert it, the second waits for the first.
    _store_record(connection, incoming, container, parent, after, new)
    members.store_access(connection, incoming, users, tx.moment, new)
    try:
        _store_parts(tx, incoming, parent, new)
    except errors.RejectedError:
        # The part may be taken by this very record, if another transaction stored it after we looked for
        # the container.
        meanwhile = None if container is not None else lock_container(connection, incoming)
        if meanwhile is None:
            raise
        return not _was_stored(tx, incoming, meanwhile)
    _record_events(tx, incoming, container, parent, (before, after), users, new)
    if incoming.known.record.tombstone:
        new.write(connection)
        tombstones.empty(connection, incoming.known.record, tx.moment)
    return True


def lock_container(connection: Connection, incoming: Incoming) -> Row[Any] | None:
    """Lock the container's row until the transaction ends, and return it."""
    return sql.one(connection, sql.LOCK_CONTAINER, id=incoming.container_id)


def is_stored(connection: Connection, incoming: Incoming) -> bool:
    """Return whether this record is stored; after a deletion it is stored without its parts."""
    number = incoming.known.record.version
    row = sql.one(connection, sql.FIND_RECORD, container=incoming.container_id, number=number)
    return row is not None and bare_body(row.body) == bare_body(incoming.signed.body)


def in_force(connection: Connection, container_id: bytes, version: int) -> InForce:
    """Return the governing record of this version with its access list, as stored."""
    found = sql.the(connection, sql.FIND_RECORD, container=container_id, number=version)
    known = Known.parse(found.body)
    access_version = governing_of(known.record).accessVersion
    stored = sql.the(connection, sql.FIND_LIST, container=container_id, number=access_version)
    return InForce(known, members.StoredList.decode(stored.entries).verified())


def _was_stored(tx: Transaction, incoming: Incoming, container: Row[Any] | None) -> bool:
    """Return whether this record is stored already; raise if it cannot follow what is stored."""
    record = incoming.known.record
    if container is None:
        if incoming.is_first:
            return False
        raise not_found()
    names = {"container": incoming.container_id, "user": incoming.user.id}
    member = sql.one(tx.connection, sql.FIND_MEMBER, **names)
    if record.version <= container.version:
        if is_stored(tx.connection, incoming):
            return True
        if incoming.is_first:
            raise errors.AlreadyExistsError("This container id is taken.")
    check_unexpired(member, tx.moment)
    if container.deleted:
        raise errors.DeletedError()
    if record.version != container.version + 1:
        raise errors.ConflictError(_CHANGED)
    return False


def _parent(connection: Connection, incoming: Incoming, container: Row[Any]) -> Known:
    stored = sql.the(connection, sql.FIND_RECORD, container=container.id, number=container.version)
    parent = Known.parse(stored.body)
    if incoming.known.record.parent != parent.hash:
        raise errors.ConflictError(_CHANGED)
    return parent


def _check_allowed(incoming: Incoming, before: InForce, moment: int) -> None:
    """Check what `judge_next` checks as well, to answer with an error that a user understands."""
    entry = before.entry_of(incoming.user.fingerprint, moment)
    if entry is None:
        raise not_found()
    needed = needed_permissions(incoming.known.record, before)
    if incoming.known.record.changes_access:
        needed &= ~ContainerAccessLevel.ModifyAccess  # a renewal needs none; rule 5 decides
    missing = ContainerAccessLevel(needed & ~entry.permissions)
    if missing:
        raise errors.PermissionDeniedError(f"Your access to this container lacks {missing.name}.")


def _judge(
    incoming: Incoming, before: InForce | None, parent: Known | None, moment: int
) -> InForce:
    try:
        if before is not None:
            return judge_next(incoming.known, before, incoming.access, parent, moment)
        if incoming.access is None:
            raise errors.IntegrityError("A first record needs an access list (rule 1).")
        return judge_first(incoming.known, incoming.access, moment)
    except errors.IntegrityError as error:
        raise errors.RejectedError(str(error)) from None


def _check_type_sent(incoming: Incoming, before: InForce | None) -> None:
    old = before.governing if before else None
    new = incoming.known.record.governing
    changed = new is not None and (old is None or old.type != new.type)
    if changed != (incoming.message.type is not None):
        raise errors.InvalidArgumentError(
            "A record that changes the type comes with its text, any other without."
        )


def _check_renewed(incoming: Incoming, before: InForce | None, parent: Known | None) -> None:
    """Refuse new parts under a container key that a former member still knows (rule 5)."""
    record = incoming.known.record
    if before is None or parent is None or record.changes_access:
        return
    old = {part.partId for part in (parent.record.header, parent.record.content) if part}
    new = {part.partId for part in (record.header, record.content) if part}
    if new - old and before.needs_renewal(record.time):
        raise errors.RejectedError(
            "A former member knows the container key: renew it before storing anything new (rule 5)."
        )


def _store_record(
    connection: Connection,
    incoming: Incoming,
    container: Row[Any] | None,
    parent: Known | None,
    after: InForce,
    new: NewRows,
) -> None:
    """Store record and state of the container, and name the user in `authors`.

    The keys of `authors` are kept as long as the container needs them. The row exists if the user signed the
    record before; a creator is named by the container's own row.
    """
    record, message, user = incoming.known.record, incoming.message, incoming.user
    state: dict[str, object] = {
        "version": record.version,
        "governing_version": after.record.version,
        "access_version": after.governing.accessVersion,
        "deleted": record.tombstone,
    }
    if message.type is not None:
        state |= {"type": message.type.type, "type_salt": message.type.salt}
    if container is None:
        new.add(sql.ADD_CONTAINER, [{"id": record.containerId, "creator_id": user.id, **state}])
    else:
        connection.execute(sql.SET_CONTAINER, {"container": record.containerId, **state})
        signed_before = parent is not None and parent.record.author == user.fingerprint
        if container.creator_id != user.id and not signed_before:
            new.add(sql.ADD_AUTHOR, [{"container": container.id, "user": user.id}])
    row = {
        "container_id": record.containerId,
        "version": record.version,
        "governing": record.governing is not None,
        "body": incoming.signed.body,
        "signature": incoming.signed.signature,
    }
    new.add(sql.ADD_RECORD, [row])


def _store_parts(tx: Transaction, incoming: Incoming, parent: Known | None, new: NewRows) -> None:
    """Store inline parts, commit a content that was sent in chunks, and mark replaced parts."""
    record, message = incoming.known.record, incoming.message
    inline = {Role.Header: message.header, Role.Content: message.content}
    replaced, rows = [], []
    for role in Role:
        part, before = record.part(role), parent.record.part(role) if parent else None
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
            chunks.take_over(tx.connection, incoming.container_id, incoming.user.id, part)
    if rows and not tx.optimistic:
        some = [row["part_id"] for row in rows]
        if tx.connection.execute(sql.PARTS_TAKEN, {"some": some}).first():
            raise errors.RejectedError(PART_TAKEN)
    new.add(sql.ADD_PART, rows)
    if replaced:
        tx.connection.execute(sql.REPLACE_PARTS, {"replaced": replaced, "now": tx.moment})


def _inline_row(
    incoming: Incoming, part: Part, sealed: bytes | None, moment: int
) -> dict[str, Any]:
    if sealed is None:
        raise errors.InvalidArgumentError(
            f"A new header, or a content of up to {MAX_INLINE} bytes, must be sent with its record."
        )
    hashes = sha256(sealed)
    try:
        chunks.check_sealed_size(part.paddedLength, len(sealed))
        check_segment_hashes(part, hashes)
    except errors.IntegrityError as error:
        raise errors.RejectedError(str(error)) from None
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


def _record_events(
    tx: Transaction,
    incoming: Incoming,
    container: Row[Any] | None,
    parent: Known | None,
    in_force: tuple[InForce | None, InForce],
    users: members.Users,
    new: NewRows,
) -> None:
    record, sent, (before, after) = incoming.known.record, incoming.message.type, in_force
    stored_type = None if container is None else container.type
    change = log.Change(
        record=record,
        parent=parent.record if parent else None,
        before=before.access if before else None,
        after=after.access,
        type_before=None if record.tombstone else stored_type,
        type_now=stored_type if sent is None else sent.type,
        author=incoming.user.id,
        application=incoming.application,
    )
    living = {fingerprint for fingerprint, user in users.items() if not user.deleted}
    log.record_change(new, change, living, tx.moment)
