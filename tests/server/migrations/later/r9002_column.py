"""An example of a later revision: a column, which locks its table for a moment."""

import sqlalchemy as sa
from alembic import op

revision = "9002"
down_revision = "9001"


def upgrade() -> None:
    op.add_column(
        "users", sa.Column("example", sa.BigInteger(), nullable=False, server_default="7")
    )
