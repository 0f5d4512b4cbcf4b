"""The event log: who is told what, in which order, and what stays hidden (protocol.md, 5)."""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import Event
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import query
from tests.kit.waiting import wait_until
from tests.kit.writers import MINUTE, OWNER, READER, Grant, Grants, Story, User
from tests.server.conftest import NewUser

MEMBER = Level.Download | Level.Decrypt


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
    alice, gains, loses, comes, goes = (new_user() for _ in range(5))
    seeing = MEMBER | Level.ViewType
    before: Grants = {alice: OWNER, gains: MEMBER, loses: seeing, goes: seeing}
    story = Story(alice).created(before, type="a")
    grants: Grants = {alice: OWNER, gains: seeing, loses: MEMBER, comes: seeing}
    story.tell(alice, story.follow(alice, grants=grants, type="b"))
    shown = {
        user: (event.containerType, event.previousContainerType)
        for user in (alice, gains, loses, comes, goes)
        for event in user.events()[-1:]
    }
    assert shown == {
        alice: ("b", "a"), gains: ("b", None), loses: (None, None), comes: ("b", None), goes: ("a", None),
    }  # fmt: skip
    for user in (gains, comes):
        assert user.events(containerType="a") == []


def test_without_view_access_events_show_only_changes_of_the_own_access(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: MEMBER})
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: MEMBER, carol: READER}))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: MEMBER}))
    assert [event.eventType for event in bob.events()] == ["Added"]
    later = clock() + 60 * MINUTE
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: Grant(MEMBER, later)}))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: Grant(Level.Download)}))
    told = [(event.version, event.changes) for event in bob.events()]
    assert told == [(1, []), (4, ["access"]), (5, ["access"])]


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
