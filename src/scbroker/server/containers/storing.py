"""Whether a record may be stored, and storing it. Spec: docs/spec/container.md, section 10.

`store` works under the lock of the container's row: idempotence, conflict, rules, parts, and out as rows
and events in one transaction. What comes before it is `appending`'s.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row

from scbroker.crypto.verify import sha256
from scbroker.errors import (
    AlreadyExistsError,
    ClockError,
    ConflictError,
    DeletedError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RejectedError,
)
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
from scbroker.server.broker import now
from scbroker.server.containers import members, tombstones
from scbroker.server.containers.incoming import Incoming
from scbroker.server.containers.stored_lists import StoredList
from scbroker.server.events import log
from scbroker.server.parts import chunks
from scbroker.server.storage import statements as sql
from scbroker.server.storage.database import NewRows
from scbroker.vocabulary import ContainerAccessLevel
from scbroker.wire.containers import MAX_INLINE

_UNKNOWN: Final = "There is no container of this id that you have access to."


def locked(connection: Connection, incoming: Incoming) -> Row[Any] | None:
    return sql.one(connection, sql.LOCK_CONTAINER, id=incoming.container_id)


def store(
    connection: Connection,
    incoming: Incoming,
    container: Row[Any] | None,
    chain_length: int,
    new: NewRows,
    held: members.Users | None = None,
    *,
    hopeful: bool = False,
) -> bool:
    """Under the lock of the container's row; gives whether the record is new.

    `new` gets the rows that it adds, if it is new, which are to be written before anything of this
    container is read.
    `held` are users who are held already. Who is `hopeful` has the tables say whether a part is new.
    """
    if _was_stored(connection, incoming, container):
        return False
    if abs(incoming.known.record.time - now()) > CLOCK_TOLERANCE:
        raise ClockError("The record is dated more than five minutes off: set the clock right.")
    if container is None:
        before, parent = None, None
    else:
        before = in_force(connection, incoming.container_id, container.governing_version)
        parent = _parent(connection, incoming, container)
        _check_allowed(incoming, before)
    after = _judge(incoming, before, parent)
    _check_type_sent(incoming, before)
    _check_renewed(incoming, before, parent)
    users = members.hold_users(connection, incoming, before, chain_length, held)
    if incoming.access is not None:
        members.check_recipients(incoming.access, before, users)
    moment = now()
    if container is not None and before is not None and before.access.has_expired(moment):
        log.tell_of_expiry(connection, [container], moment)
    # The container's row comes first: of two that add it at once, the second waits for it.
    _store_record(connection, incoming, container, after, new)
    _store_author(incoming, container, parent, new)
    if incoming.access is not None:
        members.store_access(connection, incoming, incoming.access, users, moment, new)
    try:
        _store_parts(connection, incoming, parent, new, hopeful=hopeful)
    except RejectedError:
        # A part that is taken may be this very one: somebody created the container meanwhile.
        meanwhile = None if container is not None else locked(connection, incoming)
        if meanwhile is None:
            raise
        return not _was_stored(connection, incoming, meanwhile)
    is_tombstone = incoming.known.record.tombstone
    type_before = None if container is None or is_tombstone else container.type
    news = log.News(
        incoming, before, after, parent.record if parent else None,
        type_before, _type_now(incoming, container),
    )  # fmt: skip
    log.tell_of_record(new, news, living=members.living(users), moment=moment)
    if is_tombstone:
        new.write(connection)
        tombstones.empty(connection, incoming.known.record)
    return True


def _was_stored(connection: Connection, incoming: Incoming, container: Row[Any] | None) -> bool:
    """Return whether this record is stored already; raise the error if it cannot follow what is stored."""
    record = incoming.known.record
    if container is None:
        if incoming.is_first:
            return False
        raise NotFoundError(_UNKNOWN)
    member = sql.one(
        connection, sql.FIND_MEMBER, container=incoming.container_id, user=incoming.user.id
    )
    if record.version <= container.version:
        if is_stored(connection, incoming):
            return True
        if incoming.is_first:
            raise AlreadyExistsError("This container id is taken.")
    if member is None or (member.expires_at is not None and member.expires_at <= now()):
        raise NotFoundError(_UNKNOWN)
    if container.deleted:
        raise DeletedError()
    if record.version != container.version + 1:
        raise ConflictError("The container was changed meanwhile: read it again.")
    return False


def is_stored(connection: Connection, incoming: Incoming) -> bool:
    """Return whether this record is stored; after a deletion it is stored without its parts."""
    number = incoming.known.record.version
    row = sql.one(connection, sql.FIND_RECORD, container=incoming.container_id, number=number)
    return row is not None and bare_body(row.body) == bare_body(incoming.signed.body)


def _parent(connection: Connection, incoming: Incoming, container: Row[Any]) -> Known:
    stored = sql.the(connection, sql.FIND_RECORD, container=container.id, number=container.version)
    parent = Known.parse(stored.body)
    if incoming.known.record.parent != parent.hash:
        raise ConflictError("The container was changed meanwhile: read it again.")
    return parent


def in_force(connection: Connection, container_id: bytes, version: int) -> InForce:
    """The governing record of this version with its list, as stored."""
    known = Known.parse(
        sql.the(connection, sql.FIND_RECORD, container=container_id, number=version).body
    )
    access_version = governing_of(known.record).accessVersion
    found = sql.the(connection, sql.FIND_LIST, container=container_id, number=access_version)
    return InForce(known, StoredList.decode(found.entries).access)


def _check_allowed(incoming: Incoming, before: InForce) -> None:
    """The same that the rules say, in words for the one who asks."""
    entry = before.entry_of(incoming.user.fingerprint, now())
    if entry is None:
        raise NotFoundError(_UNKNOWN)
    needed = needed_permissions(incoming.known.record, before)
    if incoming.known.record.changes_access:
        needed &= ~ContainerAccessLevel.ModifyAccess  # a renewal needs none; rule 5 decides
    missing = ContainerAccessLevel(needed & ~entry.permissions)
    if missing:
        raise PermissionDeniedError(f"Your access to this container lacks {missing.name}.")


def _judge(incoming: Incoming, before: InForce | None, parent: Known | None) -> InForce:
    try:
        if before is None:
            if incoming.access is None:
                raise IntegrityError("A first record says who has access (rule 1).")
            return judge_first(incoming.known, incoming.access, now())
        return judge_next(incoming.known, before, incoming.access, parent, now())
    except IntegrityError as error:
        raise RejectedError(str(error)) from None


def _check_type_sent(incoming: Incoming, before: InForce | None) -> None:
    old = before.governing if before else None
    new = incoming.known.record.governing
    changed = new is not None and (old is None or old.type != new.type)
    if changed != (incoming.message.type is not None):
        raise InvalidArgumentError("The type comes exactly where the record changes it.")


def _check_renewed(incoming: Incoming, before: InForce | None, parent: Known | None) -> None:
    """Nothing new is sealed under a key that somebody who is out still knows (rule 5)."""
    record = incoming.known.record
    if before is None or parent is None or record.changes_access:
        return
    old = {part.partId for part in (parent.record.header, parent.record.content) if part}
    new = {part.partId for part in (record.header, record.content) if part}
    if new - old and before.needs_renewal(record.time):
        raise RejectedError("The container key has to be renewed before anything new (rule 5).")


def _store_parts(
    connection: Connection,
    incoming: Incoming,
    parent: Known | None,
    new: NewRows,
    *,
    hopeful: bool,
) -> None:
    """Takes over new parts, inline or sent before in chunks, and lets go of replaced ones."""
    record, message = incoming.known.record, incoming.message
    old = {role: parent.record.part(role) if parent else None for role in Role}
    inline = {Role.Header: message.header, Role.Content: message.content}
    replaced, rows = [], []
    for role in Role:
        part, before = record.part(role), old[role]
        carried = part is not None and before is not None and part.partId == before.partId
        if before is not None and not carried:
            replaced.append(before.partId)
        if part is None or carried:
            if inline[role] is not None:
                raise InvalidArgumentError("Sealed bytes come with a new part only.")
        elif role is Role.Header or part.paddedLength <= MAX_INLINE:
            rows.append(_inline_row(incoming, part, inline[role]))
        elif inline[role] is not None:
            raise InvalidArgumentError("A content of more than 65,536 bytes is sent in chunks.")
        else:
            chunks.take_over(connection, incoming.container_id, incoming.user.id, part)
    some = [row["part_id"] for row in rows]
    if rows and not hopeful and connection.execute(sql.PARTS_TAKEN, {"some": some}).first():
        raise RejectedError("A part id is used a second time.")
    new.add(sql.ADD_PART, rows)
    if replaced:
        connection.execute(sql.REPLACE_PARTS, {"replaced": replaced, "now": now()})


def _inline_row(incoming: Incoming, part: Part, sealed: bytes | None) -> dict[str, Any]:
    if sealed is None:
        raise InvalidArgumentError("A new header, or a content of up to 65,536 bytes, comes along.")
    try:
        chunks.check_sealed_size(part.paddedLength, len(sealed))
        check_segment_hashes(part, sha256(sealed))
    except IntegrityError as error:
        raise RejectedError(str(error)) from None
    return {
        "part_id": part.partId,
        "container_id": incoming.container_id,
        "user_id": incoming.user.id,
        "touched_at": now(),
        "committed": True,
        "received": len(sealed),
        "inline": sealed,
        "hashes": sha256(sealed),
    }


def _store_record(
    connection: Connection,
    incoming: Incoming,
    container: Row[Any] | None,
    after: InForce,
    new: NewRows,
) -> None:
    record, message = incoming.known.record, incoming.message
    state: dict[str, object] = {
        "version": record.version,
        "governing_version": after.record.version,
        "access_version": after.governing.accessVersion,
        "deleted": record.tombstone,
    }
    if message.type is not None:
        state |= {"type": message.type.type, "type_salt": message.type.salt}
    if container is None:
        row = {"id": record.containerId, "creator_id": incoming.user.id, **state}
        new.add(sql.ADD_CONTAINER, [row])
    else:
        connection.execute(sql.SET_CONTAINER, {"container": record.containerId, **state})
    new.add(
        sql.ADD_RECORD,
        [
            {
                "container_id": record.containerId,
                "version": record.version,
                "governing": record.governing is not None,
                "body": incoming.signed.body,
                "signature": incoming.signed.signature,
            }
        ],
    )


def _store_author(
    incoming: Incoming, container: Row[Any] | None, parent: Known | None, new: NewRows
) -> None:
    """Add the user to `authors`, so that their keys are kept as long as the container needs them.

    The row exists if they signed the record before; a creator is named by the container's own row.
    """
    if container is None or parent is None or container.creator_id == incoming.user.id:
        return
    if parent.record.author != incoming.user.fingerprint:
        new.add(sql.ADD_AUTHOR, [{"container": container.id, "user": incoming.user.id}])


def _type_now(incoming: Incoming, container: Row[Any] | None) -> str | None:
    if incoming.message.type is not None:
        return incoming.message.type.type
    return container.type if container is not None else None
