"""An example of a later revision: an index of a large table, built while others write to it.

It has a revision of its own, so that a failure of another change does not build it again. An interrupted
build leaves an invalid index behind. PostgreSQL builds no index of a partitioned table concurrently.
"""

import sqlalchemy as sa
from alembic import op

from scbroker.server.migrations.upgrade import VERSIONS

revision = "9001"
down_revision = sorted(path.name[1:5] for path in VERSIONS[0].glob("r*.py"))[-1]
_IS_PARTITIONED = sa.text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('events')")


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name == "sqlite" or bind.execute(_IS_PARTITIONED).scalar_one():
        op.create_index("events_example", "events", ["user_id", "date"])
        return
    with op.get_context().autocommit_block():
        op.drop_index("events_example", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            "events_example", "events", ["user_id", "date"], postgresql_concurrently=True
        )
