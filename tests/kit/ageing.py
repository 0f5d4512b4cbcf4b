"""Events that become old, and a round of a broker that drops them."""

import asyncio
import tempfile
import uuid
from pathlib import Path

from scbroker.server.broker import Broker
from scbroker.server.events.pages import drop_old
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import Folder
from scbroker.server.storage.database import open_database
from tests.kit.brokers import BrokerProcess
from tests.kit.tables import query

DAY = 86_400
AGO = 2 * DAY * 1_000_000


def age(broker: BrokerProcess, user: uuid.UUID, where: str = "1 = 1", days: int = 2) -> None:
    """Makes events of a user's so much older, all or those of which this is true."""
    older = days * DAY * 1_000_000
    statement = f"UPDATE events SET date = date - {older} WHERE user_id = ? AND {where}"
    query(broker.database_url, statement, user.bytes)


def drop_old_events(broker: BrokerProcess, seconds: int = DAY) -> None:
    """What a further process of this broker does in one round, by its setting."""

    async def work(folder: str) -> None:
        database = open_database(broker.database_url)
        settings = Settings(event_retention_seconds=seconds)
        try:
            objects = Folder(Path(folder))
            await drop_old(Broker(settings, database, objects, bytes(32), frozenset()))
        finally:
            await database.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(work(folder))
