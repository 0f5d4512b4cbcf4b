"""An example of a later revision: a column, which locks its table for a moment."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column(
        "users", sa.Column("example", sa.BigInteger(), nullable=False, server_default="7")
    )
