"""Attacks with the short form in which a deleted container is kept and served.

Attacks 37 and 38 of `catalogue`. After a deletion a reader gets records without their parts, and logs with
emptied events. Neither is a way to hide what was not deleted, nor to have a deletion believed that does
not follow from what a device has seen.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.records.container_record import bare_body
from scbroker.wire.containers import ContainerView, SignedRecord
from scbroker.wire.events import Event, details_hash
from tests.hostile_broker.accomplices import NO_LIST, OPERATIONS, Mallory, fresh_and_marked
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import EVENTS, FAULT, FORK, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.test_event_log import (
    check_log_refused,
    log_of_five,
    reads,
    told_otherwise,
    with_events,
)
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, WRITER, Story, User

Lie = Callable[[ContainerView], ContainerView]


def of_five_versions(alice: User, bob: User, carol: User) -> Story:
    """Beginning, content, access, content, type: three of them govern."""
    grants = {alice: OWNER, bob: OWNER, carol: NO_LIST}
    story = Story(alice).created(grants, header=b"1", content=b"1")
    story.tell(bob, story.follow(bob, content=b"2"))
    story.tell(alice, story.follow(alice, grants=grants))
    story.tell(alice, story.follow(alice, content=b"4"))
    story.tell(alice, story.follow(alice, type="5"))
    return story


def bared(served: SignedRecord) -> SignedRecord:
    return replace(served, body=bare_body(served.body))


def in_bare_form(view: ContainerView) -> ContainerView:
    views = [replace(each, record=bared(each.record)) for each in view.governing]
    head = None if view.head is None else bared(view.head)
    return replace(view, governing=views, head=head, skipped=list(map(bare_body, view.skipped)))


@pytest.mark.sampled
@attack(38, "deleted container brought back")
@fresh_and_marked
@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_container_that_was_not_deleted_is_not_read_without_its_parts(
    mallory: Mallory, version: int, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """Its head governs or does not. A device that has seen it is served the same version, and a later one."""
    story = of_five_versions(alice, bob, carol)
    mallory.rewind(story, version)
    device = mallory.victim(alice, story, marked=marked)
    mallory.check_lie_refused(device, story, in_bare_form, INTEGRITY, *OPERATIONS)
    mallory.rewind(story, 5)
    mallory.check_lie_refused(device, story, in_bare_form, INTEGRITY, *OPERATIONS)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"4"


@pytest.mark.sampled
@attack(38, "deleted container brought back")
@fresh_and_marked
def test_a_deleted_container_may_be_served_with_the_parts_that_its_records_had(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """No lie: the two forms of a record have one hash and one signature."""
    story = of_five_versions(alice, bob, carol)
    device = mallory.victim(alice, story, marked=marked)
    story.tell(bob, story.follow(bob, tombstone=True))
    whole = {bare_body(request.record.body): request.record for request in story.requests}

    def with_parts(view: ContainerView) -> ContainerView:
        views = [replace(each, record=whole[each.record.body]) for each in view.governing]
        assert [each.record for each in views] != [each.record for each in view.governing]
        return replace(view, governing=views)

    with mallory.lying(VIEW, with_parts), pytest.raises(BrokerError.deletedError):
        device.getContainer(story.uuid).result(PATIENCE)


def without(number: int) -> Lie:
    """One of the governing records is left out, and is not among those that are said to be."""

    def lie(view: ContainerView) -> ContainerView:
        views = list(view.governing)
        del views[number]
        last = view.lastGoverning if number != -1 else 3
        return replace(view, governing=views, lastGoverning=last)

    return lie


CHAINS: Final[dict[str, Lie]] = {
    "the first left out": without(0),
    "one left out": without(1),
    "the newest left out": without(-1),
    "the first two left out": lambda view: replace(view, governing=view.governing[2:]),
    "in another order": lambda view: replace(
        view, governing=[view.governing[0], view.governing[2], view.governing[1]],
        lastGoverning=3,
    ),
    "with another signature": lambda view: replace(
        view, governing=[
            replace(each, record=replace(each.record, signature=view.governing[0].record.signature))
            for each in view.governing
        ],
    ),
}  # fmt: skip


@pytest.mark.sampled
@attack(38, "deleted container brought back")
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("who", ["fresh", "who sees no list"])
def test_a_deletion_is_proved_by_all_records_that_gave_its_author_the_right(
    mallory: Mallory, chain: str, who: str, alice: User, bob: User, carol: User
) -> None:
    story = of_five_versions(alice, bob, carol)
    if who == "fresh":
        device = mallory.device_of(alice, bob, carol)
    else:
        device = mallory.restarted_device_of(carol, story)
    story.tell(bob, story.follow(bob, tombstone=True))
    mallory.check_lie_refused(device, story, CHAINS[chain], INTEGRITY, *OPERATIONS)
    with pytest.raises(BrokerError.deletedError):
        device.getContainer(story.uuid).result(PATIENCE)


@pytest.mark.sampled
@attack(38, "deleted container brought back")
@fresh_and_marked
def test_a_tombstone_of_another_container_deletes_that_one_alone(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """Alone, and with the governing records of the container that it is of."""
    story, other = (of_five_versions(alice, bob, carol) for _ in range(2))
    device = mallory.victim(alice, story, marked=marked)
    other.tell(bob, other.follow(bob, tombstone=True))
    view = alice.view(other)
    for lie in (lambda shown: replace(shown, head=view.head), lambda _: view):
        mallory.check_lie_refused(device, story, lie, INTEGRITY, *OPERATIONS)


# What Bob, who may do anything, signs in place of what a device has seen: the device has seen four versions,
# and the third of them governs.
BRANCHES: Final[dict[str, tuple[int, list[dict[str, Any]], type[BrokerError]]]] = {
    "lower than what was seen": (2, [{"tombstone": True}], ROLLBACK),
    "in place of what was seen": (3, [{"tombstone": True}], FORK),
    "after another one of the version that was seen": (
        3, [{"content": b"other"}, {"tombstone": True}], FORK,
    ),
    "after a governing one of the version that was seen": (
        3, [{"type": "other"}, {"tombstone": True}], FORK,
    ),
    "after a governing one of the version that was seen, and more": (
        3, [{"type": "other"}, {"content": b"other"}, {"tombstone": True}], FORK,
    ),
    "after a governing one that follows another": (
        3, [{"content": b"other"}, {"type": "other"}, {"tombstone": True}], FORK,
    ),
    "after another change of access than was seen": (
        2, [{"grants": None}, {"content": b"x"}, {"content": b"y"}, {"tombstone": True}], FORK,
    ),
    "after no change of access": (
        2, [{"content": b"x"}, {"content": b"y"}, {"content": b"z"}, {"tombstone": True}], FORK,
    ),
    "after a governing one before what was seen": (
        1, [{"type": "other"}, {"grants": None}, {"content": b"x"}, {"tombstone": True}], FORK,
    ),
}  # fmt: skip


@pytest.mark.long
@attack(38, "deleted container brought back")
@pytest.mark.parametrize("branch", BRANCHES)
def test_no_deletion_is_taken_that_does_not_follow_from_what_was_seen(
    mallory: Mallory, branch: str, alice: User, bob: User, carol: User
) -> None:
    """Alice sees the list; Carol does not, so that her device judges the past again each time."""
    story = mallory.rewind(of_five_versions(alice, bob, carol), 4)
    devices = [mallory.restarted_device_of(user, story) for user in (alice, carol)]
    kept, changes, error = BRANCHES[branch]
    lie = mallory.rewind(story, kept)
    for change in changes:
        fields = change | ({"grants": lie.grants} if "grants" in change else {})
        mallory.plant(lie, lie.follow(bob, **fields))
    for device in devices:
        mallory.check_refused(device, story, error, *OPERATIONS)
    mallory.rewind(story, 4)
    for device in devices:
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"4"


@attack(38, "deleted container brought back")
def test_a_deletion_that_leaves_out_changes_of_content_that_were_not_seen_is_the_limit(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob, who may delete, and the broker: there is nothing left to be read either way."""
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: WRITER}, content=b"1")
    device = mallory.restarted_device_of(alice, story)
    lie = story.twin()
    story.tell(carol, story.follow(carol, content=b"hers"))
    for content in (b"other", b"and on"):
        mallory.plant(lie, lie.follow(bob, content=content))
    mallory.plant(lie, lie.follow(bob, tombstone=True))
    with pytest.raises(BrokerError.deletedError):
        device.getContainer(story.uuid).result(PATIENCE)


