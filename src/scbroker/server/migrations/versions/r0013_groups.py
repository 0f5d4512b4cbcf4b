"""Add groups.

On PostgreSQL, brokers of the previous version can keep running meanwhile. They refuse every record that is
made through a group, and treat a group in an access list as a user: no group may be created until the last of
them has ended.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def _id(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(16), primary_key=True)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def _bytes(name: str, size: int | None = None, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(size), nullable=nullable)


def upgrade() -> None:
    op.add_column("users", sa.Column("group_version", sa.BigInteger()))
    op.add_column("containers", sa.Column("groups", sa.LargeBinary()))
    op.add_column("containers", sa.Column("is_group", sa.Boolean()))
    op.create_table(
        "rosters",
        _id("group_id"),
        sa.Column("version", sa.BigInteger(), primary_key=True, autoincrement=False),
        _bytes("author_id", 16),
        _number("epoch"),
        _bytes("type_salt", 32),
        _bytes("body"),
        _number("size"),
    )
    op.create_table(
        "leaves",
        _id("group_id"),
        sa.Column("place", sa.LargeBinary(32), primary_key=True),
        sa.Column("version", sa.BigInteger(), primary_key=True, autoincrement=False),
        _number("until"),
        _bytes("hash", 32),
        _bytes("salt", 32, nullable=True),
        _bytes("member", nullable=True),
    )
    op.create_index("leaves_by_end", "leaves", ["group_id", "until"])
    op.create_table(
        "group_members",
        _id("group_id"),
        _id("user_id"),
        _number("version"),
        sa.Column("role", sa.SmallInteger(), nullable=False),
        sa.Column("key_index", sa.SmallInteger(), nullable=False),
        sa.Column("permissions", sa.SmallInteger(), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("gone", sa.Boolean(), nullable=False),
        _bytes("wrap", nullable=True),
        _bytes("wrap_author_id", 16, nullable=True),
        _bytes("departure", nullable=True),
        _bytes("departure_signature", nullable=True),
    )
    op.create_index("group_members_of_user", "group_members", ["user_id", "group_id"])
    op.create_table("group_infos", _id("group_id"), _bytes("info"), _bytes("author_id", 16))
    op.create_table("group_authors", _id("container_id"), _id("group_id"), _id("user_id"))
    op.create_index("group_authors_of_group", "group_authors", ["group_id", "user_id"])
    op.create_table("pending_groups", _id("group_id"))
