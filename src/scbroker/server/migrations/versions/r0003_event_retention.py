"""What it takes to drop old events: where each log begins, and the digest of what went."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from scbroker.server.migrations.indexes import add_index

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What takes long first: the columns lock the table of the users until all is through.
    add_index("events_by_date", "events", ["date", "row_id"])
    op.add_column(
        "users", sa.Column("first_event", sa.BigInteger(), nullable=False, server_default="1")
    )
    op.add_column("users", sa.Column("dropped_digest", sa.LargeBinary(), nullable=True))
