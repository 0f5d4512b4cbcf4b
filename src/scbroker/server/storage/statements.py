"""The SQL statements, by subject, and the reads that several modules share.

Statements are built once, with bound parameters: building them for each call halves the throughput.
A test asks both engines which index serves each statement.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import sqlalchemy as sa

from scbroker.records.judge import ALL
from scbroker.records.key_record import Signed
from scbroker.records.roster import MASKS
from scbroker.server.storage import tables as t
from scbroker.server.storage.database import one as one
from scbroker.server.storage.database import the as the
from scbroker.server.storage.driver import Connection

b: Final = sa.bindparam
LATEST: Final = 2**53
_GOVERNING_AT_ONCE: Final = 500
Condition = sa.ColumnElement[bool] | str
"""A condition, or the name of a parameter as `of` takes it."""

# The column that a parameter is compared with: the first that the table has.
_COLUMNS: Final = {
    "container": ("container_id", "id"),
    "user": ("user_id", "id"),
    "group": ("group_id",),
    "part": ("part_id",),
    "number": ("version", "access_version", "chunk"),
    "leaf": ("place",),
    "row": ("row_id",),
}


def among(column: sa.Column[Any], name: str = "some") -> sa.ColumnElement[bool]:
    return column.in_(b(name, expanding=True))


def of(table: sa.FromClause, *names: str) -> sa.ColumnElement[bool]:
    """Return the condition that columns have the values of these parameters."""
    return sa.and_(
        *(
            next(table.c[each] for each in _COLUMNS[name] if each in table.c) == b(name)
            for name in names
        )
    )


def _all(table: sa.FromClause, conditions: Iterable[Condition]) -> Iterator[sa.ColumnElement[bool]]:
    return (of(table, each) if isinstance(each, str) else each for each in conditions)


def find(table: sa.Table, *conditions: Condition) -> sa.Select[Any]:
    return sa.select(table).where(*_all(table, conditions))


def drop(table: sa.Table, *conditions: Condition) -> sa.Delete:
    return sa.delete(table).where(*_all(table, conditions))


def change(table: sa.Table, *conditions: Condition, **values: Any) -> sa.Update:
    """Return an UPDATE; without `values`, those that it is executed with are set."""
    found = sa.update(table).where(*_all(table, conditions))
    return found.values(**values) if values else found


def some(column: sa.Column[Any], *conditions: Condition, most: Any = None) -> sa.Select[Any]:
    """Select up to `most` values of a column, by default the parameter `count`."""
    found = sa.select(column).where(*_all(column.table, conditions))
    return found.limit(b("count") if most is None else most)


def count(table: sa.Table, *conditions: Condition) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(table).where(*_all(table, conditions))


def of_its_container(
    table: sa.FromClause, *conditions: sa.ColumnElement[bool]
) -> sa.ColumnElement[bool]:
    """Return the condition of a join: the row belongs to the container's row."""
    return sa.and_(table.c.container_id == t.containers.c.id, *conditions)


def page(statement: sa.Select[Any], *order: sa.Column[Any]) -> sa.Select[Any]:
    return statement.order_by(*order).limit(b("count"))


def after(column: sa.Column[Any], *conditions: Condition) -> sa.Select[Any]:
    """Select a page of a column's values after `last`."""
    return some(column, column > b("last"), *conditions).order_by(column)


def chunks_between(column: sa.Column[Any]) -> sa.Select[Any]:
    """Select a column of a part's chunks from number `first` to before `end`."""
    number = t.chunks.c.chunk
    found = sa.select(number, column).where(of(t.chunks, "part"))
    return found.where(number >= b("first"), number < b("end")).order_by(number)


def if_new(**keys: sa.Column[Any]) -> sa.Insert:
    """Return an INSERT of a row that is only its key, which does nothing if the row exists."""
    [table] = {column.table for column in keys.values()}
    row = sa.select(*(b(name, type_=column.type) for name, column in keys.items()))
    there = sa.exists().where(*(column == b(name) for name, column in keys.items()))
    return sa.insert(table).from_select(list(keys.values()), row.where(~there))


