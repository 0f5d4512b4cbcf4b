"""Return a user's own usage and quotas. Spec: docs/spec/protocol.md, section 5."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import bindparam as b

from scbroker.server.broker import Broker, Call
from scbroker.server.charges import quota_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.wire import users as wire
from scbroker.wire.codec import NoQuery

# A user without a row of usage has used nothing.
FIND_USAGE: Final = (
    sa.select(
        sa.func.coalesce(t.usage.c.bytes, 0).label("bytes"),
        sa.func.coalesce(t.usage.c.containers, 0).label("containers"),
        *sql.QUOTAS,
    )
    .select_from(t.users)
    .outerjoin(t.usage, t.usage.c.user_id == t.users.c.id)
    .where(t.users.c.id == b("user"))
)


async def own_usage(broker: Broker, call: Call, query: NoQuery) -> wire.Usage:
    """Return the usage and the quotas of the session's user."""
    del query

    def read(connection: Connection) -> wire.Usage:
        row = sql.the(connection, FIND_USAGE, user=call.session.id)
        return wire.Usage(
            bytes=max(0, row.bytes),
            containers=max(0, row.containers),
            quotaBytes=quota_of(row, "bytes"),
            quotaContainers=quota_of(row, "containers"),
        )

    return await broker.database.query(read)
