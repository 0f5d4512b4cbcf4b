"""A page has the first of the events that match all criteria, whichever index finds them."""

import asyncio
import itertools
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

from scbroker.records.canonical import UserId
from scbroker.server.events.pages import events_page
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.storage import tables
from scbroker.server.storage.database import open_database
from scbroker.server.storage.driver import Connection
from scbroker.wire.events import EventQuery

T = TypeVar("T")

USERS: Final = [UserId(bytes([n]) * 16) for n in (1, 2)]
KINDS: Final = ["Added", "Updated", "Accessed", "Deleted"]
TYPES: Final = ["letter", "note", "", None]
CONTAINERS: Final = [uuid.UUID(int=n) for n in range(3)]
Row = dict[str, Any]
CRITERIA: Final[dict[str, list[Any]]] = {
    "eventType": [["Deleted"], ["Updated", "Added"], ["Added", "Added"], KINDS],
    "containerId": [str(CONTAINERS[0]), str(uuid.UUID(int=9))],
    "containerType": ["letter", "", "none"],
    "startId": [50],
    "endId": [60],
}


def _rows() -> list[Row]:
    """Return events of two users in turn, of each kind, type and container; the last ten have no number."""
    count = itertools.count()
    return [
        {
            "user_id": user, "id": number + 1 if number < 90 else None, "event_type": kind,
            "container_id": container.bytes, "container_type": label, "date": next(count), "version": 1,
            "related_user_id": None, "application": "", "changes": 0,
            "previous_type": "letter" if kind == "Updated" and label != "letter" and number % 2 else None,
        }
        for number, (kind, label, container) in enumerate(
            itertools.islice(itertools.cycle(itertools.product(KINDS, TYPES, CONTAINERS)), 100)
        )
        for user in USERS
    ]  # fmt: skip


def _matches(row: Row, query: EventQuery) -> bool:
    return (
        row["user_id"] == USERS[0]
        and row["id"] is not None
        and (not query.eventType or row["event_type"] in query.eventType)
        and (query.containerId is None or str(uuid.UUID(bytes=row["container_id"])) == query.containerId)
        and (query.containerType is None
             or query.containerType in (row["container_type"], row["previous_type"]))
        and (query.startId is None or row["id"] >= query.startId)
        and (query.endId is None or row["id"] <= query.endId)
    )  # fmt: skip


def _queries() -> list[EventQuery]:
    chosen = itertools.product(*([None, *values] for values in CRITERIA.values()))
    asked = [
        {name: value for name, value in zip(CRITERIA, each, strict=True) if value is not None}
        for each in chosen
    ]
    return [EventQuery(**each, limit=limit) for each in asked for limit in (7, 1000)]


def _done(database_url: str, work: Callable[[Connection], T]) -> T:
    async def run() -> T:
        database = open_database(database_url)
        try:
            await bring_up(database)
            return await database.write(work)
        finally:
            await database.close()

    return asyncio.run(run())


@pytest.mark.long
def test_every_combination_of_criteria_finds_what_matches_in_order(database_url: str) -> None:
    rows, queries = _rows(), _queries()

    def ask(connection: Connection) -> list[list[int]]:
        connection.add(tables.events, rows)
        return [
            [row.id for row in connection.execute(*events_page(USERS[0], query))]
            for query in queries
        ]

    found = _done(database_url, ask)
    assert len(queries) == 2 * 5 * 3 * 4 * 2 * 2
    assert any(found)
    for query, ids in zip(queries, found, strict=True):
        assert ids == [row["id"] for row in rows if _matches(row, query)][: query.limit], query
