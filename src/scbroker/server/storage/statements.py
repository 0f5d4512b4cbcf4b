"""The SQL statements, by subject, and the reads that several modules share.

Statements are built once, with bound parameters: building them for each call halves the throughput.
docs/scale.md lists the indexes that serve them.
"""

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import (
    Boolean,
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
    guesses,
    key_files,
    key_records,
    leaves,
    members,
    nonces,
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
from scbroker.vocabulary import ContainerAccessLevel

b = bindparam
LATEST: Final = 2**53
_GOVERNING_AT_ONCE: Final = 500
_SHORT_LIST: Final = 65_536


def _among(column: Column[Any], name: str = "some") -> ColumnElement[bool]:
    return column.in_(b(name, expanding=True))


def _container(table: Table) -> ColumnElement[bool]:
    return table.c.container_id == b("container")


def _user(table: FromClause) -> ColumnElement[bool]:
    return table.c.user_id == b("user")


def _group(table: Table) -> ColumnElement[bool]:
    return table.c.group_id == b("group")


def _part(table: Table) -> ColumnElement[bool]:
    return table.c.part_id == b("part")


def _of_container(table: FromClause, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition of a join: the row belongs to the container's row."""
    return and_(table.c.container_id == containers.c.id, *conditions)


def _page(statement: Select[Any], *order: Column[Any]) -> Select[Any]:
    return statement.order_by(*order).limit(b("count"))


def _after(column: Column[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select a page of a column's values behind `last`."""
    return _page(select(column).where(column > b("last"), *conditions), column)


def _due(name: Column[Any], since: Column[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Select and lock a page of what was due `before`; skips rows that another sweeper has locked."""
    found = select(name).where(since <= b("before"), *conditions)
    return _page(found, since).with_for_update(skip_locked=True)


def _chunks_between(column: Column[Any]) -> Select[Any]:
    """Select a column of a part's chunks from number `first` to before `end`."""
    numbers = (chunks.c.chunk >= b("first"), chunks.c.chunk < b("end"))
    return select(chunks.c.chunk, column).where(_part(chunks), *numbers).order_by(chunks.c.chunk)


def _set(table: Table, *conditions: ColumnElement[bool], **values: Any) -> Update:
    return update(table).where(*conditions).values(**values)


def _if_new(**keys: Column[Any]) -> Insert:
    """Return an INSERT of a row that is only its key, which does nothing if the row exists."""
    [table] = {column.table for column in keys.values()}
    row = select(*(b(name, type_=column.type) for name, column in keys.items()))
    there = exists().where(*(column == b(name) for name, column in keys.items()))
    return insert(table).from_select(list(keys.values()), row.where(~there))


# Users and sessions
FIND_API_KEY: Final = select(api_keys).where(api_keys.c.key_hash == b("hash"))
ANY_API_KEY: Final = select(func.count()).select_from(api_keys)
ADD_API_KEY: Final = insert(api_keys)
USE_API_KEY: Final = _set(
    api_keys,
    api_keys.c.key_hash == b("hash"),
    api_keys.c.last_used_at.is_(None) | (api_keys.c.last_used_at < b("used")),
    last_used_at=b("used"),
)
# A group has a row of `users` as well. Statements about people leave it out.
IS_USER: Final = users.c.group_version.is_(None)
FIND_USER: Final = select(users).where(users.c.id == b("id"), IS_USER)
# Users and groups: what access lists name.
FIND_USERS: Final = select(users).where(_among(users.c.id, "ids"))
LOCK_USER: Final = FIND_USER.with_for_update()
# A shared lock: until the transaction ends, these users are not deleted and their keys do not change. Several
# transactions may hold it, and LOCK_LOG is not blocked.
SHARE_USERS: Final = FIND_USERS.with_for_update(read=True, key_share=True)
SET_USER: Final = update(users).where(users.c.id == b("user"))
SIGNED_UNTIL: Final = _set(
    users, users.c.id == b("user"), users.c.signed_until < b("time"), signed_until=b("until")
)
ADD_USER: Final = insert(users)
ADD_KEY_RECORDS: Final = insert(key_records)
KEY_CHAIN: Final = _page(
    select(key_records.c.body, key_records.c.signature).where(
        key_records.c.user_id == b("user_id"), key_records.c.sequence >= b("from")
    ),
    key_records.c.sequence,
)
ADD_KEY_FILE: Final = insert(key_files)
FIND_KEY_FILE: Final = select(key_files).where(key_files.c.user_id == b("user_id"))
DROP_KEY_FILE: Final = delete(key_files).where(_user(key_files))
COUNT_USERS: Final = select(func.count()).select_from(users).where(~users.c.deleted, IS_USER)
COUNT_KEY_FILES: Final = select(func.count()).select_from(key_files)
KEY_FILES_AFTER: Final = (
    select(key_files)
    .where(key_files.c.user_id > b("last"))
    .order_by(key_files.c.user_id)
    .limit(b("count"))
)
# Only if the KeyFile is still the one that was opened: its user may have replaced it meanwhile.
RESEAL_KEY_FILE: Final = _set(
    key_files,
    (key_files.c.user_id == b("user")) & (key_files.c.key_file == b("old")),
    key_file=b("new_key_file"),
    verifier=b("new_verifier"),
)
FIND_REMINDER: Final = select(key_files.c.reminder).where(key_files.c.user_id == b("user_id"))
ADD_SESSION: Final = insert(sessions)
FIND_SESSION: Final = (
    select(users.c.id, users.c.fingerprint, users.c.chain_length, sessions.c.expires_at)
    .join(sessions, sessions.c.user_id == users.c.id)
    .where(sessions.c.token_hash == b("token_hash"), ~users.c.deleted, IS_USER)
)
END_SESSION: Final = delete(sessions).where(sessions.c.token_hash == b("hash"))
END_OTHER_SESSIONS: Final = delete(sessions).where(
    _user(sessions), sessions.c.token_hash != b("kept")
)
END_SESSIONS: Final = delete(sessions).where(_user(sessions))
END_OLD_SESSIONS: Final = delete(sessions).where(sessions.c.expires_at <= b("now"))
FIND_NONCE: Final = select(nonces.c.nonce_hash).where(nonces.c.nonce_hash == b("hash"))
ADD_NONCE: Final = insert(nonces)
FORGET_NONCES: Final = delete(nonces).where(nonces.c.expires_at <= b("now"))
FIND_GUESSES: Final = select(guesses).where(guesses.c.bucket == b("key")).with_for_update()
ADD_GUESSES: Final = insert(guesses)
SET_GUESSES: Final = update(guesses).where(guesses.c.bucket == b("key"))
# Add `more` to the counter; if its window has expired, restart it.
COUNT_MORE: Final = _set(
    guesses,
    guesses.c.bucket == b("key"),
    guesses=case((guesses.c.ends_at <= b("now"), 0), else_=guesses.c.guesses) + b("more"),
    ends_at=case((guesses.c.ends_at <= b("now"), b("ends")), else_=guesses.c.ends_at),
).returning(guesses.c.guesses, guesses.c.ends_at)
FORGET_GUESSES: Final = delete(guesses).where(guesses.c.ends_at <= b("now"))

# Blocked users: `blocked` cannot give `user` access.
ADD_BLOCK: Final = _if_new(user=blocks.c.user_id, blocked=blocks.c.blocked_id)
DROP_BLOCK: Final = delete(blocks).where(_user(blocks), blocks.c.blocked_id == b("blocked"))
COUNT_BLOCKS: Final = select(func.count()).select_from(blocks).where(_user(blocks))
BLOCKED_BY: Final = select(blocks.c.blocked_id).where(_user(blocks)).order_by(blocks.c.blocked_id)
# Which of some users have blocked a user.
BLOCKING: Final = select(blocks.c.user_id).where(
    _among(blocks.c.user_id), blocks.c.blocked_id == b("blocked")
)

# Containers
FIND_CONTAINER: Final = select(containers).where(containers.c.id == b("id"))
LOCK_CONTAINER: Final = FIND_CONTAINER.with_for_update(key_share=True)
_CONTAINERS: Final = select(containers).where(_among(containers.c.id)).order_by(containers.c.id)
LOCK_CONTAINERS: Final = _CONTAINERS.with_for_update(key_share=True)
ADD_CONTAINER: Final = insert(containers)
SET_CONTAINER: Final = update(containers).where(containers.c.id == b("container"))
ADD_RECORD: Final = insert(records)
ADD_AUTHOR: Final = _if_new(container=authors.c.container_id, user=authors.c.user_id)
FIND_RECORD: Final = select(records).where(_container(records), records.c.version == b("number"))
GOVERNING: Final = _page(
    select(records.c.version, records.c.body).where(
        _container(records), records.c.governing, records.c.version.between(b("from"), b("to"))
    ),
    records.c.version,
)
GOVERNING_AT: Final = select(func.max(records.c.version)).where(
    _container(records), records.c.governing, records.c.version <= b("number")
)
BODIES: Final = _page(
    select(
        records.c.version,
        records.c.governing,
        records.c.body,
        func.length(records.c.signature).label("signature_size"),
    ).where(_container(records), records.c.version >= b("from"), records.c.version < b("to")),
    records.c.version,
)
# Consecutive records with their signatures.
WHOLE_RECORDS: Final = _page(
    select(records.c.version, records.c.body, records.c.signature).where(
        _container(records), records.c.version >= b("from")
    ),
    records.c.version,
)
ADD_LIST: Final = insert(access_lists)
FIND_LIST: Final = select(access_lists.c.entries).where(
    _container(access_lists), access_lists.c.access_version == b("number")
)
_LIST_IN_FORCE: Final = _of_container(
    access_lists, access_lists.c.access_version == containers.c.access_version
)
# The access list in force of each container.
LISTS_IN_FORCE: Final = (
    select(access_lists).join(containers, _LIST_IN_FORCE).where(_among(containers.c.id))
)
LIST_VERSIONS: Final = select(access_lists.c.access_version).where(_container(access_lists))
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
RECORD_SIZES_IN: Final = RECORD_SIZES.where(_among(records.c.container_id, "some"))
SET_LIST: Final = update(access_lists).where(
    _container(access_lists), access_lists.c.access_version == b("number")
)
ADD_DEPARTURE: Final = insert(departures)
_OF_LIST: Final = _container(departures) & (departures.c.access_version == b("number"))
DEPARTURES: Final = select(departures.c.user_id, departures.c.body, departures.c.signature).where(
    _OF_LIST
)
FIND_DEPARTURE: Final = DEPARTURES.where(_user(departures))
COUNT_DEPARTURES: Final = select(func.count()).select_from(departures).where(_OF_LIST)
DEPARTURE_LISTS: Final = (
    select(departures.c.access_version).where(_container(departures)).distinct()
)
_FROM_LIST_IN_FORCE: Final = _of_container(
    departures, departures.c.access_version == containers.c.access_version
)
# The departures from the access list in force of each container.
DEPARTURES_IN_FORCE: Final = (
    select(departures).join(containers, _FROM_LIST_IN_FORCE).where(_among(containers.c.id))
)
# After a deletion: the departures of all but the authors.
DROP_DEPARTURES: Final = delete(departures).where(
    _OF_LIST, departures.c.user_id.not_in(b("kept_users", expanding=True))
)
ADD_MEMBERS: Final = insert(members)
_UNEXPIRED: Final = members.c.expires_at.is_(None) | (members.c.expires_at > b("now"))
_EXPIRED: Final = (
    members.c.expires_at <= b("now")
) & ~members.c.expiry_recorded  # not in the log yet
FIND_MEMBER: Final = select(members).where(_container(members), _user(members))
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
            _user(membership),
            ~membership.c.gone,
            membership.c.accepted,
            ~group.c.deleted,
            _is_entry(entry, container),
        )
        .order_by(count.desc(), membership.c.group_id)
        .limit(1)
    )
    found = select(own.c.user_id).where(_user(own), _is_entry(own, container))
    return func.coalesce(
        b("named", type_=LargeBinary()),
        found.correlate(containers).scalar_subquery(),
        best.correlate(containers).scalar_subquery(),
        b("user", type_=LargeBinary()),
    )


def _with_member(container: Any) -> Select[Any]:
    """Select a container, its head record, and the entry that serves a user, as `_reader` says.

    The permissions of a group's entry are cut by the user's role. `through` is the name of this group, and
    NULL for the user's own entry. `managing` are the permissions of a manager of this group, 0 for others.
    """
    membership = and_(
        _MEMBERSHIP.c.group_id == members.c.user_id, _user(_MEMBERSHIP), ~_MEMBERSHIP.c.gone
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
                members, _of_container(members, members.c.user_id == _reader(container))
            )
            .join(records, _of_container(records, records.c.version == containers.c.version))
            .outerjoin(_MEMBERSHIP, membership)
            .outerjoin(_THROUGH, and_(_THROUGH.c.id == _MEMBERSHIP.c.group_id, ~_THROUGH.c.deleted))
        )
        .where(_user(members) | _THROUGH.c.id.is_not(None))
    )


# Of one container: with the parameter in the subqueries, PostgreSQL looks its members up by their key.
_WITH_MEMBER: Final = _with_member(b("container"))
_GOVERNING_HEAD: Final = records.alias("governing")
_CREATOR: Final = users.alias("creator")
_ONE_PART: Final = parts.alias("one_part")
_OTHER_PART: Final = parts.alias("other_part")


def _in_force(first: Any) -> Any:
    """Return a subquery for the first part that the head references; it is empty unless `wanted`."""
    found = select(parts.c.part_id).where(
        _container(parts),
        parts.c.committed,
        parts.c.replaced_at.is_(None),
        b("wanted", type_=Boolean()),
    )
    return found.order_by(first).limit(1).scalar_subquery()


# Everything that a view of the head may contain: the governing record if it is another one, the access list
# if it is short, the lengths of the reader's and the creator's key chains, and the bytes of inline parts.
CONTAINER_AT_ONCE: Final = (
    _WITH_MEMBER.add_columns(
        _GOVERNING_HEAD.c.body.label("governing_body"),
        _GOVERNING_HEAD.c.signature.label("governing_signature"),
        access_lists.c.entries,
        exists().where(_FROM_LIST_IN_FORCE).label("somebody_left"),
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
        _of_container(
            _GOVERNING_HEAD,
            _GOVERNING_HEAD.c.version == containers.c.governing_version,
            containers.c.governing_version != containers.c.version,
        ),
    )
    .outerjoin(
        access_lists, and_(_LIST_IN_FORCE, func.length(access_lists.c.entries) <= _SHORT_LIST)
    )
    .where(containers.c.id == b("container"))
)
CONTAINER_AND_MEMBER: Final = _WITH_MEMBER.where(containers.c.id == b("container"))
CONTAINERS_AND_MEMBER: Final = _with_member(containers.c.id).where(_among(containers.c.id))
# A user's containers in the order of ids. LISTED_OF_TYPE finds only containers whose type the user may see.
# `below` limits the key index of the entry: of a group's, to those of epochs that have ended.
LISTED_CONTAINERS: Final = _after(
    members.c.container_id, _user(members), LISTED, _UNEXPIRED, members.c.key_index < b("below")
)
LISTED_OF_TYPE: Final = LISTED_CONTAINERS.where(members.c.type == b("type"))
MEMBERS: Final = select(members).where(_container(members))
# Another user or group with unexpired access that was not deleted. A group is deleted with its last member.
ANOTHER_MEMBER: Final = (
    select(members.c.user_id)
    .join(users, users.c.id == members.c.user_id)
    .where(_container(members), members.c.user_id != b("user"), _UNEXPIRED, ~users.c.deleted)
    .limit(1)
)
# Members with ViewType have a copy of the container's type in their row.
SET_TYPE_OF_MEMBERS: Final = _set(
    members,
    _container(members),
    members.c.permissions.bitwise_and(int(ContainerAccessLevel.ViewType)) > 0,
    type=b("text"),
)
DROP_MEMBERS: Final = delete(members).where(_container(members))
# Members whose wrap of the container key is for a key that they have replaced.
MOVED_RECIPIENTS: Final = (
    select(users.c.id, users.c.chain_length)
    .join(members, members.c.user_id == users.c.id)
    .where(
        _container(members),
        members.c.wrap.is_not(None),
        members.c.key_index < users.c.encryption_index,
        ~users.c.deleted,
        IS_USER,
    )
    .order_by(users.c.id)
)
# Groups with a wrap of the container key, and the epoch that it is for. A deleted group keeps its last epoch.
GROUPS_WITH_WRAP: Final = (
    select(users.c.id, users.c.group_version, users.c.encryption_index, members.c.key_index)
    .join(members, members.c.user_id == users.c.id)
    .where(_container(members), members.c.wrap.is_not(None), ~IS_USER)
    .order_by(users.c.id)
)
CLAIM_EXPIRED: Final = _set(
    members, _among(members.c.container_id), _EXPIRED, expiry_recorded=True
).returning(members.c.container_id, members.c.user_id, members.c.permissions, members.c.expires_at)
EXPIRED_OF_USER: Final = _page(
    select(members.c.container_id).where(_user(members), _EXPIRED), members.c.expires_at
)
NEXT_EXPIRY: Final = (
    select(members.c.expires_at)
    .where(_user(members), members.c.expires_at.is_not(None), ~members.c.expiry_recorded)
    .order_by(members.c.expires_at)
    .limit(1)
)
EXPIRED_IN: Final = select(members.c.container_id).where(_among(members.c.container_id), _EXPIRED)
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
    .where(_group(group_members), _user(group_members), ~group_members.c.gone, ~users.c.deleted)
)
# All members, and whether these users were deleted.
GROUP_MEMBERS: Final = (
    select(group_members, users.c.deleted)
    .join(users, users.c.id == group_members.c.user_id)
    .where(_group(group_members))
)
_GROUP: Final = users.alias("a_group")
# The groups of a user that are not deleted, in the order of ids.
GROUPS_OF_USER: Final = (
    select(group_members.c.group_id, group_members.c.accepted, _GROUP.c.group_version)
    .join(_GROUP, _GROUP.c.id == group_members.c.group_id)
    .where(
        _user(group_members),
        ~group_members.c.gone,
        group_members.c.group_id > b("last"),
        ~_GROUP.c.deleted,
    )
    .order_by(group_members.c.group_id)
    .limit(b("count"))
)
ACCEPTED_GROUPS: Final = (
    select(group_members.c.group_id)
    .join(_GROUP, _GROUP.c.id == group_members.c.group_id)
    .where(_user(group_members), group_members.c.accepted, ~group_members.c.gone, ~_GROUP.c.deleted)
)
ADD_GROUP_MEMBERS: Final = insert(group_members)
SET_GROUP_MEMBER: Final = update(group_members).where(_group(group_members), _user(group_members))
DROP_GROUP_MEMBER: Final = delete(group_members).where(_group(group_members), _user(group_members))
ADD_ROSTER: Final = insert(rosters)
# The roster in force at a version of the group's container.
ROSTER_AT: Final = (
    select(rosters)
    .where(_group(rosters), rosters.c.version <= b("number"))
    .order_by(rosters.c.version.desc())
    .limit(1)
)
# The version that began the epoch after one.
END_OF_EPOCH: Final = (
    select(rosters.c.version)
    .where(_group(rosters), rosters.c.epoch > b("epoch"))
    .order_by(rosters.c.version)
    .limit(1)
)
ROSTERS: Final = _page(
    select(rosters).where(_group(rosters), rosters.c.version >= b("from")), rosters.c.version
)
ADD_LEAVES: Final = insert(leaves)
_STANDS: Final = (leaves.c.version <= b("number")) & (leaves.c.until > b("number"))
# The leaves of the roster in force at a version.
LEAVES_AT: Final = (
    select(leaves.c.place, leaves.c.version, leaves.c.hash, leaves.c.salt, leaves.c.member)
    .where(_group(leaves), _STANDS)
    .order_by(leaves.c.place)
)
# `+ 0` keeps SQLite from searching all leaves in force for one place.
_END: Final = leaves.c.until + 0
LEAF_AT: Final = select(leaves.c.member).where(
    _group(leaves), leaves.c.place == b("leaf"), leaves.c.version <= b("number"), b("number") < _END
)
END_LEAF: Final = _set(
    leaves, _group(leaves), leaves.c.place == b("leaf"), _END == LATEST, until=b("number")
)
FIND_INFO: Final = select(group_infos).where(_group(group_infos))
# The departures from a group's roster in force.
GROUP_DEPARTURES: Final = select(
    group_members.c.departure, group_members.c.departure_signature
).where(_group(group_members), group_members.c.departure.is_not(None))
OWN_GROUP_DEPARTURE: Final = GROUP_DEPARTURES.where(_user(group_members))
# Joins a member with the row of this user if an epoch is owed for the member.
_OWES: Final = (users.c.id == group_members.c.user_id) & (
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
    .join(users, _OWES)
    .where(_group(group_members))
    .order_by(group_members.c.user_id)
)
# Which of some groups owe an epoch and have the user as a manager.
_MANAGER: Final = group_members.alias("manager")
OWING: Final = (
    select(_MANAGER.c.group_id)
    .where(
        _among(_MANAGER.c.group_id),
        _user(_MANAGER),
        ~_MANAGER.c.gone,
        _MANAGER.c.permissions > 0,
        exists().where(group_members.c.group_id == _MANAGER.c.group_id).where(_OWES),
    )
    .order_by(_MANAGER.c.group_id)
)
# The managers of some groups.
MANAGERS: Final = select(group_members.c.group_id, group_members.c.user_id).where(
    _among(group_members.c.group_id), group_members.c.permissions > 0
)
COUNT_MEMBERS: Final = (
    select(group_members.c.group_id, func.count().label("members"))
    .where(_among(group_members.c.group_id), ~group_members.c.gone)
    .group_by(group_members.c.group_id)
)
ADD_GROUP_AUTHOR: Final = _if_new(
    container=group_authors.c.container_id,
    group=group_authors.c.group_id,
    user=group_authors.c.user_id,
)
GROUP_AUTHORS_IN: Final = select(group_authors.c.group_id, group_authors.c.user_id).where(
    _among(group_authors.c.container_id)
)
DROP_GROUP_AUTHOR: Final = delete(group_authors).where(
    _container(group_authors), _group(group_authors), _user(group_authors)
)
ADD_INFO: Final = insert(group_infos)
DROP_INFO: Final = delete(group_infos).where(_group(group_infos))

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
).where(_part(parts))
LOCK_PART: Final = FIND_PART.with_for_update()
PARTS_TAKEN: Final = select(parts.c.part_id).where(_among(parts.c.part_id))
PARTS_INLINE: Final = select(parts.c.part_id, parts.c.inline).where(_among(parts.c.part_id))
PART_HASHES: Final = select(parts.c.hashes).where(_part(parts))
_UNFINISHED: Final = _user(parts) & ~parts.c.committed & (parts.c.touched_at > 0)
_IS_OWN: Final = parts.c.session == b("session")


