"""A member gets one event of their expiry, dated at that moment, before all later events (protocol.md, 5)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import Event, Events
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import count_rows, query
from tests.kit.waiting import wait_until
from tests.kit.writers import MINUTE, OWNER, READER, Grant, Grants, Story, User, stalled
from tests.server.conftest import LASTS, NewUser, PassUntil


def _log(user: User) -> list[Event]:
    """The whole of a user's log, which has no gap."""
    answer = user.wire.call("GET", "/v1/events").expect(200).message(Events)
    assert [event.id for event in answer.events] == list(range(1, answer.lastId + 1))
    return [replace(event, salt=None, detailsHash=None) for event in answer.events]


def _told(user: User, *stories: Story) -> list[tuple[str, int]]:
    """Return kind and version of the user's events of these containers."""
    wanted = {story.path.rpartition("/")[2] for story in stories}
    return [(e.eventType, e.version) for e in _log(user) if e.containerId in wanted]


@dataclass(frozen=True)
class Scene:
    """A container of Alice's to which Bob has access for a while."""

    story: Story
    alice: User
    bob: User
    ends: int

    def write(self, **changes: Any) -> None:
        self.story.tell(self.alice, self.story.follow(self.alice, **changes))


def _scene(new_user: NewUser, permissions: int = READER | Level.ViewType) -> Scene:
    alice, bob = new_user(), new_user()
    ends = clock() + LASTS
    grants: Grants = {alice: OWNER, bob: Grant(permissions, ends)}
    story = Story(alice).created(grants, header=b"{}", type="note")
    return Scene(story, alice, bob, ends)


def _expiry(scene: Scene, **changes: Any) -> Event:
    """Return the expected event of Bob's expiry, without the salt."""
    fields: dict[str, Any] = {
        "id": 2,
        "eventType": "Deleted",
        "containerId": scene.story.path.rpartition("/")[2],
        "containerType": "note", "date": scene.ends, "version": 1, "relatedUserId": None,
        "applicationName": "", "changes": [], "salt": None,
    }  # fmt: skip
    return Event(**(fields | changes))


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_expired_member_gets_one_event_dated_at_the_expiry(
    new_user: NewUser, pass_until: PassUntil
) -> None:
    scene = _scene(new_user)
    assert [event.eventType for event in _log(scene.bob)] == ["Added"]
    pass_until(scene.ends)
    for _ in range(2):
        assert _log(scene.bob)[1:] == [_expiry(scene)]
    assert _told(scene.alice, scene.story) == [("Added", 1)]


def test_an_expiry_is_recorded_also_for_a_reader_with_a_filter(
    new_user: NewUser, pass_until: PassUntil
) -> None:
    scene = _scene(new_user)
    pass_until(scene.ends)
    answer = scene.bob.wire.call("GET", "/v1/events?eventType=Added&startId=7").expect(200)
    assert answer.message(Events) == Events(events=[], firstId=1, lastId=2)
    [told] = scene.bob.events(eventType="Deleted")
    assert replace(told, salt=None) == _expiry(scene)


@dataclass(frozen=True)
class Case:
    """Alice's acts after Bob's access expired, and the further events that he gets."""

    name: str
    changes: Callable[[Scene], dict[str, Any]]
    then: tuple[tuple[str, int], ...] = ()


