"""The tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "access_lists",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("access_version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("container_id", "access_version"),
    )
    op.create_table(
        "accesses",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("container_id", "user_id"),
    )
    op.create_table(
        "api_keys",
        sa.Column("key_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_hash"),
    )
    op.create_table(
        "checks",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("value", sa.LargeBinary(length=32), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "chunks",
        sa.Column("part_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("chunk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("chunk_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("blob", sa.String(length=128), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("part_id", "chunk"),
    )
    op.create_table(
        "containers",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("governing_version", sa.BigInteger(), nullable=False),
        sa.Column("access_version", sa.BigInteger(), nullable=False),
        sa.Column("type_salt", sa.LargeBinary(), nullable=True),
        sa.Column("type", sa.String(length=256), nullable=True),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "doomed_blobs",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("doomed_blobs_by_age", "doomed_blobs", ["since"], unique=False)
    op.create_table(
        "events",
        sa.Column(
            "row_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=True),
        sa.Column("event_type", sa.String(length=16), nullable=False),
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("container_type", sa.String(length=256), nullable=True),
        sa.Column("date", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("related_user_id", sa.LargeBinary(length=16), nullable=True),
        sa.Column("application", sa.String(length=256), nullable=False),
        sa.Column("changes", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("row_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_user", "events", ["user_id", "id"], unique=True)
    op.create_index(
        "events_unnumbered",
        "events",
        ["user_id", "row_id"],
        unique=False,
        sqlite_where=sa.text("id IS NULL"),
        postgresql_where=sa.text("id IS NULL"),
    )
    op.create_table(
        "guesses",
        sa.Column("bucket", sa.LargeBinary(length=32), nullable=False),
        sa.Column("guesses", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bucket"),
    )
    op.create_index("guesses_by_end", "guesses", ["ends_at"], unique=False)
    op.create_table(
        "key_files",
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("key_file", sa.LargeBinary(), nullable=False),
        sa.Column("key_file_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("verifier", sa.LargeBinary(length=32), nullable=False),
        sa.Column("reminder", sa.String(length=1024), nullable=False),
        sa.PrimaryKeyConstraint("user_id"),
    )
    op.create_table(
        "key_records",
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "sequence"),
    )
    op.create_table(
        "members",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("permissions", sa.SmallInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("wrap", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("container_id", "user_id"),
    )
    op.create_index("members_of_user", "members", ["user_id"], unique=False)
    op.create_table(
        "nonces",
        sa.Column("nonce_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("nonce_hash"),
    )
    op.create_index("nonces_by_expiry", "nonces", ["expires_at"], unique=False)
    op.create_table(
        "parts",
        sa.Column("part_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("touched_at", sa.BigInteger(), nullable=False),
        sa.Column("committed", sa.Boolean(), nullable=False),
        sa.Column("replaced_at", sa.BigInteger(), nullable=True),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("inline", sa.LargeBinary(), nullable=True),
        sa.Column("hashes", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("part_id"),
    )
    op.create_index(
        "parts_begun",
        "parts",
        ["touched_at"],
        unique=False,
        sqlite_where=sa.text("committed = 0"),
        postgresql_where=sa.text("NOT committed"),
    )
    op.create_index("parts_of_container", "parts", ["container_id"], unique=False)
    op.create_index(
        "parts_pending",
        "parts",
        ["user_id"],
        unique=False,
        sqlite_where=sa.text("committed = 0"),
        postgresql_where=sa.text("NOT committed"),
    )
    op.create_index("parts_replaced", "parts", ["replaced_at"], unique=False)
    op.create_table(
        "records",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("governing", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("container_id", "version"),
    )
    op.create_index(
        "records_governing",
        "records",
        ["container_id", "version"],
        unique=False,
        sqlite_where=sa.text("governing = 1"),
        postgresql_where=sa.text("governing"),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_index("sessions_by_expiry", "sessions", ["expires_at"], unique=False)
    op.create_index("sessions_of_user", "sessions", ["user_id"], unique=False)
    op.create_table(
        "users",
        sa.Column("id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(length=32), nullable=False),
        sa.Column("chain_length", sa.BigInteger(), nullable=False),
        sa.Column("encryption_index", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