def _sum(number: Any) -> Any:
    return func.coalesce(func.sum(number), 0)


def _reserved(condition: ColumnElement[bool]) -> Any:
    """Return a subquery for the bytes of objects that a user may be storing."""
    found = select(_sum(pending_blobs.c.size)).where(_user(pending_blobs), condition)
    return found.scalar_subquery()


# A user's unfinished uploads with objects that running sessions may be storing, and those of one session
# among them.
UNFINISHED_PARTS: Final = select(
    func.count().label("parts"),
    (
        _sum(parts.c.received)
        + _reserved(
            exists().where(
                sessions.c.token_hash == pending_blobs.c.session, sessions.c.expires_at > b("now")
            )
        )
    ).label("received"),
    _sum(case((_IS_OWN, 1), else_=0)).label("own_parts"),
    (
        _sum(case((_IS_OWN, parts.c.received), else_=0))
        + _reserved(pending_blobs.c.session == b("session"))
    ).label("own_received"),
).where(_UNFINISHED)
UNFINISHED_OF_ENDED_SESSIONS: Final = (
    select(parts.c.part_id, parts.c.received)
    .where(
        _UNFINISHED,
        ~exists().where(sessions.c.token_hash == parts.c.session, sessions.c.expires_at > b("now")),
    )
    .order_by(parts.c.touched_at)
)
CLAIM_PART: Final = _set(parts, _part(parts), session=b("session"), touched_at=b("now"))
# The sweeper deletes dropped parts. Until then a further chunk makes one an unfinished upload again.
DROP_UNFINISHED: Final = _set(
    parts, _among(parts.c.part_id, "gone"), ~parts.c.committed, touched_at=0
)
TOUCH_PART: Final = _set(
    parts, _part(parts), touched_at=b("now"), received=parts.c.received + b("more")
)
COMMIT_PART: Final = _set(
    parts, _part(parts), committed=True, hashes=b("all_hashes"), received=b("size")
)
# Uploads by users without access stay until they are abandoned: otherwise these would notice the deletion.
DROP_CONTAINER_PARTS: Final = _set(
    parts,
    _container(parts),
    parts.c.committed | parts.c.user_id.in_(select(members.c.user_id).where(_container(members))),
    replaced_at=0,
)
REPLACE_PARTS: Final = _set(parts, _among(parts.c.part_id, "replaced"), replaced_at=b("now"))
COUNT_CHUNKS: Final = select(
    func.count().label("arrived"), func.max(chunks.c.chunk).label("last")
).where(_part(chunks))
CHUNKS: Final = select(chunks).where(_part(chunks)).order_by(chunks.c.chunk)
FIND_CHUNK: Final = select(chunks).where(_part(chunks), chunks.c.chunk == b("number"))
CHUNK_BLOBS: Final = _chunks_between(chunks.c.blob)
CHUNK_HASHES: Final = _chunks_between(chunks.c.chunk_hash)
ADD_CHUNK: Final = insert(chunks)
DROP_CHUNK: Final = delete(chunks).where(_part(chunks), chunks.c.chunk == b("number"))
BLOBS_IN: Final = _page(
    select(chunks.c.part_id, chunks.c.chunk, chunks.c.blob).where(_among(chunks.c.part_id, "gone")),
    chunks.c.part_id,
    chunks.c.chunk,
)
DROP_CHUNKS: Final = delete(chunks).where(_among(chunks.c.part_id, "gone"))
DROP_CHUNKS_TO: Final = delete(chunks).where(_part(chunks), chunks.c.chunk <= b("number"))
DROP_PARTS: Final = (
    delete(parts)
    .where(_among(parts.c.part_id, "gone"))
    .returning(parts.c.user_id, parts.c.received)
)
REPLACED_PARTS: Final = _due(parts.c.part_id, parts.c.replaced_at)
ABANDONED_PARTS: Final = _due(parts.c.part_id, parts.c.touched_at, ~parts.c.committed)
ADD_PENDING_BLOBS: Final = insert(pending_blobs)
# Object names pending deletion. Remove the mark only if it is still the one that we set: another transaction
# may have claimed or postponed it.
_MARKED: Final = (pending_blobs.c.name == b("blob")) & (pending_blobs.c.since == b("marked"))
KEEP_BLOB: Final = delete(pending_blobs).where(_MARKED).returning(pending_blobs.c.size)
# The object is due now, and its charge stays until it is deleted.
HASTEN_BLOB: Final = _set(pending_blobs, _MARKED, since=0)
PENDING_BLOBS: Final = _due(pending_blobs.c.name, pending_blobs.c.since)
# -1 marks a claimed name, from which on no row may reference it. If the sweeper stops, it is swept first.
CLAIM_BLOBS: Final = _set(pending_blobs, _among(pending_blobs.c.name, "names"), since=-1)
FIND_PENDING_BLOB: Final = select(pending_blobs.c.since).where(pending_blobs.c.name == b("blob"))
POSTPONE_BLOB: Final = _set(pending_blobs, pending_blobs.c.name == b("blob"), since=b("later"))
FORGET_BLOBS: Final = (
    delete(pending_blobs)
    .where(_among(pending_blobs.c.name, "names"))
    .returning(pending_blobs.c.user_id, pending_blobs.c.size)
)

