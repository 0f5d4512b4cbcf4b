"""Attacks on a list of containers: entries that are left out, added, moved, doubled, old or of another type.

Attacks 64 to 67 of `catalogue`.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, Container, ServerProvider
from scbroker.client.users import trust_store
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import ContainerList, ViewOutcome, ViewsAnswer
from scbroker.wire.problems import item_problem_of
from tests.hostile_broker.accomplices import Mallory, marks
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import FAULT, INTEGRITY, LIST, ROLLBACK
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User

VIEWS: Final = "POST /v1/batches/views"
Lie = Callable[[ContainerList], ContainerList]


def stories(alice: User, count: int = 3, **options: Any) -> list[Story]:
    """Return containers in the order of a list."""
    told = [Story(alice).created(**options) for _ in range(count)]
    return sorted(told, key=lambda story: story.id)


def entries(device: ServerProvider, **wanted: Any) -> list[Any]:
    """Return the version of each entry of a page, or the class of its error."""
    found = device.listContainers(**wanted).result(PATIENCE).containers
    return [each.version if isinstance(each, Container) else type(each) for each in found]


def those(keep: Callable[[int], bool]) -> Lie:
    return lambda page: replace(
        page, containers=[each for n, each in enumerate(page.containers) if keep(n)]
    )


def with_view_of(story: Story, other: Story) -> Lie:
    """Return a lie that serves another container's view under the id of this one."""

    def lie(page: ContainerList) -> ContainerList:
        views = {item.containerId: item.view for item in page.containers}
        return replace(
            page,
            containers=[
                replace(item, view=views[str(other.uuid)])
                if item.containerId == str(story.uuid)
                else item
                for item in page.containers
            ],
        )

    return lie


@attack(64, "containers left out of a list")
def test_an_empty_list_has_every_known_container_in_left_out_by_bounded_pages(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice, 5)
    device = mallory.device_of(alice)
    assert entries(device) == [1] * 5
    mallory.query("DELETE FROM members WHERE user_id = ?", alice.ring.userId.bytes)
    assert left_out(device) == [story.uuid for story in told]


@attack(64, "containers left out of a list")
def test_a_device_that_was_restarted_names_them_whatever_the_order_of_its_marks(
    mallory: Mallory, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_store, "_COMPACT_AT", 0)
    told = stories(alice, 5)
    device = mallory.device_of(alice, store=mallory.new_store())
    for story in reversed(told):
        device.getContainer(story.uuid).result(PATIENCE)
    device = mallory.restarted(device)
    mallory.query("DELETE FROM members WHERE user_id = ?", alice.ring.userId.bytes)
    assert left_out(device) == [story.uuid for story in told]


def left_out(device: ServerProvider) -> list[UUID]:
    """Return the containers that pages of two leave out."""
    left: list[UUID] = []
    after: UUID | None = None
    while True:
        page = device.listContainers(startAfter=after, limit=2).result(PATIENCE)
        assert len(page.leftOut) <= 2
        left += page.leftOut
        if (after := page.next) is None:
            return left


