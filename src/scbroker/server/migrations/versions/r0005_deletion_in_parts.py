"""Users who are deleted, and of whom not everything has gone yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "doomed_users",
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("user_id"),
    )
