"""Sweeping for a request: what it left goes at once, while the store is well."""

from __future__ import annotations

import time
from typing import Final

from scbroker.server.broker import Broker
from scbroker.server.parts import sweeping

_SECONDS: Final = 10.0


async def sweep_at_once(broker: Broker) -> bool:
    """Removes some of what nothing needs any more; gives whether there may be more. Not part of a turn.

    One request of a process sweeps, for those as well that come meanwhile, and they go: a store that hangs
    holds up one of them, and no more. What it does not come to is the background's.
    """
    broker.unswept = True
    if broker.sweeping.locked():
        return False
    more, until = False, time.monotonic() + _SECONDS
    async with broker.sweeping:
        while broker.unswept and time.monotonic() < until:
            broker.unswept = False
            more = await sweeping.sweep(broker)
    return more
