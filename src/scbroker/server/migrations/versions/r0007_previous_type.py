"""Keep the type before a change in events, and find them by it.

The index is built at once, not concurrently with writers: its column is new, so it has no entries, and
writers wait only while the table is read once.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from scbroker.server.migrations.indexes import add_index

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("events", sa.Column("previous_type", sa.String(length=256), nullable=True))
    add_index(
        "events_of_previous_type",
        "events",
        ["user_id", "previous_type", "id"],
        sqlite_where=sa.text("previous_type IS NOT NULL AND id IS NOT NULL"),
        postgresql_where=sa.text("previous_type IS NOT NULL AND id IS NOT NULL"),
    )
