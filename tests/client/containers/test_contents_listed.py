"""A list has every container that the user may read, verified, and shows what a broker leaves out."""

import logging
import uuid
from typing import Any

import pytest

from scbroker import Availability, Container, ContainerPage, NewContainer, ServerProvider
from tests.client.conftest import beside
from tests.client.test_batches import Note, notes
from tests.client.test_batches import ids as created
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.network import Network
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE

VIEWS = "/v1/batches/views"


@pytest.fixture
def bob(new_provider: NewProvider) -> ServerProvider:
    """A new user: the list of a user of the pool would have the containers of other tests."""
    return new_provider(True)


def page(provider: ServerProvider, **wanted: Any) -> ContainerPage[Any]:
    found: ContainerPage[Any] = provider.listContainers(**wanted).result(PATIENCE)
    return found


def pages(provider: ServerProvider, **wanted: Any) -> list[ContainerPage[Any]]:
    found = [page(provider, **wanted)]
    while found[-1].next is not None:
        found.append(page(provider, startAfter=found[-1].next, **wanted))
    return found


def ids(*found: ContainerPage[Any]) -> list[Any]:
    return [getattr(item, "id", item) for each in found for item in each.containers]


def hide(broker: BrokerProcess, *hidden: uuid.UUID) -> None:
    """Have the broker deny these containers: delete the rows of their members."""
    for each in hidden:
        query(broker.database_url, "DELETE FROM members WHERE container_id = ?", each.bytes)


def unlist(broker: BrokerProcess, *hidden: uuid.UUID) -> None:
    """Have the broker leave these containers out of lists, but serve them when requested by id."""
    change = "UPDATE members SET expiry_recorded = true WHERE container_id = ?"
    for each in hidden:
        query(broker.database_url, change, each.bytes)


@both_engines
def test_a_page_equals_a_read_of_each_container_without_its_content(
    alice: ServerProvider, bob: ServerProvider, new_provider: NewProvider
) -> None:
    made = created(alice, [*notes(3, alice, bob, type="letter"), NewContainer(b"no header")])
    for device in (alice, beside(alice, new_provider)):
        found = page(device)
        assert (found.next, found.leftOut) == (None, [])
        assert ids(found) == sorted(made)
        for item in found.containers:
            assert isinstance(item, Container)
            whole = alice.getContainer(item.id).result(PATIENCE)
            assert (item.header, item.type, item.access) == (whole.header, whole.type, whole.access)
            assert (item.version, item.length) == (whole.version, whole.length)
            assert item.content is None
            assert item.contentAvailability is Availability.NotIncluded
    assert ids(page(bob)) == sorted(made[:3])


@pytest.mark.sampled
@pytest.mark.parametrize("limit", [1, 3, 4, 64])
def test_pages_of_any_size_have_each_container_once_on_fresh_and_known_devices(
    alice: ServerProvider, new_provider: NewProvider, limit: int
) -> None:
    made = created(alice, notes(5, type="odd") + notes(3))
    fresh = beside(alice, new_provider)
    for device in (alice, fresh, fresh):
        assert ids(*pages(device, limit=limit)) == sorted(made)
        assert ids(*pages(device, limit=limit, containerType="odd")) == sorted(made[:5])
        assert [
            each.id for each in device.iterContainers() if isinstance(each, Container)
        ] == sorted(made)


def test_containers_that_come_and_go_between_pages_leave_the_others_exactly_once(
    alice: ServerProvider,
) -> None:
    made = sorted(created(alice, notes(6)))
    first = page(alice, limit=2)
    more = created(alice, notes(6))
    alice.deleteContainer(made[0]).result(PATIENCE)
    alice.deleteContainer(made[4]).result(PATIENCE)
    rest = [page(alice, limit=2, startAfter=first.next)]
    while rest[-1].next is not None:
        rest.append(page(alice, limit=2, startAfter=rest[-1].next))
    found = ids(first, *rest)
    assert found == sorted({*made[:4], made[5], *(each for each in more if each > made[1])})
    assert [each.leftOut for each in rest] == [[]] * len(rest)


def test_a_list_of_a_type_has_known_containers_behind_many_of_other_types(
    alice: ServerProvider, network: Network
) -> None:
    """A request names only the device's first marks, which are all of containers of other types."""
    others, wanted = created(alice, notes(12)), created(alice, notes(3, type="rare"))
    for each in wanted:
        alice.updateContainerType(each, "very rare").result(PATIENCE)
    before = len(network.those("POST", VIEWS))
    assert ids(*pages(alice, containerType="very rare", limit=2)) == sorted(wanted)
    assert len(network.those("POST", VIEWS)) == before
    assert sorted(ids(*pages(alice, limit=2))) == sorted([*others, *wanted])


def test_a_container_that_the_broker_denies_is_in_left_out_of_its_own_page_alone(
    alice: ServerProvider, broker: BrokerProcess, new_provider: NewProvider
) -> None:
    made = sorted(created(alice, notes(7)))
    gone = [made[0], made[3], made[6]]
    hide(broker, *gone)
    for limit in (1, 2, 3, 64):
        found = pages(alice, limit=limit)
        assert ids(*found) == [each for each in made if each not in gone]
        assert [each for one in found for each in one.leftOut] == gone
        starts = [uuid.UUID(int=0), *(one.next for one in found[:-1] if one.next)]
        ends = [*starts[1:], uuid.UUID(int=2**128 - 1)]
        for start, end, one in zip(starts, ends, found, strict=True):
            assert all(start < each <= end for each in [*ids(one), *one.leftOut])
    assert pages(alice, containerType="any")[0].leftOut == []
    assert pages(beside(alice, new_provider))[0].leftOut == []


def test_a_container_that_only_the_list_leaves_out_joins_its_page_with_a_warning(
    alice: ServerProvider, broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    made = sorted(created(alice, notes(5)))
    unlist(broker, made[1], made[4])
    found = pages(alice, limit=2)
    assert ids(*found) == made
    assert [each.leftOut for each in found] == [[]] * len(found)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [any(str(each) in line for line in warned) for each in made] == [
        False, True, False, False, True,
    ]  # fmt: skip


def test_iterating_logs_what_is_left_out(
    alice: ServerProvider, broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    made = sorted(created(alice, notes(3)))
    hide(broker, made[1])
    assert [each.id for each in alice.iterContainers() if isinstance(each, Container)] == [
        made[0],
        made[2],
    ]
    [warning] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert str(made[1]) in warning


@pytest.mark.long
async def test_async_for_starts_after_a_given_id_and_can_be_left(alice: ServerProvider) -> None:
    promise = alice.createContainers(notes(130))
    made = sorted(each.id for each in await promise)  # type: ignore[union-attr] # no errors
    async with alice.iterContainers(startAfter=made[9], headerType=Note) as stream:
        first = await anext(stream)
        assert isinstance(first, Container)
        assert first.id == made[10]
    rest = [each async for each in alice.iterContainers(startAfter=made[99], headers=False)]
    assert [each.id for each in rest if isinstance(each, Container)] == made[100:]
