"""Attacks with histories that are too long to be judged at once: members append records, authors append keys.

Attack 48 of `catalogue`. A broker chooses where a page ends, so pages of one record stand for pages of 2 MiB.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.client.containers import fetching, history
from scbroker.client.core.judging import Evidence, Mark, State
from scbroker.client.users import directory
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import ContainerView, GoverningPage
from tests.hostile_broker.accomplices import NO_LIST, Mallory, marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import FORK, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.served import instead
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Grants, Story, User, leave, rotate

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


@pytest.mark.sampled
@pytest.mark.parametrize("reader", ["alice", "carol"])
@pytest.mark.parametrize("known", [0, 1, 4])
def test_every_reader_judges_it_page_by_page_whatever_was_read_before(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch, reader: str, known: int,
    alice: User, bob: User, carol: User,
) -> None:  # fmt: skip
    """Carol does not see the list, so that she judges the past again; never more than a page is in memory."""
    story = relabelled(alice, bob, carol, 6)
    device = mallory.device_of({"alice": alice, "carol": carol}[reader])
    sizes, honest = list[int](), Evidence.judge_signed

    def judge_signed(self: Evidence, *rest: Any) -> State:
        sizes.append(len(self.views))
        return honest(self, *rest)

    if known:
        mallory.rewind(story, known)
        device.getContainer(story.uuid).result(PATIENCE)
        mallory.rewind(story, 8)
    monkeypatch.setattr(Evidence, "judge_signed", judge_signed)
    with pages_of_one(mallory):
        for _ in range(2):
            assert device.getContainerContent(story.uuid).result(PATIENCE) == b"last"
    assert set(sizes) == {1}
    other = mallory.rewind(story, 3)
    mallory.check_refused(device, other, ROLLBACK)
    for number in range(6):
        mallory.plant(other, other.follow(bob, type=f"other {number}"))
    with pages_of_one(mallory):
        mallory.check_refused(device, story, FORK)


@pytest.mark.long
def test_a_deletion_at_the_end_of_a_long_history_is_believed(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    story = relabelled(alice, bob, carol, 4)
    marked, unlisted, fresh = (mallory.device_of(user) for user in (alice, carol, alice))
    mallory.rewind(story, 2)
    for device in (marked, unlisted):
        device.getContainer(story.uuid).result(PATIENCE)
    mallory.rewind(story, 6)
    story.tell(alice, story.follow(alice, tombstone=True))
    with pages_of_one(mallory):
        for device in (marked, unlisted, fresh):
            for _ in range(2):
                with pytest.raises(BrokerError.deletedError):
                    device.getContainer(story.uuid).result(PATIENCE)


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


def test_no_further_page_is_asked_for_behind_one_that_no_member_signed(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    """The broker alone cannot make it go on without end."""
    story = relabelled(alice, bob, carol, 6)
    forged = story.altered(eve, story.requests[2])
    device = mallory.device_of(alice, eve)

    def forge(page: GoverningPage) -> GoverningPage:
        return replace(page, governing=[replace(page.governing[0], record=forged.record)])

    def cut(view: ContainerView) -> ContainerView:
        return replace(view, governing=view.governing[:2])

    count = len(mallory.heard)
    with mallory.lying(VIEW, cut), mallory.lying(GOVERNING, forge), pytest.raises(INTEGRITY):
        device.getContainer(story.uuid).result(PATIENCE)
    assert mallory.since(count).count(GOVERNING) == 1


@pytest.mark.long
@pytest.mark.parametrize("known", [0, 3, 4])
def test_departures_are_judged_page_by_page_with_the_lists_that_users_left(
    mallory: Mallory, alice: User, bob: User, carol: User, known: int
) -> None:
    """Alice, an owner, leaves after changes of type; Bob's list without her is valid by her departure alone.

    Carol leaves Bob's list, after another change of type: each page that begins there has the list again.
    """
    dave = mallory.people(1)[0]
    story = Story(alice).created({alice: OWNER, bob: LABELS, carol: LABELS, dave: LABELS})
    device = mallory.device_of(dave)
    for number in range(2):
        story.tell(bob, story.follow(bob, type=str(number)))
    if known == 3:
        device.getContainer(story.uuid).result(PATIENCE)
    leave(story, alice).expect(204)
    remaining: Grants = {bob: LABELS, carol: LABELS, dave: LABELS}
    story.tell(bob, replace(story.follow(bob, grants=remaining), departures=1))
    if known == 4:
        device.getContainer(story.uuid).result(PATIENCE)
    story.tell(bob, story.follow(bob, type="2"))
    leave(story, carol).expect(204)
    story.tell(bob, story.follow(bob, type="3"))
    with pages_of_one(mallory):
        found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    assert (found.version, found.type) == (6, "3")
    assert {str(each.userId) for each in found.access or ()} == {bob.id, dave.id}
    reached = mark_of(device, story)
    assert reached is not None
    assert (reached.complete, reached.partial) == (True, False)

    def hide(page: GoverningPage) -> GoverningPage:
        shown = [
            each
            if each.accessList is None
            else replace(each, accessList=replace(each.accessList, departures=[]))
            for each in page.governing
        ]
        return replace(page, governing=shown)

    fresh = mallory.device_of(dave)
    with pages_of_one(mallory), mallory.lying(GOVERNING, hide), pytest.raises(INTEGRITY):
        fresh.getContainerMetadata(story.uuid).result(PATIENCE)


def test_a_user_who_renews_their_keys_and_leaves_between_two_pages_is_no_false_alarm(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """The view does not name Carol's new key, and the device knows her chain without it."""
    story = relabelled(alice, bob, carol, 2)
    device = mallory.device_of(alice)
    device.getPublicKeys(uuid.UUID(carol.id)).result(PATIENCE)

    def leaves(_: Exchange) -> None:
        if not left:
            left.append(rotate(mallory.behind.database_url, carol, signing=1))
            leave(story, left[0]).expect(204)

    left: list[User] = []
    with pages_of_one(mallory), mallory.meddling(GOVERNING, before=leaves):
        found = device.getContainerMetadata(story.uuid).result(PATIENCE)
    assert left
    assert {str(each.userId) for each in found.access or ()} == {alice.id, bob.id}


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
