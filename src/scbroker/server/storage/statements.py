"""Statements as constants, and the readings that more than one module needs.

A statement built for each call halves everything; these are built once, with bound parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Insert,
    Row,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from scbroker.records.key_record import Signed
from scbroker.server.storage.tables import (
    access_lists,
    accesses,
    api_keys,
    authors,
    checks,
    chunks,
    containers,
    containers_to_purge,
    doomed_blobs,
    doomed_users,
    events,
    guesses,
    key_files,
    key_records,
    members,
    nonces,
    parts,
    records,
    sessions,
    users,
)

b = bindparam
_GOVERNING_AT_ONCE: Final = 500

# Users and sessions
FIND_API_KEY: Final = select(api_keys.c.key_hash).where(api_keys.c.key_hash == b("hash"))
ANY_API_KEY: Final = select(func.count()).select_from(api_keys)
ADD_API_KEY: Final = insert(api_keys)
FIND_USER: Final = select(users).where(users.c.id == b("id"))
FIND_USERS: Final = select(users).where(users.c.id.in_(b("ids", expanding=True)))
LOCK_USER: Final = FIND_USER.with_for_update()
# Users who must neither be deleted nor change their keys until the transaction ends. Many hold one at
# once, and numbering that user's events goes on meanwhile.
HOLD_USERS: Final = FIND_USERS.with_for_update(read=True, key_share=True)
SET_USER: Final = update(users).where(users.c.id == b("user"))
ADD_USER: Final = insert(users)
ADD_KEY_RECORDS: Final = insert(key_records)
KEY_CHAIN: Final = (
    select(key_records.c.body, key_records.c.signature)
    .where(key_records.c.user_id == b("user_id"), key_records.c.sequence >= b("from"))
    .order_by(key_records.c.sequence)
    .limit(b("count"))
)
ADD_KEY_FILE: Final = insert(key_files)
FIND_KEY_FILE: Final = select(key_files).where(key_files.c.user_id == b("user_id"))
DROP_KEY_FILE: Final = delete(key_files).where(key_files.c.user_id == b("user"))
FIND_REMINDER: Final = select(key_files.c.reminder).where(key_files.c.user_id == b("user_id"))
ADD_SESSION: Final = insert(sessions)
FIND_SESSION: Final = (
    select(users.c.id, users.c.fingerprint, users.c.chain_length, sessions.c.expires_at)
    .join(sessions, sessions.c.user_id == users.c.id)
    .where(
        sessions.c.token_hash == b("token_hash"),
        ~users.c.deleted,
    )
)
END_SESSION: Final = delete(sessions).where(sessions.c.token_hash == b("hash"))
END_OTHER_SESSIONS: Final = delete(sessions).where(
    sessions.c.user_id == b("user"), sessions.c.token_hash != b("kept")
)
END_OLD_SESSIONS: Final = delete(sessions).where(sessions.c.expires_at <= b("now"))
FIND_NONCE: Final = select(nonces.c.nonce_hash).where(nonces.c.nonce_hash == b("hash"))
ADD_NONCE: Final = insert(nonces)
FORGET_NONCES: Final = delete(nonces).where(nonces.c.expires_at <= b("now"))
FIND_GUESSES: Final = select(guesses).where(guesses.c.bucket == b("key")).with_for_update()
ADD_GUESSES: Final = insert(guesses)
SET_GUESSES: Final = update(guesses).where(guesses.c.bucket == b("key"))
# One more than one: of a count whose time is over, so many from now on.
COUNT_MORE: Final = (
    update(guesses)
    .where(guesses.c.bucket == b("key"))
    .values(
        guesses=case((guesses.c.ends_at <= b("now"), 0), else_=guesses.c.guesses) + b("more"),
        ends_at=case((guesses.c.ends_at <= b("now"), b("ends")), else_=guesses.c.ends_at),
    )
    .returning(guesses.c.guesses, guesses.c.ends_at)
)
FORGET_GUESSES: Final = delete(guesses).where(guesses.c.ends_at <= b("now"))

# Containers
FIND_CONTAINER: Final = select(containers).where(containers.c.id == b("id"))
LOCK_CONTAINER: Final = FIND_CONTAINER.with_for_update(key_share=True)
LOCK_SEVERAL: Final = (
    select(containers)
    .where(containers.c.id.in_(b("some", expanding=True)))
    .order_by(containers.c.id)
    .with_for_update(key_share=True)
)
ADD_CONTAINER: Final = insert(containers)
SET_CONTAINER: Final = update(containers).where(containers.c.id == b("container"))
ADD_RECORD: Final = insert(records)


def _if_new(**keys: Column[Any]) -> Insert:
    """Return an INSERT of a row that is only its key, which does nothing if the row exists."""
    [table] = {column.table for column in keys.values()}
    row = select(*(b(name, type_=column.type) for name, column in keys.items()))
    there = exists().where(*(column == b(name) for name, column in keys.items()))
    return insert(table).from_select(list(keys.values()), row.where(~there))


ADD_AUTHOR: Final = _if_new(container=authors.c.container_id, user=authors.c.user_id)
FIND_RECORD: Final = select(records).where(
    records.c.container_id == b("container"), records.c.version == b("number")
)
GOVERNING: Final = (
    select(records.c.version, records.c.body)
    .where(
        records.c.container_id == b("container"),
        records.c.governing,
        records.c.version >= b("from"),
        records.c.version <= b("to"),
    )
    .order_by(records.c.version)
    .limit(b("count"))
)
GOVERNING_AT: Final = select(func.max(records.c.version)).where(
    records.c.container_id == b("container"), records.c.governing, records.c.version <= b("number")
)
BODIES: Final = (
    select(records.c.version, records.c.governing, records.c.body)
    .where(
        records.c.container_id == b("container"),
        records.c.version >= b("from"),
        records.c.version < b("to"),
    )
    .order_by(records.c.version)
    .limit(b("count"))
)
LATEST: Final = 2**53
ADD_LIST: Final = insert(access_lists)
FIND_LIST: Final = select(access_lists.c.entries).where(
    access_lists.c.container_id == b("container"), access_lists.c.access_version == b("number")
)
# Of each container the list that is in force.
LISTS_IN_FORCE: Final = (
    select(access_lists)
    .join(
        containers,
        and_(
            access_lists.c.container_id == containers.c.id,
            access_lists.c.access_version == containers.c.access_version,
        ),
    )
    .where(containers.c.id.in_(b("some", expanding=True)))
)
LIST_VERSIONS: Final = select(access_lists.c.access_version).where(
    access_lists.c.container_id == b("container")
)
SET_LIST: Final = update(access_lists).where(
    access_lists.c.container_id == b("container"), access_lists.c.access_version == b("number")
)
ADD_MEMBERS: Final = insert(members)
FIND_MEMBER: Final = select(members).where(
    members.c.container_id == b("container"), members.c.user_id == b("user")
)
# With the record of the container's head.
_WITH_MEMBER: Final = (
    select(
        containers,
        members.c.permissions,
        members.c.expires_at,
        members.c.wrap,
        records.c.body,
        records.c.signature,
    )
    .join(
        members,
        and_(members.c.container_id == containers.c.id, members.c.user_id == b("user")),
    )
    .join(
        records,
        and_(records.c.container_id == containers.c.id, records.c.version == containers.c.version),
    )
)
_GOVERNING_HEAD: Final = records.alias("governing")
_CREATOR: Final = users.alias("creator")
_ONE_PART: Final = parts.alias("one_part")
_OTHER_PART: Final = parts.alias("other_part")


def _in_force(first: Any) -> Any:
    """The id of one of the parts that the container's head names; none unless they are `wanted`."""
    found = select(parts.c.part_id).where(
        parts.c.container_id == b("container"),
        parts.c.committed,
        parts.c.replaced_at.is_(None),
        b("wanted", type_=Boolean()),
    )
    return found.order_by(first).limit(1).scalar_subquery()


