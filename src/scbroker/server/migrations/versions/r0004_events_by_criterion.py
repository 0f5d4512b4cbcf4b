"""Events are found by their container, its type, and what happened, however long the log is."""

from __future__ import annotations

import sqlalchemy as sa

from scbroker.server.migrations.indexes import add_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, columns, numbered in (
        ("events_of_container", ["container_id"], "id IS NOT NULL"),
        ("events_of_type", ["container_type", "event_type"], "id IS NOT NULL"),
        ("events_of_kind", ["event_type"], "id > 0"),
    ):
        add_index(
            name,
            "events",
            ["user_id", *columns, "id"],
            sqlite_where=sa.text(numbered),
            postgresql_where=sa.text(numbered),
        )