# Users and sessions
FIND_API_KEY: Final = sa.select(t.api_keys).where(t.api_keys.c.key_hash == b("hash"))
# A group has a row of `users` as well. Statements about people leave it out.
IS_USER: Final = t.users.c.group_version.is_(None)
FIND_USER: Final = sa.select(t.users).where(t.users.c.id == b("id"), IS_USER)
# Users and groups, both of which access lists name.
FIND_USERS: Final = sa.select(t.users).where(among(t.users.c.id, "ids"))
LOCK_USER: Final = FIND_USER.with_for_update()
# A shared lock: until the transaction ends, these users are not deleted and their keys do not change. Several
# transactions may hold it, and LOCK_LOG is not blocked.
SHARE_USERS: Final = FIND_USERS.with_for_update(read=True, key_share=True)
SET_USER: Final = change(t.users, "user")
# The columns of a new user or group; who adds one sets some of them.
NEW_USER: Final[dict[str, object]] = {
    **dict.fromkeys(("chain_length", "signing_sequence", "signed_until", "registered_at"), 0),
    "deleted": False,
    "last_event": 0,
    "first_event": 1,
    "key_file_generation": 0,
}
KEY_CHAIN: Final = page(
    sa.select(t.key_records.c.body, t.key_records.c.signature).where(
        t.key_records.c.user_id == b("user_id"), t.key_records.c.sequence >= b("from")
    ),
    t.key_records.c.sequence,
)
FIND_KEY_FILE: Final = sa.select(t.key_files).where(t.key_files.c.user_id == b("user_id"))
END_SESSIONS: Final = drop(t.sessions, "user")
DROP_BLOCK: Final = drop(t.blocks, "user", t.blocks.c.blocked_id == b("blocked"))

# Containers
FIND_CONTAINER: Final = sa.select(t.containers).where(t.containers.c.id == b("id"))
LOCK_CONTAINER: Final = FIND_CONTAINER.with_for_update(key_share=True)
_CONTAINERS: Final = find(t.containers, among(t.containers.c.id)).order_by(t.containers.c.id)
LOCK_CONTAINERS: Final = _CONTAINERS.with_for_update(key_share=True)
SET_CONTAINER: Final = change(t.containers, "container")
ADD_AUTHOR: Final = if_new(container=t.authors.c.container_id, user=t.authors.c.user_id)
FIND_RECORD: Final = find(t.records, "container", "number")
GOVERNING: Final = page(
    sa.select(t.records.c.version, t.records.c.body).where(
        of(t.records, "container"),
        t.records.c.governing,
        t.records.c.version.between(b("from"), b("to")),
    ),
    t.records.c.version,
)
BODIES: Final = page(
    sa.select(
        t.records.c.version,
        t.records.c.governing,
        t.records.c.body,
        sa.func.length(t.records.c.signature).label("signature_size"),
    ).where(
        of(t.records, "container"), t.records.c.version >= b("from"), t.records.c.version < b("to")
    ),
    t.records.c.version,
)
FIND_LIST: Final = sa.select(t.access_lists.c.entries).where(
    of(t.access_lists, "container", "number")
)
LIST_VERSIONS: Final = sa.select(t.access_lists.c.access_version).where(
    of(t.access_lists, "container")
)
_RECORD: Final = sa.tuple_(t.records.c.container_id, t.records.c.version)
# Each record with the size of the signature and the access list that came with it.
RECORD_SIZES: Final = (
    sa.select(
        t.records.c.container_id,
        t.records.c.version,
        t.records.c.body,
        (
            sa.func.length(t.records.c.signature)
            + sa.func.coalesce(sa.func.length(t.access_lists.c.entries), 0)
        ).label("more"),
    )
    .outerjoin(
        t.access_lists,
        (t.access_lists.c.container_id == t.records.c.container_id)
        & (t.access_lists.c.access_version == t.records.c.version),
    )
    .where(sa.tuple_(b("container_id"), b("version")) < _RECORD)
    .order_by(t.records.c.container_id, t.records.c.version)
    .limit(b("count"))
)
DEPARTURES: Final = find(t.departures, "container", "number")
UNEXPIRED: Final = t.members.c.expires_at.is_(None) | (t.members.c.expires_at > b("now"))
EXPIRED: Final = (
    t.members.c.expires_at <= b("now")
) & ~t.members.c.expiry_recorded  # not in the log yet
FIND_MEMBER: Final = find(t.members, "container", "user")
_MEMBERSHIP: Final = t.group_members.alias("membership")
_THROUGH: Final = t.users.alias("through")
# The permissions of an entry that the user's role in the group allows; ALL if it is the user's own entry.
_MASK: Final = sa.case(
    *((_MEMBERSHIP.c.role == int(role), mask) for role, mask in MASKS.items()),
    else_=sa.literal(ALL),
)


