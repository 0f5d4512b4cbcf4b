"""A further process of a broker, in the process of the test: for work that no request asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from scbroker.server.broker import Broker
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import Blobs, open_blobs
from scbroker.server.storage.database import open_database
from tests.kit.brokers import BrokerProcess
from tests.kit.objects import folder_of
from tests.kit.waiting import PATIENCE

T = TypeVar("T")


@asynccontextmanager
async def further_broker(
    url: str, blobs: Blobs | None = None, *, wait: float = PATIENCE, **settings: Any
) -> AsyncIterator[Broker]:
    """Open a broker on this database; without a store it has an empty one in memory."""
    found = Settings(**settings)
    database = open_database(url, wait=wait)
    store = blobs or open_blobs("memory:///")
    try:
        key = bytes.fromhex(found.broker_key) or bytes(32)
        yield Broker(found, database, store, key, frozenset())
    finally:
        await database.close()


def beside(broker: BrokerProcess, work: Callable[[Broker], Awaitable[T]]) -> T:
    """Do some work as a further process of this broker, with its key and on its objects."""
    key = (broker.directory / "broker.key").read_bytes().hex()

    async def run() -> T:
        store = open_blobs(folder_of(broker).as_uri())
        async with further_broker(broker.database_url, store, broker_key=key) as it:
            return await work(it)

    return asyncio.run(run())