_LITTLE_LIST: Final = 65_536
# All that a reader at the head is served: the governing record where it is another, its list if that is
# short, how far the keys of reader and creator go, and the two parts if they are small.
CONTAINER_AT_ONCE: Final = (
    _WITH_MEMBER.add_columns(
        _GOVERNING_HEAD.c.body.label("governing_body"),
        _GOVERNING_HEAD.c.signature.label("governing_signature"),
        access_lists.c.entries,
        select(users.c.chain_length)
        .where(users.c.id == b("user"))
        .scalar_subquery()
        .label("chain_length"),
        _CREATOR.c.fingerprint.label("creator"),
        _CREATOR.c.chain_length.label("creator_chain_length"),
        _ONE_PART.c.part_id.label("one"),
        _ONE_PART.c.inline.label("one_inline"),
        _OTHER_PART.c.part_id.label("other"),
        _OTHER_PART.c.inline.label("other_inline"),
    )
    .outerjoin(_CREATOR, _CREATOR.c.id == containers.c.creator_id)
    .outerjoin(_ONE_PART, _ONE_PART.c.part_id == _in_force(parts.c.part_id))
    .outerjoin(_OTHER_PART, _OTHER_PART.c.part_id == _in_force(parts.c.part_id.desc()))
    .outerjoin(
        _GOVERNING_HEAD,
        and_(
            _GOVERNING_HEAD.c.container_id == containers.c.id,
            _GOVERNING_HEAD.c.version == containers.c.governing_version,
            containers.c.governing_version != containers.c.version,
        ),
    )
    .outerjoin(
        access_lists,
        and_(
            access_lists.c.container_id == containers.c.id,
            access_lists.c.access_version == containers.c.access_version,
            func.length(access_lists.c.entries) <= _LITTLE_LIST,
        ),
    )
    .where(containers.c.id == b("container"))
)
CONTAINER_AND_MEMBER: Final = _WITH_MEMBER.where(containers.c.id == b("container"))
CONTAINERS_AND_MEMBER: Final = _WITH_MEMBER.where(containers.c.id.in_(b("some", expanding=True)))
MEMBERS: Final = select(members).where(members.c.container_id == b("container"))
DROP_MEMBERS: Final = delete(members).where(members.c.container_id == b("container"))
CLAIM_EXPIRED: Final = (
    update(members)
    .where(
        members.c.container_id.in_(b("some", expanding=True)),
        members.c.expires_at <= b("now"),
        ~members.c.expiry_told,
    )
    .values(expiry_told=True)
    .returning(
        members.c.container_id, members.c.user_id, members.c.permissions, members.c.expires_at
    )
)
EXPIRED_OF_USER: Final = (
    select(members.c.container_id)
    .where(members.c.user_id == b("user"), members.c.expires_at <= b("now"), ~members.c.expiry_told)
    .order_by(members.c.expires_at)
    .limit(b("count"))
)
EXPIRED_IN: Final = select(members.c.container_id).where(
    members.c.container_id.in_(b("some", expanding=True)),
    members.c.expires_at <= b("now"),
    ~members.c.expiry_told,
)
# Waits for whoever is writing to them, and lets others look.
SHARE_CONTAINERS: Final = (
    select(containers)
    .where(containers.c.id.in_(b("some", expanding=True)))
    .order_by(containers.c.id)
    .with_for_update(read=True)
)

