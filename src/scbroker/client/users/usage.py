"""Read the user's own usage and quotas. Spec: docs/spec/protocol.md, section 5."""

from scbroker.client.users.session import Session
from scbroker.errors import QuotaExceededError
from scbroker.types import Usage
from scbroker.wire import users as wire


async def fetch(session: Session) -> Usage:
    """Return the usage and the quotas of the session's user: the broker's word."""
    found = await session.call("GET", "/v1/usage", wire.Usage)
    return Usage(found.bytes, found.containers, found.quotaBytes, found.quotaContainers)


async def check_free(session: Session, size: int) -> None:
    """Raise `QuotaExceededError` if the quota leaves fewer than `size` bytes."""
    found = await fetch(session)
    if found.freeBytes is not None and found.quotaBytes is not None and size > found.freeBytes:
        raise QuotaExceededError(quota=found.quotaBytes, used=found.bytes, needed=size)
