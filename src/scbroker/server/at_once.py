"""Sweeping for a request: what it left goes at once, while the store is well."""

from __future__ import annotations

from scbroker.server import parts
from scbroker.server.broker import Broker


async def sweep_at_once(broker: Broker) -> bool:
    """Removes some of what nothing needs any more; gives whether there may be more. Not part of a turn.

    For one request of a process at a time. Whoever finds another at it leaves the rest to the background: a
    store that hangs holds up one of them, and no more.
    """
    if broker.sweeping.locked():
        return False
    async with broker.sweeping:
        return await parts.sweep(broker)