# Parts. Neither inline bytes nor hashes come along where they are not asked for.
ADD_PART: Final = insert(parts)
_PART: Final = select(
    parts.c.part_id,
    parts.c.container_id,
    parts.c.user_id,
    parts.c.committed,
    func.length(parts.c.hashes).label("hashes_size"),
    parts.c.inline.is_not(None).label("is_inline"),
).where(parts.c.part_id == b("part"))
FIND_PART: Final = _PART
LOCK_PART: Final = _PART.with_for_update()
PARTS_TAKEN: Final = select(parts.c.part_id).where(parts.c.part_id.in_(b("some", expanding=True)))
PARTS_INLINE: Final = select(parts.c.part_id, parts.c.inline).where(
    parts.c.part_id.in_(b("some", expanding=True))
)
PART_HASHES: Final = select(parts.c.hashes).where(parts.c.part_id == b("part"))
PENDING: Final = select(
    func.count().label("parts"), func.coalesce(func.sum(parts.c.received), 0).label("received")
).where(parts.c.user_id == b("user"), ~parts.c.committed)
TOUCH_PART: Final = (
    update(parts)
    .where(parts.c.part_id == b("part"))
    .values(touched_at=b("now"), received=parts.c.received + b("more"))
)
COMMIT_PART: Final = (
    update(parts).where(parts.c.part_id == b("part")).values(committed=True, hashes=b("all_hashes"))
)
DROP_CONTAINER_PARTS: Final = (
    update(parts).where(parts.c.container_id == b("container")).values(replaced_at=0)
)
REPLACE_PARTS: Final = (
    update(parts)
    .where(parts.c.part_id.in_(b("replaced", expanding=True)))
    .values(replaced_at=b("now"))
)
COUNT_CHUNKS: Final = select(
    func.count().label("arrived"), func.max(chunks.c.chunk).label("last")
).where(chunks.c.part_id == b("part"))
CHUNKS: Final = select(chunks).where(chunks.c.part_id == b("part")).order_by(chunks.c.chunk)
FIND_CHUNK: Final = select(chunks).where(
    chunks.c.part_id == b("part"), chunks.c.chunk == b("number")
)
CHUNK_BLOBS: Final = (
    select(chunks.c.chunk, chunks.c.blob)
    .where(chunks.c.part_id == b("part"), chunks.c.chunk >= b("first"), chunks.c.chunk < b("end"))
    .order_by(chunks.c.chunk)
)
CHUNK_HASHES: Final = (
    select(chunks.c.chunk, chunks.c.chunk_hash)
    .where(chunks.c.part_id == b("part"), chunks.c.chunk >= b("first"), chunks.c.chunk < b("end"))
    .order_by(chunks.c.chunk)
)
ADD_CHUNK: Final = insert(chunks)
DROP_CHUNK: Final = delete(chunks).where(
    chunks.c.part_id == b("part"), chunks.c.chunk == b("number")
)
BLOBS_IN: Final = (
    select(chunks.c.part_id, chunks.c.chunk, chunks.c.blob)
    .where(chunks.c.part_id.in_(b("gone", expanding=True)))
    .order_by(chunks.c.part_id, chunks.c.chunk)
    .limit(b("count"))
)
DROP_CHUNKS: Final = delete(chunks).where(chunks.c.part_id.in_(b("gone", expanding=True)))
DROP_CHUNKS_TO: Final = delete(chunks).where(
    chunks.c.part_id == b("part"), chunks.c.chunk <= b("number")
)
DROP_PARTS: Final = delete(parts).where(parts.c.part_id.in_(b("gone", expanding=True)))
REPLACED_PARTS: Final = (
    select(parts.c.part_id)
    .where(parts.c.replaced_at <= b("before"))
    .order_by(parts.c.replaced_at)
    .with_for_update(skip_locked=True)
    .limit(b("count"))
)
ABANDONED_PARTS: Final = (
    select(parts.c.part_id)
    .where(~parts.c.committed, parts.c.touched_at <= b("before"))
    .order_by(parts.c.touched_at)
    .with_for_update(skip_locked=True)
    .limit(b("count"))
)
DOOM_BLOBS: Final = insert(doomed_blobs)
# What is spared is what was doomed then, and neither claimed nor doomed anew meanwhile.
SPARE_BLOB: Final = delete(doomed_blobs).where(
    doomed_blobs.c.name == b("blob"), doomed_blobs.c.since == b("doomed")
)
# What another sweeper is at is left to it.
DOOMED_BLOBS: Final = (
    select(doomed_blobs.c.name)
    .where(doomed_blobs.c.since <= b("before"))
    .order_by(doomed_blobs.c.since)
    .with_for_update(skip_locked=True)
    .limit(b("count"))
)
# A time that no name is doomed at, and long ago: what a sweeper leaves so is swept first.
CLAIM_BLOBS: Final = (
    update(doomed_blobs).where(doomed_blobs.c.name.in_(b("names", expanding=True))).values(since=-1)
)
FIND_DOOMED: Final = select(doomed_blobs.c.since).where(doomed_blobs.c.name == b("blob"))
DOOM_AGAIN: Final = (
    update(doomed_blobs).where(doomed_blobs.c.name == b("blob")).values(since=b("later"))
)
FORGET_BLOBS: Final = delete(doomed_blobs).where(
    doomed_blobs.c.name.in_(b("names", expanding=True))
)

