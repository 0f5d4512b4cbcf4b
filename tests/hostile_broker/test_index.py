"""Attacks on the index of names that a device keeps, and by a broker that hides changes from it.

Attacks 103, 121, 166 and 169 of attacks.toml. The device's marks, and the containers themselves, must show
what the index misses.
"""

import logging
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from scbroker import AccessLevel, BrokerError, Container, FileTrustStore, ServerProvider
from scbroker.desk.names import all_containers, containers_named
from scbroker.wire.containers import ViewOutcome, ViewsAnswer
from scbroker.wire.events import Events
from scbroker.wire.problems import item_problem_of
from tests.hostile_broker.accomplices import NO_LIST, Mallory
from tests.hostile_broker.protocol import EVENTS, VIEWS
from tests.kit import state
from tests.kit.limits import lower
from tests.kit.people import offer, put, with_access
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User


def named(device: ServerProvider, *names: str) -> list[list[uuid.UUID]]:
    """Return the ids that the device finds for each of these names."""
    found = containers_named(device, names).found
    return [[each.id for each in found[name]] for name in names]


def shown(device: ServerProvider) -> set[uuid.UUID | None]:
    return {each.id for each in all_containers(device) if isinstance(each, Container)}


def folder_of(device: ServerProvider) -> Path:
    store = device._trust_store
    assert isinstance(store, FileTrustStore)
    return store.directory


def rows(device: ServerProvider) -> list[tuple[bytes, bytes]]:
    """Return the rows of the index, the one of all containers first."""
    return state.read(folder_of(device), "SELECT part, sealed FROM names ORDER BY -length(sealed)")


def up_to(last: int) -> Callable[[Events], Events]:
    """Return the lie of a broker that shows no event after this one."""
    return lambda page: replace(
        page, events=[each for each in page.events if each.id <= last], lastId=last
    )


def last_event(device: ServerProvider) -> int:
    return device.getEvents().result(PATIENCE)[-1].id


@pytest.fixture
def device(mallory: Mallory, alice: User) -> ServerProvider:
    """Alice's device, which keeps an index."""
    return mallory.device_of(alice, store=mallory.new_store())


@pytest.fixture
def other(mallory: Mallory, alice: User) -> ServerProvider:
    """Another device of hers."""
    return mallory.device_of(alice)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["all", "changes", "both"])
