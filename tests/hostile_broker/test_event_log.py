"""Attacks on the event log and on streams of events, and with containers that were deleted.

Attacks 37, 38 and 75 to 79 of attacks.toml. A device notices that its log lost, moved or changed events;
what they say stays the broker's word, and nothing follows from it. A deletion is a signed record like every
other.
"""

import asyncio
import functools
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec.structs import replace

from scbroker import (
    BrokerError,
    ContainerEventType,
    FileTrustStore,
    MemoryTrustStore,
    ServerProvider,
)
from scbroker.client import events
from scbroker.client.calls.tasks import io_thread
from scbroker.client.users.session import Session
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import HEARTBEAT, NO_EVENTS, Event, Events, digest_with
from tests.hostile_broker.accomplices import OPERATIONS, Mallory, marks, verified_marks
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import (
    CHUNK,
    EVENTS,
    FAULT,
    FORK,
    INTEGRITY,
    RECORD,
    ROLLBACK,
    SEGMENTS,
    VIEW,
)
from tests.hostile_broker.served import same
from tests.kit.brokers import clock
from tests.kit.limits import lower
from tests.kit.tcp import BadBroker, hang
from tests.kit.waiting import PATIENCE, tick, until, wait_until
from tests.kit.writers import OWNER, READER, WRITER, Story, User, delete_user

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


def log_of_five(mallory: Mallory) -> tuple[User, Story]:
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: READER}, type="letter")
    for number in range(4):
        story.tell(alice, story.follow(alice, content=b"%d" % number))
    return alice, story


def reads(device: ServerProvider, **criteria: Any) -> list[int]:
    return [event.id for event in device.getEvents(**criteria).result(PATIENCE)]


def check_log_refused(
    mallory: Mallory, device: ServerProvider, lie: Lie, error: type[BrokerError], **criteria: Any
) -> None:
    with mallory.lying(EVENTS, lie), mallory.refused(device, error) as attempt:
        attempt(device.getEvents(**criteria))


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
    "more than it says dropped": (
        with_events(lambda log: log[2:], firstId=2),
        INTEGRITY,
        INTEGRITY,
    ),
    "dropped beyond the end": (with_events(lambda _: [], firstId=7), INTEGRITY, INTEGRITY),
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


@pytest.mark.sampled
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_a_log_that_lost_moved_or_changed_events_is_refused_by_who_has_read_it(
    mallory: Mallory, again: bool
) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice, store=mallory.new_store())
    assert reads(device) == [1, 2, 3, 4, 5]
    if again:
        device = mallory.restarted(device)
    for lie, _, error in LIES.values():
        check_log_refused(mallory, device, lie, error)
    assert reads(device) == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_a_gap_is_refused_also_at_the_first_reading_and_the_rest_is_the_limit(
    mallory: Mallory,
) -> None:
    """A device that never read its log cannot know how long it was, nor what it said."""
    alice, _ = log_of_five(mallory)
    for lie, error, _ in LIES.values():
        device = mallory.device_of(alice)
        with mallory.lying(EVENTS, lie):
            if error is None:
                assert len(reads(device)) in (0, 3, 5)
            else:
                with mallory.refused(device, error) as attempt:
                    attempt(device.getEvents())


def test_a_log_that_grew_again_is_another_for_a_reading_that_begins_behind_what_was_read(
    mallory: Mallory,
) -> None:
    """The event before the reading is compared, as long as the broker has it."""
    alice, story = log_of_five(mallory)
    log = alice.events()
    device = mallory.device_of(alice, store=mallory.new_store())
    assert reads(device) == [1, 2, 3, 4, 5]
    device = mallory.restarted(device)
    story.tell(alice, story.follow(alice, content=b"6"))
    behind = {"startId": 6}
    for criteria in (behind, {"startId": 7}, behind | {"containerId": story.uuid}):
        check_log_refused(mallory, device, told_otherwise(5, version=7), FORK, **criteria)
    with mallory.lying(EVENTS, aged(6, log)):
        assert reads(device, **behind) == [6]