# Usage and quotas


def _effective(quota: Column[Any], kind: str) -> ColumnElement[Any]:
    """Return a user's own quota, or the default, or NULL if neither is set."""
    default = select(default_quotas.c.value).where(default_quotas.c.kind == kind)
    return func.coalesce(quota, default.scalar_subquery()).label(quota.name)


QUOTAS: Final = (
    _effective(usage.c.quota_bytes, "bytes"),
    _effective(usage.c.quota_containers, "containers"),
)
CHARGE: Final = _set(
    usage,
    _user(usage),
    bytes=usage.c.bytes + b("more_bytes"),
    containers=usage.c.containers + b("more_containers"),
).returning(usage.c.bytes, usage.c.containers, *QUOTAS)
ADD_USAGE: Final = insert(usage)
# A user without a row of usage has used nothing.
FIND_USAGE: Final = (
    select(
        func.coalesce(usage.c.bytes, 0).label("bytes"),
        func.coalesce(usage.c.containers, 0).label("containers"),
        *QUOTAS,
    )
    .select_from(users)
    .outerjoin(usage, usage.c.user_id == users.c.id)
    .where(users.c.id == b("user"))
)
DROP_UNUSED_USAGE: Final = delete(usage).where(
    _user(usage), usage.c.bytes == 0, usage.c.containers == 0
)

