"""Attacks on many containers at once: one lie among truths, and answers that are moved, doubled or left out.

Attacks 21, 22, 38 and 40 of `catalogue`. What is lied about has its own error and keeps its mark; the others
are read and made as ever.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import (
    BrokerError,
    Container,
    FileTrustStore,
    NewContainer,
    SecuredContainer,
    ServerProvider,
)
from scbroker.client.containers.fetching import KIND
from scbroker.wire.containers import ViewOutcome
from scbroker.wire.problems import ItemProblem
from tests.hostile_broker.accomplices import Mallory, level, marks, verified_marks
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import FAULT, FORK, INTEGRITY, ROLLBACK
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, Story, User

RECORDS: Final = "POST /v1/batches/records"
VIEWS: Final = "POST /v1/batches/views"
Lie = Callable[[Any], Any]


def stories(alice: User, *others: User) -> list[Story]:
    return [
        Story(alice).created({alice: OWNER, **dict.fromkeys(others, READER)}, content=b"%d" % n)
        for n in range(3)
    ]


def read(device: ServerProvider, told: list[Story]) -> list[Any]:
    found = device.getContainers([story.uuid for story in told]).result(PATIENCE)
    return [each.content if isinstance(each, Container) else type(each) for each in found]


def made(device: ServerProvider, count: int = 3) -> list[type]:
    items = [NewContainer(b"secret") for _ in range(count)]
    return [type(each) for each in device.createContainers(items).result(PATIENCE)]


def mark_of(device: ServerProvider, story: Story) -> bytes | None:
    return marks(device).get((KIND, story.id))


@pytest.mark.long
@attack(21, "rollback and fork")
def test_an_older_state_among_newer_ones_is_refused_and_the_others_are_read(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    assert read(device, told) == [b"0", b"1", b"2"]
    for story in told:
        story.tell(alice, story.follow(alice, content=b"new"))
    assert read(device, told) == [b"new"] * 3
    before = mark_of(device, told[1])
    mallory.plant(older := told[1].twin(), told[1].requests[0])
    older.took(older.requests[0])
    for story in told[::2]:
        story.tell(alice, story.follow(alice, content=b"newer"))
    assert read(device, told) == [b"newer", ROLLBACK, b"newer"]
    assert mark_of(device, told[1]) == before
    mallory.plant(told[1], told[1].requests[1])
    assert read(device, told) == [b"newer", b"new", b"newer"]


@attack(21, "rollback and fork")
def test_another_history_among_true_ones_is_a_fork_also_once_the_device_was_started_again(
    mallory: Mallory, tmp_path: Path, alice: User, bob: User
) -> None:
    told = [Story(alice).created({alice: OWNER, bob: OWNER}) for _ in range(3)]
    for story in told:
        story.tell(alice, story.follow(alice, content=b"true"))
    with mallory.device_of(alice, bob, store=FileTrustStore(tmp_path)) as before:
        assert read(before, told) == [b"true"] * 3
    lie = told[0].twin()
    lie.records.pop()
    mallory.plant(lie, lie.follow(bob, content=b"another"))
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    assert read(device, told) == [FORK, b"true", b"true"]
    assert read(device, told[:1]) == [FORK]


@attack(21, "rollback and fork")
def test_receipts_that_are_swapped_or_invented_are_found_and_leave_no_mark(
    mallory: Mallory, alice: User
) -> None:
    device = mallory.device_of(alice)
    refused, done = INTEGRITY, SecuredContainer
    before = verified_marks(device)
    with mallory.lying(RECORDS, lambda a: replace(a, records=a.records[::-1])):
        assert made(device, 2) == [refused, refused]
    assert verified_marks(device) == before

    def invent(answer: Any) -> Any:
        receipt = replace(answer.records[0].receipt, version=2)
        first = replace(answer.records[0], receipt=receipt)
        return replace(answer, records=[first, *answer.records[1:]])

    with mallory.lying(RECORDS, invent):
        assert made(device) == [refused, done, done]
    assert len(verified_marks(device)) == len(before) + 2


@pytest.mark.sampled
@attack(22, "container injected")
@pytest.mark.parametrize("marked", [False, True], ids=["fresh", "marked"])
def test_views_that_change_places_are_refused_and_what_stands_in_its_own_is_read(
    mallory: Mallory, alice: User, marked: bool
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    if marked:
        read(device, told)
    before = marks(device)

    def swap(answer: Any) -> Any:
        return replace(answer, views=[answer.views[n] for n in (1, 0, 2)])

    with mallory.lying(VIEWS, swap):
        found = read(device, told)
    assert [issubclass(error, BrokerError.untrustedError) for error in found[:2]] == [True, True]
    assert found[2] == b"2"
    now = marks(device)
    assert [now.get((KIND, each.id)) for each in told[:2]] == [
        before.get((KIND, each.id)) for each in told[:2]
    ]
    assert read(device, told) == [b"0", b"1", b"2"]


@attack(38, "deleted container brought back")
def test_a_deletion_in_a_batch_that_nobody_signed_is_no_deletion(
    mallory: Mallory, alice: User
) -> None:
    told = stories(alice)
    told[2].tell(alice, told[2].follow(alice, tombstone=True))
    device = mallory.device_of(alice)

    def deny(answer: Any) -> Any:
        problem = ItemProblem(code="deleted", detail="The container was deleted.")
        return replace(answer, views=[ViewOutcome(view=None, problem=problem), *answer.views[1:]])

    with mallory.lying(VIEWS, deny):
        assert read(device, told) == [
            INTEGRITY, b"1", BrokerError.deletedError,
        ]  # fmt: skip
    assert read(device, told) == [b"0", b"1", BrokerError.deletedError]


COUNTS: dict[str, Lie] = {
    "one more": lambda items: [*items, items[-1]],
    "twice": lambda items: items * 2,
}


@attack(40, "parser ambiguity and bombs")
@pytest.mark.parametrize("lie", COUNTS, ids=str)
def test_more_answers_than_were_asked_for_are_taken_for_none(
    mallory: Mallory, alice: User, lie: str
) -> None:
    told = stories(alice)
    device = mallory.device_of(alice)
    before = verified_marks(device)
    count = COUNTS[lie]
    with mallory.lying(VIEWS, lambda a: replace(a, views=count(a.views))), pytest.raises(FAULT):
        read(device, told)
    with mallory.lying(RECORDS, lambda a: replace(a, records=count(a.records))):
        assert made(device) == [FAULT] * 3
    assert verified_marks(device) == before


@attack(40, "parser ambiguity and bombs")
def test_fewer_receipts_than_records_are_taken_for_none(mallory: Mallory, alice: User) -> None:
    device = mallory.device_of(alice)
    before = verified_marks(device)
    for count in (0, 1, 2):

        def cut(answer: Any, count: int = count) -> Any:
            return replace(answer, records=answer.records[:count])

        with mallory.lying(RECORDS, cut):
            assert made(device) == [FAULT] * 3
    with mallory.lying(VIEWS, lambda a: replace(a, views=[])), pytest.raises(FAULT):
        read(device, stories(alice))
    assert verified_marks(device) == before


@attack(3, "ghost recipient")
def test_a_batch_is_shared_with_those_alone_whom_each_container_names(mallory: Mallory) -> None:
    """Users whose keys one request asked for get no wrap of each other's containers."""
    alice, bob, carol = mallory.people(3)
    device = mallory.device_of(alice)
    for_whom = [[alice, bob], [alice, carol], [alice]]
    items = [NewContainer(b"s", accessLevels=[level(user) for user in each]) for each in for_whom]
    found = device.createContainers(items).result(PATIENCE)
    for each, users in zip(found, for_whom, strict=True):
        assert isinstance(each, SecuredContainer)
        assert each.access is not None
        assert {entry.userId for entry in each.access} == {user.ring.userId for user in users}
    ids = [each.id for each in found if isinstance(each, SecuredContainer)]
    for user, expected in ((bob, [True, False, False]), (carol, [False, True, False])):
        seen = mallory.device_of(user).getContainers(ids).result(PATIENCE)
        assert [isinstance(each, Container) for each in seen] == expected
