"""Departures at the broker: which it stores, what it serves afterwards and to whom, and what a writer needs.

Spec: docs/spec/container.md, sections 4.1 and 10.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker.records.departure import parse_departure
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import (
    ContainerList,
    ContainerView,
    GoverningPage,
    ListRequest,
    ListView,
    ViewRequest,
    ViewsAnswer,
    ViewsRequest,
)
from tests.kit.brokers import Answer, BrokerProcess
from tests.kit.operators import admin
from tests.kit.tables import count_rows, query
from tests.kit.writers import (
    OWNER,
    READER,
    WRITER,
    Grants,
    Story,
    User,
    delete_user,
    departure,
    leave,
    rotate,
    stalled,
)
from tests.server.conftest import NewUser, at_once

MODIFIER: Final = WRITER | Level.ModifyAccess
NO_VIEW: Final = Level.Download | Level.Decrypt


def story_of(*users: User, **grants: int) -> Story:
    """A container of the first user that the others read."""
    given: Grants = {users[0]: OWNER, **dict.fromkeys(users[1:], READER)}
    return Story(users[0]).created(given, **grants)


def departures(served: ListView | None) -> list[bytes]:
    """The fingerprints of the departures that a list is served with."""
    assert served is not None
    return [parse_departure(item.body).fingerprint for item in served.departures]


def left(view: ContainerView) -> list[bytes]:
    """Who has left the list in force of a view that begins with it."""
    return departures(view.governing[-1].accessList)


def told(user: User) -> list[tuple[Any, ...]]:
    return [(e.eventType, e.version, e.relatedUserId, list(e.changes)) for e in user.events()]


def honoured(story: Story, author: User, seen: int = 1, **changes: Any) -> Any:
    """The next record of a writer who has seen so many departures."""
    return replace(story.follow(author, **changes), departures=seen)


def test_every_way_of_reading_serves_the_departures(new_user: NewUser) -> None:
    """One view, several, a list, with and without a mark, and a page of governing records."""
    alice, bob, carol = [new_user() for _ in range(3)]
    story = story_of(alice, bob, carol)
    leave(story, bob).expect(204)
    leave(story, carol).expect(204)
    both = sorted([bob.name, carol.name])
    for asked_for in ("", "since=1", "since=1&header=1&content=1"):
        assert left(alice.view(story, asked_for)) == both
    asked = [ViewRequest(containerId=str(story.uuid), since=since) for since in (None, 1)]
    answer = alice.wire.call("POST", "/v1/batches/views", ViewsRequest(views=asked))
    found = answer.expect(200).message(ViewsAnswer).views
    assert [left(each.view) for each in found if each.view is not None] == [both, both]
    listed = alice.wire.call("POST", "/v1/containers/list", ListRequest()).expect(200)
    [entry] = listed.message(ContainerList).containers
    assert entry.view is not None
    assert left(entry.view) == both
    page = alice.wire.call("GET", f"{story.path}/governing?from=1&to=1").expect(200)
    assert departures(page.message(GoverningPage).governing[0].accessList) == both


def test_a_departure_stays_with_its_list_also_after_later_lists_and_changes_of_the_type(
    new_user: NewUser,
) -> None:
    alice, bob, carol = [new_user() for _ in range(3)]
    story = story_of(alice, bob, carol)
    leave(story, bob).expect(204)
    story.tell(alice, story.follow(alice, type="new"))
    view = alice.view(story)
    assert [departures(each.accessList) for each in view.governing if each.accessList] == [
        [bob.name]
    ]
    assert left(alice.view(story, "since=2")) == [bob.name]
    story.tell(alice, honoured(story, alice, grants={alice: OWNER, carol: READER, bob: READER}))
    fresh = alice.view(story)
    lists = [departures(each.accessList) for each in fresh.governing if each.accessList]
    assert lists == [[bob.name], []]
    bob.view(story)
    leave(story, bob).expect(204)
    leave(story, carol).expect(204)
    fresh = alice.view(story)
    lists = [departures(each.accessList) for each in fresh.governing if each.accessList]
    assert lists == [[bob.name], sorted([bob.name, carol.name])]


def test_a_departure_is_an_event_for_the_leaver_and_for_members_with_viewaccess(
    new_user: NewUser,
) -> None:
    """The leaver gets a `Deleted`, members with ViewAccess an `Updated`; later events go to members alone."""
    alice, bob, carol, dave = [new_user() for _ in range(4)]
    story = Story(alice).created({alice: OWNER, bob: READER, carol: READER, dave: NO_VIEW})
    leave(story, bob).expect(204)
    added: tuple[Any, ...] = ("Added", 1, alice.id, [])
    assert told(bob) == [added, ("Deleted", 1, bob.id, [])]
    for user in (alice, carol):
        assert told(user) == [added, ("Updated", 1, bob.id, ["access"])]
    assert told(dave) == [added]
    story.tell(alice, honoured(story, alice, content=b"2", grants={alice: OWNER, carol: READER}))
    assert [each[:2] for each in told(bob)] == [("Added", 1), ("Deleted", 1)]
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: READER}))
    assert told(bob)[-1] == ("Added", 3, alice.id, [])


def test_an_author_without_the_rights_of_a_leaver_honours_their_departure_and_no_other_removal(
    new_user: NewUser,
) -> None:
    """Carol lacks Delete and Bob had it; Dave, who has not left, she cannot leave out."""
    alice, bob, carol, dave = [new_user() for _ in range(4)]
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: MODIFIER, dave: OWNER})
    without_bob: Grants = {alice: OWNER, carol: MODIFIER, dave: OWNER}
    story.send(carol, story.follow(carol, grants=without_bob)).expect(422, "rejected")
    leave(story, bob).expect(204)
    without_dave: Grants = {alice: OWNER, carol: MODIFIER}
    story.send(carol, honoured(story, carol, grants=without_dave)).expect(422, "rejected")
    story.tell(carol, honoured(story, carol, grants=without_bob))


def test_a_departure_is_signed_by_the_latest_key_and_later_retirements_are_dated_after_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = story_of(alice, bob)
    later = rotate(broker.database_url, bob, signing=1)
    old = departure(story, bob)
    leave(story, bob, old).expect(422, "rejected")
    until = "SELECT signed_until FROM users WHERE id = ?"
    own = bob.ring.userId.bytes
    query(broker.database_url, "UPDATE users SET signed_until = 0 WHERE id = ?", own)
    message = departure(story, later)
    leave(story, later, message).expect(204)
    [(bound,)] = query(broker.database_url, until, own)
    assert bound >= parse_departure(message.departure.body).time


def check(broker: BrokerProcess) -> None:
    """The operator's check finds nothing wrong."""
    done = admin(broker, "check", "--quick")
    assert done.status == 0, done.lines


