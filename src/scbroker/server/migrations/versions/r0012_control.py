"""Add the ends of API keys, the suspension of users, and the audit log.

Brokers of the version before go on serving on PostgreSQL: until they have ended, they accept revoked and
expired API keys, let suspended users log in, and record nothing in the audit log.
"""

import sqlalchemy as sa
from alembic import op

from scbroker.server.storage.tables import APPEND_ONLY

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    for name in ("expires_at", "last_used_at", "revoked_at"):
        op.add_column("api_keys", sa.Column(name, sa.BigInteger()))
    op.add_column("users", sa.Column("suspended_at", sa.BigInteger()))
    op.add_column("users", sa.Column("suspension_reason", sa.String(256)))
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit",
        sa.Column("id", number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("mac", sa.LargeBinary(32), nullable=False),
    )
    op.create_index("audit_of_subject", "audit", ["subject", "id"])
    op.create_index("audit_by_action", "audit", ["action", "id"])
    bind = op.get_bind()
    for statement in APPEND_ONLY[bind.dialect.name]:
        bind.exec_driver_sql(statement)
