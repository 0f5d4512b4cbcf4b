"""Deleted containers that are to be purged, and salted events, which a purge finds by their container.

A digest of dropped events was made without salts: a device that kept an earlier one refuses the log.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "containers_to_purge",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        sa.Column("past_version", sa.BigInteger(), nullable=False),
        sa.Column("past_user", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("container_id"),
    )
    op.add_column("events", sa.Column("salt", sa.LargeBinary(length=16)))
    op.add_column("events", sa.Column("details_hash", sa.LargeBinary(length=32)))
    if op.get_bind().dialect.name == "sqlite":
        op.execute("UPDATE events SET salt = randomblob(16)")
    else:
        op.execute("UPDATE events SET salt = uuid_send(gen_random_uuid())")
    op.drop_index("events_of_container", "events")
    op.create_index("events_of_container", "events", ["container_id", "user_id", "id"])
