"""Attacks on the event log, and with containers that were deleted.

Attacks 37 and 38 of `catalogue`. A device notices that its log lost, moved or changed events; what they say
stays the broker's word, and nothing follows from it. A deletion is a signed record like every other.
"""

import functools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ContainerEventType, FileTrustStore, ServerProvider
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import NO_EVENTS, Event, Events, EventType, digest_with
from tests.hostile_broker.accomplices import (
    RECORD,
    VIEW,
    cast,
    device_of,
    id_of,
    people,
    plant,
    register,
    restarted_device_of,
    twin,
)
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import marks, refused
from tests.hostile_broker.relay import invent
from tests.hostile_broker.test_rollback import check_all_refused, rewind
from tests.kit.brokers import clock
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, WRITER, Story, User, delete_user, deletion

EVENTS: Final = "GET /v1/events"
FAULT: Final = BrokerError.brokerFaultError
FORK: Final = BrokerError.forkError
INTEGRITY: Final = BrokerError.integrityError
ROLLBACK: Final = BrokerError.rollbackError
PAGE: Final = 1000
Lie = Callable[[Events], Events]


def with_events(change: Callable[[list[Event]], list[Event]], **fields: Any) -> Lie:
    return lambda log: replace(log, events=change(list(log.events)), **fields)


def told_otherwise(number: int, **fields: Any) -> Lie:
    """One event says something else."""
    return with_events(
        lambda log: [replace(each, **fields) if each.id == number else each for each in log]
    )


def swapped(log: list[Event]) -> list[Event]:
    """The second and the third change places, and numbers."""
    return [log[0], replace(log[2], id=2), replace(log[1], id=3), *log[3:]]


def log_of_five(mallory: HostileBroker) -> tuple[User, Story]:
    alice, bob = people(mallory, 2)
    story = Story(alice).created({alice: OWNER, bob: READER}, type="letter")
    for number in range(4):
        story.tell(alice, story.follow(alice, content=b"%d" % number))
    return alice, story


def reads(device: ServerProvider, **criteria: Any) -> list[int]:
    return [event.id for event in device.getEvents(**criteria).result(PATIENCE)]


# 37

# What is served of five events, and what a device says of it that reads its log for the first time, and
# one that has read it before.
LIES: Final[dict[str, tuple[Lie, type[BrokerError] | None, type[BrokerError]]]] = {
    "one dropped": (with_events(lambda log: [*log[:2], *log[3:]]), INTEGRITY, INTEGRITY),
    "the first dropped": (with_events(lambda log: log[1:]), INTEGRITY, INTEGRITY),
    "the last dropped": (with_events(lambda log: log[:-1]), INTEGRITY, INTEGRITY),
    "all dropped": (with_events(lambda _: []), INTEGRITY, INTEGRITY),
    "one twice": (with_events(lambda log: [log[0], *log]), FAULT, FAULT),
    "out of order": (with_events(lambda log: log[::-1]), FAULT, FAULT),
    "dropped for their age, it is said": (with_events(lambda log: log[2:], firstId=3), None, FORK),
    "dropped, and said of more": (with_events(lambda log: log[2:], firstId=4), FAULT, FAULT),
    "dropped, and said of fewer": (
        with_events(lambda log: log[2:], firstId=2),
        INTEGRITY,
        INTEGRITY,
    ),
    "dropped and more than there were": (
        with_events(lambda _: [], firstId=7),
        INTEGRITY,
        INTEGRITY,
    ),
    "beginning with none": (with_events(list, firstId=0), INTEGRITY, INTEGRITY),
    "with a digest of nothing": (lambda log: replace(log, droppedDigest=b"x" * 32), FAULT, FAULT),
    "longer, it is said": (with_events(list, lastId=2**53 - 1), INTEGRITY, INTEGRITY),
    "truncated": (with_events(lambda log: log[:3], lastId=3), None, ROLLBACK),
    "emptied": (lambda _: Events(events=[], firstId=1, lastId=0), None, ROLLBACK),
    "swapped": (with_events(swapped), None, FORK),
    "of another kind": (told_otherwise(2, eventType="Deleted"), None, FORK),
    "of another container": (told_otherwise(3, containerId=str(uuid.UUID(int=8))), None, FORK),
    "of another version": (told_otherwise(1, version=9), None, FORK),
    "by somebody else": (told_otherwise(4, relatedUserId=None), None, FORK),
    "of another time": (told_otherwise(5, date=7), None, FORK),
    "of another program": (told_otherwise(5, applicationName="x"), None, FORK),
    "of another change": (told_otherwise(5, changes=["type"]), None, FORK),
}