def aged(first: int, log: list[Event]) -> Lie:
    """The events of this log before `first` were dropped for their age, it is said."""
    gone = [event for event in log if event.id < first]
    return with_events(
        lambda shown: [event for event in shown if event.id >= first],
        firstId=first,
        droppedDigest=functools.reduce(digest_with, gone, NO_EVENTS),
    )


def test_what_is_kept_of_a_log_is_what_it_was_and_what_was_dropped_never_comes_back(
    mallory: Mallory,
) -> None:
    """The digest of the dropped events tells each kept event from another, also after a restart."""
    alice, story = log_of_five(mallory)
    log = alice.events()
    device = mallory.device_of(alice, store=mallory.new_store())
    assert reads(device) == [1, 2, 3, 4, 5]
    with mallory.lying(EVENTS, aged(3, log)):
        assert reads(device) == [3, 4, 5]
    device = mallory.restarted(device)
    changed = [log[0], replace(log[1], version=7), *log[2:]]
    lies = [both(told_otherwise(n, version=7), aged(k, log)) for n in (4, 5) for k in (3, 4)]
    for lie in (*lies, aged(3, changed), aged(6, changed)):
        check_log_refused(mallory, device, lie, FORK)
    for lie in (aged(2, log), same):
        with mallory.lying(EVENTS, lie), mallory.refused(device, ROLLBACK) as attempt:
            attempt(device.getEvents())
            attempt(device.getEvents(startId=5))
            attempt(device.getEvents(ContainerEventType.Deleted))
    story.tell(alice, story.follow(alice, content=b"6"))
    with mallory.lying(EVENTS, aged(4, log)):
        assert reads(device, startId=6) == [6]
        assert reads(device) == [4, 5, 6]


def both(first: Lie, second: Lie) -> Lie:
    return lambda log: second(first(log))


def test_who_asks_for_dropped_events_is_told_so_and_that_they_were_old_is_the_brokers_word(
    mallory: Mallory,
) -> None:
    """The limit: events that a device has not read can be said to be too old, and are then never shown."""
    alice, story = log_of_five(mallory)
    log = alice.events()
    device = mallory.device_of(alice)
    assert reads(device, endId=3) == [1, 2, 3]
    with mallory.lying(EVENTS, aged(5, log)):
        with pytest.raises(BrokerError.eventsExpiredError) as expired:
            reads(device, startId=4)
        assert expired.value.firstId == 5
        assert reads(device, startId=5) == reads(device) == [5]
    with mallory.refused(device, ROLLBACK) as attempt:
        attempt(device.getEvents(startId=5))
    story.tell(alice, story.follow(alice, content=b"6"))
    lie = both(told_otherwise(5, version=7), aged(5, log))
    check_log_refused(mallory, device, lie, FORK)