FIND_CHECK: Final = select(checks.c.value).where(checks.c.name == b("check"))
ADD_CHECK: Final = insert(checks)

# Events
ADD_EVENTS: Final = insert(events)
ENDS_OF_LOG: Final = select(
    users.c.first_event, users.c.last_event, users.c.dropped_digest, users.c.deleted
).where(users.c.id == b("user"))
LOCK_LOG: Final = ENDS_OF_LOG.with_for_update(key_share=True)
# A log that somebody else is at is left to them.
TAKE_LOG: Final = ENDS_OF_LOG.with_for_update(key_share=True, skip_locked=True)
UNNUMBERED: Final = (
    select(events.c.row_id)
    .where(events.c.user_id == b("user"), events.c.id.is_(None))
    .order_by(events.c.row_id)
    .limit(b("count"))
)
NUMBER_EVENT: Final = (
    update(events)
    .where(events.c.row_id == b("row"), events.c.user_id == b("user"))
    .values(id=b("number"))
)
# Old events of all users, in the order of their dates; `date` and `row` are where the last page ended.
OLD_EVENTS: Final = (
    select(events.c.user_id, events.c.id, events.c.date, events.c.row_id)
    .where(
        events.c.date <= b("before"),
        tuple_(events.c.date, events.c.row_id) > tuple_(b("date"), b("row")),
    )
    .order_by(events.c.date, events.c.row_id)
    .limit(b("count"))
)
FIRST_EVENTS: Final = (
    select(events)
    .where(events.c.user_id == b("user"), events.c.id >= b("from"))
    .order_by(events.c.id)
    .limit(b("count"))
)
DROP_EVENTS: Final = delete(events).where(events.c.user_id == b("user"), events.c.id < b("to"))
FIND_ACCESS: Final = select(accesses).where(
    accesses.c.container_id == b("container"), accesses.c.user_id == b("user")
)
ADD_ACCESS: Final = insert(accesses)
SET_ACCESS: Final = update(accesses).where(
    accesses.c.container_id == b("container"), accesses.c.user_id == b("user")
)