FIND_CHECK: Final = select(checks.c.value).where(checks.c.name == b("check"))
FIND_CHECKS: Final = select(checks).where(_among(checks.c.name, "names")).order_by(checks.c.name)
SHARE_CHECK: Final = FIND_CHECK.with_for_update(read=True)
LOCK_CHECK: Final = FIND_CHECK.with_for_update()
ADD_CHECK: Final = insert(checks)
DROP_CHECK: Final = delete(checks).where(checks.c.name == b("check"))
SET_CHECK: Final = update(checks).where(checks.c.name == b("check"))

# The audit log
ADD_AUDIT: Final = insert(audit)
LAST_AUDIT: Final = select(audit).order_by(audit.c.id.desc()).limit(1)
LAST_AUDIT_OF: Final = LAST_AUDIT.where(_among(audit.c.action, "actions"))
AUDIT_AFTER: Final = _page(select(audit).where(audit.c.id > b("after_id")), audit.c.id)

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
# Returns no row if another transaction has locked the log.
LOCK_LOG_IF_FREE: Final = ENDS_OF_LOG.with_for_update(key_share=True, skip_locked=True)
UNNUMBERED: Final = _page(
    select(events.c.row_id).where(_user(events), events.c.id.is_(None)), events.c.row_id
)
NUMBER_EVENT: Final = _set(events, events.c.row_id == b("row"), _user(events), id=b("number"))
# Old events of all users by date; `date` and `row` are the position where the last page ended.
OLD_EVENTS: Final = _page(
    select(events.c.user_id, events.c.id, events.c.date, events.c.row_id).where(
        events.c.date <= b("before"),
        tuple_(events.c.date, events.c.row_id) > tuple_(b("date"), b("row")),
    ),
    events.c.date,
    events.c.row_id,
)
FIRST_EVENTS: Final = _page(
    select(events).where(_user(events), events.c.id >= b("from")), events.c.id
)
DROP_EVENTS: Final = delete(events).where(_user(events), events.c.id < b("to"))
FIND_ACCESS: Final = select(accesses).where(_container(accesses), _user(accesses))
ADD_ACCESS: Final = insert(accesses)
SET_ACCESS: Final = update(accesses).where(_container(accesses), _user(accesses))