def test_an_older_index_gives_no_older_answer(
    mallory: Mallory,
    device: ServerProvider,
    other: ServerProvider,
    bob: User,
    which: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if one of its rows is of another time than the other."""
    his = mallory.device_of(bob)
    box, renamed = offer(his, other, "box"), put(other, "old")
    assert named(device, "box") == [[box]]
    put(other, "a change")
    assert named(device, "box", "old") == [[box], [renamed]]
    older = rows(device)
    assert len(older) == 2
    assert not any(name in sealed for name in (b"box", b"old", box.bytes) for _, sealed in older)
    his.revokeAccess(box, [other.getUserId().result(PATIENCE)]).result(PATIENCE)
    other.updateContainerHeader(renamed, {"name": "new"}).result(PATIENCE)
    lower(monkeypatch, index_changes=-1)
    assert named(device, "box") == [[]]
    monkeypatch.undo()
    put(other, "another change")
    assert named(device, "old", "new") == [[], [renamed]]
    for number, row in enumerate(older):
        if which in (number, 2):
            state.change(folder_of(device), "REPLACE INTO names VALUES (?, ?)", *row)
    device = mallory.restarted(device)
    assert box not in shown(device)
    assert named(device, "box", "old", "new") == [[], [], [renamed]]


def test_a_change_that_the_device_has_verified_is_not_hidden_by_withholding_its_event(
    mallory: Mallory, device: ServerProvider, other: ServerProvider
) -> None:
    one = put(other, "old")
    assert named(device, "old") == [[one]]
    last = last_event(other)
    other.updateContainerHeader(one, {"name": "new"}).result(PATIENCE)
    two = put(other, "two")
    with mallory.lying(EVENTS, up_to(last)):
        for each in (one, two):
            device.getContainerMetadata(each).result(PATIENCE)
        assert named(device, "new", "two") == [[one], [two]]
        assert named(device, "old") == [[]]
        assert shown(mallory.restarted(device)) == {one, two}


def test_a_name_finds_no_container_that_has_another_one_by_now(
    mallory: Mallory, device: ServerProvider, other: ServerProvider
) -> None:
    """A new name that nothing of the device knows can be hidden, as a list can hide it: that is the limit."""
    one = put(other, "old")
    assert named(device, "old") == [[one]]
    last = last_event(other)
    other.updateContainerHeader(one, {"name": "new"}).result(PATIENCE)
    with mallory.lying(EVENTS, up_to(last)):
        assert named(device, "new") == [[]]
        assert named(device, "old") == [[]]
        assert named(device, "new") == [[one]]


def test_a_log_that_lacks_an_event_is_not_followed(
    mallory: Mallory,
    device: ServerProvider,
    other: ServerProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(other, "one")
    assert len(shown(device)) == 1
    two, _ = put(other, "two"), put(other, "three")

    def lie(page: Events) -> Events:
        return replace(page, events=[each for each in page.events if each.containerId != str(two)])

    with mallory.lying(EVENTS, lie), caplog.at_level(logging.WARNING):
        assert named(device, "two") == [[two]]
    assert "a list of all containers" in caplog.text


def test_a_denied_container_is_named_and_asked_for_again_by_each_list(
    mallory: Mallory,
    device: ServerProvider,
    other: ServerProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = put(other, "one")
    assert named(device, "one") == [[one]]

    def deny(answer: ViewsAnswer) -> ViewsAnswer:
        problem = item_problem_of(BrokerError.notFoundError())
        return replace(
            answer, views=[ViewOutcome(view=None, problem=problem) for _ in answer.views]
        )

    with mallory.lying(VIEWS, deny), caplog.at_level(logging.WARNING):
        assert named(device, "one") == [[]]
        assert shown(device) == set()
        assert named(device, "one") == [[]]
    assert str(one) in caplog.text
    assert named(device, "one") == [[one]]
    assert shown(device) == {one}


def test_a_strangers_container_with_a_long_past_delays_no_other_name(
    mallory: Mallory, alice: User, bob: User, carol: User, device: ServerProvider,
    other: ServerProvider, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It is read by its own name, by a name that the device does not find, and by a list."""
    lower(monkeypatch, index_governing=3)
    his, mine = mallory.device_of(bob), put(other, "mine")
    levels = [*with_access(his, alice.ring.userId, NO_LIST), AccessLevel(carol.ring.userId)]
    box = put(his, "box 0", accessLevels=levels)
    for number in range(4):
        his.updateContainerType(box, str(number)).result(PATIENCE)
    assert named(device, "mine", "box 0") == [[mine], [box]]

    def rename(number: int) -> None:
        his.updateContainerHeader(box, {"name": f"box {number}"}).result(PATIENCE)

    def asked() -> bool:
        """Return whether the device finds "mine" by reading the box, also if it is started again."""
        nonlocal device
        count = len(mallory.heard)
        assert named(device, "mine") == [[mine]]
        device = mallory.restarted(device)
        assert named(device, "mine") == [[mine]]
        views = [e.message.views for e in mallory.heard[count:] if e.name == VIEWS]
        return str(box) in {each.containerId for some in views for each in some}

    rename(1)
    assert not asked()
    assert named(device, "box 0") == [[]]
    rename(2)
    assert not asked()
    assert named(device, "box 2") == [[box]]
    rename(3)
    assert not asked()
    assert shown(device) == {mine, box}
    assert named(device, "box 3") == [[box]]


def test_no_list_reads_a_container_of_a_stranger_again_for_its_long_name(
    mallory: Mallory, device: ServerProvider, bob: User
) -> None:
    his = mallory.device_of(bob)
    for name in ("x" * 1024, "x" * 1025, "y" * 5000):
        offer(his, device, name)
    assert len(shown(device)) == 3
    count = len(mallory.heard)
    assert len(shown(mallory.restarted(device))) == 3
    assert VIEWS not in mallory.since(count)


def test_of_many_namesakes_few_are_read_besides_the_users_own(
    mallory: Mallory, device: ServerProvider, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    his = mallory.device_of(bob)
    for _ in range(3):
        offer(his, device, "plan.txt")
    own = put(device, "plan.txt")
    lower(monkeypatch, index_twins=2)
    [found] = named(device, "plan.txt")
    assert len(found) == 3
    assert own in found
