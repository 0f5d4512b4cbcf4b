"""The event log: who is told what, in which order, and what stays hidden (protocol.md, 5)."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import Event, Events
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import query
from tests.kit.waiting import wait_until
from tests.kit.writers import MINUTE, OWNER, READER, Grant, Grants, Story, User
from tests.server.conftest import NewUser

MEMBER = Level.Download | Level.Decrypt
PAGE = "/v1/events"


def _told(events: list[Event]) -> list[tuple[str, int, list[str]]]:
    return [(event.eventType, event.version, list(event.changes)) for event in events]


@pytest.mark.long
def test_each_member_gets_one_event_of_each_record_that_they_can_see(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    everyone: Grants = {alice: OWNER, bob: OWNER}
    story = Story(alice).created(everyone, header=b"{}", type="a")
    story.tell(bob, story.follow(bob, content=b"2"))
    story.tell(alice, story.follow(alice, header=b'{"a":1}', content=b"3", type="b"))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: OWNER}))
    story.tell(alice, story.follow(alice, content=None))
    assert _told(alice.events()) == [
        ("Added", 1, []),
        ("Updated", 2, ["content"]),
        ("Updated", 3, ["header", "content", "type"]),
        ("Updated", 4, ["access"]),
        ("Updated", 5, ["content"]),
    ]
    assert _told(bob.events()) == [
        ("Added", 1, []),
        ("Updated", 2, ["content"]),
        ("Updated", 3, ["header", "content", "type"]),
        ("Deleted", 4, []),
    ]
    assert _told(carol.events()) == [("Added", 4, []), ("Updated", 5, ["content"])]


def test_a_deletion_empties_what_every_log_said_of_the_container(new_user: NewUser) -> None:
    """In the logs of members and of a former member, numbered or not; events of other containers stay."""
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: OWNER}, header=b"{}", type="a")
    other = Story(alice).created(type="a")
    numbered = alice.events()
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: OWNER}, type="b"))
    story.tell(carol, story.follow(carol, tombstone=True))
    emptied: dict[str, Any] = {
        "containerId": story.path.rpartition("/")[2], "containerType": None, "version": 0,
        "date": story.head.time, "relatedUserId": None, "applicationName": "", "changes": [],
    }  # fmt: skip
    for user in (alice, bob, carol):
        told = [event for event in user.events() if event.containerId == emptied["containerId"]]
        kept = told if user is bob else told[:-1]
        assert kept, "the container was in this log"
        for event in kept:
            assert event == Event(
                id=event.id, eventType=event.eventType, salt=None,
                detailsHash=event.detailsHash, **emptied,
            )  # fmt: skip
            assert event.detailsHash is not None
        if user is not bob:
            assert _told(told[-1:]) == [("Deleted", 3, [])]
            assert told[-1].relatedUserId == carol.id
            assert told[-1].containerType is None
    assert [event.eventType for event in alice.events()] == ["Added", "Added", "Updated", "Deleted"]
    [untouched] = [event for event in alice.events() if event.id == 2]
    assert untouched == numbered[1]
    assert untouched.containerId == other.path.rpartition("/")[2]


def test_an_event_says_who_acted_when_and_by_which_program(new_user: NewUser) -> None:
    alice, bob = new_user(name="Prögram/1 %"), new_user()
    before = clock()
    story = Story(alice).created({alice: OWNER, bob: OWNER}, type="note")
    [event] = bob.events()
    assert event == Event(
        id=1, eventType="Added", containerId=story.path.rpartition("/")[2], containerType="note",
        date=event.date, version=1, relatedUserId=alice.id, applicationName="Prögram/1 %",
        changes=[], salt=event.salt,
    )  # fmt: skip
    assert event.salt is not None
    assert before <= event.date <= clock()


def test_a_container_is_followed_by_its_type_before_and_after_a_change(new_user: NewUser) -> None:
    """The event of the change has both; before it only the old type finds events, after it only the new."""
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: MEMBER | Level.ViewType}, type="a")
    for step in (
        {"content": b"2"},
        {"type": "b"},
        {"content": b"4"},
        {"type": None},
        {"type": "a"},
    ):
        story.tell(alice, story.follow(alice, **step))
    for user in (alice, bob):
        found = {label: user.events(containerType=label) for label in ("a", "b")}
        assert [event.version for event in found["a"]] == [1, 2, 3, 6]
        assert [event.version for event in found["b"]] == [3, 4, 5]
        kinds = [(event.previousContainerType, event.containerType) for event in user.events()]
        assert kinds == [
            (None, "a"), (None, "a"), ("a", "b"), (None, "b"), ("b", None), (None, "a"),
        ]  # fmt: skip
        of_it = story.path.rpartition("/")[2]
        both = user.events(containerType="a", containerId=of_it, eventType="Updated")
        assert [event.version for event in both] == [2, 3, 6]


def test_the_previous_type_is_only_in_events_of_members_who_could_see_it(new_user: NewUser) -> None:
    alice, gains, loses, comes = (new_user() for _ in range(4))
    seeing = MEMBER | Level.ViewType
    story = Story(alice).created({alice: OWNER, gains: MEMBER, loses: seeing}, type="a")
    grants: Grants = {alice: OWNER, gains: seeing, loses: MEMBER, comes: seeing}
    story.tell(alice, story.follow(alice, grants=grants, type="b"))
    shown = {
        user: (event.containerType, event.previousContainerType)
        for user in (alice, gains, loses, comes)
        for event in user.events()[-1:]
    }
    assert shown == {alice: ("b", "a"), gains: ("b", None), loses: (None, None), comes: ("b", None)}
    for user in (gains, comes):
        assert user.events(containerType="a") == []


def test_without_view_access_events_show_only_changes_of_the_own_access(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: MEMBER})
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: MEMBER, carol: READER}))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: MEMBER}))
    assert _told(bob.events()) == [("Added", 1, [])]
    later = clock() + 60 * MINUTE
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: Grant(MEMBER, later)}))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: Grant(Level.Download)}))
    assert _told(bob.events()) == [
        ("Added", 1, []),
        ("Updated", 4, ["access"]),
        ("Updated", 5, ["access"]),
    ]


def test_filters_choose_and_join(new_user: NewUser) -> None:
    alice = new_user()
    first, second = Story(alice).created(type="a"), Story(alice).created(type="b")
    for story in (first, second):
        story.tell(alice, story.follow(alice, content=b"2"))
    second.tell(alice, second.follow(alice, tombstone=True))
    identity = first.path.rpartition("/")[2]

    def ids(text: str) -> list[int]:
        answer = alice.wire.call("GET", f"{PAGE}?{text}").expect(200).message(Events)
        assert (answer.firstId, answer.lastId) == (1, 5)
        return [event.id for event in answer.events]

    assert ids("") == [1, 2, 3, 4, 5]
    assert ids("eventType=Added") == [1, 2]
    assert ids("eventType=Added&eventType=Deleted") == [1, 2, 5]
    assert ids("eventType=Accessed") == []
    assert ids(f"containerId={identity}") == [1, 3]
    assert ids(f"containerId={identity}&eventType=Updated") == [3]
    assert ids("containerType=a") == [1, 3]
    assert ids("containerType=b") == [], "a deleted container has no type in any log"
    assert ids("startId=2&endId=4") == [2, 3, 4]
    assert ids("startId=4") == [4, 5]
    assert ids("endId=0") == ids("startId=6") == ids("startId=4&endId=3") == []
    assert ids("limit=2") == [1, 2]
    assert ids("startId=3&limit=1") == [3]
    assert ids(f"startId={2**53 - 1}") == []


def _wait_for(read: Callable[[], list[Event]], count: int) -> list[Event]:
    """Events of fetches are written up to a second later."""
    wait_until(lambda: len(read()) >= count)
    return read()


@pytest.mark.long
def test_a_fetch_is_recorded_for_members_with_receive_access_events_and_once_an_hour(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    told = READER | Level.ReceiveAccessEvents
    story = Story(alice).created({alice: OWNER, bob: told, carol: READER}, header=b"{}", type="t")
    for query_text in ("header=1", "content=1", "header=1&content=1"):
        bob.view(story, query_text)
    [event] = _wait_for(lambda: alice.events(eventType="Accessed"), 1)
    assert (event.relatedUserId, event.version, event.changes) == (bob.id, 1, [])
    assert event.containerType == "t"
    carol.view(story, "content=1")
    assert len(_wait_for(lambda: alice.events(eventType="Accessed"), 2)) == 2
    [event] = _wait_for(lambda: bob.events(eventType="Accessed"), 1)
    assert (event.relatedUserId, event.containerType) == (carol.id, None)
    assert carol.events(eventType="Accessed") == []
    # An hour later it is told again.
    statement = "UPDATE accesses SET recorded_at = recorded_at - ? WHERE container_id = ?"
    query(broker.database_url, statement, 3_600_000_001, story.id)
    bob.view(story, "content=1")
    assert len(_wait_for(lambda: alice.events(eventType="Accessed"), 3)) == 3


@pytest.mark.long
def test_only_sealed_bytes_that_were_given_are_a_fetch(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: READER, carol: READER})
    bob.view(story)
    bob.view(story, "header=1")  # there is none
    bob.wire.call("GET", f"{story.path}/records?from=1&count=1").expect(200)
    alice.view(story, "content=1")  # one's own
    part = story.head.content
    assert part is not None
    carol.wire.call(
        "GET", f"{story.path}/parts/{uuid.UUID(bytes=part.partId)}/segments?first=0&count=1"
    ).expect(200)
    [event] = _wait_for(lambda: alice.events(eventType="Accessed"), 1)
    assert event.relatedUserId == carol.id


@pytest.mark.long
def test_fetches_are_recorded_before_the_broker_stops(
    fresh_broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(at=fresh_broker), new_user(at=fresh_broker)
    story = Story(alice).created({alice: OWNER, bob: READER})
    bob.view(story, "content=1")
    fresh_broker.restart()
    alice.wire.close()
    assert len(alice.events(eventType="Accessed")) == 1


@pytest.mark.long
def test_concurrent_writers_and_readers_see_no_gap_no_double_and_no_miss(new_user: NewUser) -> None:
    """A reader at id n never misses an event that commits later with a smaller id."""
    reader = new_user()
    readers = [reader, new_user(reader.ring)]
    writers = [new_user() for _ in range(4)]
    each = 12
    done = threading.Event()

    def write(writer: User) -> set[str]:
        ids = set()
        for _ in range(each):
            story = Story(writer).created({writer: OWNER, reader: READER})
            ids.add(story.path.rpartition("/")[2])
        return ids

    def follow(user: User) -> list[Event]:
        found: list[Event] = []
        while True:
            finished = done.is_set()
            page = user.events(startId=len(found) + 1)
            assert [e.id for e in page] == [len(found) + 1 + n for n in range(len(page))]
            found += page
            if finished and not page:
                return found

    with ThreadPoolExecutor(len(readers)) as following, ThreadPoolExecutor(4) as writing:
        logs = [following.submit(follow, user) for user in readers]
        try:
            written = set().union(*writing.map(write, writers))
        finally:
            done.set()
        first, second = (log.result() for log in logs)
    assert first == second
    assert len(first) == len(writers) * each
    assert {event.containerId for event in first} == written
    dates = [(event.containerId, event.version) for event in first]
    assert len(set(dates)) == len(dates)
