"""The SQL statements, by subject, and the reads that several modules share.

Statements are built once, with bound parameters: building them for each call halves the throughput.
A test asks both engines for the index that serves each.
"""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    FromClause,
    Insert,
    LargeBinary,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from scbroker.records.judge import ALL
from scbroker.records.key_record import Signed
from scbroker.records.roster import MASKS
from scbroker.server.storage.database import one as one
from scbroker.server.storage.database import the as the
from scbroker.server.storage.driver import Connection
from scbroker.server.storage.tables import (
    LISTED,
    access_lists,
    accesses,
    api_keys,
    audit,
    authors,
    blocks,
    checks,
    chunks,
    containers,
    containers_to_purge,
    default_quotas,
    departures,
    events,
    group_authors,
    group_infos,
    group_members,
    key_files,
    key_records,
    leaves,
    members,
    parts,
    pending_blobs,
    pending_groups,
    pending_users,
    records,
    rosters,
    sessions,
    usage,
    users,
)

b = bindparam
LATEST: Final = 2**53
_GOVERNING_AT_ONCE: Final = 500


def among(column: Column[Any], name: str = "some") -> ColumnElement[bool]:
    return column.in_(b(name, expanding=True))


_COLUMNS: Final = {
    "container": "container_id",
    "user": "user_id",
    "group": "group_id",
    "part": "part_id",
    "number": "version",
}


def of(table: FromClause, *names: str) -> ColumnElement[bool]:
    """Return the condition that columns have the values of these parameters."""
    return and_(*(table.c[_COLUMNS[name]] == b(name) for name in names))


