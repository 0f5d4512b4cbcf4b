"""A view has exactly what the reader's permissions, mark and page allow (container.md, 4)."""

from collections.abc import Callable

import msgspec
import pytest

from scbroker.keys import KeyRing
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import parse_either, parse_entry, parse_record
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import ContainerList, GoverningPage, GoverningView, ListRequest
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import query
from tests.kit.writers import (
    MINUTE,
    OWNER,
    READER,
    WRITER,
    Grant,
    Grants,
    Story,
    User,
    delete_user,
    rotate,
)
from tests.server.conftest import NewUser

VIEWER = Level.Download | Level.Decrypt
"""Everything that a reader needs, and a list without the others."""


def _bodies(views: list[GoverningView]) -> list[int]:
    return [parse_either(view.record.body).record.version for view in views]


def _names(view: GoverningView) -> set[bytes]:
    """Return the users whose entries this list discloses."""
    assert view.accessList is not None
    return {parse_entry(item.entry).fingerprint for item in view.accessList.disclosed}


def test_without_view_access_only_own_and_authors_entries_are_disclosed(new_user: NewUser) -> None:
    alice, bob, carol, dora, silent = (new_user() for _ in range(5))
    everyone: Grants = {alice: OWNER, bob: VIEWER, carol: OWNER, dora: READER, silent: READER}
    story = Story(alice).created(everyone)
    view = bob.view(story)
    assert _names(view.governing[0]) == {alice.name, bob.name}
    # Carol authors a change: her entry in the list before it has to be judged.
    story.tell(carol, story.follow(carol, grants=everyone))
    view = bob.view(story)
    assert [_names(governing) for governing in view.governing] == [
        {alice.name, bob.name, carol.name},
        {bob.name, carol.name},
    ]
    # Dora writes the head: hers as well, in every earlier list.
    writing: Grants = {**everyone, dora: WRITER}
    story.tell(alice, story.follow(alice, grants=writing))
    story.tell(dora, story.follow(dora, content=b"of Dora"))
    view = bob.view(story)
    assert [_names(governing) for governing in view.governing] == [
        {alice.name, bob.name, carol.name, dora.name},
        {alice.name, bob.name, carol.name, dora.name},
        {alice.name, bob.name, dora.name},
    ]
    assert {chain.userId for chain in view.keyChains} == {alice.id, carol.id, dora.id}
    for governing in view.governing:
        assert governing.accessList is not None
        assert len(governing.accessList.entryHashes) == 32 * 5
        assert not governing.accessList.verified().complete
    assert all(len(_names(governing)) == 5 for governing in dora.view(story).governing)


def test_a_reader_with_a_mark_gets_the_records_from_it_to_the_head(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice).created(type="1")
    for version in range(2, 8):  # 3 and 6 are governing
        if version == 3:
            story.tell(alice, story.follow(alice, grants={alice: OWNER}))
        elif version == 6:
            story.tell(alice, story.follow(alice, type="6"))
        else:
            story.tell(alice, story.follow(alice, content=bytes([version])))
    expected = {
        1: ([1, 3, 6], [2, 4, 5]),
        2: ([1, 3, 6], [2, 4, 5]),
        3: ([3, 6], [4, 5]),
        4: ([3, 6], [4, 5]),
        5: ([3, 6], [5]),
        6: ([6], []),
        7: ([6], []),
        8: ([6], []),
        2**53 - 1: ([6], []),
    }
    for since, (governing, skipped) in expected.items():
        view = alice.view(story, f"since={since}")
        assert _bodies(view.governing) == governing, since
        assert [parse_record(body).version for body in view.skipped] == skipped, since
        assert view.skipped == [encode_object(story.records[n - 1]) for n in skipped]
        assert view.head == story.requests[6].record
        assert view.governing[0].accessList is not None, "its list comes along"


