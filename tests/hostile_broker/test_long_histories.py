"""Attacks with histories that are too long to be judged at once: members append records, authors append keys.

Attack 48 of `catalogue`. A broker chooses where a page ends, so pages of one record stand for pages of 2 MiB.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.client.containers import fetching, history
from scbroker.client.core.judging import Mark
from scbroker.client.users import directory
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.hostile_broker.accomplices import NO_LIST, Mallory, marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import VIEW
from tests.hostile_broker.served import instead
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User, leave

all_mount(__name__, 48, "history flooded")

GOVERNING: Final = "GET /v1/containers/{containerId}/governing"
LABELS: Final = OWNER & ~Level.Delete & ~Level.ModifyAccess


def relabelled(alice: User, bob: User, carol: User, count: int) -> Story:
    """A container whose type Bob, who may not delete it, has changed so often."""
    story = Story(alice).created({alice: OWNER, bob: LABELS, carol: NO_LIST})
    for number in range(count):
        story.tell(bob, story.follow(bob, type=str(number)))
    story.tell(alice, story.follow(alice, content=b"last"))
    return story


@contextmanager
def pages_of_one(mallory: Mallory, after: int | None = None) -> Iterator[list[str]]:
    """Every page has one record. After so many pages no more are served. Gives the requests for them."""
    asked: list[str] = []

    def cut(answer: Any) -> Any:
        return replace(answer, governing=answer.governing[:1])

    def withhold(exchange: Exchange) -> None:
        asked.append(exchange.query)
        if after is not None and len(asked) > after:
            exchange.fail(BrokerError.throttledError("later", retryAfter=60.0))

    with (
        mallory.lying(VIEW, cut),
        mallory.meddling(GOVERNING, before=withhold),
        mallory.lying(GOVERNING, cut),
    ):
        yield asked


def mark_of(mallory: Any, story: Story) -> Mark | None:
    stored = marks(mallory).get((fetching.KIND, story.id))
    return None if stored is None else Mark.decode(stored)


@pytest.mark.long
def test_a_reading_that_was_cut_off_goes_on_where_it_was_and_the_owner_removes_who_did_it(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """No total bound ends it for good: each reading gets further, and then everything works again."""
    story = relabelled(alice, bob, carol, 6)
    device = mallory.device_of(alice)
    with pages_of_one(mallory, after=3) as asked, pytest.raises(BrokerError.throttledError):
        device.getContainer(story.uuid).result(PATIENCE)
    assert len(asked) == 4
    reached = mark_of(device, story)
    assert reached is not None
    assert (reached.version, reached.partial, reached.complete) == (4, True, True)
    with pages_of_one(mallory) as asked:
        found = device.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.type, found.version) == (b"last", "5", 8)
    assert [query.partition("&")[0] for query in asked] == ["from=5", "from=6", "from=7"]
    reached = mark_of(device, story)
    assert reached is not None
    assert (reached.version, reached.partial) == (8, False)
    with pages_of_one(mallory):
        fresh = mallory.device_of(alice)
        fresh.updateContainerAccessLevels(story.uuid).result(PATIENCE)
        fresh.deleteContainer(story.uuid).result(PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize("reader", ["alice", "carol"])
def test_a_tombstone_that_is_not_verified_yet_moves_no_mark_to_another_history(
    mallory: Mallory, reader: str, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The tombstone is a pretext not to show the records that lead from the mark to the first page's end."""
    story = relabelled(alice, bob, carol, 3)
    device = mallory.device_of({"alice": alice, "carol": carol}[reader], eve)
    device.getContainer(story.uuid).result(PATIENCE)
    before = marks(device)
    other = mallory.rewind(story, 4)
    for changes in ({"content": b"5"}, {"content": b"6"}, {"type": "7"}, {"type": "8"}):
        mallory.plant(other, other.follow(bob, **changes))
    pretext = other.altered(eve, other.follow(alice, tombstone=True), author=eve.name).record
    for head in (pretext, other.follow(bob, tombstone=True).record):
        with (
            mallory.lying(VIEW, instead(head=head)),
            pages_of_one(mallory),
            pytest.raises(BrokerError.untrustedError),
        ):
            device.getContainer(story.uuid).result(PATIENCE)
        assert marks(device) == before
    mallory.rewind(story, 5)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"last"


def test_authors_with_many_keys_are_judged_a_few_at_a_time(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question for all of their keys would be too long; that for the keys of a few never is."""
    alice, *others = mallory.people(6)
    story = Story(alice).created({alice: OWNER, **dict.fromkeys(others, LABELS)})
    for number, user in enumerate(others):
        story.tell(user, story.follow(user, type=str(number)))
    device = mallory.device_of(alice)
    monkeypatch.setattr(directory, "_MOST", 6)  # each user has two key records
    monkeypatch.setattr(history, "PIECE_SIGNERS", 3)
    shown: list[str | None] = []
    with suppress(BrokerError.tooLargeError):
        shown.append(device.getContainer(story.uuid).result(PATIENCE).type)
    assert shown == ["4"]


@pytest.mark.long
def test_leavers_with_many_keys_are_judged_a_few_at_a_time(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else members who leave one list at once could make a container unreadable for its owner."""
    alice, *others = mallory.people(6)
    story = Story(alice).created({alice: OWNER, **dict.fromkeys(others, LABELS)})
    story.tell(others[0], story.follow(others[0], type="1"))
    for user in others:
        leave(story, user).expect(204)
    device = mallory.device_of(alice)
    monkeypatch.setattr(directory, "_MOST", 6)  # each user has two key records
    monkeypatch.setattr(history, "PIECE_SIGNERS", 3)
    found = device.getContainer(story.uuid).result(PATIENCE)
    assert [str(each.userId) for each in found.access or ()] == [alice.id]
    device.deleteContainer(story.uuid).result(PATIENCE)