# Deleted containers: what does not prove the deletion is removed, some of it in one transaction.
DROP_EXPIRED_MEMBERS: Final = delete(members).where(
    members.c.container_id == b("container"), members.c.expires_at <= b("now")
)
EMPTY_MEMBERS: Final = (
    update(members)
    .where(members.c.container_id == b("container"))
    .values(permissions=0, expires_at=None, wrap=None)
)
ADD_PURGE: Final = insert(containers_to_purge)
# Containers that another user's log has events of, and that are not pending a purge already.
IN_OTHER_LOGS: Final = (
    select(events.c.container_id)
    .where(
        events.c.container_id.in_(b("some", expanding=True)),
        events.c.user_id != b("user"),
        ~exists().where(containers_to_purge.c.container_id == events.c.container_id),
    )
    .distinct()
)
FIND_PURGE: Final = select(containers_to_purge).where(
    containers_to_purge.c.container_id == b("container")
)
LOCK_PURGE: Final = FIND_PURGE.with_for_update()
SET_PURGE: Final = update(containers_to_purge).where(
    containers_to_purge.c.container_id == b("container")
)
DROP_PURGE: Final = delete(containers_to_purge).where(
    containers_to_purge.c.container_id == b("container")
)
PURGES: Final = (
    select(containers_to_purge.c.container_id)
    .where(containers_to_purge.c.container_id > b("last"))
    .order_by(containers_to_purge.c.container_id)
    .limit(b("count"))
)
SET_BODY: Final = update(records).where(
    records.c.container_id == b("container"), records.c.version == b("number")
)
DROP_RECORDS: Final = delete(records).where(
    records.c.container_id == b("container"), records.c.version.in_(b("versions", expanding=True))
)
ACCESSES_TO: Final = (
    select(accesses.c.user_id).where(accesses.c.container_id == b("container")).limit(b("count"))
)
NEXT_LOG_WITH: Final = (
    select(events.c.user_id)
    .where(events.c.container_id == b("container"), events.c.user_id > b("last"))
    .order_by(events.c.user_id)
    .limit(1)
)
EVENTS_TO_EMPTY: Final = (
    select(events)
    .where(
        events.c.container_id == b("container"),
        events.c.user_id == b("user"),
        events.c.version > 0,
        events.c.version != b("deletion"),
    )
    .limit(b("count"))
)
EMPTY_EVENT: Final = (
    update(events)
    .where(events.c.user_id == b("user"), events.c.row_id == b("row"))
    .values(
        version=0,
        date=b("deleted_at"),
        salt=None,
        details_hash=b("hash"),
        container_type=None,
        previous_type=None,
        related_user_id=None,
        application="",
        changes=0,
    )
)

