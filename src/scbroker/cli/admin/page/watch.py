"""Watch a broker while the operator's page is open: its load, its stores, and the growth of what it stores.

The database keeps no history of these values. The page shows what it has read since it was opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import time
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from scbroker import errors
from scbroker.cli.web.charts import Point
from scbroker.server.admin.health import Health, Load, Reading, between, health, read, registrations
from scbroker.server.admin.stores import Stores

LOAD_SECONDS: Final = 5.0
STORES_SECONDS: Final = 30.0
DAYS: Final = 30
_READINGS: Final = 13
"""Readings of the last minute: rates in tables are those of a minute."""
_POINTS: Final = 720
"""Points of a chart: an hour of load."""


class Watch:
    """Figures that the page has read from one broker."""

    def __init__(self, url: str, stores: Stores) -> None:
        self.url: Final = url
        self._stores = stores
        self._readings: deque[Reading] = deque(maxlen=_READINGS)
        self.last: Reading | None = None
        """The last reading of the metrics, if the broker answers; the load is that of the last minute."""
        self.is_ready: bool = False
        """Whether the broker says that it can use database and object store."""
        self.load: Load | None = None
        self.fault: str = ""
        """Why the broker's metrics cannot be read now."""
        self.stores_fault: str = ""
        """Why the database cannot be read now."""
        self.health: Health | None = None
        self.registered: list[int] = []
        """Users registered on each of the last days (UTC), today last."""
        self.requests: deque[Point] = deque(maxlen=_POINTS)
        """Requests per second."""
        self.latency: deque[Point] = deque(maxlen=_POINTS)
        """Seconds that 95 of 100 requests did not exceed."""
        self.database_bytes: deque[Point] = deque(maxlen=_POINTS)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read all values now, and again and again during the block."""
        await self.read_load()
        await self.read_stores()
        work = [
            asyncio.create_task(_repeat(LOAD_SECONDS, self.read_load)),
            asyncio.create_task(_repeat(STORES_SECONDS, self.read_stores)),
        ]
        try:
            yield
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def read_load(self) -> None:
        """Read the broker's metrics; a failure is kept as `fault`, and as a gap in the charts."""
        at = time.time()
        try:
            await asyncio.to_thread(self._read_load, at)
        except errors.BrokerError as error:
            self.fault, self.last, self.load = error.message, None, None
            self._readings.clear()
            self.requests.append((at, None))
            self.latency.append((at, None))
        else:
            self.fault = ""

    def _read_load(self, at: float) -> None:
        reading = read(self.url)
        self.is_ready = _is_ready(self.url)
        if self._readings:
            since = between(self._readings[-1], reading)
            self.requests.append((at, since.requests))
            self.latency.append((at, since.p95))
            self.load = between(self._readings[0], reading)
        self.last = reading
        self._readings.append(reading)

    async def read_stores(self) -> None:
        """Read the state of the stores; a failure is kept as `stores_fault`."""
        try:
            self.health = await health(self._stores.settings, self._stores.database)
            self.registered = await registrations(self._stores.database, DAYS)
        except errors.BrokerError as error:
            self.stores_fault = error.message
            self.database_bytes.append((time.time(), None))
            return
        self.stores_fault = ""
        self.database_bytes.append((time.time(), self.health.database_bytes))


async def _repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await work()


def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        ready = f"{url}/health/ready"  # of the operator's own settings
        with urllib.request.urlopen(ready, timeout=LOAD_SECONDS):  # noqa: S310
            return True
    return False