CASES: Final = (
    Case("changes nothing", lambda _: {}),
    Case("changes the type", lambda _: {"type": "other"}),
    Case("takes the content away", lambda _: {"content": None}),
    Case("drops him", lambda s: {"grants": {s.alice: OWNER}}),
    Case("drops him and writes", lambda s: {"grants": {s.alice: OWNER}, "content": b"2", "type": "x"}),
    Case("takes him in again", lambda s: {"grants": {s.alice: OWNER, s.bob: READER}}, (("Added", 2),)),
    Case("takes him in again for a while",
         lambda s: {"grants": {s.alice: OWNER, s.bob: Grant(READER, clock() + 60 * MINUTE)}},
         (("Added", 2),)),
    Case("deletes the container", lambda _: {"tombstone": True}),
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("looks", [True, False], ids=["who looked", "who did not look"])
def test_events_of_a_writer_follow_an_earlier_expiry(
    new_user: NewUser, looks: bool, pass_until: PassUntil
) -> None:
    scenes = [(case, _scene(new_user)) for case in CASES]
    pass_until(scenes[-1][1].ends)
    if looks:
        for _, scene in scenes:
            assert _log(scene.bob)[1:] == [_expiry(scene)]
    for case, scene in scenes:
        scene.write(**case.changes(scene))
    for case, scene in scenes:
        head, kept = scene.story.head, {}
        if head.tombstone:  # it empties what was told before it
            kept = {"date": head.time, "containerType": None, "version": 0}
        assert _log(scene.bob)[1] == _expiry(scene, **kept), case.name
        assert _told(scene.bob, scene.story)[2:] == list(case.then), case.name
        assert _told(scene.alice, scene.story)[0] == ("Added", 0 if head.tombstone else 1)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_member_who_is_added_again_gets_new_events_and_the_next_expiry(
    new_user: NewUser, pass_until: PassUntil
) -> None:
    scene = _scene(new_user)
    pass_until(scene.ends)
    again = clock() + LASTS
    scene.write(grants={scene.alice: OWNER, scene.bob: Grant(READER, again)})
    scene.write(content=b"2")
    pass_until(again)
    scene.write(type="other")
    scene.write(grants={scene.alice: OWNER})
    kinds = [("Added", 1), ("Deleted", 1), ("Added", 2), ("Updated", 3), ("Deleted", 3)]
    assert _told(scene.bob, scene.story) == kinds
    assert [e.date for e in _log(scene.bob) if e.eventType == "Deleted"] == [scene.ends, again]


def test_thousands_of_expiries_are_recorded_once_each_and_in_order(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    Story(bob).created()
    url, count = broker.database_url, 1200
    fresh = "randomblob(16)" if broker.engine == "sqlite" else "uuid_send(gen_random_uuid())"
    query(
        url,
        "INSERT INTO containers "
        "(id, version, governing_version, access_version, governing_bytes, type_salt, type, deleted, "
        "creator_id) "
        f"SELECT {fresh}, 1, 1, 1, 0, NULL, 'many', c.deleted, c.creator_id FROM containers c, "
        f"(VALUES {', '.join(f'({n})' for n in range(count))}) n WHERE c.creator_id = ?",
        bob.ring.userId.bytes,
    )
    # In no order that an id has.
    query(
        url,
        "INSERT INTO members "
        "(container_id, user_id, permissions, key_index, expires_at, wrap, expiry_recorded) "
        "SELECT c.id, ?, 1, 0, 1000 + row_number() OVER (ORDER BY c.id DESC), NULL, c.deleted "
        "FROM containers c WHERE c.type = 'many' AND c.creator_id = ?",
        alice.ring.userId.bytes, bob.ring.userId.bytes,
    )  # fmt: skip
    first = alice.events()
    found = [*first, *alice.events(startId=len(first) + 1)]
    assert [event.id for event in found] == list(range(1, count + 1))
    assert [event.date for event in found] == list(range(1001, 1001 + count))
    assert {event.eventType for event in found} == {"Deleted"}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_fetch_is_not_recorded_for_a_member_whose_access_expired(
    new_user: NewUser, broker: BrokerProcess, pass_until: PassUntil
) -> None:
    scene = _scene(new_user, READER | Level.ReceiveAccessEvents)
    carol = new_user()
    scene.write(grants={**scene.story.grants, carol: READER})
    pass_until(scene.ends)
    carol.view(scene.story, "header=1")
    told = partial(count_rows, broker.database_url, "accesses", "container_id = ?", scene.story.id)
    wait_until(told)
    assert "Accessed" not in {event.eventType for event in _log(scene.bob)}


# At the same time


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("looks", [True, False], ids=["who looks", "who does not look"])
@pytest.mark.parametrize("drops", [True, False], ids=["dropped", "kept"])
def test_an_expiry_while_a_record_is_stored_is_recorded_once(
    broker: BrokerProcess, new_user: NewUser, looks: bool, drops: bool, pass_until: PassUntil
) -> None:
    scene = _scene(new_user)
    story, alice = scene.story, scene.alice
    grants: Grants | None = {alice: OWNER} if drops else None
    request = story.follow(alice, grants=grants, type="other")
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "records") as wait_for:
        writing = pool.submit(story.send, alice, request)
        wait_for(1)
        pass_until(scene.ends)
        looking = pool.submit(_log, scene.bob) if looks else None
        wait_for(1 + looks)
    writing.result().expect(201)
    if looking is not None:
        looking.result()
    assert [kind for kind, _ in _told(scene.bob, story)].count("Deleted") == 1
    assert _told(scene.bob, story)[-1][0] == "Deleted"