def test_governing_records_come_as_a_view_with_that_head_would_show_them(new_user: NewUser) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    story = Story(alice).created({alice: OWNER, bob: VIEWER, carol: OWNER})
    story.tell(alice, story.follow(alice, content=b"2"))
    before = bob.view(story).governing
    story.tell(carol, story.follow(carol, grants={alice: OWNER, bob: VIEWER, carol: OWNER}))
    story.tell(alice, story.follow(alice, type="4"))

    def page(first: int, last: int, user: User = bob) -> list[GoverningView]:
        answer = user.wire.call("GET", f"{story.path}/governing?from={first}&to={last}")
        return answer.expect(200).message(GoverningPage).governing

    assert page(1, 2) == before, "as of version 2 Carol has authored nothing"
    assert page(1, 4) == bob.view(story).governing
    assert _bodies(page(2, 4)) == [3, 4]
    assert _bodies(page(4, 4)) == [4]
    assert page(4, 4)[0].accessList is not None
    assert page(2, 2) == page(5, 9) == page(4, 1) == []
    assert _bodies(page(1, 2**53 - 1)) == [1, 3, 4]
    assert all(len(_names(view)) == 3 for view in page(1, 3, alice))
    for text in ("", "from=1", "to=1", "from=0&to=1", "from=1&to=0", "from=1&to=1&x=1"):
        alice.wire.call("GET", f"{story.path}/governing?{text}").expect(400, "invalid")


@pytest.mark.long
def test_many_governing_records_come_in_pages_that_join_without_a_gap(
    new_user: NewUser, user_pool: Callable[[int], list[KeyRing]]
) -> None:
    """A page is about 2 MiB; lists of 61 entries reach it in about a hundred and twenty."""
    alice = new_user()
    members = [User(ring, alice.wire) for ring in user_pool(60)]
    story = Story(alice)
    grants: Grants = {alice: OWNER, **{user: Grant(1) for user in members}}
    story.created(grants)
    for _ in range(140):
        story.tell(alice, story.follow(alice, grants=grants, content=None))
    view = alice.view(story)
    assert view.lastGoverning == 141
    found = list(view.governing)
    assert 1 < len(found) < 141, "not all of it fits"
    while (last := _bodies(found)[-1]) < view.lastGoverning:
        answer = alice.wire.call(
            "GET", f"{story.path}/governing?from={last + 1}&to={view.lastGoverning}"
        )
        page = answer.expect(200)
        assert len(page.body) < 3 * 2**20
        found += page.message(GoverningPage).governing
    assert _bodies(found) == list(range(1, 142))
    assert all(governing.accessList is not None for governing in found)


def test_pages_of_a_head_long_past_are_refused(new_user: NewUser, broker: BrokerProcess) -> None:
    """They would show who wrote it, in every list before, to readers who need not judge that record."""
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: READER})
    story.tell(alice, story.follow(alice, content=b"2"))
    story.tell(alice, story.follow(alice, content=b"3"))
    for to in (1, 2, 3):
        bob.wire.call("GET", f"{story.path}/governing?from=1&to={to}").expect(200)
    where = "WHERE container_id = ? AND version = 3"
    [(body,)] = query(broker.database_url, f"SELECT body FROM records {where}", story.id)
    old = msgspec.structs.replace(parse_record(body), time=clock() - 16 * MINUTE)
    query(broker.database_url, f"UPDATE records SET body = ? {where}", encode_object(old), story.id)
    for to, status in ((1, 200), (2, 409), (3, 200)):
        bob.wire.call("GET", f"{story.path}/governing?from=1&to={to}").expect(status)


def test_an_expired_entry_shows_nothing_from_that_moment_on(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: Grant(READER, clock() + MINUTE)})
    bob.view(story)
    query(
        broker.database_url,
        "UPDATE members SET expires_at = ? WHERE container_id = ? AND user_id = ?",
        clock(), story.id, bob.ring.userId.bytes,
    )  # fmt: skip
    for path in ("", "/governing?from=1&to=1", "/records?from=1&count=1"):
        bob.wire.call("GET", story.path + path).expect(404, "not-found")
    answer = bob.wire.call("POST", "/v1/containers/list", ListRequest()).expect(200)
    assert answer.message(ContainerList).containers == []


@pytest.mark.long
def test_writers_who_ask_hear_whose_keys_moved_and_nobody_else_does(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    """Not of readers without a wrap, of deleted users, and of those whose signing key alone is another."""
    alice, bob, carol, dora, erin = (new_user() for _ in range(5))
    without_a_wrap = int(Level.Download)
    story = Story(alice).created(
        {alice: OWNER, bob: READER, carol: without_a_wrap, dora: READER, erin: READER}
    )
    for user in (bob, carol, dora):
        rotate(broker.database_url, user, encryption=1)
    rotate(broker.database_url, erin, signing=1)
    delete_user(dora).expect(204)
    found = alice.view(story, "recipients=1").recipients
    assert [(item.userId, item.sequence) for item in found] == [(bob.id, 2)]
    assert alice.view(story).recipients == alice.view(story, "recipients=0").recipients == []
    assert bob.view(story, "recipients=1").recipients == []
