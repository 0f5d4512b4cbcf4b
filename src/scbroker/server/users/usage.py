"""Return a user's own usage and quotas. Spec: docs/spec/protocol.md, section 5."""

from scbroker.server.broker import Broker, Call
from scbroker.server.charges import quota_of
from scbroker.server.storage import statements as sql
from scbroker.server.storage.driver import Connection
from scbroker.wire import users as wire
from scbroker.wire.codec import NoQuery


async def own_usage(broker: Broker, call: Call, query: NoQuery) -> wire.Usage:
    """Return the usage and the quotas of the session's user."""
    del query

    def read(connection: Connection) -> wire.Usage:
        row = sql.the(connection, sql.FIND_USAGE, user=call.session.id)
        return wire.Usage(
            bytes=max(0, row.bytes),
            containers=max(0, row.containers),
            quotaBytes=quota_of(row, "bytes"),
            quotaContainers=quota_of(row, "containers"),
        )

    return await broker.database.query(read)
