"""Event logs of more than a page, written into the tables: through a broker it would take minutes."""

import uuid
from typing import Any

from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import query


def write_events(broker: BrokerProcess, user: uuid.UUID, count: int) -> None:
    """Add events of a user; their types are `odd` and `even` in turn. The broker numbers them later."""
    columns = "user_id, event_type, container_id, container_type, date, version, application, changes, salt"
    rows = range(1, count + 1)
    for start in range(0, count, 500):
        some = rows[start : start + 500]
        values: list[Any] = []
        for number in some:
            label = "odd" if number % 2 else "even"
            values += [user.bytes, "Updated", user.bytes, label, clock(), number, "by hand", 1]
            values.append(user.bytes)
        places = ", ".join(f"({', '.join('?' * 9)})" for _ in some)
        query(broker.database_url, f"INSERT INTO events ({columns}) VALUES {places}", *values)