@pytest.mark.long
def test_what_view_type_and_view_access_hide_shows_in_no_event_and_by_no_filter(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Bob may see neither type nor list. He compares what right and wrong guesses at the type give."""
    member = Level.Download | Level.Decrypt
    story = Story(alice).created({alice: OWNER, bob: member}, type="secret plan")
    him = mallory.device_of(bob)
    story.tell(alice, story.follow(alice, type="other plan"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: member, carol: OWNER}))
    story.tell(alice, story.follow(alice, content=b"2", type="third plan"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: member}))
    open_log = [("Added", ()), ("Updated", ("content",))]
    emptied_log = [("Added", ()), ("Updated", ()), ("Deleted", ())]
    for expected in (open_log, emptied_log):
        if expected is emptied_log:
            story.tell(alice, story.follow(alice, tombstone=True))
        count = len(mallory.heard)
        types = ("secret plan", "other plan", "third plan", "no plan", "")
        for kind in (None, *ContainerEventType):
            for where in (None, story.uuid):
                assert {
                    tuple(reads(him, eventType=kind, containerId=where, containerType=text))
                    for text in types
                } == {()}
        seen = him.getEvents().result(PATIENCE)
        assert [(str(event.eventType), event.changes) for event in seen] == expected
        assert {event.containerType for event in seen} == {None}
        answers = [
            e for e in mallory.heard[count:] if e.name == EVENTS and "containerType" in e.query
        ]
        said = {(e.status, e.answer.lastId) for e in answers if f"{story.uuid}" in e.query}
        assert said == {(200, len(expected))}, "no length tells a right guess from a wrong one"


def deleted_story(mallory: Mallory) -> tuple[User, User, Story]:
    """Return Alice, Bob, and a container of theirs that is to be deleted."""
    alice, bob, carol = mallory.people(3)
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: WRITER}, content=b"gone")
    return alice, bob, story


def plant_risen(mallory: Mallory, story: Story, bob: User) -> None:
    """Serves a record of Bob's behind the tombstone, which is the second record."""
    risen = mallory.rewind(story, 2)
    mallory.plant(risen, risen.follow(bob, content=b"risen"))


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_no_device_that_has_seen_the_deletion_takes_the_container_again(
    mallory: Mallory, when: str
) -> None:
    """The broker serves an older state, and a record behind the tombstone, before and after a restart."""
    alice, bob, story = deleted_story(mallory)
    device = mallory.restarted_device_of(alice, story)
    story.tell(bob, story.follow(bob, tombstone=True))
    with pytest.raises(BrokerError.deletedError):
        device.getContainer(story.uuid).result(PATIENCE)
    if when == "after":
        device = mallory.restarted(device)
    mallory.rewind(story, 1)
    mallory.check_refused(device, story, ROLLBACK, *OPERATIONS)
    plant_risen(mallory, story, bob)
    mallory.check_refused(device, story, INTEGRITY, *OPERATIONS)
    another = mallory.rewind(story, 1)
    for content in (b"other", b"history"):
        mallory.plant(another, another.follow(bob, content=content))
    mallory.check_refused(device, story, FORK, *OPERATIONS)


def test_a_deletion_that_nobody_signed_is_no_deletion(mallory: Mallory) -> None:
    """A broker that merely says `deleted`: what a program would throw away is still there."""
    alice, _, story = deleted_story(mallory)
    large = Story(alice).created({alice: OWNER})
    device = mallory.device_of(alice)
    device.updateContainerContent(large.uuid, bytes(70_000)).result(PATIENCE)
    device.getContainer(story.uuid).result(PATIENCE)
    deleted = BrokerError.deletedError()
    with mallory.failing(VIEW, deleted):
        mallory.check_refused(device, story, INTEGRITY, *OPERATIONS)
    with mallory.failing(SEGMENTS, deleted):
        mallory.check_refused(device, large, INTEGRITY, "getContainer")
    before = verified_marks(device)
    for name, content in ((RECORD, b"x"), (CHUNK, bytes(70_000))):
        with mallory.failing(name, deleted), pytest.raises(INTEGRITY):
            device.updateContainerContent(story.uuid, content).result(PATIENCE)
    assert verified_marks(device) == before
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"gone"


def test_an_id_that_was_deleted_is_refused_for_ever_by_the_broker(mallory: Mallory) -> None:
    """Containers deleted by a record, containers deleted with their last user, and users."""
    alice, bob, story = deleted_story(mallory)
    left = Story(alice).created({alice: OWNER})
    left.tell(alice, left.follow(alice, grants={bob: OWNER}))
    story.tell(bob, story.follow(bob, tombstone=True))
    story.send(bob, story.follow(bob, content=b"risen"), 3).expect(410, "deleted")
    delete_user(bob).expect(204)
    for gone in (story, left):
        anew = Story(alice, nonce=gone.nonce)
        anew.send(alice, anew.begin({alice: OWNER})).expect(409, "exists")
        assert alice.wire.call("GET", f"{gone.path}?content=1").status in (200, 404)
        hashes = f"{gone.path}/parts/{uuid.uuid4()}/hashes"
        assert alice.wire.call("GET", hashes).status in (404, 410)
    mallory.register(*bob.ring.first_records(clock())).expect(409, "exists")
    log_in = bob.wire.log_in_request(bob.ring)
    bob.wire.call("POST", "/v1/sessions", log_in).expect(401, "challenge")


# Where a log begins and ends, and two logs for two readings at once. A device keeps what it was served, and
# none of the numbers that come with it; readings that share its marks agree on one log, whichever ends first.


FORKED: Final = told_otherwise(4, version=77)


# Two at once.


class Held:
    """An answer about events that is on its way."""

    def __init__(self) -> None:
        self.arrived, self.release = threading.Event(), threading.Event()


@contextmanager
def held(lie: Lie) -> Iterator[Held]:
    """The next answer about events is `lie(answer)`, and comes when the test lets it."""
    honest, answer_to = Session.call, Held()

    async def call(self: Session, method: str, path: str, answer: Any, **options: Any) -> Any:
        found = await honest(self, method, path, answer, **options)
        if not isinstance(found, Events) or answer_to.arrived.is_set():
            return found
        answer_to.arrived.set()
        await until(answer_to.release.is_set)
        return lie(found)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "call", call)
        yield answer_to
        answer_to.release.set()