@pytest.mark.long
def test_a_user_who_left_and_was_deleted_leaves_their_keys_until_the_container_is_gone(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = story_of(alice, bob)
    leave(story, bob).expect(204)
    delete_user(bob).expect(204)
    where = "user_id = ?"
    own = bob.ring.userId.bytes
    assert count_rows(broker.database_url, "key_records", where, own) == 3
    assert left(alice.view(story)) == [bob.name]
    check(broker)
    story.tell(alice, story.follow(alice, tombstone=True))
    admin(broker, "sweep").expect(0)
    assert count_rows(broker.database_url, "key_records", where, own) == 0
    assert count_rows(broker.database_url, "departures", where, own) == 0
    check(broker)


def test_a_deleted_container_cannot_be_left(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    story = story_of(alice, bob)
    message = departure(story, bob)
    story.tell(alice, story.follow(alice, tombstone=True))
    leave(story, bob, message).expect(410, "deleted")


def test_of_all_members_who_leave_at_once_one_stays(new_user: NewUser) -> None:
    users = [new_user() for _ in range(4)]
    story = Story(users[0]).created(dict.fromkeys(users, READER) | {users[0]: OWNER})
    leave(story, users[0]).expect(204)
    answers = at_once(lambda user: leave(story, user), users[1:])
    assert sorted(each.status for each in answers) == [204, 204, 422]


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_departure_and_a_record_of_the_same_moment_are_stored_one_after_the_other(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """A writer who comes second has not seen the departure; a leaver who does names an old list."""
    alice, bob, carol = [new_user() for _ in range(3)]
    everybody: Grants = {alice: OWNER, bob: READER, carol: READER}

    def both(first: Any, second: Any, table: str) -> tuple[Answer, Answer]:
        with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, table) as wait_for:
            one = pool.submit(first)
            wait_for(1)
            other = pool.submit(second)
            wait_for(2)
        return one.result(), other.result()

    story = story_of(alice, bob, carol)
    request, message = story.follow(alice, grants=everybody), departure(story, bob)
    one, other = both(
        lambda: leave(story, bob, message), lambda: story.send(alice, request), "departures"
    )
    one.expect(204)
    other.expect(409, "conflict")
    story = story_of(alice, bob, carol)
    request, message = story.follow(alice, grants=everybody), departure(story, bob)
    one, other = both(
        lambda: story.send(alice, request), lambda: leave(story, bob, message), "access_lists"
    )
    one.expect(201)
    other.expect(409, "conflict")


@pytest.mark.long
@pytest.mark.parametrize(
    "damage, values, fault",
    [
        ("UPDATE departures SET signature = ?", [bytes(3373)], "signature"),
        ("DELETE FROM departures", [], "another size"),
        ("UPDATE departures SET access_version = 7", [], "departures from access"),
        ("UPDATE departures SET user_id = ?", [bytes(16)], "another user's"),
        ("UPDATE containers SET governing_bytes = 7", [], "another size"),
        ("DELETE FROM authors", [], "does not name the users who signed"),
    ],
)
def test_the_check_finds_every_fault_of_a_departure(
    fresh_broker: BrokerProcess, new_user: NewUser, damage: str, values: list[bytes], fault: str
) -> None:
    alice, bob = new_user(at=fresh_broker), new_user(at=fresh_broker)
    story = story_of(alice, bob)
    leave(story, bob).expect(204)
    check(fresh_broker)
    query(fresh_broker.database_url, damage, *values)
    done = admin(fresh_broker, "check", "--quick")
    assert done.status == 1
    assert any(fault in line for line in done.lines), done.lines
