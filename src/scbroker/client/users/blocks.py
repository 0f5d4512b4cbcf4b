"""Block and unblock users at the broker. Spec: docs/spec/protocol.md, section 5."""

import uuid

from scbroker.client.users.session import Session
from scbroker.errors import BrokerFaultError, InvalidArgumentError
from scbroker.wire.users import BlockedUsers


async def block(session: Session, user_id: uuid.UUID) -> None:
    """Have the broker refuse records by this user that give the session's user access."""
    await session.send("PUT", f"/v1/blocks/{user_id}")


async def unblock(session: Session, user_id: uuid.UUID) -> None:
    """Remove the block of this user, if there is one."""
    await session.send("DELETE", f"/v1/blocks/{user_id}")


async def blocked(session: Session) -> list[uuid.UUID]:
    """Return the blocked users, ascending."""
    answer = await session.call("GET", "/v1/blocks", BlockedUsers)
    if sorted(set(answer.users)) != answer.users:
        raise BrokerFaultError("The broker's list of blocked users is not in order.")
    return [uuid.UUID(each) for each in answer.users]


def check_other(session: Session, user_id: uuid.UUID) -> None:
    """Raise `InvalidArgumentError` for the session's own user."""
    if user_id == session.userId:
        raise InvalidArgumentError("userId is your own: name another user")