@pytest.mark.long
@attack(38, "deleted container brought back")
@pytest.mark.parametrize(
    "how, error", [("after the removal", INTEGRITY), ("before the removal", FORK)]
)
def test_no_tombstone_is_taken_of_somebody_whose_removal_was_seen(
    mallory: Mallory, how: str, error: type[BrokerError], alice: User, bob: User, carol: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: NO_LIST})
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: NO_LIST}))
    devices = [mallory.restarted_device_of(user, story, bob) for user in (alice, carol)]
    if how == "after the removal":
        lie = mallory.rewind(story, 2)
    else:
        lie = mallory.rewind(story, 1)
        for content in (b"other", b"and on"):
            mallory.plant(lie, lie.follow(bob, content=content))
    mallory.plant(lie, lie.follow(bob, tombstone=True))
    for device in devices:
        mallory.check_refused(device, story, error, *OPERATIONS)


@attack(38, "deleted container brought back")
def test_no_tombstone_is_taken_of_a_member_without_delete(mallory: Mallory) -> None:
    alice, carol = mallory.people(2)
    story = Story(alice).created({alice: OWNER, carol: WRITER})
    devices = [mallory.device_of(alice, carol), mallory.restarted_device_of(alice, story)]
    mallory.plant(story, story.follow(carol, tombstone=True))
    for device in devices:
        mallory.check_refused(device, story, INTEGRITY, *OPERATIONS)


