"""The database schema. UUIDs are 16 bytes, times are microseconds since 1970 in UTC.

docs/spec/container.md says what a container's rows contain; no column holds a plaintext or a private key.
No column lets somebody without the broker's key test a guess at a passphrase (docs/spec/keyfile.md, 3).
A change of a table needs a revision in `migrations/`: a test compares both.
"""

from functools import partial
from secrets import token_bytes
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    literal_column,
    text,
)
from sqlalchemy.schema import SchemaItem

from scbroker.wire.events import SALT_SIZE

metadata: Final = MetaData()

_RowId: Final = BigInteger().with_variant(Integer, "sqlite")


def _table(name: str, *items: SchemaItem, **options: Any) -> Table:
    return Table(name, metadata, *items, **options)


def _bytes(
    name: str, size: int | None = None, *, primary_key: bool = False, nullable: bool = False
) -> Column[bytes]:
    return Column(name, LargeBinary(size), primary_key=primary_key, nullable=nullable)


_id: Final = partial(_bytes, size=16)
_hash: Final = partial(_bytes, size=32)


def _number(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _partial(name: str, condition: ColumnElement[bool], *columns: Column[Any]) -> None:
    """Add an index of the rows that meet a condition."""
    Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


api_keys: Final = _table(
    "api_keys",
    _hash("key_hash", primary_key=True),
    Column("name", String(256), nullable=False),
    _number("created_at"),
    _number("expires_at", nullable=True),
    _number("last_used_at", nullable=True),  # rounded down to the minute
    _number("revoked_at", nullable=True),
)

users: Final = _table(
    "users",
    _id("id", primary_key=True),
    Column("fingerprint", LargeBinary(32)),  # None once no container needs a deleted user's keys
    _number("chain_length"),
    _number("encryption_index"),
    _number("signing_sequence"),  # of the key record that introduced the latest signing key
    # An upper bound on the times of the records that the user signed, at most a minute too high.
    _number("signed_until"),
    _number("registered_at"),
    Column("deleted", Boolean, nullable=False),
    _number("last_event"),
    _number("first_event"),
    _bytes("dropped_digest", nullable=True),
    _number("key_file_generation"),
    _number("suspended_at", nullable=True),
    Column("suspension_reason", String(256)),  # for the operator alone
    # The version of a group's head. A group has a row here, because access lists, events and expiry treat it
    # as a user: `fingerprint` is its name, `encryption_index` its latest epoch, and `signed_until` bounds the
    # times of the records that were made through it. NULL for a user.
    _number("group_version", nullable=True),
)

# Users who are blocked by `user_id`: their records cannot give that user access.
blocks: Final = _table(
    "blocks",
    _id("user_id", primary_key=True),
    _id("blocked_id", primary_key=True),
    Index("blocks_of_blocked", "blocked_id"),
)

# Deleted users whose rows may not all be removed yet.
pending_users: Final = _table("pending_users", _id("user_id", primary_key=True))

key_records: Final = _table(
    "key_records",
    _id("user_id", primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    _bytes("body"),
    _bytes("signature"),
)

key_files: Final = _table(
    "key_files",
    _id("user_id", primary_key=True),
    _bytes("key_file"),  # sealed under the broker's key: crypto.at_rest
    _hash("verifier"),
    Column("reminder", String(1024), nullable=False),
)

sessions: Final = _table(
    "sessions",
    _hash("token_hash", primary_key=True),
    _id("user_id"),
    _number("expires_at"),
    Index("sessions_of_user", "user_id"),
    Index("sessions_by_expiry", "expires_at"),
)

nonces: Final = _table(
    "nonces",
    _hash("nonce_hash", primary_key=True),
    _number("expires_at"),
    Index("nonces_by_expiry", "expires_at"),
)

guesses: Final = _table(
    "guesses",
    _hash("bucket", primary_key=True),
    _number("guesses"),
    _number("ends_at"),
    Index("guesses_by_end", "ends_at"),
)

containers: Final = _table(
    "containers",
    _id("id", primary_key=True),
    _number("version"),
    _number("governing_version"),
    _number("access_version"),
    # Bytes of the governing records with their lists, as `wire.containers.governing_size` counts them.
    _number("governing_bytes"),
    _bytes("type_salt", nullable=True),
    Column("type", String(256)),
    Column("deleted", Boolean, nullable=False),
    Column("creator_id", LargeBinary(16)),
    # The ids of the groups in the access list in force, concatenated; NULL without any.
    _bytes("groups", nullable=True),
    Column("is_group", Boolean),  # true for the container of a group's records, else NULL
    Index("containers_of_creator", "creator_id"),
)

# The users other than the creator who signed a record of a container. When a creator is deleted, a row is
# added here: these rows say which deleted users' public keys are still needed.
authors: Final = _table(
    "authors",
    _id("container_id", primary_key=True),
    _id("user_id", primary_key=True),
    Index("authors_of_user", "user_id"),
)

records: Final = _table(
    "records",
    _id("container_id", primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("governing", Boolean, nullable=False),
    _bytes("body"),
    _bytes("signature"),
)
Index(
    "records_governing",
    records.c.container_id,
    records.c.version,
    # Write `= 1` as queries do, or SQLite would not use the index: SQLAlchemy leaves it out.
    sqlite_where=text("governing = 1"),
    postgresql_where=text("governing"),
)

# Deleted containers to be purged: version and time of the tombstone, and how far the purge has come: the
# last version whose record, and the last user whose log, was purged.
containers_to_purge: Final = _table(
    "containers_to_purge",
    _id("container_id", primary_key=True),
    _number("version"),
    _number("deleted_at"),
    _number("past_version"),
    _bytes("past_user"),
)

access_lists: Final = _table(
    "access_lists",
    _id("container_id", primary_key=True),
    Column("access_version", BigInteger, primary_key=True, autoincrement=False),
    _bytes("entries"),
)

# Signed statements of users who left the list of this version. They are kept as long as the list.
departures: Final = _table(
    "departures",
    _id("container_id", primary_key=True),
    Column("access_version", BigInteger, primary_key=True, autoincrement=False),
    _id("user_id", primary_key=True),
    _bytes("body"),
    _bytes("signature"),
)

members: Final = _table(
    "members",
    _id("container_id", primary_key=True),
    _id("user_id", primary_key=True),
    Column("permissions", SmallInteger, nullable=False),
    Column("key_index", SmallInteger, nullable=False),  # of the encryption key that the wrap is for
    _number("expires_at", nullable=True),
    _bytes("wrap", nullable=True),
    Column("expiry_recorded", Boolean, nullable=False),
    # The container's type if the member has ViewType: so an index of this table serves a list of a type.
    Column("type", String(256)),
)
_partial(
    "members_expiring",
    members.c.expires_at.is_not(None) & ~members.c.expiry_recorded,
    members.c.user_id,
    members.c.expires_at,
)
# Permissions are 0 once the container is deleted. The index leaves out deleted containers and expired access:
# otherwise a page would read all of these that lie between two listed containers.
LISTED: Final = (members.c.permissions > literal_column("0")) & ~members.c.expiry_recorded
_partial("members_listed", LISTED, members.c.user_id, members.c.container_id)
_partial("members_not_listed", ~LISTED, members.c.user_id)
_partial(
    "members_listed_of_type",
    members.c.type.is_not(None) & LISTED,
    members.c.user_id,
    members.c.type,
    members.c.container_id,
)

parts: Final = _table(
    "parts",
    _id("part_id", primary_key=True),
    _id("container_id"),
    _id("user_id"),
    _number("touched_at"),
    Column("committed", Boolean, nullable=False),
    _number("replaced_at", nullable=True),
    _number("received"),
    _hash("session", nullable=True),  # the last one that uploaded chunks of this part
    _bytes("inline", nullable=True),
    _bytes("hashes", nullable=True),
    Index("parts_of_container", "container_id"),
    Index("parts_replaced", "replaced_at"),
)
_partial(
    "parts_in_force",
    parts.c.committed & parts.c.replaced_at.is_(None),
    parts.c.container_id,
    parts.c.part_id,
)
_partial("parts_pending", ~parts.c.committed, parts.c.user_id)
_partial("parts_begun", ~parts.c.committed, parts.c.touched_at)

# Groups, by the id of the container that has their records. That container has no rows of `members`: its
# managers are in `group_members`.

# The rosters of a group by the version of the record that introduced them. `size` is what the author is
# charged with for the roster and for the leaves that came with it.
rosters: Final = _table(
    "rosters",
    _id("group_id", primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    _id("author_id"),
    _number("epoch"),
    _hash("type_salt"),
    _bytes("body"),
    _number("size"),
)

# Every leaf that a roster ever had, once. It is in the rosters from that of `version` to the one before
# `until`, which is `statements.LATEST` for a leaf in force. `place` orders the leaves of a roster: it is the
# member's fingerprint, and a number once the group is deleted. Salt and member are then kept only of users
# whose membership readers still have to verify.
leaves: Final = _table(
    "leaves",
    _id("group_id", primary_key=True),
    _hash("place", primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    _number("until"),
    _hash("hash"),
    _hash("salt", nullable=True),
    _bytes("member", nullable=True),
    Index("leaves_by_end", "group_id", "until"),
)

# The users of the roster in force, until the group is deleted. `gone` is true for a user who has left or was
# deleted, and whose leaf is still in the roster.
group_members: Final = _table(
    "group_members",
    _id("group_id", primary_key=True),
    _id("user_id", primary_key=True),
    _number("version"),  # of the roster that introduced the leaf
    Column("role", SmallInteger, nullable=False),
    Column("key_index", SmallInteger, nullable=False),
    Column(
        "permissions", SmallInteger, nullable=False
    ),  # of a manager in the group's container, else 0
    Column("accepted", Boolean, nullable=False),
    Column("gone", Boolean, nullable=False),
    _bytes("wrap", nullable=True),  # of the secret of the epoch in force
    _bytes("wrap_author_id", 16, nullable=True),  # the user who is charged with the wrap
    _bytes("departure", nullable=True),
    _bytes("departure_signature", nullable=True),
    Index("group_members_of_user", "user_id", "group_id"),
    # All that says whether a group owes an epoch: a row has its wrap beside it, of a kilobyte.
    Index("group_members_owing", "group_id", "user_id", "gone", "key_index"),
)
_partial("group_departures", group_members.c.departure.is_not(None), group_members.c.group_id)

# The sealed info of each group's roster in force, and the user who is charged with it.
group_infos: Final = _table(
    "group_infos", _id("group_id", primary_key=True), _bytes("info"), _id("author_id")
)

# The users who signed a record of a container for a group: as long as such a row exists, readers need the
# group's records and the users' leaves.
group_authors: Final = _table(
    "group_authors",
    _id("container_id", primary_key=True),
    _id("group_id", primary_key=True),
    _id("user_id", primary_key=True),
    Index("group_authors_of_group", "group_id", "user_id"),
)

# Deleted groups whose rows may not all be removed yet.
pending_groups: Final = _table("pending_groups", _id("group_id", primary_key=True))

chunks: Final = _table(
    "chunks",
    _id("part_id", primary_key=True),
    Column("chunk", Integer, primary_key=True, autoincrement=False),
    _number("size"),
    _hash("chunk_hash"),
    Column("blob", String(128), nullable=False),
    _bytes("hashes"),
)

# Object names that no row references: deleted once `since`, the time of the mark, is long enough ago.
# `size` bytes are charged to a user until a chunk's row takes the charge over or the object is deleted. The
# columns are NULL for an object that a removed row referenced: its part has the charge.
pending_blobs: Final = _table(
    "pending_blobs",
    Column("name", String(128), primary_key=True),
    _number("since"),
    _bytes("user_id", 16, nullable=True),
    _bytes("session", 32, nullable=True),
    _number("size", nullable=True),
    Index("pending_blobs_by_age", "since"),
)
_partial("pending_blobs_of_user", pending_blobs.c.user_id.is_not(None), pending_blobs.c.user_id)

# Each user's usage as `charges` describes it: the sum of `parts.received`, of the records that the user
# signed with their lists, of rosters, wraps and infos of groups, and of the charged `pending_blobs`; and the
# containers that the user created. A quota is NULL if the default holds, and `charges.UNLIMITED` if the user
# has none.
usage: Final = _table(
    "usage",
    _id("user_id", primary_key=True),
    _number("bytes"),
    _number("containers"),
    _number("quota_bytes", nullable=True),
    _number("quota_containers", nullable=True),
)

# The quotas of users without their own: `kind` is bytes or containers.
default_quotas: Final = _table(
    "default_quotas", Column("kind", String(16), primary_key=True), _number("value")
)

checks: Final = _table("checks", Column("name", String(32), primary_key=True), _bytes("value"))

# Acts of operators and users, as `audit` says: each row's `mac` covers the row and the mac of the row before.
audit: Final = _table(
    "audit",
    Column("id", _RowId, primary_key=True, autoincrement=False),
    _number("at"),
    Column("actor", String(256), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject", String(256), nullable=False),
    Column("details", Text, nullable=False),  # a JSON object
    _hash("mac"),
    Index("audit_by_action", "action", "id"),
    Index("audit_of_subject", "subject", "id"),
)
# Rows of `audit` are only added. These triggers stop a mistake, not somebody who can drop them.
APPEND_ONLY: Final = {
    "sqlite": tuple(
        f"CREATE TRIGGER audit_no_{act.lower()} BEFORE {act} ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the table audit is append-only'); END"
        for act in ("UPDATE", "DELETE")
    ),
    "postgresql": (
        "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the table audit is append-only'; END $$",
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()",
    ),
}

events: Final = _table(
    "events",
    Column("row_id", _RowId, primary_key=True, autoincrement=True),
    _id("user_id"),
    _number("id", nullable=True),
    Column("event_type", String(16), nullable=False),
    _id("container_id"),
    Column("container_type", String(256)),
    _number("date"),
    _number("version"),
    Column("related_user_id", LargeBinary(16)),
    Column("application", String(256), nullable=False),
    Column("changes", SmallInteger, nullable=False),
    Column("previous_type", String(256)),
    Column("salt", LargeBinary(SALT_SIZE), default=partial(token_bytes, SALT_SIZE)),
    Column("details_hash", LargeBinary(32)),
    sqlite_autoincrement=True,
)
Index("events_of_user", events.c.user_id, events.c.id, unique=True)
Index("events_by_date", events.c.date, events.c.row_id)
_partial("events_unnumbered", events.c.id.is_(None), events.c.user_id, events.c.row_id)
# For pages of one container's events, and for emptying them in all logs, whether numbered or not.
Index("events_of_container", events.c.container_id, events.c.user_id, events.c.id)
# For the other criteria of a page, in its order. The condition of events_of_kind differs from the others, so
# that a query by type and kind cannot use it: PostgreSQL's generic plan would search a rare type among all
# events of a kind (see `events.pages`).
_numbered: Final = events.c.id.is_not(None)
_partial(
    "events_of_type", _numbered,
    events.c.user_id, events.c.container_type, events.c.event_type, events.c.id,
)  # fmt: skip
_partial(
    "events_of_previous_type", events.c.previous_type.is_not(None) & _numbered,
    events.c.user_id, events.c.previous_type, events.c.id,
)  # fmt: skip
_partial("events_of_kind", events.c.id > 0, events.c.user_id, events.c.event_type, events.c.id)

accesses: Final = _table(
    "accesses",
    _id("container_id", primary_key=True),
    _id("user_id", primary_key=True),
    _number("recorded_at"),
    Index("accesses_of_user", "user_id"),
)