@attack(37, "event log changed")
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_a_log_that_lost_moved_or_changed_events_is_refused_by_who_has_read_it(
    mallory: HostileBroker, tmp_path: Path, again: bool
) -> None:
    alice, _ = log_of_five(mallory)
    device = device_of(mallory, alice, store=FileTrustStore(tmp_path))
    assert reads(device) == [1, 2, 3, 4, 5]
    if again:
        device.close()
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    for lie, _, error in LIES.values():
        with mallory.lying(EVENTS, lie), refused(mallory, device, error) as attempt:
            attempt(device.getEvents())
    assert reads(device) == [1, 2, 3, 4, 5]


@attack(37, "event log changed")
def test_a_gap_is_refused_also_at_the_first_reading_and_the_rest_is_the_limit(
    mallory: HostileBroker,
) -> None:
    """A device that never read its log cannot know how long it was, nor what it said."""
    alice, _ = log_of_five(mallory)
    for lie, error, _ in LIES.values():
        device = device_of(mallory, alice)
        with mallory.lying(EVENTS, lie):
            if error is None:
                assert len(reads(device)) in (0, 3, 5)
            else:
                with refused(mallory, device, error) as attempt:
                    attempt(device.getEvents())


@attack(37, "event log changed")
def test_a_log_that_was_rolled_back_and_grew_again_is_another(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """Log and container together, as from a backup; the device is started again as well."""
    alice, story = log_of_five(mallory)
    other, url = twin(story), mallory.behind.database_url
    device = device_of(mallory, alice, store=FileTrustStore(tmp_path))
    for content in (b"6", b"7"):
        story.tell(alice, story.follow(alice, content=content))
    assert len(reads(device)) == 7
    device.close()
    rewind(mallory, other, 5)
    query(url, "DELETE FROM events WHERE user_id = ? AND id > 5", alice.ring.userId.bytes)
    query(url, "UPDATE users SET last_event = 5 WHERE id = ?", alice.ring.userId.bytes)
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    with refused(mallory, device, ROLLBACK) as attempt:
        attempt(device.getEvents())
        attempt(device.getEvents(startId=7))
        attempt(device.getEvents(ContainerEventType.Deleted))
    for content in (b"other", b"yet another"):
        other.tell(alice, other.follow(alice, content=content))
    with refused(mallory, device, FORK) as attempt:
        attempt(device.getEvents())


@attack(37, "event log changed")
def test_no_event_is_dropped_or_changed_between_pages(mallory: HostileBroker) -> None:
    [alice] = people(mallory, 1)
    write_rows(mallory, alice, 2 * PAGE + 5)
    device = device_of(mallory, alice)
    assert len(reads(device)) == 2 * PAGE + 5

    def second(lie: Lie) -> Lie:
        return lambda log: lie(log) if log.events and log.events[0].id == PAGE + 1 else log

    for lie, error in (
        (with_events(lambda log: log[1:]), INTEGRITY),
        (with_events(lambda log: log[:-1]), INTEGRITY),
        (with_events(lambda _: []), INTEGRITY),
        (with_events(lambda log: [replace(log[0], id=PAGE), *log[1:]]), FAULT),
        (told_otherwise(PAGE + 1, version=1), FORK),
        (told_otherwise(2 * PAGE, version=1), FORK),
        (lambda log: replace(log, firstId=PAGE + 2), FAULT),
    ):
        with mallory.lying(EVENTS, second(lie)), refused(mallory, device, error) as attempt:
            attempt(device.getEvents())


@attack(37, "event log changed")
def test_what_is_dropped_between_pages_leaves_no_gap_that_is_not_told(
    mallory: HostileBroker,
) -> None:
    """No lie: a broker may drop events while they are read, also the very next ones."""
    [alice] = people(mallory, 1)
    write_rows(mallory, alice, 2 * PAGE + 5)
    device, log = device_of(mallory, alice), alice.events()
    log += alice.events(startId=PAGE + 1)

    def ageing(shown: Events) -> Events:
        then = PAGE + 500 if shown.events[0].id > PAGE else 1
        return aged(then, log)(shown)

    kept = list(range(PAGE + 500, 2 * PAGE + 1))
    with mallory.lying(EVENTS, ageing):
        assert reads(device, endId=2 * PAGE) == kept
    with mallory.lying(EVENTS, ageing), pytest.raises(BrokerError.eventsExpiredError) as expired:
        reads(device_of(mallory, alice), startId=1)
    assert expired.value.firstId == PAGE + 500


def write_rows(mallory: HostileBroker, user: User, count: int) -> None:
    """So many events, put there by hand; the broker numbers them."""
    row = "('Updated', ?, ?, 'by hand', 1, ?, ?, ?)"
    columns = "event_type, container_id, date, application, changes, user_id, version, salt"
    values: list[object] = []
    for number in range(count):
        own = user.ring.userId.bytes
        values += [own, clock(), own, number + 1, own]
    places = ", ".join([row] * count)
    query(mallory.behind.database_url, f"INSERT INTO events ({columns}) VALUES {places}", *values)


@attack(37, "event log changed")
def test_who_follows_the_log_by_the_next_id_notices_later_what_was_dropped_or_changed(
    mallory: HostileBroker,
) -> None:
    alice, story = log_of_five(mallory)
    device = device_of(mallory, alice)
    assert reads(device, startId=1, endId=3) == [1, 2, 3]
    with (
        mallory.lying(EVENTS, with_events(lambda log: log[1:])),
        refused(mallory, device, INTEGRITY) as attempt,
    ):
        attempt(device.getEvents(startId=4))
    with mallory.lying(EVENTS, told_otherwise(4, version=7)):
        assert reads(device, startId=4) == [4, 5]  # what is new is the broker's word
    story.tell(alice, story.follow(alice, content=b"6"))
    with refused(mallory, device, FORK) as attempt:
        attempt(device.getEvents())  # and is kept to


@attack(37, "event log changed")
def test_what_a_filter_leaves_out_and_what_was_never_told_is_the_limit(
    mallory: HostileBroker,
) -> None:
    alice, story = log_of_five(mallory)
    device = device_of(mallory, alice)
    assert len(reads(device)) == 5
    with mallory.lying(EVENTS, with_events(lambda log: log[:1])):
        assert reads(device, containerId=id_of(story)) == [1]
        assert reads(device, eventType=ContainerEventType.Updated) == [2]
        with refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getEvents())
    query(mallory.behind.database_url, "DELETE FROM events WHERE id IS NULL")
    story.tell(alice, story.follow(alice, content=b"6"))
    query(mallory.behind.database_url, "DELETE FROM events WHERE id IS NULL")
    assert len(reads(device)) == 5
    found = device.getContainer(id_of(story)).result(PATIENCE)
    assert (found.content, found.version) == (b"6", 6), "the container itself says it"