# The end of a user: what is theirs alone goes, some of it in one transaction. `some` are containers.
END_USER: Final = (
    *(delete(table).where(table.c.user_id == b("user")) for table in (key_files, sessions)),
    update(parts).where(parts.c.user_id == b("user"), ~parts.c.committed).values(touched_at=0),
)
DOOM_USER: Final = _if_new(user=doomed_users.c.user_id)
DROP_GUESSES: Final = delete(guesses).where(guesses.c.bucket.in_(b("buckets", expanding=True)))
FIND_DOOMED_USER: Final = select(doomed_users).where(doomed_users.c.user_id == b("user"))
LOCK_DOOMED_USER: Final = FIND_DOOMED_USER.with_for_update()
DOOMED_USERS: Final = (
    select(doomed_users.c.user_id)
    .where(doomed_users.c.user_id > b("last"))
    .order_by(doomed_users.c.user_id)
    .limit(b("count"))
)
FORGET_USER: Final = delete(doomed_users).where(doomed_users.c.user_id == b("user"))
CONTAINERS_OF_MEMBER: Final = (
    select(members.c.container_id).where(members.c.user_id == b("user")).limit(b("count"))
)
CONTAINERS_OF_CREATOR: Final = (
    select(containers.c.id).where(containers.c.creator_id == b("user")).limit(b("count"))
)
# Containers with a record that the user signed, to which nobody has unexpired access.
CONTAINERS_OF_AUTHOR: Final = (
    select(authors.c.container_id)
    .where(
        authors.c.user_id == b("user"),
        ~exists().where(
            members.c.container_id == authors.c.container_id,
            or_(members.c.expires_at.is_(None), members.c.expires_at > b("now")),
        ),
    )
    .limit(b("count"))
)
LOCK_CONTAINERS: Final = (
    select(containers.c.id, containers.c.version, containers.c.creator_id)
    .where(containers.c.id.in_(b("some", expanding=True)))
    .order_by(containers.c.id)
    .with_for_update(key_share=True)
)
WITH_OTHER_MEMBERS: Final = (
    select(members.c.container_id)
    .where(
        members.c.container_id.in_(b("some", expanding=True)),
        members.c.user_id != b("user"),
        or_(members.c.expires_at.is_(None), members.c.expires_at > b("now")),
    )
    .distinct()
)
AUTHORS_IN: Final = (
    select(authors.c.user_id)
    .where(authors.c.container_id.in_(b("some", expanding=True)))
    .distinct()
)
DROP_AUTHOR: Final = delete(authors).where(
    authors.c.container_id == b("container"), authors.c.user_id == b("user")
)
ANY_CONTAINER_OF_AUTHOR: Final = (
    select(authors.c.container_id).where(authors.c.user_id == b("user")).limit(1)
)
DROP_KEY_RECORDS: Final = delete(key_records).where(key_records.c.user_id == b("user"))
PURGE_CONTAINERS: Final = (
    *(
        delete(table).where(table.c.container_id.in_(b("some", expanding=True)))
        for table in (records, access_lists, members, accesses, authors)
    ),
    update(parts)
    .where(parts.c.container_id.in_(b("some", expanding=True)), parts.c.committed)
    .values(replaced_at=0),
    update(parts)
    .where(parts.c.container_id.in_(b("some", expanding=True)), ~parts.c.committed)
    .values(touched_at=0),
    update(containers)
    .where(containers.c.id.in_(b("some", expanding=True)))
    .values(deleted=True, type=None, type_salt=None),
)
DROP_CONTAINERS: Final = delete(containers).where(containers.c.id.in_(b("some", expanding=True)))
FORGET_CREATOR: Final = (
    update(containers).where(containers.c.id.in_(b("some", expanding=True))).values(creator_id=None)
)
# One row each: of many in one statement, all that the user has would be read to find them.
DROP_MEMBER: Final = delete(members).where(
    members.c.container_id == b("container"), members.c.user_id == b("user")
)
ACCESSES_OF_USER: Final = (
    select(accesses.c.container_id).where(accesses.c.user_id == b("user")).limit(b("count"))
)
DROP_ACCESS: Final = delete(accesses).where(
    accesses.c.container_id == b("container"), accesses.c.user_id == b("user")
)
EVENTS_OF_USER: Final = (
    select(events.c.row_id).where(events.c.user_id == b("user")).limit(b("count"))
)
DROP_EVENT: Final = delete(events).where(events.c.row_id == b("row"), events.c.user_id == b("user"))


def one(connection: Connection, statement: Any, **values: object) -> Row[Any] | None:
    """The one row of a statement, or None."""
    return connection.execute(statement, values).one_or_none()


def the(connection: Connection, statement: Any, **values: object) -> Row[Any]:
    """The one row that other rows say is there."""
    return connection.execute(statement, values).one()


def governing(connection: Connection, container: bytes, first: int, last: int) -> Iterator[Any]:
    """Versions and bodies of all governing records from one version to another, some in memory at once."""
    values = {"container": container, "to": last, "count": _GOVERNING_AT_ONCE}
    rows: list[Any]
    while rows := list(connection.execute(GOVERNING, {**values, "from": first})):
        yield from rows
        first = rows[-1].version + 1


def key_chain(
    connection: Connection, user_id: bytes, first: int = 0, count: int = 1024
) -> list[Signed]:
    """A user's key records from a sequence on."""
    values = {"user_id": user_id, "from": first, "count": count}
    rows = connection.execute(KEY_CHAIN, values)
    return [Signed(row.body, row.signature) for row in rows]
