"""Events that become old, and a round of a broker that drops them."""

import asyncio
import uuid

from scbroker.server.events.pages import drop_old
from tests.kit.beside import further_broker
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

    async def work() -> None:
        async with further_broker(broker.database_url, event_retention_seconds=seconds) as it:
            await drop_old(it)

    asyncio.run(work())
