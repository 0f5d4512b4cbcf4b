"""Attacks with the short form in which a deleted container is kept and served.

Attacks 37 and 38 of attacks.toml. After a deletion a reader gets records without their parts, and logs with
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
from tests.hostile_broker.protocol import EVENTS, FAULT, FORK, INTEGRITY, ROLLBACK
from tests.hostile_broker.test_event_log import log_of_five, reads, with_events
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, WRITER, Story, User


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


# Limits


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