def of_its_container(table: FromClause, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition of a join: the row belongs to the container's row."""
    return and_(table.c.container_id == containers.c.id, *conditions)


def page(statement: Select[Any], *order: Column[Any]) -> Select[Any]:
    return statement.order_by(*order).limit(b("count"))


def after(column: Column[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select a page of a column's values behind `last`."""
    return page(select(column).where(column > b("last"), *conditions), column)


def due(name: Column[Any], since: Column[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select and lock a page of what was due `before`; skips rows that another sweeper has locked."""
    found = select(name).where(since <= b("before"), *conditions)
    return page(found, since).with_for_update(skip_locked=True)


def chunks_between(column: Column[Any]) -> Select[Any]:
    """Select a column of a part's chunks from number `first` to before `end`."""
    numbers = (chunks.c.chunk >= b("first"), chunks.c.chunk < b("end"))
    return (
        select(chunks.c.chunk, column).where(of(chunks, "part"), *numbers).order_by(chunks.c.chunk)
    )


def change(table: Table, *conditions: ColumnElement[bool], **values: Any) -> Update:
    return update(table).where(*conditions).values(**values)


def if_new(**keys: Column[Any]) -> Insert:
    """Return an INSERT of a row that is only its key, which does nothing if the row exists."""
    [table] = {column.table for column in keys.values()}
    row = select(*(b(name, type_=column.type) for name, column in keys.items()))
    there = exists().where(*(column == b(name) for name, column in keys.items()))
    return insert(table).from_select(list(keys.values()), row.where(~there))


# Users and sessions
FIND_API_KEY: Final = select(api_keys).where(api_keys.c.key_hash == b("hash"))
ADD_API_KEY: Final = insert(api_keys)
# A group has a row of `users` as well. Statements about people leave it out.
IS_USER: Final = users.c.group_version.is_(None)
FIND_USER: Final = select(users).where(users.c.id == b("id"), IS_USER)
# Users and groups: what access lists name.
FIND_USERS: Final = select(users).where(among(users.c.id, "ids"))
LOCK_USER: Final = FIND_USER.with_for_update()
# A shared lock: until the transaction ends, these users are not deleted and their keys do not change. Several
# transactions may hold it, and LOCK_LOG is not blocked.
SHARE_USERS: Final = FIND_USERS.with_for_update(read=True, key_share=True)
SET_USER: Final = update(users).where(users.c.id == b("user"))
ADD_USER: Final = insert(users)
KEY_CHAIN: Final = page(
    select(key_records.c.body, key_records.c.signature).where(
        key_records.c.user_id == b("user_id"), key_records.c.sequence >= b("from")
    ),
    key_records.c.sequence,
)
ADD_KEY_FILE: Final = insert(key_files)
FIND_KEY_FILE: Final = select(key_files).where(key_files.c.user_id == b("user_id"))
COUNT_USERS: Final = select(func.count()).select_from(users).where(~users.c.deleted, IS_USER)
COUNT_KEY_FILES: Final = select(func.count()).select_from(key_files)
KEY_FILES_AFTER: Final = (
    select(key_files)
    .where(key_files.c.user_id > b("last"))
    .order_by(key_files.c.user_id)
    .limit(b("count"))
)
# Only if the KeyFile is still the one that was opened: its user may have replaced it meanwhile.
RESEAL_KEY_FILE: Final = change(
    key_files,
    (key_files.c.user_id == b("user")) & (key_files.c.key_file == b("old")),
    key_file=b("new_key_file"),
    verifier=b("new_verifier"),
)
END_SESSIONS: Final = delete(sessions).where(of(sessions, "user"))

DROP_BLOCK: Final = delete(blocks).where(of(blocks, "user"), blocks.c.blocked_id == b("blocked"))

# Containers
FIND_CONTAINER: Final = select(containers).where(containers.c.id == b("id"))
LOCK_CONTAINER: Final = FIND_CONTAINER.with_for_update(key_share=True)
_CONTAINERS: Final = select(containers).where(among(containers.c.id)).order_by(containers.c.id)
LOCK_CONTAINERS: Final = _CONTAINERS.with_for_update(key_share=True)
ADD_CONTAINER: Final = insert(containers)
SET_CONTAINER: Final = update(containers).where(containers.c.id == b("container"))
ADD_AUTHOR: Final = if_new(container=authors.c.container_id, user=authors.c.user_id)
FIND_RECORD: Final = select(records).where(of(records, "container", "number"))
GOVERNING: Final = page(
    select(records.c.version, records.c.body).where(
        of(records, "container"), records.c.governing, records.c.version.between(b("from"), b("to"))
    ),
    records.c.version,
)
BODIES: Final = page(
    select(
        records.c.version,
        records.c.governing,
        records.c.body,
        func.length(records.c.signature).label("signature_size"),
    ).where(of(records, "container"), records.c.version >= b("from"), records.c.version < b("to")),
    records.c.version,
)
ADD_LIST: Final = insert(access_lists)
FIND_LIST: Final = select(access_lists.c.entries).where(
    of(access_lists, "container"), access_lists.c.access_version == b("number")
)
LIST_VERSIONS: Final = select(access_lists.c.access_version).where(of(access_lists, "container"))
_RECORD: Final = tuple_(records.c.container_id, records.c.version)
# Each record with the size of the signature and the access list that came with it.
RECORD_SIZES: Final = (
    select(
        records.c.container_id,
        records.c.version,
        records.c.body,
        (
            func.length(records.c.signature) + func.coalesce(func.length(access_lists.c.entries), 0)
        ).label("more"),
    )
    .outerjoin(
        access_lists,
        (access_lists.c.container_id == records.c.container_id)
        & (access_lists.c.access_version == records.c.version),
    )
    .where(tuple_(b("container_id"), b("version")) < _RECORD)
    .order_by(records.c.container_id, records.c.version)
    .limit(b("count"))
)
OF_LIST: Final = of(departures, "container") & (departures.c.access_version == b("number"))
DEPARTURES: Final = select(departures.c.user_id, departures.c.body, departures.c.signature).where(
    OF_LIST
)
DEPARTURE_LISTS: Final = (
    select(departures.c.access_version).where(of(departures, "container")).distinct()
)
UNEXPIRED: Final = members.c.expires_at.is_(None) | (members.c.expires_at > b("now"))
EXPIRED: Final = (
    members.c.expires_at <= b("now")
) & ~members.c.expiry_recorded  # not in the log yet
FIND_MEMBER: Final = select(members).where(of(members, "container", "user"))
_MEMBERSHIP: Final = group_members.alias("membership")
_THROUGH: Final = users.alias("through")
# The permissions of a group's entry that a member's role leaves; all of them if there is no membership.
_MASK: Final = case(
    *((_MEMBERSHIP.c.role == int(role), mask) for role, mask in MASKS.items()), else_=literal(ALL)
)


def _is_entry(entry: Any, container: Any) -> ColumnElement[bool]:
    """Return the condition that a row of `members` is an unexpired entry of a container."""
    unexpired = entry.c.expires_at.is_(None) | (entry.c.expires_at > b("now"))
    return and_(entry.c.container_id == container, unexpired)


def _reader(container: Any) -> Any:
    """Return the id in the entry of a container's list that serves a user: the user's own, or a group's.

    The parameter `named` decides if it is not NULL. Otherwise a user without an unexpired entry reads through
    one of the groups that they have accepted: the one that leaves them the most permissions, then the one
    with the smallest id.
    """
    own, entry = members.alias("own"), members.alias("entry")
    group, membership = users.alias("chosen"), group_members.alias("chosen_membership")
    mask = case(
        *((membership.c.role == int(role), mask) for role, mask in MASKS.items()), else_=literal(0)
    )
    left = entry.c.permissions.bitwise_and(mask)
    count: Any = literal(0)
    for bit in range(ALL.bit_length()):
        count += case((left.bitwise_and(1 << bit) > 0, 1), else_=0)
    best = (
        select(membership.c.group_id)
        .join(entry, entry.c.user_id == membership.c.group_id)
        .join(group, group.c.id == membership.c.group_id)
        .where(
            of(membership, "user"),
            ~membership.c.gone,
            membership.c.accepted,
            ~group.c.deleted,
            _is_entry(entry, container),
        )
        .order_by(count.desc(), membership.c.group_id)
        .limit(1)
    )
    found = select(own.c.user_id).where(of(own, "user"), _is_entry(own, container))
    return func.coalesce(
        b("named", type_=LargeBinary()),
        found.correlate(containers).scalar_subquery(),
        best.correlate(containers).scalar_subquery(),
        b("user", type_=LargeBinary()),
    )


def with_member(container: Any) -> Select[Any]:
    """Select a container, its head record, and the entry that serves a user, as `_reader` says.

    The permissions of a group's entry are cut by the user's role. `through` is the name of this group, and
    NULL for the user's own entry. `managing` are the permissions of a manager of this group, 0 for others.
    """
    membership = and_(
        _MEMBERSHIP.c.group_id == members.c.user_id, of(_MEMBERSHIP, "user"), ~_MEMBERSHIP.c.gone
    )
    return (
        select(
            containers,
            members.c.permissions.bitwise_and(_MASK).label("permissions"),
            members.c.expires_at,
            members.c.wrap,
            _THROUGH.c.fingerprint.label("through"),
            _THROUGH.c.group_version,
            _THROUGH.c.encryption_index,
            _MEMBERSHIP.c.permissions.label("managing"),
            records.c.body,
            records.c.signature,
        )
        .select_from(
            containers.join(
                members, of_its_container(members, members.c.user_id == _reader(container))
            )
            .join(records, of_its_container(records, records.c.version == containers.c.version))
            .outerjoin(_MEMBERSHIP, membership)
            .outerjoin(_THROUGH, and_(_THROUGH.c.id == _MEMBERSHIP.c.group_id, ~_THROUGH.c.deleted))
        )
        .where(of(members, "user") | _THROUGH.c.id.is_not(None))
    )


# Of one container: with the parameter in the subqueries, PostgreSQL looks its members up by their key.
_WITH_MEMBER: Final = with_member(b("container"))

CONTAINER_AND_MEMBER: Final = _WITH_MEMBER.where(containers.c.id == b("container"))
MEMBERS: Final = select(members).where(of(members, "container"))
# Waits for writers of these containers, and does not block readers.
SHARE_CONTAINERS: Final = _CONTAINERS.with_for_update(read=True)

# Groups. A group's own row of `users` has its latest epoch and version, and is locked by everything that
# changes its members: LOCK_GROUP excludes the records that are made through it, which share the lock.
FIND_GROUP: Final = select(users).where(users.c.id == b("id"), ~IS_USER)
LOCK_GROUP: Final = FIND_GROUP.with_for_update()
# The membership of a user in a group that is not deleted.
FIND_MEMBERSHIP: Final = (
    select(
        group_members,
        users.c.fingerprint.label("name"),
        users.c.encryption_index.label("epoch"),
        users.c.group_version,
    )
    .join(users, users.c.id == group_members.c.group_id)
    .where(of(group_members, "group", "user"), ~group_members.c.gone, ~users.c.deleted)
)
# All members, and whether these users were deleted.
GROUP_MEMBERS: Final = (
    select(group_members, users.c.deleted)
    .join(users, users.c.id == group_members.c.user_id)
    .where(of(group_members, "group"))
)
GROUP: Final = users.alias("a_group")
ACCEPTED_GROUPS: Final = (
    select(group_members.c.group_id)
    .join(GROUP, GROUP.c.id == group_members.c.group_id)
    .where(
        of(group_members, "user"), group_members.c.accepted, ~group_members.c.gone, ~GROUP.c.deleted
    )
)
SET_GROUP_MEMBER: Final = update(group_members).where(of(group_members, "group", "user"))
# The roster in force at a version of the group's container.
ROSTER_AT: Final = (
    select(rosters)
    .where(of(rosters, "group"), rosters.c.version <= b("number"))
    .order_by(rosters.c.version.desc())
    .limit(1)
)
ROSTERS: Final = page(
    select(rosters).where(of(rosters, "group"), rosters.c.version >= b("from")), rosters.c.version
)
# `+ 0` keeps SQLite from searching all leaves in force for one place.
END: Final = leaves.c.until + 0
FIND_INFO: Final = select(group_infos).where(of(group_infos, "group"))
# Joins a member with the row of this user if an epoch is owed for the member.
OWES: Final = (users.c.id == group_members.c.user_id) & (
    ((group_members.c.gone | users.c.deleted) & group_members.c.wrap.is_not(None))
    | (
        ~group_members.c.gone
        & ~users.c.deleted
        & (group_members.c.key_index < users.c.encryption_index)
    )
)
# The users for whom a group owes an epoch.
OWED: Final = (
    select(group_members.c.user_id, users.c.chain_length)
    .join(users, OWES)
    .where(of(group_members, "group"))
    .order_by(group_members.c.user_id)
)
GROUP_AUTHORS_IN: Final = select(group_authors.c.group_id, group_authors.c.user_id).where(
    among(group_authors.c.container_id)
)

# Parts, without inline bytes and hashes: these may be megabytes.
ADD_PART: Final = insert(parts)
FIND_PART: Final = select(
    parts.c.part_id,
    parts.c.container_id,
    parts.c.user_id,
    parts.c.committed,
    parts.c.session,
    parts.c.received,
    (~parts.c.committed & (parts.c.touched_at == 0)).label("dropped"),
    func.length(parts.c.hashes).label("hashes_size"),
    parts.c.inline.is_not(None).label("is_inline"),
).where(of(parts, "part"))
LOCK_PART: Final = FIND_PART.with_for_update()
PARTS_INLINE: Final = select(parts.c.part_id, parts.c.inline).where(among(parts.c.part_id))

CHUNKS: Final = select(chunks).where(of(chunks, "part")).order_by(chunks.c.chunk)
FIND_CHUNK: Final = select(chunks).where(of(chunks, "part"), chunks.c.chunk == b("number"))
BLOBS_IN: Final = page(
    select(chunks.c.part_id, chunks.c.chunk, chunks.c.blob).where(among(chunks.c.part_id, "gone")),
    chunks.c.part_id,
    chunks.c.chunk,
)
ADD_PENDING_BLOBS: Final = insert(pending_blobs)

# Usage and quotas


def _effective(quota: Column[Any], kind: str) -> ColumnElement[Any]:
    """Return a user's own quota, or the default, or NULL if neither is set."""
    default = select(default_quotas.c.value).where(default_quotas.c.kind == kind)
    return func.coalesce(quota, default.scalar_subquery()).label(quota.name)


QUOTAS: Final = (
    _effective(usage.c.quota_bytes, "bytes"),
    _effective(usage.c.quota_containers, "containers"),
)
CHARGE: Final = change(
    usage,
    of(usage, "user"),
    bytes=usage.c.bytes + b("more_bytes"),
    containers=usage.c.containers + b("more_containers"),
).returning(usage.c.bytes, usage.c.containers, *QUOTAS)
ADD_USAGE: Final = insert(usage)

FIND_CHECK: Final = select(checks.c.value).where(checks.c.name == b("check"))
FIND_CHECKS: Final = select(checks).where(among(checks.c.name, "names")).order_by(checks.c.name)
LOCK_CHECK: Final = FIND_CHECK.with_for_update()
ADD_CHECK: Final = insert(checks)
DROP_CHECK: Final = delete(checks).where(checks.c.name == b("check"))
SET_CHECK: Final = update(checks).where(checks.c.name == b("check"))

# The audit log
ADD_AUDIT: Final = insert(audit)
LAST_AUDIT: Final = select(audit).order_by(audit.c.id.desc()).limit(1)
LAST_AUDIT_OF: Final = LAST_AUDIT.where(among(audit.c.action, "actions"))
AUDIT_AFTER: Final = page(select(audit).where(audit.c.id > b("after_id")), audit.c.id)

# Events
ADD_EVENTS: Final = insert(events)
ENDS_OF_LOG: Final = select(
    users.c.first_event,
    users.c.last_event,
    users.c.dropped_digest,
    users.c.deleted,
    users.c.suspended_at,
).where(users.c.id == b("user"))
LOCK_LOG: Final = ENDS_OF_LOG.with_for_update(key_share=True)

FIND_PURGE: Final = select(containers_to_purge).where(of(containers_to_purge, "container"))
ACCESSES_TO: Final = select(accesses.c.user_id).where(of(accesses, "container")).limit(b("count"))

ADD_PENDING_USER: Final = if_new(user=pending_users.c.user_id)
FIND_PENDING_USER: Final = select(pending_users).where(of(pending_users, "user"))
_CONTAINERS_OF_MEMBER: Final = (
    select(members.c.container_id).where(of(members, "user")).limit(b("count"))
)
CONTAINERS_OF_MEMBER: Final = _CONTAINERS_OF_MEMBER.where(LISTED)
CONTAINERS_LEFT_TO_MEMBER: Final = _CONTAINERS_OF_MEMBER.where(~LISTED)  # deleted, or expired
AUTHORS_IN: Final = select(authors.c.user_id).where(among(authors.c.container_id)).distinct()
ANY_CONTAINER_OF_AUTHOR: Final = select(authors.c.container_id).where(of(authors, "user")).limit(1)
# One row for each execution: with several in one statement, PostgreSQL reads all rows of the user.
DROP_MEMBER: Final = delete(members).where(of(members, "container", "user"))
DROP_ACCESS: Final = delete(accesses).where(of(accesses, "container", "user"))
EVENTS_OF_USER: Final = select(events.c.row_id).where(of(events, "user")).limit(b("count"))
DROP_EVENT: Final = delete(events).where(events.c.row_id == b("row"), of(events, "user"))

ANY_GROUP_DEPARTURE: Final = (
    select(group_members.c.group_id)
    .where(of(group_members, "user"), group_members.c.departure.is_not(None))
    .limit(1)
)
ADD_PENDING_GROUP: Final = if_new(group=pending_groups.c.group_id)
ANY_ENTRY_OF_GROUP: Final = (
    select(members.c.container_id)
    .where(members.c.user_id == b("group"), ~LISTED, members.c.permissions > 0)
    .limit(1)
)
ANY_AUTHOR_OF_GROUP: Final = (
    select(group_authors.c.user_id).where(of(group_authors, "group")).limit(1)
)
AUTHORS_OF_GROUP: Final = (
    select(group_authors.c.user_id).where(of(group_authors, "group")).distinct()
)
KEPT_LEAVES: Final = select(leaves).where(of(leaves, "group"), leaves.c.member.is_not(None))


def governing(connection: Connection, container: bytes, first: int, last: int) -> Iterator[Any]:
    """Yield versions and bodies of the governing records from `first` to `last`, read page by page."""
    values = {"container": container, "to": last, "count": _GOVERNING_AT_ONCE}
    rows: list[Any]
    while rows := list(connection.execute(GOVERNING, {**values, "from": first})):
        yield from rows
        first = rows[-1].version + 1


def key_chain(
    connection: Connection, user_id: bytes, first: int = 0, count: int = 1024
) -> list[Signed]:
    """Return up to `count` of a user's key records, from sequence `first` on."""
    values = {"user_id": user_id, "from": first, "count": count}
    rows = connection.execute(KEY_CHAIN, values)
    return [Signed(row.body, row.signature) for row in rows]