def aged(first: int, log: list[Event]) -> Lie:
    """The events of this log before `first` were dropped for their age, it is said."""
    gone = [event for event in log if event.id < first]
    return with_events(
        lambda shown: [event for event in shown if event.id >= first],
        firstId=first,
        droppedDigest=functools.reduce(digest_with, gone, NO_EVENTS),
    )


@attack(37, "event log changed")
def test_what_is_kept_of_a_log_is_what_it_was_and_what_was_dropped_never_comes_back(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """By the digest of what was dropped each kept event is told from another, also after a restart."""
    alice, story = log_of_five(mallory)
    log = alice.events()
    device = device_of(mallory, alice, store=FileTrustStore(tmp_path))
    assert reads(device) == [1, 2, 3, 4, 5]
    with mallory.lying(EVENTS, aged(3, log)):
        assert reads(device) == [3, 4, 5]
    device.close()
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    changed = [log[0], replace(log[1], version=7), *log[2:]]
    lies = [both(told_otherwise(n, version=7), aged(k, log)) for n in (4, 5) for k in (3, 4)]
    for lie in (*lies, aged(3, changed), aged(6, changed)):
        with mallory.lying(EVENTS, lie), refused(mallory, device, FORK) as attempt:
            attempt(device.getEvents())
    for lie in (aged(2, log), lambda shown: shown):
        with mallory.lying(EVENTS, lie), refused(mallory, device, ROLLBACK) as attempt:
            attempt(device.getEvents())
            attempt(device.getEvents(startId=5))
            attempt(device.getEvents(ContainerEventType.Deleted))
    story.tell(alice, story.follow(alice, content=b"6"))
    with mallory.lying(EVENTS, aged(4, log)):
        assert reads(device, startId=6) == [6]
        assert reads(device) == [4, 5, 6]


def both(first: Lie, second: Lie) -> Lie:
    return lambda log: second(first(log))


@attack(37, "event log changed")
def test_who_asks_for_dropped_events_is_told_so_and_that_they_were_old_is_the_brokers_word(
    mallory: HostileBroker,
) -> None:
    """The limit: events that a device has not read can be said to be too old, and are then never shown."""
    alice, story = log_of_five(mallory)
    log = alice.events()
    device = device_of(mallory, alice)
    assert reads(device, endId=3) == [1, 2, 3]
    with mallory.lying(EVENTS, aged(5, log)):
        with pytest.raises(BrokerError.eventsExpiredError) as expired:
            reads(device, startId=4)
        assert expired.value.firstId == 5
        assert reads(device, startId=5) == reads(device) == [5]
    with refused(mallory, device, ROLLBACK) as attempt:
        attempt(device.getEvents(startId=5))
    story.tell(alice, story.follow(alice, content=b"6"))
    lie = both(told_otherwise(5, version=7), aged(5, log))
    with mallory.lying(EVENTS, lie), refused(mallory, device, FORK) as attempt:
        attempt(device.getEvents())


KINDS: Final[tuple[EventType, ...]] = ("Added", "Updated", "Accessed", "Deleted")


def invented_event(kind: EventType, container: str) -> Event:
    return Event(
        id=0, eventType=kind, containerId=container, containerType="x", date=0, version=2**53 - 1,
        relatedUserId=str(uuid.uuid4()), applicationName="../../x",
        changes=["header", "content", "access", "type"], salt=bytes(16),
    )  # fmt: skip


@attack(37, "event log changed")
def test_nothing_is_done_or_believed_because_an_event_says_so(mallory: HostileBroker) -> None:
    """Deletions, accesses and containers of which the broker alone knows."""
    alice, story = log_of_five(mallory)
    device = device_of(mallory, alice)
    device.getContainer(id_of(story)).result(PATIENCE)
    before, count = marks(device), len(mallory.heard)
    names = [str(id_of(story)), str(uuid.uuid4()), alice.id]
    invented = [invented_event(kind, name) for kind in KINDS for name in names]
    invented = [replace(event, id=number) for number, event in enumerate(invented, start=1)]
    with mallory.answering(EVENTS, Events(events=invented, firstId=1, lastId=len(invented))):
        assert len(reads(device)) == len(invented)
    assert mallory.since(count) == [EVENTS]
    changed = {name for name in marks(device) if marks(device)[name] != before.get(name)}
    assert {kind for kind, _ in changed} == {"events"}
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"3"


@attack(37, "event log changed")
def test_what_view_type_and_view_access_hide_shows_in_no_event_and_by_no_filter(
    mallory: HostileBroker,
) -> None:
    """Bob may see neither type nor list. He compares what right and wrong guesses at the type give."""
    alice, bob, carol, _ = cast(mallory)
    member = Level.Download | Level.Decrypt
    story = Story(alice).created({alice: OWNER, bob: member}, type="secret plan")
    him = device_of(mallory, bob)
    story.tell(alice, story.follow(alice, type="other plan"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: member, carol: OWNER}))
    story.tell(alice, story.follow(alice, content=b"2", type="third plan"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: member}))
    story.tell(alice, story.follow(alice, tombstone=True))
    types = ("secret plan", "other plan", "third plan", "no plan", "")
    for kind in (None, *ContainerEventType):
        for where in (None, id_of(story)):
            assert {
                tuple(reads(him, eventType=kind, containerId=where, containerType=text))
                for text in types
            } == {()}
    seen = him.getEvents().result(PATIENCE)
    assert [(event.eventType, event.changes) for event in seen] == [
        ("Added", ()), ("Updated", ()), ("Deleted", ())
    ]  # fmt: skip
    assert {event.containerType for event in seen} == {None}
    answers = [e for e in mallory.heard if e.name == EVENTS and "containerType" in e.query]
    said = {(e.status, e.answer.lastId) for e in answers if f"{id_of(story)}" in e.query}
    assert said == {(200, 3)}, "not even a length tells a right guess from a wrong one"