def _is_entry(entry: Any, container: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a row of `members` is an unexpired entry of a container."""
    unexpired = entry.c.expires_at.is_(None) | (entry.c.expires_at > b("now"))
    return sa.and_(entry.c.container_id == container, unexpired)


def _reader(container: Any) -> Any:
    """Return the id in the entry of a container's list that serves a user: the user's own, or a group's.

    The parameter `named` decides if it is not NULL. Otherwise a user without an unexpired entry reads through
    one of the groups that they have accepted: the one that leaves them the most permissions, then the one
    with the smallest id.
    """
    own, entry = t.members.alias("own"), t.members.alias("entry")
    group, membership = t.users.alias("chosen"), t.group_members.alias("chosen_membership")
    mask = sa.case(
        *((membership.c.role == int(role), mask) for role, mask in MASKS.items()),
        else_=sa.literal(0),
    )
    left = entry.c.permissions.bitwise_and(mask)
    count: Any = sa.literal(0)
    for bit in range(ALL.bit_length()):
        count += sa.case((left.bitwise_and(1 << bit) > 0, 1), else_=0)
    best = (
        sa.select(membership.c.group_id)
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
    found = sa.select(own.c.user_id).where(of(own, "user"), _is_entry(own, container))
    return sa.func.coalesce(
        b("named", type_=sa.LargeBinary()),
        found.correlate(t.containers).scalar_subquery(),
        best.correlate(t.containers).scalar_subquery(),
        b("user", type_=sa.LargeBinary()),
    )


def with_member(container: Any) -> sa.Select[Any]:
    """Select a container, its head record, and the entry that serves a user, as `_reader` says.

    The permissions of a group's entry are cut by the user's role. `through` is the name of this group, and
    NULL for the user's own entry. `managing` are the permissions of a manager of this group, 0 for others.
    """
    membership = sa.and_(
        _MEMBERSHIP.c.group_id == t.members.c.user_id, of(_MEMBERSHIP, "user"), ~_MEMBERSHIP.c.gone
    )
    return (
        sa.select(
            t.containers,
            t.members.c.permissions.bitwise_and(_MASK).label("permissions"),
            t.members.c.expires_at,
            t.members.c.wrap,
            _THROUGH.c.fingerprint.label("through"),
            _THROUGH.c.group_version,
            _THROUGH.c.encryption_index,
            _MEMBERSHIP.c.permissions.label("managing"),
            t.records.c.body,
            t.records.c.signature,
        )
        .select_from(
            t.containers.join(
                t.members, of_its_container(t.members, t.members.c.user_id == _reader(container))
            )
            .join(
                t.records,
                of_its_container(t.records, t.records.c.version == t.containers.c.version),
            )
            .outerjoin(_MEMBERSHIP, membership)
            .outerjoin(
                _THROUGH, sa.and_(_THROUGH.c.id == _MEMBERSHIP.c.group_id, ~_THROUGH.c.deleted)
            )
        )
        .where(of(t.members, "user") | _THROUGH.c.id.is_not(None))
    )


# Of one container: with the parameter in the subqueries, PostgreSQL looks its members up by their key.
_WITH_MEMBER: Final = with_member(b("container"))

CONTAINER_AND_MEMBER: Final = _WITH_MEMBER.where(t.containers.c.id == b("container"))
MEMBERS: Final = find(t.members, "container")
# Waits for writers of these containers, and does not block readers.
SHARE_CONTAINERS: Final = _CONTAINERS.with_for_update(read=True)

# Groups. A group's own row of `users` has its latest epoch and version, and is locked by everything that
# changes its members: LOCK_GROUP excludes the records that are made through it, which share the lock.
FIND_GROUP: Final = sa.select(t.users).where(t.users.c.id == b("id"), ~IS_USER)
LOCK_GROUP: Final = FIND_GROUP.with_for_update()
# The membership of a user in a group that is not deleted.
FIND_MEMBERSHIP: Final = (
    sa.select(
        t.group_members,
        t.users.c.fingerprint.label("name"),
        t.users.c.encryption_index.label("epoch"),
        t.users.c.group_version,
    )
    .join(t.users, t.users.c.id == t.group_members.c.group_id)
    .where(of(t.group_members, "group", "user"), ~t.group_members.c.gone, ~t.users.c.deleted)
)
# All members, and whether these users were deleted.
GROUP_MEMBERS: Final = (
    sa.select(t.group_members, t.users.c.deleted)
    .join(t.users, t.users.c.id == t.group_members.c.user_id)
    .where(of(t.group_members, "group"))
)
GROUP: Final = t.users.alias("a_group")
ACCEPTED_GROUPS: Final = (
    sa.select(t.group_members.c.group_id)
    .join(GROUP, GROUP.c.id == t.group_members.c.group_id)
    .where(
        of(t.group_members, "user"),
        t.group_members.c.accepted,
        ~t.group_members.c.gone,
        ~GROUP.c.deleted,
    )
)
SET_GROUP_MEMBER: Final = change(t.group_members, "group", "user")
# The roster in force at a version of the group's container.
_VERSION: Final = t.rosters.c.version
ROSTER_AT: Final = (
    find(t.rosters, "group", b("number") >= _VERSION).order_by(_VERSION.desc()).limit(1)
)
ROSTERS: Final = page(find(t.rosters, "group", b("from") <= _VERSION), _VERSION)
# `+ 0` keeps SQLite from using the index by `until`, which would read all leaves in force to find one.
END: Final = t.leaves.c.until + 0
FIND_INFO: Final = find(t.group_infos, "group")
# Join a member with the user's row if an epoch is owed for the member: a former member's wrap shows that the
# user knows the secret, or the user has a newer key.
OWES: Final = (t.users.c.id == t.group_members.c.user_id) & (
    ((t.group_members.c.gone | t.users.c.deleted) & t.group_members.c.wrap.is_not(None))
    | (
        ~t.group_members.c.gone
        & ~t.users.c.deleted
        & (t.group_members.c.key_index < t.users.c.encryption_index)
    )
)
# The users for whom a group owes an epoch.
OWED: Final = (
    sa.select(t.group_members.c.user_id, t.users.c.chain_length)
    .join(t.users, OWES)
    .where(of(t.group_members, "group"))
    .order_by(t.group_members.c.user_id)
)
GROUP_AUTHORS_IN: Final = sa.select(t.group_authors.c.group_id, t.group_authors.c.user_id).where(
    among(t.group_authors.c.container_id)
)

# Parts, without inline bytes and hashes: these may be megabytes.
FIND_PART: Final = sa.select(
    t.parts.c.part_id,
    t.parts.c.container_id,
    t.parts.c.user_id,
    t.parts.c.committed,
    t.parts.c.session,
    t.parts.c.received,
    (~t.parts.c.committed & (t.parts.c.touched_at == 0)).label("dropped"),
    sa.func.length(t.parts.c.hashes).label("hashes_size"),
    t.parts.c.inline.is_not(None).label("is_inline"),
).where(of(t.parts, "part"))
LOCK_PART: Final = FIND_PART.with_for_update()
PARTS_INLINE: Final = sa.select(t.parts.c.part_id, t.parts.c.inline).where(among(t.parts.c.part_id))

CHUNKS: Final = find(t.chunks, "part").order_by(t.chunks.c.chunk)
FIND_CHUNK: Final = find(t.chunks, "part", "number")
BLOBS_IN: Final = page(
    sa.select(t.chunks.c.part_id, t.chunks.c.chunk, t.chunks.c.blob).where(
        among(t.chunks.c.part_id, "gone")
    ),
    t.chunks.c.part_id,
    t.chunks.c.chunk,
)

# Usage and quotas


def _effective(quota: sa.Column[Any], kind: str) -> sa.ColumnElement[Any]:
    """Return a user's own quota, or the default, or NULL if neither is set."""
    default = sa.select(t.default_quotas.c.value).where(t.default_quotas.c.kind == kind)
    return sa.func.coalesce(quota, default.scalar_subquery()).label(quota.name)


QUOTAS: Final = (
    _effective(t.usage.c.quota_bytes, "bytes"),
    _effective(t.usage.c.quota_containers, "containers"),
)
CHARGE: Final = change(
    t.usage,
    "user",
    bytes=t.usage.c.bytes + b("more_bytes"),
    containers=t.usage.c.containers + b("more_containers"),
).returning(t.usage.c.bytes, t.usage.c.containers, *QUOTAS)
ADD_USAGE: Final = sa.insert(t.usage)

FIND_CHECK: Final = sa.select(t.checks.c.value).where(t.checks.c.name == b("check"))
FIND_CHECKS: Final = find(t.checks, among(t.checks.c.name, "names")).order_by(t.checks.c.name)
LOCK_CHECK: Final = FIND_CHECK.with_for_update()
ADD_CHECK: Final = sa.insert(t.checks)
DROP_CHECK: Final = drop(t.checks, t.checks.c.name == b("check"))
SET_CHECK: Final = change(t.checks, t.checks.c.name == b("check"))


# Events
ENDS_OF_LOG: Final = sa.select(
    t.users.c.first_event,
    t.users.c.last_event,
    t.users.c.dropped_digest,
    t.users.c.deleted,
    t.users.c.suspended_at,
).where(t.users.c.id == b("user"))
LOCK_LOG: Final = ENDS_OF_LOG.with_for_update(key_share=True)

FIND_PURGE: Final = find(t.containers_to_purge, "container")
ACCESSES_TO: Final = some(t.accesses.c.user_id, "container")

ADD_PENDING_USER: Final = if_new(user=t.pending_users.c.user_id)
FIND_PENDING_USER: Final = find(t.pending_users, "user")
CONTAINERS_OF_MEMBER: Final = some(t.members.c.container_id, "user", t.LISTED)
# A member's rows that remain after the container was deleted, or after the member's access has expired.
CONTAINERS_LEFT_TO_MEMBER: Final = some(t.members.c.container_id, "user", ~t.LISTED)
AUTHORS_IN: Final = sa.select(t.authors.c.user_id).where(among(t.authors.c.container_id)).distinct()
ANY_CONTAINER_OF_AUTHOR: Final = some(t.authors.c.container_id, "user", most=1)
# Executed once for each row: with several rows in a statement, PostgreSQL would read all of the user's.
DROP_MEMBER: Final = drop(t.members, "container", "user")
DROP_ACCESS: Final = drop(t.accesses, "container", "user")
EVENTS_OF_USER: Final = some(t.events.c.row_id, "user")
DROP_EVENT: Final = drop(t.events, "row", "user")

ANY_GROUP_DEPARTURE: Final = some(
    t.group_members.c.group_id, "user", t.group_members.c.departure.is_not(None), most=1
)
ADD_PENDING_GROUP: Final = if_new(group=t.pending_groups.c.group_id)
ANY_ENTRY_OF_GROUP: Final = some(
    t.members.c.container_id,
    t.members.c.user_id == b("group"),
    ~t.LISTED,
    t.members.c.permissions > 0,
    most=1,
)
ANY_AUTHOR_OF_GROUP: Final = some(t.group_authors.c.user_id, "group", most=1)
AUTHORS_OF_GROUP: Final = (
    sa.select(t.group_authors.c.user_id).where(of(t.group_authors, "group")).distinct()
)
KEPT_LEAVES: Final = find(t.leaves, "group", t.leaves.c.member.is_not(None))


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
