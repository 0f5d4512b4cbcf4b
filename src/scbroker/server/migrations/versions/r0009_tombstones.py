"""Deleted containers that are not purged yet, and the events of one container in all logs."""

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
        sa.Column("past_version", sa.BigInteger(), nullable=False),
        sa.Column("past_user", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("container_id"),
    )
    op.drop_index("events_of_container", "events")
    op.create_index("events_of_container", "events", ["container_id", "user_id", "id"])
