"""The authors of containers, and a deletion that leaves the id of its user alone."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from alembic import op

from scbroker.records.ids import user_id_of

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_AUTHOR = 4  # its place in a record


def upgrade() -> None:
    op.create_table(
        "authors",
        sa.Column("container_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("user_id", sa.LargeBinary(length=16), nullable=False),
        sa.PrimaryKeyConstraint("container_id", "user_id"),
    )
    op.create_index("authors_of_user", "authors", ["user_id"])
    _name_authors()
    with op.batch_alter_table("users") as users:
        users.add_column(
            sa.Column("deleted", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        users.alter_column("fingerprint", existing_type=sa.LargeBinary(length=32), nullable=True)
    op.execute("UPDATE users SET deleted = true WHERE deleted_at IS NOT NULL")
    with op.batch_alter_table("users") as users:
        users.drop_column("deleted_at")
    _purge_again()


def _name_authors() -> None:
    """Add all who signed a record but the creators, whom their containers name until they are deleted."""
    connection, last = op.get_bind(), (b"", 0)
    page = sa.text(
        "SELECT r.container_id, r.version, r.body, c.creator_id FROM records r"
        " JOIN containers c ON c.id = r.container_id"
        " WHERE (r.container_id, r.version) > (:container, :version)"
        " ORDER BY r.container_id, r.version LIMIT 1000"
    )
    name = sa.text(
        "INSERT INTO authors (container_id, user_id) VALUES (:container, :author)"
        " ON CONFLICT DO NOTHING"
    )
    while found := connection.execute(page, {"container": last[0], "version": last[1]}).all():
        named = {
            (row.container_id, author)
            for row in found
            if (author := _author_of(bytes(row.body))) != row.creator_id
        }
        if named:
            rows = [{"container": container, "author": author} for container, author in named]
            connection.execute(name, rows)
        last = (found[-1].container_id, found[-1].version)


def _author_of(body: bytes) -> bytes:
    return user_id_of(msgspec.msgpack.decode(body[1:])[_AUTHOR]).bytes


def _purge_again() -> None:
    """Mark all deleted users as pending: earlier versions kept more of them, which a broker removes."""
    op.execute(
        "INSERT INTO doomed_users (user_id) SELECT id FROM users WHERE deleted ON CONFLICT DO NOTHING"
    )
    op.execute(
        "DELETE FROM containers WHERE creator_id IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM records WHERE container_id = containers.id)"
    )