# Deleted containers: everything that does not prove the deletion is removed, in short transactions.
DROP_EXPIRED_MEMBERS: Final = delete(members).where(
    _container(members), members.c.expires_at <= b("now")
)
EMPTY_MEMBERS: Final = _set(
    members, _container(members), permissions=0, key_index=0, expires_at=None, wrap=None, type=None
)
# The groups of a list that still have a row of `members`: their members get the tombstone.
GROUPS_AMONG_MEMBERS: Final = (
    select(members.c.user_id)
    .join(users, users.c.id == members.c.user_id)
    .where(_container(members), ~IS_USER)
    .order_by(members.c.user_id)
)
ADD_PURGE: Final = insert(containers_to_purge)
# Containers with events in another user's log that are not pending a purge already.
IN_OTHER_LOGS: Final = (
    select(events.c.container_id)
    .where(
        _among(events.c.container_id),
        events.c.user_id != b("user"),
        ~exists().where(containers_to_purge.c.container_id == events.c.container_id),
    )
    .distinct()
)
FIND_PURGE: Final = select(containers_to_purge).where(_container(containers_to_purge))
LOCK_PURGE: Final = FIND_PURGE.with_for_update()
SET_PURGE: Final = update(containers_to_purge).where(_container(containers_to_purge))
DROP_PURGE: Final = delete(containers_to_purge).where(_container(containers_to_purge))
PURGES: Final = _after(containers_to_purge.c.container_id)
SET_BODY: Final = update(records).where(_container(records), records.c.version == b("number"))
DROP_RECORDS: Final = delete(records).where(
    _container(records), _among(records.c.version, "versions")
)
ACCESSES_TO: Final = select(accesses.c.user_id).where(_container(accesses)).limit(b("count"))
NEXT_LOG_WITH: Final = _after(events.c.user_id, _container(events)).limit(1)
EVENTS_TO_EMPTY: Final = (
    select(events)
    .where(
        _container(events), _user(events), events.c.version > 0, events.c.version != b("deletion")
    )
    .limit(b("count"))
)
EMPTY_EVENT: Final = _set(
    events,
    _user(events),
    events.c.row_id == b("row"),
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

# Deleted users: everything that only they need is removed, in short transactions. `some` are containers.
END_USER: Final = (
    delete(key_files).where(_user(key_files)),
    END_SESSIONS,
    _set(parts, _user(parts), ~parts.c.committed, touched_at=0),
)
ADD_PENDING_USER: Final = _if_new(user=pending_users.c.user_id)
DROP_GUESSES: Final = delete(guesses).where(_among(guesses.c.bucket, "buckets"))
FIND_PENDING_USER: Final = select(pending_users).where(_user(pending_users))
LOCK_PENDING_USER: Final = FIND_PENDING_USER.with_for_update()
PENDING_USERS: Final = _after(pending_users.c.user_id)
FORGET_USER: Final = delete(pending_users).where(_user(pending_users))
_CONTAINERS_OF_MEMBER: Final = (
    select(members.c.container_id).where(_user(members)).limit(b("count"))
)
CONTAINERS_OF_MEMBER: Final = _CONTAINERS_OF_MEMBER.where(LISTED)
CONTAINERS_LEFT_TO_MEMBER: Final = _CONTAINERS_OF_MEMBER.where(~LISTED)  # deleted, or expired
CONTAINERS_OF_CREATOR: Final = (
    select(containers.c.id).where(containers.c.creator_id == b("user")).limit(b("count"))
)
# Containers with a record that the user signed and without unexpired members.
CONTAINERS_OF_AUTHOR: Final = (
    select(authors.c.container_id)
    .where(
        _user(authors),
        ~exists()
        .where(members.c.container_id == authors.c.container_id, _UNEXPIRED)
        .where(users.c.id == members.c.user_id, ~users.c.deleted),
        # The container of a group has no rows of `members`: it is deleted with the group.
        ~exists().where(containers.c.id == authors.c.container_id, containers.c.is_group),
    )
    .limit(b("count"))
)
# Containers with a living entry besides one: unexpired, of a user or group that was not deleted.
WITH_OTHER_MEMBERS: Final = (
    select(members.c.container_id)
    .join(users, users.c.id == members.c.user_id)
    .where(
        _among(members.c.container_id), members.c.user_id != b("user"), _UNEXPIRED, ~users.c.deleted
    )
    .distinct()
)
# Containers of groups whose records are kept.
KEPT_GROUPS: Final = select(users.c.id).where(
    _among(users.c.id), ~IS_USER, users.c.fingerprint.is_not(None)
)
AUTHORS_IN: Final = select(authors.c.user_id).where(_among(authors.c.container_id)).distinct()
DROP_AUTHOR: Final = delete(authors).where(_container(authors), _user(authors))
ANY_CONTAINER_OF_AUTHOR: Final = select(authors.c.container_id).where(_user(authors)).limit(1)
DROP_KEY_RECORDS: Final = delete(key_records).where(_user(key_records))
PURGE_CONTAINERS: Final = (
    *(
        delete(table).where(_among(table.c.container_id))
        for table in (records, access_lists, departures, members, accesses, authors, group_authors)
    ),
    _set(parts, _among(parts.c.container_id), parts.c.committed, replaced_at=0),
    _set(containers, _among(containers.c.id), deleted=True, type=None, type_salt=None, groups=None),
)
DROP_CONTAINERS: Final = delete(containers).where(_among(containers.c.id))
FORGET_CREATOR: Final = _set(containers, _among(containers.c.id), creator_id=None)
# One row for each execution: with several in one statement, PostgreSQL reads all rows of the user.
DROP_MEMBER: Final = delete(members).where(_container(members), _user(members))
ACCESSES_OF_USER: Final = select(accesses.c.container_id).where(_user(accesses)).limit(b("count"))
DROP_ACCESS: Final = delete(accesses).where(_container(accesses), _user(accesses))
BLOCKED_BY_USER: Final = select(blocks.c.blocked_id).where(_user(blocks)).limit(b("count"))
BLOCKING_USER: Final = (
    select(blocks.c.user_id).where(blocks.c.blocked_id == b("user")).limit(b("count"))
)
DROP_BLOCK_OF: Final = delete(blocks).where(
    blocks.c.user_id == b("blocking"), blocks.c.blocked_id == b("user")
)
EVENTS_OF_USER: Final = select(events.c.row_id).where(_user(events)).limit(b("count"))
DROP_EVENT: Final = delete(events).where(events.c.row_id == b("row"), _user(events))

# Deleted groups. What readers need stays, until no container has a record that was made through the group,
# or an entry of it.
GROUPS_OF_MEMBER: Final = (
    select(group_members.c.group_id)
    .where(_user(group_members), ~group_members.c.gone)
    .limit(b("count"))
)
ANY_LIVING_MEMBER: Final = (
    select(group_members.c.user_id)
    .join(users, users.c.id == group_members.c.user_id)
    .where(_group(group_members), ~group_members.c.gone, ~users.c.deleted)
    .limit(1)
)
ANY_GROUP_DEPARTURE: Final = (
    select(group_members.c.group_id)
    .where(_user(group_members), group_members.c.departure.is_not(None))
    .limit(1)
)
_OTHER_ENTRY: Final = members.alias("other_entry")
# A container that the group can change or delete, and nobody else can reach.
STRANDED: Final = (
    select(members.c.container_id)
    .where(
        members.c.user_id == b("group"),
        LISTED,
        _UNEXPIRED,
        members.c.permissions.bitwise_and(
            int(ContainerAccessLevel.ModifyAccess | ContainerAccessLevel.Delete)
        )
        > 0,
        ~exists()
        .where(_OTHER_ENTRY.c.container_id == members.c.container_id)
        .where(_OTHER_ENTRY.c.user_id != members.c.user_id)
        .where(_OTHER_ENTRY.c.expires_at.is_(None) | (_OTHER_ENTRY.c.expires_at > b("now")))
        .where(users.c.id == _OTHER_ENTRY.c.user_id, ~users.c.deleted),
    )
    .limit(1)
)
# Keep the row of a deleted group in a container's list, but list it no more.
SET_ASIDE: Final = _set(members, _container(members), _user(members), expiry_recorded=True)
ADD_PENDING_GROUP: Final = _if_new(group=pending_groups.c.group_id)
LOCK_PENDING_GROUP: Final = select(pending_groups).where(_group(pending_groups)).with_for_update()
PENDING_GROUPS: Final = _after(pending_groups.c.group_id)
# Which of some groups are pending deletion.
PENDING_AMONG: Final = select(pending_groups.c.group_id).where(_among(pending_groups.c.group_id))
FORGET_GROUP: Final = delete(pending_groups).where(_group(pending_groups))
ANY_ENTRY_OF_GROUP: Final = (
    select(members.c.container_id)
    .where(members.c.user_id == b("group"), ~LISTED, members.c.permissions > 0)
    .limit(1)
)
ANY_AUTHOR_OF_GROUP: Final = select(group_authors.c.user_id).where(_group(group_authors)).limit(1)
AUTHORS_OF_GROUP: Final = select(group_authors.c.user_id).where(_group(group_authors)).distinct()
# Leaves whose places come after `leaf`, in their order.
LEAVES_BEHIND: Final = (
    select(leaves)
    .where(_group(leaves), leaves.c.place > b("leaf"))
    .order_by(leaves.c.place, leaves.c.version)
    .limit(b("count"))
)
LAST_PLACE: Final = select(func.max(leaves.c.place)).where(
    _group(leaves), leaves.c.place <= b("leaf")
)
NUMBER_LEAVES: Final = _set(
    leaves, _group(leaves), leaves.c.place == b("leaf"), place=b("position")
)
EMPTY_LEAF: Final = _set(
    leaves,
    _group(leaves),
    leaves.c.place == b("leaf"),
    leaves.c.version == b("number"),
    salt=None,
    member=None,
)
KEPT_LEAVES: Final = select(leaves).where(_group(leaves), leaves.c.member.is_not(None))
DROP_LEAF: Final = delete(leaves).where(
    _group(leaves), leaves.c.place == b("leaf"), leaves.c.version == b("number")
)
SHRINK_ROSTER: Final = _set(
    rosters, _group(rosters), rosters.c.version == b("number"), size=rosters.c.size - b("less")
).returning(rosters.c.author_id)
DROP_ROSTER: Final = delete(rosters).where(_group(rosters), rosters.c.version == b("number"))


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
