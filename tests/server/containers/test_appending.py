"""Appending records: what is taken, what is refused, and with which word (container.md, 7 and 10)."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker.records.container_record import Link, Role, sealed_size
from scbroker.wire.containers import RecordReceipt, RecordRequest
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import count_rows
from tests.kit.writers import MINUTE, OWNER, READER, Grant, Grants, Story, User, rotate
from tests.server.conftest import NewUser, Unchanged, at_once


def test_the_same_bytes_sent_again_are_answered_as_before_and_change_nothing(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    """After a deletion as far as records outlive it, with the parts that they had or without them."""
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: OWNER}, content=b"first")
    story.tell(alice, story.follow(alice, content=b"later"))
    story.tell(bob, story.follow(bob, grants={bob: OWNER}))

    def send_all_again(sent: Sequence[int]) -> None:
        with unchanged():
            for number in sent:
                record, request = story.records[number - 1], story.requests[number - 1]
                author = alice if record.author == alice.name else bob
                receipt = story.send(author, request).expect(200).message(RecordReceipt)
                assert receipt == RecordReceipt(version=record.version, hash=story.hash(record))

    send_all_again([1, 2, 3])
    story.tell(bob, story.follow(bob, content=b"last"))
    story.tell(bob, story.follow(bob, tombstone=True))
    send_all_again([1, 3, 5])
    with unchanged():
        story.send(alice, story.requests[1]).expect(404, "not-found")
        story.send(bob, story.requests[3]).expect(410, "deleted")


@dataclass(frozen=True)
class Scene:
    """A container of two versions by Alice that Bob may read."""

    story: Story
    alice: User
    bob: User


Make = Callable[[Scene], RecordRequest]


def _with(change: Callable[[Scene, RecordRequest], dict[str, Any]], **made: Any) -> Make:
    """The next record of Alice's with something else beside it than what was signed."""

    def make(scene: Scene) -> RecordRequest:
        request = scene.story.follow(scene.alice, **made)
        return replace(request, **change(scene, request))

    return make


def _reused_part(t: Scene) -> RecordRequest:
    """The part of version 1, which version 2 has replaced."""
    request = t.story.requests[0]
    part = t.story.records[0].content
    return replace(t.story.follow(t.alice, content=part), content=request.content)


def _large(t: Scene) -> RecordRequest:
    """65,537 bytes are for chunks: as inline they are too many for the message already."""
    part, sealed = t.story.seal(Role.Content, t.alice, bytes(65_537), t.story.key)
    return replace(t.story.follow(t.alice, content=part), content=sealed)


def _shorter(request: RecordRequest) -> RecordRequest:
    return replace(request, accessList=(request.accessList or [])[:1])


CASES: dict[str, tuple[str, Make]] = {
    "a record that breaks a rule":
        ("rejected", lambda t: t.story.follow(t.alice, link=Link(1, os.urandom(32)))),
    "a list without one of its entries": ("rejected", lambda t: _shorter(
        t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: READER}))),
    "a key index that is not the latest": ("stale-keys", lambda t: t.story.follow(
        t.alice, grants={t.alice: OWNER, t.bob: Grant(READER, key_index=1)})),
    "a list without a change of access":
        ("invalid", _with(lambda t, _: {"accessList": t.story.requests[0].accessList})),
    "a change of type without the type": ("invalid", _with(lambda *_: {"type": None}, type="x")),
    "another type than the record's":
        ("rejected", _with(lambda t, _: {"type": t.story.requests[0].type}, type="x")),
    "a type of more than 256 bytes":
        ("too-large", lambda t: t.story.follow(t.alice, type="ä" * 129)),
    "a part id for the second time": ("rejected", _reused_part),
    "a carried part with sealed bytes":
        ("invalid", _with(lambda *_: {"content": b"x" * 100}, header=b"{}")),
    "a new header without its bytes":
        ("invalid", _with(lambda *_: {"header": None}, header=b"{}")),
    "sealed bytes of another hash":
        ("rejected", _with(lambda _, r: {"content": (r.content or b"")[:-1] + b"\0"}, content=b"abc")),
    "a large content inside the request": ("invalid", _large),
}  # fmt: skip


@pytest.fixture
def scene(new_user: NewUser) -> Scene:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: READER}, header=b"{}", type="note")
    story.tell(alice, story.follow(alice, content=b"second"))
    return Scene(story, alice, bob)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_each_wrong_request_is_refused_with_its_own_code_and_changes_nothing(
    scene: Scene, unchanged: Unchanged, subtests: pytest.Subtests
) -> None:
    for name, (code, make) in CASES.items():
        with subtests.test(name), unchanged():
            assert scene.story.send(scene.alice, make(scene)).code == code
    scene.story.tell(scene.alice, scene.story.follow(scene.alice, content=b"good"))


def test_a_record_of_six_minutes_ago_is_refused_though_its_key_was_good_then(
    new_user: NewUser, broker: BrokerProcess, unchanged: Unchanged
) -> None:
    alice = rotate(broker.database_url, new_user(), signing=1)
    story = Story(alice)
    with unchanged():
        request = story.begin(time=clock() - 6 * MINUTE)
        story.send(alice, request).expect(422, "clock")
    story.send(alice, story.begin(time=clock() - 4 * MINUTE)).expect(201)


@pytest.mark.long
def test_a_list_has_no_more_members_than_the_broker_allows(
    new_user: NewUser, start_broker: Any
) -> None:
    small = start_broker(max_members=2, max_content=1000)
    users = [new_user(at=small) for _ in range(3)]
    alice, bob, carol = users
    story = Story(alice).created({alice: OWNER, bob: READER})
    grants: Grants = {alice: OWNER, bob: READER, carol: READER}
    story.send(alice, story.follow(alice, grants=grants)).expect(413, "too-large")
    story.send(alice, story.follow(alice, content=bytes(1001))).expect(413, "too-large")
    story.tell(alice, story.follow(alice, content=bytes(1000)))


def test_a_create_sent_by_many_at_once_happens_once(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice = new_user()
    senders = [new_user(alice.ring) for _ in range(6)]
    story = Story(alice)
    request = story.begin()
    answers = at_once(lambda user: story.send(user, request), senders)
    assert sorted(answer.status for answer in answers) == [200] * 5 + [201]
    assert count_rows(broker.database_url, "events", "container_id = ?", story.id) == 1


def test_the_largest_inline_content_and_header_are_taken(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice).created(header=bytes(262_144), content=bytes(65_536))
    view = alice.view(story, "header=1&content=1")
    assert view.header is not None
    assert view.content is not None
    assert len(view.header) == sealed_size(262_144)
    assert len(view.content) == sealed_size(65_536)