def honest(log: Events) -> Events:
    return log


def another(mallory: Mallory, device: ServerProvider, how: str) -> ServerProvider:
    """Return a device that reads at the same time with the same marks: the same program, or another one."""
    if how == "one program":
        return device
    store = device._trust_store
    assert isinstance(store, FileTrustStore)
    return mallory.device(device.getKeyRing().result(PATIENCE), FileTrustStore(store.directory))


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["one program", "two programs"])
@pytest.mark.parametrize("slow, quick", [(FORKED, honest), (honest, FORKED)])
@pytest.mark.parametrize(
    "known, criteria",
    [(0, {}), (3, {}), (3, {"startId": 4})],
    ids=["fresh", "known in part", "from the next"],
)
def test_of_two_readings_at_once_that_are_told_two_logs_the_later_is_refused(
    mallory: Mallory, tmp_path: Path, how: str, slow: Lie, quick: Lie, known: int,
    criteria: dict[str, Any],
) -> None:  # fmt: skip
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice, store=FileTrustStore(tmp_path))
    other = another(mallory, device, how)
    if known:
        assert reads(device, endId=known) == [1, 2, 3]
    with held(slow) as answer:
        first = device.getEvents(**criteria)
        assert answer.arrived.wait(PATIENCE)
        with mallory.lying(EVENTS, quick):
            assert reads(other, **criteria)[-1] == 5
        before = marks(device)
        answer.release.set()
        with pytest.raises(FORK):
            first.result(PATIENCE)
        assert marks(device) == before


@pytest.mark.sampled
@pytest.mark.parametrize("persistent", [False, True], ids=["once", "persistent"])
def test_a_reading_that_another_overtook_is_told_the_same_log_or_refused(
    mallory: Mallory, persistent: bool
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    with held(FORKED) as answer:
        first = device.getEvents()
        assert answer.arrived.wait(PATIENCE)
        story.tell(alice, story.follow(alice, content=b"6"))
        assert reads(device) == [1, 2, 3, 4, 5, 6]
        with mallory.lying(EVENTS, FORKED if persistent else honest):
            answer.release.set()
            if persistent:
                with pytest.raises(FORK):
                    first.result(PATIENCE)
            else:
                versions = [event.version for event in first.result(PATIENCE)]
                assert versions == [1, 2, 3, 4, 5, 6], "it was read again"


# The end of the log that a broker states when it refuses a reading.


def told(first: int, last: int) -> Lie:
    return lambda _: Events(events=[], firstId=first, lastId=last, droppedDigest=b"d" * 32)


def test_an_end_that_a_refusal_alone_named_is_not_kept(mallory: Mallory, tmp_path: Path) -> None:
    """No number is signed. An honest broker's log is read afterwards, also by a restarted program."""
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice, store=FileTrustStore(tmp_path))
    before = marks(device)
    with (
        mallory.lying(EVENTS, told(900, 1000)),
        pytest.raises(BrokerError.eventsExpiredError) as expired,
    ):
        reads(device, startId=1)
    assert expired.value.firstId == 900
    assert marks(device) == before
    assert reads(device) == [1, 2, 3, 4, 5]
    device.close()
    device = mallory.device(alice.ring, FileTrustStore(tmp_path))
    assert reads(device) == [1, 2, 3, 4, 5]