# 38


def deleted_story(mallory: HostileBroker) -> tuple[User, User, Story]:
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: WRITER}, content=b"gone")
    return alice, bob, story


@attack(38, "deleted container brought back")
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_device_that_has_seen_the_deletion_takes_the_container_again(
    mallory: HostileBroker, tmp_path: Path, when: str
) -> None:
    """What was before is served, and a record behind the tombstone; restarted before or after it saw that."""
    alice, bob, story = deleted_story(mallory)
    device = restarted_device_of(mallory, alice, story, tmp_path)
    story.tell(bob, story.follow(bob, tombstone=True))
    with pytest.raises(BrokerError.deletedError):
        device.getContainer(id_of(story)).result(PATIENCE)
    if when == "after":
        device.close()
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    rewind(mallory, story, 1)
    check_all_refused(mallory, device, story, ROLLBACK)
    risen = rewind(mallory, story, 2)
    plant(mallory, risen, risen.follow(bob, content=b"risen"))
    check_all_refused(mallory, device, story, INTEGRITY)
    another = rewind(mallory, story, 1)
    for content in (b"other", b"history"):
        plant(mallory, another, another.follow(bob, content=content))
    check_all_refused(mallory, device, story, FORK)


@attack(38, "deleted container brought back")
def test_a_device_that_saw_the_container_alone_takes_no_record_behind_a_tombstone(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    alice, bob, story = deleted_story(mallory)
    device = restarted_device_of(mallory, alice, story, tmp_path)
    story.tell(bob, story.follow(bob, tombstone=True))
    risen = rewind(mallory, story, 2)
    plant(mallory, risen, risen.follow(bob, content=b"risen"))
    check_all_refused(mallory, device, story, INTEGRITY)


@attack(38, "deleted container brought back")
def test_who_never_saw_the_deletion_is_shown_what_was_before_and_that_is_the_limit(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """Hiding is withholding. With a member's help a fresh device is even shown what came later."""
    alice, bob, story = deleted_story(mallory)
    marked = restarted_device_of(mallory, alice, story, tmp_path)
    story.tell(bob, story.follow(bob, tombstone=True))
    shown = rewind(mallory, story, 1)
    for device in (marked, device_of(mallory, alice)):
        assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"gone"
    rewind(mallory, story, 2)
    with pytest.raises(BrokerError.deletedError):
        marked.getContainer(id_of(story)).result(PATIENCE)
    risen = rewind(mallory, story, 2)
    plant(mallory, risen, risen.follow(bob, content=b"risen"))
    assert device_of(mallory, alice).getContainerContent(id_of(shown)).result(PATIENCE) == b"risen"


@attack(38, "deleted container brought back")
def test_a_deletion_that_nobody_signed_is_no_deletion(mallory: HostileBroker) -> None:
    """A broker that merely says `deleted`: what a program would throw away is still there."""
    alice, _, story = deleted_story(mallory)
    large = Story(alice).created({alice: OWNER})
    device = device_of(mallory, alice)
    device.updateContainerContent(id_of(large), bytes(70_000)).result(PATIENCE)
    device.getContainer(id_of(story)).result(PATIENCE)
    segments = "GET /v1/containers/{containerId}/parts/{partId}/segments"
    chunk = "PUT /v1/containers/{containerId}/parts/{partId}/chunks/{index}"

    def say_deleted(exchange: Exchange) -> None:
        invent(exchange, BrokerError.deletedError())

    with mallory.meddling(VIEW, before=say_deleted):
        check_all_refused(mallory, device, story, INTEGRITY)
    with (
        mallory.meddling(segments, before=say_deleted),
        refused(mallory, device, INTEGRITY) as attempt,
    ):
        attempt(device.getContainer(id_of(large)))
    before = marks(device)
    for name, content in ((RECORD, b"x"), (chunk, bytes(70_000))):
        with mallory.meddling(name, before=say_deleted), pytest.raises(INTEGRITY):
            device.updateContainerContent(id_of(story), content).result(PATIENCE)
    assert marks(device) == before
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"gone"


@attack(38, "deleted container brought back")
def test_an_id_that_was_deleted_is_refused_for_ever_by_the_broker(mallory: HostileBroker) -> None:
    """Of containers: deleted by a record, and gone with the last user who had them. Of users."""
    alice, bob, story = deleted_story(mallory)
    left = Story(alice).created({alice: OWNER})
    left.tell(alice, left.follow(alice, grants={bob: OWNER}))
    story.tell(bob, story.follow(bob, tombstone=True))
    story.send(bob, story.follow(bob, content=b"risen"), 3).expect(410, "deleted")
    leaving = deletion(bob, origin=f"http://localhost:{mallory.port}")
    delete_user(bob, leaving).expect(204)
    for gone in (story, left):
        anew = Story(alice, nonce=gone.nonce)
        anew.send(alice, anew.begin({alice: OWNER})).expect(409, "exists")
        assert alice.wire.call("GET", f"{gone.path}?content=1").status in (200, 404)
        for path in ("parts/{}/chunks/0", "parts/{}/hashes"):
            there = f"{gone.path}/{path.format(uuid.uuid4())}"
            method = "PUT" if "chunks" in path else "GET"
            body = b"x" * 73 if method == "PUT" else None
            octets = {"Content-Type": "application/octet-stream"}
            assert alice.wire.send(method, there, body, octets).status in (404, 410)
    register(mallory, *bob.ring.first_records(clock())).expect(409, "exists")
    bob.wire.call("POST", "/v1/sessions", bob.wire.log_in_request(bob.ring)).expect(
        401, "challenge"
    )