@attack(64, "containers left out of a list")
def test_only_a_verified_tombstone_excuses_a_container_that_is_left_out(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    assert entries(device) == [1, 1, 1]

    def claim(page: ViewsAnswer) -> ViewsAnswer:
        problem = item_problem_of(BrokerError.deletedError())
        return replace(page, views=[ViewOutcome(view=None, problem=problem)])

    with mallory.lying(LIST, those(lambda n: n != 1)), mallory.lying(VIEWS, claim):
        assert entries(device) == [1, INTEGRITY, 1]
    told[1].tell(alice, told[1].follow(alice, tombstone=True))
    assert entries(device) == [1, 1]
    count = len(mallory.heard)
    assert entries(device) == [1, 1]
    assert mallory.since(count) == [LIST], "the proof is remembered"


DISORDER: dict[str, Lie] = {
    "moved": lambda page: replace(page, containers=page.containers[::-1]),
    "doubled": lambda page: replace(page, containers=[page.containers[0], *page.containers]),
    "a next that skips": lambda page: replace(page, next=str(UUID(int=2**128 - 1))),
    "a next that goes back": lambda page: replace(page, next=page.containers[0].containerId),
    "a next of nothing": lambda page: replace(page, containers=[], next=str(UUID(int=2**127))),
}


@attack(65, "list out of order")
@pytest.mark.parametrize("lie", DISORDER.values(), ids=DISORDER)
def test_a_list_out_of_order_is_refused_as_a_whole(mallory: Mallory, alice: User, lie: Lie) -> None:
    stories(alice)
    device = mallory.device_of(alice)
    before = marks(device)
    with mallory.lying(LIST, lie):
        with pytest.raises(FAULT):
            device.listContainers().result(PATIENCE)
        with pytest.raises(FAULT):
            list(device.iterContainers())
    assert marks(device) == before


@attack(65, "list out of order")
def test_a_page_begins_after_its_cursor_and_has_no_more_than_were_asked_for(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    pages: list[ContainerList] = []

    def first_again(page: ContainerList) -> ContainerList:
        pages.append(page)
        return pages[0]

    with mallory.lying(LIST, first_again):
        device.listContainers(limit=1).result(PATIENCE)
        with pytest.raises(FAULT):
            device.listContainers(startAfter=told[0].uuid, limit=1).result(PATIENCE)
        with pytest.raises(FAULT):
            list(device.iterContainers(startAfter=told[0].uuid))
    pages.clear()
    with mallory.lying(LIST, first_again):
        assert entries(device) == [1, 1, 1]
        with pytest.raises(FAULT):
            device.listContainers(limit=2).result(PATIENCE)


@attack(66, "other containers in a list")
def test_a_view_of_another_container_is_an_error_in_its_place(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    with mallory.lying(LIST, with_view_of(told[1], told[2])):
        assert entries(device) == [1, INTEGRITY, 1]
    assert entries(device) == [1, 1, 1]


@attack(66, "other containers in a list")
def test_a_container_without_access_or_of_another_type_is_an_error_in_its_place(
    mallory: Mallory, alice: User, bob: User
) -> None:
    letter, other = stories(alice, 1, type="letter")[0], stories(alice, 1, type="other")[0]
    device = mallory.device_of(alice, bob)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", other.id)
    wanted = sorted([(letter.id, 1), (other.id, INTEGRITY)], key=lambda each: each[0])
    assert entries(device, containerType="letter") == [what for _, what in wanted]
    closed = Story(bob).created({bob: OWNER})
    mallory.serve_also(closed.uuid, alice, None)
    found = device.listContainers().result(PATIENCE).containers
    [error] = [each for each in found if isinstance(each, BrokerError)]
    assert (type(error), error.containerId) == (INTEGRITY, closed.uuid)
    assert len(found) == 3


@attack(66, "other containers in a list")
def test_a_hidden_type_is_not_passed_off_as_the_one_asked_for(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """Bob may not see the type, so his client cannot verify which type the broker lists."""
    story = Story(alice).created({alice: OWNER, bob: READER & ~Level.ViewType}, type="letter")
    device = mallory.device_of(bob, alice)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", story.id)
    assert entries(device, containerType="letter") == [INTEGRITY]
    assert entries(device) == [1]


@attack(67, "old states in a list")
def test_an_older_state_in_a_list_is_refused_and_the_others_are_read(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    for story in told:
        story.tell(alice, story.follow(alice, type="new"))
    device = mallory.device_of(alice, store=mallory.new_store())
    assert entries(device) == [2, 2, 2]
    before = marks(device)
    mallory.plant(told[1].twin(), told[1].requests[0])
    for _ in range(2):
        assert entries(device) == [2, ROLLBACK, 2]
        assert marks(device) == before
        device = mallory.restarted(device)


@attack(67, "old states in a list")
def test_a_known_container_is_judged_by_its_mark_although_the_request_did_not_name_it(
    mallory: Mallory, alice: User
) -> None:
    """With a type the request names only the first marks; the broker serves other containers whole."""
    told = stories(alice, 4, type="old")
    for story in told:
        story.tell(alice, story.follow(alice, type="letter"))
    device = mallory.device_of(alice)
    assert entries(device) == [2] * 4
    last = told[-1]
    mallory.plant(last.twin(), last.requests[0])
    mallory.query("UPDATE members SET type = NULL WHERE container_id <> ?", last.id)
    mallory.query("UPDATE members SET type = 'letter' WHERE container_id = ?", last.id)
    assert entries(device, containerType="letter", limit=1) == [ROLLBACK]
