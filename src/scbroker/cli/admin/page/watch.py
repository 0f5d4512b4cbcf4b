"""Watch a broker while the operator's page is open: its metrics of the last minute, and its stores."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import urllib.request
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from scbroker import errors
from scbroker.server.admin.health import Health, Reading, health, read
from scbroker.server.admin.stores import Stores

SECONDS: Final = 5.0
_READINGS: Final = 13
"""Number of readings kept: those of a minute, at one every SECONDS."""


class Watch:
    """Figures that the page has read from one broker."""

    def __init__(self, url: str, stores: Stores) -> None:
        self.url: Final = url
        self._stores = stores
        self.readings: Final[deque[Reading]] = deque(maxlen=_READINGS)
        """The metrics of the last minute; empty while the broker does not answer."""
        self.is_ready: bool = False
        """Whether the broker says that it can use database and object store."""
        self.fault: str = ""
        """Why the broker's metrics cannot be read now."""
        self.stores_fault: str = ""
        """Why the database cannot be read now."""
        self.health: Health | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read all values now, and again and again during the block."""
        await self._read()
        work = asyncio.create_task(self._repeat())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            await self._read()

    async def _read(self) -> None:
        """Read metrics and stores; keep the message of a failure in `fault` or `stores_fault`."""
        try:
            self.readings.append(await asyncio.to_thread(read, self.url))
            self.is_ready = await asyncio.to_thread(_is_ready, self.url)
            self.fault = ""
        except errors.BrokerError as error:
            self.fault = error.message
            self.readings.clear()
        try:
            self.health = await health(self._stores.settings, self._stores.database)
            self.stores_fault = ""
        except errors.BrokerError as error:
            self.stores_fault = error.message


def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        ready = f"{url}/health/ready"  # the URL comes from the operator's own settings
        with urllib.request.urlopen(ready, timeout=SECONDS):  # noqa: S310
            return True
    return False