def emptied(event: Event, **fields: object) -> Event:
    return replace(
        event,
        **{
            "containerType": None, "version": 0, "relatedUserId": None, "applicationName": "",
            "changes": [], "previousContainerType": None, "salt": None,
            "detailsHash": details_hash(event), **fields,
        },
    )  # fmt: skip


# What is made of the third of five events, and what a device says of it that has not read it, and one that
# has.
EMPTIED: Final[
    dict[str, tuple[Callable[[Event], Event], type[BrokerError] | None, type[BrokerError] | None]]
] = {
    "emptied": (emptied, None, None),
    "emptied, of another time": (lambda e: emptied(e, date=7), None, None),
    "emptied, of another hash": (lambda e: emptied(e, detailsHash=bytes(32)), None, FORK),
    "emptied, of another kind": (lambda e: emptied(e, eventType="Accessed"), None, FORK),
    "of other text beside the right hash": (lambda e: emptied(e, applicationName="x"), FAULT, FAULT),
    "of another version beside the right hash": (lambda e: emptied(e, version=9), FAULT, FAULT),
    "of a type beside the right hash": (lambda e: emptied(e, containerType="x"), FAULT, FAULT),
    "of an old type beside the right hash": (
        lambda e: emptied(e, previousContainerType="x"), FAULT, FAULT,
    ),
    "of a user beside the right hash": (
        lambda e: emptied(e, relatedUserId=e.relatedUserId), FAULT, FAULT,
    ),
    "of a change beside the right hash": (lambda e: emptied(e, changes=["type"]), FAULT, FAULT),
    "with salt and hash": (lambda e: replace(e, detailsHash=details_hash(e)), FAULT, FAULT),
    "empty with salt and hash": (lambda e: emptied(e, salt=e.salt), FAULT, FAULT),
    "without salt and hash": (lambda e: replace(e, salt=None), FAULT, FAULT),
    "of another salt": (lambda e: replace(e, salt=bytes(16)), None, FORK),
}  # fmt: skip


@pytest.mark.sampled
@attack(37, "event log changed")
@pytest.mark.parametrize("lie", EMPTIED)
def test_an_emptied_event_says_nothing_and_stays_the_event_that_was_read(
    mallory: Mallory, lie: str
) -> None:
    """That the container of an emptied event was deleted is the broker's word, as all of it is."""
    alice, _ = log_of_five(mallory)
    new, old = (mallory.device_of(alice) for _ in range(2))
    assert reads(old) == [1, 2, 3, 4, 5]
    make, *errors = EMPTIED[lie]

    def change(log: list[Event]) -> list[Event]:
        return [make(each) if each.id == 3 else each for each in log]

    with mallory.lying(EVENTS, with_events(change)):
        for device, error in zip((new, old), errors, strict=True):
            if error is None:
                assert reads(device) == [1, 2, 3, 4, 5]
            else:
                with mallory.refused(device, error) as attempt:
                    attempt(device.getEvents())


@attack(37, "event log changed")
def test_an_event_that_was_read_empty_comes_back_with_what_it_said_or_not_at_all(
    mallory: Mallory,
) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)
    with mallory.lying(EVENTS, with_events(lambda log: [emptied(log[0]), *log[1:]])):
        assert reads(device) == [1, 2, 3, 4, 5]
    for other in ({"applicationName": "x"}, {"version": 9}, {"salt": bytes(16)}):
        check_log_refused(mallory, device, told_otherwise(1, **other), FORK)
    assert reads(device) == [1, 2, 3, 4, 5]
