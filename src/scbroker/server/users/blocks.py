"""Keep which users a user has blocked. Spec: docs/spec/protocol.md, section 5.

A user who is blocked cannot give the blocking user access: `containers.members` refuses such a record.
"""

from typing import Final
from uuid import UUID

import sqlalchemy as sa

from scbroker.errors import InvalidArgumentError, NotFoundError, TooLargeError
from scbroker.server.broker import Broker, Call, check_active
from scbroker.server.storage import statements as sql
from scbroker.server.storage import tables as t
from scbroker.server.storage.driver import Connection
from scbroker.wire import users as wire
from scbroker.wire.codec import NoQuery

# Blocked users: `blocked` cannot give `user` access.
ADD_BLOCK: Final = sql.if_new(user=t.blocks.c.user_id, blocked=t.blocks.c.blocked_id)
COUNT_BLOCKS: Final = (
    sa.select(sa.func.count()).select_from(t.blocks).where(sql.of(t.blocks, "user"))
)
BLOCKED_BY: Final = (
    sa.select(t.blocks.c.blocked_id).where(sql.of(t.blocks, "user")).order_by(t.blocks.c.blocked_id)
)


async def block(broker: Broker, call: Call, query: NoQuery) -> None:
    """Block a user; blocking the same user again changes nothing.

    Both users are locked in the order of their ids, so neither is deleted meanwhile. A record that gives the
    session's user access takes a shared lock on that user: so it is stored before the block, or refused.
    """
    del query
    user_id, blocked = call.session.id, call.user_id
    if user_id == blocked:
        raise InvalidArgumentError("userId is your own: a user cannot block themselves.")

    def write(connection: Connection) -> None:
        for each in sorted((user_id, blocked)):
            if each == user_id:
                check_active(sql.the(connection, sql.LOCK_USER, id=each))
            else:
                other = sql.one(connection, sql.SHARE_USERS, ids=[each])
                if other is None or other.deleted or other.group_version is not None:
                    raise NotFoundError(f"The broker knows no user {UUID(bytes=each)}.")
        connection.execute(ADD_BLOCK, {"user": user_id, "blocked": blocked})
        if connection.execute(COUNT_BLOCKS, {"user": user_id}).scalar_one() > wire.MAX_BLOCKED:
            raise TooLargeError(
                f"A user blocks at most {wire.MAX_BLOCKED} others: unblock somebody first."
            )

    await broker.database.write(write)


async def unblock(broker: Broker, call: Call, query: NoQuery) -> None:
    """Remove a block; without one this changes nothing."""
    del query
    names = {"user": call.session.id, "blocked": call.user_id}
    await broker.database.write(lambda c: c.execute(sql.DROP_BLOCK, names))


async def list_blocked(broker: Broker, call: Call, query: NoQuery) -> wire.BlockedUsers:
    """Return the users whom the session's user has blocked."""
    del query
    asked = {"user": call.session.id}
    found = await broker.database.read(lambda c: c.execute(BLOCKED_BY, asked).scalars().all())
    return wire.BlockedUsers(users=[str(UUID(bytes=each)) for each in found])
