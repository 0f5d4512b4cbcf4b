"""Users are listed a page at a time, in each order, and found by the beginning of their id."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin.user_pages import Order, Page, page
from tests.kit.beside import further_broker
from tests.kit.brokers import Wire
from tests.kit.fixtures import StartBroker
from tests.kit.writers import OWNER, Story, User


def listed(url: str, order: Order, beginning: str = "", after: int = 0, count: int = 50) -> Page:
    async def read() -> Page:
        async with further_broker(url) as broker:
            return await broker.database.read(lambda c: page(c, order, beginning, after, count))

    return asyncio.run(read())


def test_each_order_has_the_largest_or_newest_users_first_on_pages_without_gap(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    rings = [broker.new_user() for _ in range(5)]
    for number, ring in enumerate(rings):
        with Wire(broker) as wire:
            author = User(ring, wire.log_in(ring))
            for _ in range(number):
                Story(author).created({author: OWNER})
    url = broker.database_url
    created = [ring.userId for ring in rings]
    for order, wanted in {
        Order.Containers: created[::-1],
        Order.Registered: created[::-1],
        Order.Bytes: created[::-1],
        Order.Id: sorted(created),
    }.items():
        whole = listed(url, order)
        assert [each.user_id for each in whole.users] == wanted, order
        assert not whole.has_more
        paged = [listed(url, order, after=after, count=2) for after in (0, 2, 4)]
        assert [each.user_id for found in paged for each in found.users] == wanted
        assert [found.has_more for found in paged] == [True, True, False]
    [found] = listed(url, Order.Id, str(created[3]).upper()).users
    assert (found.user_id, found.containers) == (created[3], 3)
    assert found.bytes > 0
    assert found.quota_bytes is None
    beginning = created[0].hex[:9]
    same = [each for each in created if each.hex.startswith(beginning)]
    assert [each.user_id for each in listed(url, Order.Id, beginning).users] == sorted(same)


@pytest.mark.parametrize("beginning", ["x", "0" * 33, "0x", "é", f"{uuid.UUID(int=0)}0"])
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_beginning_that_no_id_can_have_is_refused(
    start_broker: StartBroker, beginning: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="32 digits"):
        listed(start_broker().database_url, Order.Id, beginning)