# How much of it.


@pytest.mark.long
def test_events_that_are_dropped_as_fast_as_they_are_read_are_too_many_in_the_end(
    mallory: Mallory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million; of five thousand the same is shown."""
    lower(monkeypatch, events=5 * PAGE)
    alice, _ = log_of_five(mallory)
    [event, *_], pages = alice.events(), list[int]()

    def dropping(log: Events) -> Events:
        if len(pages) == 10:  # so that no test is endless
            return log
        first = 2 * PAGE * len(pages) + 1
        pages.append(first)
        shown = [replace(event, id=first + n) for n in range(PAGE)]
        digest = log.droppedDigest if first == 1 else b"d" * 32
        return Events(events=shown, firstId=first, lastId=2**31, droppedDigest=digest)

    device = mallory.device_of(alice)
    with mallory.lying(EVENTS, dropping), pytest.raises(BrokerError) as caught:
        reads(device)
    assert (len(pages), type(caught.value)) == (6, BrokerError.tooLargeError)


def test_an_event_names_no_more_changes_than_there_are(mallory: Mallory) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)

    def many(log: Any) -> None:
        log["events"][1]["changes"] = ["content"] * 5

    with mallory.editing(EVENTS, many), mallory.refused(device, FAULT) as attempt:
        attempt(device.getEvents())
    assert reads(device) == [1, 2, 3, 4, 5]


# Streams of events. Each id is delivered once and in order, or the stream ends with an error; a broker that
# answers without end is not asked without a pause.


def collect(device: ServerProvider, start: int, count: int) -> list[int]:
    """Return the ids of the next `count` events, or raise the error of the stream."""
    with device.followEvents(start) as stream:
        giving_up = threading.Timer(PATIENCE, stream.close)
        giving_up.start()
        try:
            return [event.id for event in itertools.islice(stream, count)]
        finally:
            giving_up.cancel()


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(LIES))
def test_a_lie_about_the_log_ends_the_stream_of_a_device_that_has_read_it(
    mallory: Mallory, name: str
) -> None:
    lie, _, error = LIES[name]
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)
    assert reads(device) == [1, 2, 3, 4, 5]
    with mallory.lying(EVENTS, lie), pytest.raises((error, BrokerError.eventsExpiredError)):
        collect(device, 1, 6)
    assert collect(device, 1, 5) == [1, 2, 3, 4, 5]


def test_a_log_that_ends_before_the_streams_next_event_is_a_rollback_also_without_marks(
    mallory: Mallory,
) -> None:
    alice, _ = log_of_five(mallory)
    device = mallory.device_of(alice)
    shorter = Events(events=[], firstId=1, lastId=3)
    with mallory.answering(EVENTS, shorter), pytest.raises(ROLLBACK, match="ends at 3"):
        collect(device, 6, 1)


def test_a_log_that_has_grown_beyond_the_streams_next_event_again_is_another(
    mallory: Mallory,
) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    assert collect(device, 1, 5) == [1, 2, 3, 4, 5]
    story.tell(alice, story.follow(alice, content=b"six"))
    with mallory.lying(EVENTS, told_otherwise(5, version=7)), pytest.raises(FORK):
        collect(device, 6, 1)
    assert collect(device, 6, 1) == [6]


@contextmanager
def counted(mallory: Mallory, answer: Any) -> Iterator[list[Exchange]]:
    """Answer all requests for events with this lie; yield them."""
    asked: list[Exchange] = []

    def before(exchange: Exchange) -> None:
        asked.append(exchange)
        exchange.invent(answer)

    with mallory.meddling(EVENTS, before=before):
        yield asked


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [b"", HEARTBEAT * 100_000, Events(events=[], firstId=1, lastId=0)],
    ids=["nothing", "heartbeats", "a page"],
)
def test_a_broker_that_answers_at_once_without_an_event_is_asked_once_a_second(
    mallory: Mallory, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await tick()

    monkeypatch.setattr(events, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    monkeypatch.setattr(events, "monotonic", lambda: 0.0)
    [alice] = mallory.people(1)
    device = mallory.device_of(alice)
    with counted(mallory, answer) as asked, device.followEvents(1):
        wait_until(lambda: len(asked) >= 4)
        asked_at_least = len(asked)
        assert len(pauses) >= asked_at_least - 1
    assert set(pauses) == {1.0}


@pytest.mark.long
@pytest.mark.parametrize(
    "silent, seconds, why",
    [
        pytest.param(0.5, PATIENCE, "silent for too long", id="no byte"),
        pytest.param(PATIENCE, 0.5, "does not end", id="no end"),
    ],
)
def test_a_connection_without_an_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, silent: float, seconds: float, why: str
) -> None:
    lower(monkeypatch, silent_seconds=silent)
    with (
        BadBroker([hang]) as broker,
        ServerProvider(uuid4(), broker.url, "device", trustStore=MemoryTrustStore()) as device,
    ):
        waiting = device._requests.wait("/v1/events", seconds, {}, token="a token")
        done = io_thread.submit("waiting", waiting)
        with pytest.raises((BrokerError.unreachableError, TimeoutError)) as caught:
            done.result(PATIENCE)
        assert why in str(caught.value)


def test_one_user_cannot_take_all_waiting_requests(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    greedy, modest = mallory.device_of(alice), mallory.device_of(bob)
    refused: list[int] = []

    def after(exchange: Exchange) -> None:
        if exchange.status == 503:
            refused.append(1)

    with ExitStack() as stack, mallory.meddling(EVENTS, after=after):
        for _ in range(40):
            stack.enter_context(greedy.followEvents(1))
        wait_until(lambda: len(refused) >= 8)
        modest.createContainer(b"").result(PATIENCE)
        assert collect(modest, 1, 1) == [1]


# Limits


def test_what_a_filter_leaves_out_and_what_was_never_told_is_the_limit(mallory: Mallory) -> None:
    alice, story = log_of_five(mallory)
    device = mallory.device_of(alice)
    assert len(reads(device)) == 5
    with mallory.lying(EVENTS, with_events(lambda log: log[:1])):
        assert reads(device, containerId=story.uuid) == [1]
        assert reads(device, eventType=ContainerEventType.Updated) == [2]
        with mallory.refused(device, INTEGRITY) as attempt:
            attempt(device.getEvents())
    mallory.query("DELETE FROM events WHERE id IS NULL")
    story.tell(alice, story.follow(alice, content=b"6"))
    mallory.query("DELETE FROM events WHERE id IS NULL")
    assert len(reads(device)) == 5
    found = device.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.version) == (b"6", 6), "the container itself says it"


@pytest.mark.long
def test_who_never_saw_the_deletion_is_shown_what_was_before_and_that_is_the_limit(
    mallory: Mallory,
) -> None:
    """Hiding is withholding. With a member's help a fresh device is even shown what came later."""
    alice, bob, story = deleted_story(mallory)
    marked = mallory.restarted_device_of(alice, story)
    story.tell(bob, story.follow(bob, tombstone=True))
    shown = mallory.rewind(story, 1)
    for device in (marked, mallory.device_of(alice)):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"gone"
    mallory.rewind(story, 2)
    with pytest.raises(BrokerError.deletedError):
        marked.getContainer(story.uuid).result(PATIENCE)
    plant_risen(mallory, story, bob)
    assert mallory.device_of(alice).getContainerContent(shown.uuid).result(PATIENCE) == b"risen"
