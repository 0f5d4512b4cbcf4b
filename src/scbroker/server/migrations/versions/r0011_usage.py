"""Add quotas, and each user's usage of what is stored already.

While brokers of the version before go on serving on PostgreSQL, what they store is charged to nobody. After
the last of them has ended, `scbroker admin usage --recount` corrects the usage.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from scbroker.errors import IntegrityError
from scbroker.records.canonical import stored_user_id
from scbroker.records.container_record import parse_bare

revision = "0011"
down_revision = "0010"
_PAGE = 1_000
_RECORDS = sa.text(
    "SELECT r.container_id, r.version, r.body, length(r.signature) + coalesce(length(l.entries), 0) AS size "
    "FROM records r LEFT JOIN access_lists l "
    "ON l.container_id = r.container_id AND l.access_version = r.version "
    "WHERE (r.container_id, r.version) > (:container, :version) "
    "ORDER BY r.container_id, r.version LIMIT :count"
)
_PARTS = sa.text("SELECT user_id, sum(received) AS size FROM parts GROUP BY user_id")
_CREATED = sa.text(
    "SELECT creator_id, count(*) AS containers FROM containers "
    "WHERE NOT deleted AND creator_id IS NOT NULL GROUP BY creator_id"
)
# A committed part counted for more: its small chunks, those that were replaced, and presigned URLs.
_EXACT = sa.text(
    "UPDATE parts SET received = (SELECT sum(c.size) FROM chunks c WHERE c.part_id = parts.part_id) "
    "WHERE committed AND inline IS NULL "
    "AND received <> (SELECT sum(c.size) FROM chunks c WHERE c.part_id = parts.part_id)"
)


def upgrade() -> None:
    bind = op.get_bind()
    # These read every record. What follows locks a table to which brokers add a row for each upload.
    bind.execute(_EXACT)
    stored, created = (
        _stored(bind),
        {row.creator_id: row.containers for row in bind.execute(_CREATED)},
    )
    usage = op.create_table(
        "usage",
        sa.Column("user_id", sa.LargeBinary(16), primary_key=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("containers", sa.BigInteger(), nullable=False),
        sa.Column("quota_bytes", sa.BigInteger()),
        sa.Column("quota_containers", sa.BigInteger()),
    )
    op.create_table(
        "default_quotas",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
    )
    op.add_column("pending_blobs", sa.Column("user_id", sa.LargeBinary(16)))
    op.add_column("pending_blobs", sa.Column("session", sa.LargeBinary(32)))
    op.add_column("pending_blobs", sa.Column("size", sa.BigInteger()))
    charged = sa.text("user_id IS NOT NULL")
    op.create_index(
        "pending_blobs_of_user",
        "pending_blobs",
        ["user_id"],
        sqlite_where=charged,
        postgresql_where=charged,
    )
    rows = [
        {"user_id": user, "bytes": stored[user], "containers": created.get(user, 0)}
        for user in sorted(stored.keys() | created.keys())
    ]
    op.bulk_insert(usage, rows)


def _stored(bind: sa.Connection) -> Counter[bytes]:
    """Return the bytes of parts, records and lists by user."""
    stored = Counter({bytes(row.user_id): int(row.size) for row in bind.execute(_PARTS)})
    for row in _records(bind):
        with contextlib.suppress(IntegrityError):  # a damaged record, which `admin check` reports
            stored[stored_user_id(parse_bare(row.body).author)] += len(row.body) + row.size
    return stored


def _records(bind: sa.Connection) -> Iterator[Any]:
    last: dict[str, Any] = {"container": b"", "version": 0}
    while rows := bind.execute(_RECORDS, {**last, "count": _PAGE}).all():
        yield from rows
        last = {"container": rows[-1].container_id, "version": rows[-1].version}
