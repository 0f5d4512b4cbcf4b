"""Events are found by their container, its type, and what happened, however long the log is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NUMBERED = sa.text("id IS NOT NULL")


def upgrade() -> None:
    for name, columns in {
        "events_of_container": ["container_id"],
        "events_of_type": ["container_type", "event_type"],
        "events_of_kind": ["event_type"],
    }.items():
        op.create_index(
            name,
            "events",
            ["user_id", *columns, "id"],
            sqlite_where=_NUMBERED,
            postgresql_where=_NUMBERED,
        )
