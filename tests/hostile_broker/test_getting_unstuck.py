"""Attacks that leave a device stuck: one answer with a number that no honest broker reaches.

Attack 49 of `catalogue`. What is not verified is not kept. From what a broker and a member made the device
verify, the user gets away by an explicit act, after looking at both heads.
"""

from contextlib import suppress
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ContainerEventType, Head, ServerProvider
from scbroker.wire.events import Events
from tests.hostile_broker.accomplices import OPERATIONS, Mallory, marks
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import EVENTS, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.served import instead
from tests.hostile_broker.test_endless_answers import FAR, head_at
from tests.hostile_broker.test_event_log import log_of_five, reads
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

all_mount(__name__, 49, "device stuck by one answer")

NEAR: Final = 1_000_000
REFUSALS: Final = BrokerError.eventsExpiredError, INTEGRITY, BrokerError.brokerFaultError


def lying_ends(**fields: Any) -> Any:
    return lambda log: replace(log, **fields)


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True], ids=["fresh", "known"])
@pytest.mark.parametrize("far", [NEAR, FAR], ids=["near", "far"])
def test_no_end_of_the_log_that_a_broker_names_once_keeps_a_device_from_an_honest_one(
    mallory: Mallory, known: bool, far: int
) -> None:
    """In filtered answers, in refused ones, and in those that name the next id alone."""
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    if known:
        assert reads(device) == [1, 2, 3, 4, 5]
    before = marks(device)
    ends = {"firstId": far, "lastId": far, "events": [], "droppedDigest": b"d" * 32}
    attempts: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"eventType": ContainerEventType.Deleted}, {"lastId": far}),
        ({"containerId": story.uuid}, {"lastId": far}),
        ({"containerType": "letter", "startId": 2}, ends),
        ({"startId": 1}, ends),
        ({"startId": 6}, ends),
        ({"startId": far}, {"lastId": far - 1, "events": []}),
        ({}, {"lastId": far}),
        ({}, {"firstId": far, "lastId": far}),
    ]
    for criteria, lie in attempts:
        with mallory.lying(EVENTS, lying_ends(**lie)), suppress(*REFUSALS):
            reads(device, **criteria)
        assert marks(device) == before
    assert reads(device) == [1, 2, 3, 4, 5]
    assert reads(device, eventType=ContainerEventType.Added) == [1]


def test_events_that_a_broker_invented_are_left_by_accepting_the_end_that_an_honest_one_serves(
    mallory: Mallory,
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)

    def longer(log: Events) -> Events:
        invented = [replace(log.events[-1], id=number) for number in (6, 7)]
        return replace(log, events=[*log.events, *invented], lastId=7)

    with mallory.lying(EVENTS, longer):
        assert len(reads(device)) == 7
    with mallory.refused(device, ROLLBACK) as attempt:
        error = attempt(device.getEvents())
        attempt(device.getEvents(startId=8))
    assert "resetEventMark" in str(error)
    before = marks(device)
    heads = device.resetEventMark().result(PATIENCE)
    assert heads.stored is not None
    assert (heads.stored.version, heads.served.version) == (7, 5)
    for wrong in (heads.stored, Head(5, bytes(32)), Head(4, heads.served.hash)):
        with pytest.raises(BrokerError.conflictError):
            device.resetEventMark(wrong).result(PATIENCE)
    assert marks(device) == before
    story.tell(alice, story.follow(alice, content=b"6"))  # meanwhile it has grown
    assert device.resetEventMark(accept=heads.served).result(PATIENCE) == heads
    assert reads(device) == [1, 2, 3, 4, 5, 6]


def stuck(mallory: Mallory, alice: User, bob: User) -> tuple[Story, ServerProvider]:
    """A device of Alice's that was fresh when Bob and the broker showed it the last possible version."""
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    device = mallory.device_of(alice, bob)
    with mallory.lying(VIEW, instead(head=head_at(story, bob, FAR))):
        assert device.getContainerMetadata(story.uuid).result(PATIENCE).version == FAR
        for name in ("updateContainerHeader", "deleteContainer"):
            with pytest.raises(BrokerError.tooLargeError, match="resetContainerMark"):
                OPERATIONS[name](device, story.uuid).result(PATIENCE)
    with mallory.refused(device, ROLLBACK) as attempt:
        error = attempt(device.getContainer(story.uuid))
    assert "resetContainerMark" in str(error)
    return story, device


def test_a_head_of_the_last_version_is_left_by_accepting_the_one_that_an_honest_broker_serves(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story, device = stuck(mallory, alice, bob)
    before = marks(device)
    heads = device.resetContainerMark(story.uuid).result(PATIENCE)
    assert heads.stored is not None
    assert heads.stored.version == FAR
    assert heads.served == Head(1, story.hash(story.head))
    assert marks(device) == before, "looking changes nothing"
    accepted = device.resetContainerMark(story.uuid, accept=heads.served).result(PATIENCE)
    assert accepted == heads
    assert marks(device) != before
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"
    assert device.updateContainerHeader(story.uuid, "h").result(PATIENCE).version == 2


def test_nothing_is_accepted_but_the_very_head_that_is_served_and_valid(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    story, device = stuck(mallory, alice, bob)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    before = marks(device)
    heads = device.resetContainerMark(story.uuid).result(PATIENCE)
    assert heads.stored is not None
    for wrong in (heads.stored, Head(1, bytes(32)), Head(2, heads.served.hash)):
        with pytest.raises(BrokerError.conflictError):
            device.resetContainerMark(story.uuid, wrong).result(PATIENCE)
    with mallory.lying(VIEW, instead(head=head_at(story, eve, 3))), pytest.raises(INTEGRITY):
        device.resetContainerMark(story.uuid, heads.served).result(PATIENCE)
    assert marks(device) == before
