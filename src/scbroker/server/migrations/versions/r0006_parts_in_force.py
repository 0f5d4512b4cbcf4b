"""The parts of a container that its head names are found at once, whatever waits to be swept."""

from __future__ import annotations

import sqlalchemy as sa

from scbroker.server.migrations.indexes import add_index

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    add_index(
        "parts_in_force",
        "parts",
        ["container_id", "part_id"],
        sqlite_where=sa.text("committed = 1 AND replaced_at IS NULL"),
        postgresql_where=sa.text("committed AND replaced_at IS NULL"),
    )
