"""What it takes to tell of expiry, to delete users, and to know the next KeyFile's generation."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from alembic import op

from scbroker.records.ids import user_id_of

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_AUTHOR = 4  # its place in a record


def upgrade() -> None:
    op.add_column(
        "users",
        sa.Column("key_file_generation", sa.BigInteger(), nullable=False, server_default="1"),
    )
    op.add_column("containers", sa.Column("creator_id", sa.LargeBinary(length=16), nullable=True))
    op.create_index("containers_of_creator", "containers", ["creator_id"])
    op.add_column(
        "members",
        sa.Column("expiry_told", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_index(
        "members_expiring",
        "members",
        ["user_id", "expires_at"],
        sqlite_where=sa.text("expires_at IS NOT NULL AND expiry_told = 0"),
        postgresql_where=sa.text("expires_at IS NOT NULL AND NOT expiry_told"),
    )
    op.create_index("accesses_of_user", "accesses", ["user_id"])
    _name_creators()


def _name_creators() -> None:
    connection, last = op.get_bind(), b""
    page = sa.text(
        "SELECT container_id, body FROM records WHERE version = 1 AND container_id > :last"
        " ORDER BY container_id LIMIT 1000"
    )
    name = sa.text("UPDATE containers SET creator_id = :creator WHERE id = :id")
    while found := connection.execute(page, {"last": last}).all():
        connection.execute(
            name,
            [{"creator": _creator_of(bytes(row.body)), "id": row.container_id} for row in found],
        )
        last = found[-1].container_id


def _creator_of(body: bytes) -> bytes:
    return user_id_of(msgspec.msgpack.decode(body[1:])[_AUTHOR]).bytes
