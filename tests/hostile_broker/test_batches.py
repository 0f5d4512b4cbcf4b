"""Attacks on many containers at once: one lie among truths, and answers that are moved, doubled or left out.

Attacks 21, 22, 38 and 40 of `catalogue`. What is lied about has its own error and keeps its mark; the others
are read and made as ever.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import Container, FileTrustStore, NewContainer, ServerProvider
from tests.hostile_broker.accomplices import Mallory, verified_marks
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import FAULT, FORK
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
