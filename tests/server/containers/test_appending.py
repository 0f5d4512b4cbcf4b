"""Appending records: what is taken, what is refused, and with which word (container.md, 7 and 10)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker.crypto.seal import random_bytes
from scbroker.records.canonical import encode_object
from scbroker.records.container_record import Link, Role, bare_body, sealed_size
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.vocabulary import KeyType
from scbroker.wire.containers import AccessEntry, RecordReceipt, RecordRequest, SignedRecord
from tests.kit.brokers import BrokerProcess, clock
from tests.kit.tables import count_rows, query
from tests.kit.waiting import wait_until
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, User, rotate
from tests.server.conftest import NewUser, Unchanged, at_once


def test_every_kind_of_change_is_taken(new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created(header=b"{}", type="note")
    story.tell(alice, story.follow(alice, header=b'{"a":1}'))
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: WRITER}))
    story.tell(bob, story.follow(bob, content=b"of Bob"))
    story.tell(alice, story.follow(alice, type=None))
    story.tell(alice, story.follow(alice, type="x", grants={alice: OWNER}, header=None))
    story.tell(alice, story.follow(alice, content=None))
    story.tell(alice, story.follow(alice, tombstone=True))
    assert [record.version for record in story.records] == list(range(1, 9))


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


def test_stored_records_are_known_by_their_body_alone_whatever_else_comes_along(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story = Story(alice).created(header=b"{}")
    first = story.requests[0]
    resigned = story.sign(alice, story.records[0])
    assert resigned.record.signature != first.record.signature, "ML-DSA signs with fresh salt"
    with unchanged():
        story.send(alice, replace(first, record=resigned.record)).expect(200)


def test_a_stored_record_is_answered_also_after_its_key_was_retired(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice = new_user()
    story = Story(alice).created()
    rotate(broker.database_url, alice, (KeyType.Signing, 0), signing=1)
    story.send(alice, story.requests[0]).expect(200)


@dataclass(frozen=True)
class Scene:
    """A container of two versions by Alice that Bob may read."""

    story: Story
    alice: User
    bob: User


@dataclass(frozen=True)
class Case:
    """A request to refuse."""

    name: str
    status: int
    code: str
    make: Callable[[Scene], RecordRequest]

    def __str__(self) -> str:
        return self.name


def _flipped(octets: bytes | None, position: int) -> bytes:
    spoiled = bytearray(octets or b"")
    spoiled[position] ^= 1
    return bytes(spoiled)


def _forged(t: Scene, position: int) -> RecordRequest:
    request = t.story.follow(t.alice, content=b"x")
    signature = _flipped(request.record.signature, position)
    return replace(request, record=replace(request.record, signature=signature))


def _listing(t: Scene, change: Callable[[list[AccessEntry]], list[AccessEntry]]) -> RecordRequest:
    """A change of access that sends another list than the signed one."""
    request = t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: READER})
    return replace(request, accessList=change(request.accessList or []))


def _typed(t: Scene, **changes: Any) -> RecordRequest:
    request = t.story.follow(t.alice, type="x")
    assert request.type is not None
    return replace(request, type=replace(request.type, **changes))


def _reused_part(t: Scene) -> RecordRequest:
    """The part of version 1, which version 2 has replaced."""
    request = t.story.requests[0]
    part = t.story.records[0].content
    return replace(t.story.follow(t.alice, content=part), content=request.content)


def _foreign_part(t: Scene) -> RecordRequest:
    """A new part under another author's name."""
    part, sealed = t.story.seal(Role.Content, t.bob, b"x", t.story.key)
    return replace(t.story.follow(t.alice, content=part), content=sealed)


def _large_inline(t: Scene) -> RecordRequest:
    """65,537 bytes are for chunks: as inline they are too many for the message already."""
    part, sealed = t.story.seal(Role.Content, t.alice, bytes(65_537), t.story.key)
    return replace(t.story.follow(t.alice, content=part), content=sealed)


def _without_chunks(t: Scene) -> RecordRequest:
    part, _ = t.story.seal(Role.Content, t.alice, bytes(65_537), t.story.key)
    return t.story.follow(t.alice, content=part)


def _with_content(t: Scene, change: Callable[[bytes], bytes]) -> RecordRequest:
    request = t.story.follow(t.alice, content=b"abc")
    return replace(request, content=change(request.content or b""))


def _same_commitment(t: Scene) -> RecordRequest:
    story, alice = t.story, t.alice
    request = story.follow(alice, grants={alice: OWNER})
    draft = story._drafts[request.record.body][0]
    old = story.governing.governing
    assert draft.governing is not None
    assert old is not None
    governing = replace(draft.governing, keyCommitment=old.keyCommitment)
    signed = story.sign(alice, replace(draft, governing=governing))
    return replace(request, record=signed.record)


CASES = (
    Case("another first record under the id", 409, "exists",
         lambda t: t.story.begin(content=b"other")),
    Case("another body under a version that is taken", 409, "conflict",
         lambda t: t.story.sign(t.alice, replace(t.story.records[1], time=clock()))),
    Case("a version that skips one", 409, "conflict",
         lambda t: t.story.follow(t.alice, version=4)),
    Case("a parent that is not the head", 409, "conflict",
         lambda t: t.story.follow(t.alice, parent=random_bytes(32))),
    Case("a link to another record", 422, "rejected",
         lambda t: t.story.follow(t.alice, link=Link(1, random_bytes(32)))),
    Case("somebody else's record", 403, "permission",
         lambda t: t.story.follow(t.bob, content=b"x")),
    Case("a broken ML-DSA signature", 422, "rejected", lambda t: _forged(t, -1)),
    Case("a broken Ed25519 signature", 422, "rejected", lambda t: _forged(t, 0)),
    Case("a key index that was never published", 422, "rejected",
         lambda t: t.story.follow(t.alice, keyIndex=1)),
    Case("a record in six minutes", 422, "clock",
         lambda t: t.story.follow(t.alice, time=clock() + 6 * MINUTE)),
    Case("a record older than its parent", 422, "rejected",
         lambda t: t.story.follow(t.alice, time=t.story.head.time - 1)),
    Case("a wrap that its entry does not name", 422, "rejected",
         lambda t: _listing(t, lambda own: [replace(e, wrap=random_bytes(1168)) for e in own])),
    Case("entries out of order", 422, "rejected", lambda t: _listing(t, lambda own: own[::-1])),
    Case("a list without one of its entries", 422, "rejected",
         lambda t: _listing(t, lambda own: own[:1])),
    Case("an entry with Decrypt and without a wrap", 422, "rejected",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: Grant(READER, wrapped=False)})),
    Case("an entry without Decrypt and with a wrap", 422, "rejected",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: Grant(1, wrapped=True)})),
    Case("Upload without Decrypt", 422, "rejected",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: Grant(Level.Upload)})),
    Case("a key index that is not the latest", 409, "stale-keys",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: Grant(READER, key_index=1)})),
    Case("an entry that is expired already", 422, "rejected",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER, t.bob: Grant(READER, clock() - 1)})),
    Case("the old container key's commitment", 422, "rejected",
         _same_commitment),
    Case("a change of access without the list", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice, grants={t.alice: OWNER}), accessList=None)),
    Case("a list without a change of access", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice), accessList=t.story.requests[0].accessList)),
    Case("a change of type without the type", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice, type="x"), type=None)),
    Case("a type without a change of it", 422, "rejected",
         lambda t: replace(t.story.follow(t.alice), type=t.story.requests[0].type)),
    Case("a type with another salt", 422, "rejected", lambda t: _typed(t, salt=random_bytes(32))),
    Case("another type than the record's", 422, "rejected", lambda t: _typed(t, type="y")),
    Case("a type of more than 256 bytes", 413, "too-large",
         lambda t: t.story.follow(t.alice, type="ä" * 129)),
    Case("a part id for the second time", 422, "rejected", _reused_part),
    Case("a new part under another author's name", 422, "rejected", _foreign_part),
    Case("a part carried over a change of access under the old key", 422, "rejected",
         lambda t: t.story.follow(t.alice, grants={t.alice: OWNER}, content=t.story.head.content)),
    Case("a carried part with sealed bytes", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice, header=b"{}"), content=b"x" * 100)),
    Case("a new header without its bytes", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice, header=b"{}"), header=None)),
    Case("a new small content without its bytes", 400, "invalid",
         lambda t: replace(t.story.follow(t.alice, content=b"x"), content=None)),
    Case("sealed bytes of another hash", 422, "rejected",
         lambda t: _with_content(t, lambda sealed: _flipped(sealed, -1))),
    Case("sealed bytes of another size", 422, "rejected",
         lambda t: _with_content(t, lambda sealed: sealed + b"\0")),
    Case("a large content inside the request", 400, "invalid", _large_inline),
    Case("a large content of which no chunk came", 422, "incomplete", _without_chunks),
    Case("a tombstone that keeps a part", 422, "rejected",
         lambda t: t.story.follow(t.alice, tombstone=True, content=t.story.head.content)),
    Case("bytes that are no record", 422, "rejected", lambda _: _with_body(b"\x01\x90")),
    Case("a record of another format version", 422, "rejected",
         lambda t: _with_body(b"\x02" + t.story.follow(t.alice).record.body[1:])),
)  # fmt: skip


def _version(request: RecordRequest) -> int | None:
    """The version of the path, where the record does not say it."""
    return None if request.record.body[:2] == b"\x01\x9d" else 3


def _with_body(body: bytes) -> RecordRequest:
    return RecordRequest(record=SignedRecord(body=body, signature=bytes(3373)))


@pytest.fixture
def scene(new_user: NewUser) -> Scene:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: READER}, header=b"{}", type="note")
    story.tell(alice, story.follow(alice, content=b"second"))
    return Scene(story, alice, bob)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_each_wrong_request_is_refused_with_its_own_code_and_changes_nothing(
    scene: Scene, unchanged: Unchanged, subtests: pytest.Subtests
) -> None:
    for case in CASES:
        with subtests.test(str(case)):
            request = case.make(scene)
            with unchanged():
                version = _version(request)
                scene.story.send(scene.alice, request, version).expect(case.status, case.code)


def test_after_all_refusals_the_next_good_record_is_taken(scene: Scene) -> None:
    for case in CASES:
        request = case.make(scene)
        assert scene.story.send(scene.alice, request, _version(request)).status >= 400
    scene.story.tell(scene.alice, scene.story.follow(scene.alice, content=b"good"))


def test_nobody_begins_a_container_under_an_id_that_is_not_theirs(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice)
    with unchanged():
        story.send(bob, story.begin(author=bob)).expect(422, "rejected")
        other = Story(alice)
        request = story.begin(nonce=other.nonce)
        story.send(alice, request).expect(422, "rejected")


def test_a_first_record_grants_access_to_somebody(new_user: NewUser, unchanged: Unchanged) -> None:
    alice = new_user()
    story = Story(alice)
    with unchanged():
        request = replace(story.begin(governing=None), accessList=None)
        story.send(alice, request).expect(422, "rejected")
        request = story.begin(tombstone=True)
        story.send(alice, request).expect(422, "rejected")


def _mark_deleted(broker: BrokerProcess, user: User) -> None:
    mine = user.ring.userId.bytes
    query(broker.database_url, "UPDATE users SET deleted = true WHERE id = ?", mine)


def test_only_known_and_living_users_are_added(
    new_user: NewUser, broker: BrokerProcess, unchanged: Unchanged
) -> None:
    alice, bob, stranger = new_user(), new_user(), new_user()
    story = Story(alice).created()
    unknown = User(stranger.ring.generate(), stranger.wire)
    _mark_deleted(broker, bob)
    with unchanged():
        for added in (unknown, bob):
            request = story.follow(alice, grants={alice: OWNER, added: READER})
            story.send(alice, request).expect(404, "not-found")


def test_a_deleted_user_who_is_in_the_list_may_stay_in_it_without_a_wrap(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: READER})
    _mark_deleted(broker, bob)
    grants: Grants = {alice: OWNER, bob: Grant(READER, wrapped=False)}
    story.tell(alice, story.follow(alice, grants=grants))


def test_a_record_signed_with_a_retired_key_is_refused_with_any_date(
    new_user: NewUser, broker: BrokerProcess, unchanged: Unchanged
) -> None:
    alice = new_user()
    story = Story(alice).created()
    new = rotate(broker.database_url, alice, (KeyType.Signing, 0), signing=1)
    with unchanged():
        request = story.follow(alice, content=b"x", time=story.head.time)
        story.send(alice, request).expect(422, "rejected")
    story.tell(new, story.follow(new, content=b"x"))


def test_a_record_of_six_minutes_ago_is_refused_though_its_key_was_good_then(
    new_user: NewUser, broker: BrokerProcess, unchanged: Unchanged
) -> None:
    alice = rotate(broker.database_url, new_user(), signing=1)
    story = Story(alice)
    with unchanged():
        request = story.begin(time=clock() - 6 * MINUTE)
        story.send(alice, request).expect(422, "clock")
    story.send(alice, story.begin(time=clock() - 4 * MINUTE)).expect(201)


def test_permissions_say_what_a_user_may_append(new_user: NewUser, unchanged: Unchanged) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: READER})
    refused: dict[str, Any] = {
        "content": b"x",
        "type": "x",
        "tombstone": True,
        "grants": {alice: OWNER, bob: OWNER},
    }
    with unchanged():
        for name, value in refused.items():
            request = story.follow(bob, **{name: value})
            story.send(bob, request).expect(403, "permission")
    story.tell(alice, story.follow(alice, grants={alice: OWNER, bob: WRITER}))
    story.tell(bob, story.follow(bob, content=b"x"))
    with unchanged():
        for name in ("type", "tombstone"):
            request = story.follow(bob, **{name: refused[name]})
            story.send(bob, request).expect(403, "permission")
        request = story.follow(bob, grants={alice: OWNER, bob: OWNER})
        story.send(bob, request).expect(422, "rejected")


def test_an_expired_entry_is_no_access(new_user: NewUser, broker: BrokerProcess) -> None:
    alice, bob = new_user(), new_user()
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() + MINUTE)}
    story = Story(alice).created(grants)
    story.tell(bob, story.follow(bob, content=b"in time"))
    expire = "UPDATE members SET expires_at = 1 WHERE container_id = ? AND user_id = ?"
    query(broker.database_url, expire, story.id, bob.ring.userId.bytes)
    story.send(bob, story.follow(bob, content=b"x")).expect(404, "not-found")
    bob.wire.call("GET", story.path).expect(404, "not-found")


def test_new_parts_under_a_key_that_a_former_member_knows_are_refused(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(bob).created({alice: OWNER, bob: OWNER})
    story.tell(bob, story.follow(bob, grants={alice: Grant(WRITER), bob: Grant(1 | 256)}))
    # Bob chose the container key and may decrypt no more: rule 5.
    with unchanged():
        request = story.follow(alice, content=b"x")
        story.send(alice, request).expect(422, "rejected")
        assert b"rule 5" in story.send(alice, request).body
    renewed: Grants = {alice: Grant(WRITER), bob: Grant(1 | 256)}
    story.tell(alice, story.follow(alice, grants=renewed, content=b"x"))
    story.tell(alice, story.follow(alice, content=b"y"))


def test_nothing_follows_a_tombstone_and_the_id_is_never_used_again(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    story.tell(alice, story.follow(alice, tombstone=True))
    with unchanged():
        for user in (alice, bob):
            story.send(user, story.follow(user, content=b"x")).expect(410, "deleted")
            story.send(user, story.follow(user, tombstone=True)).expect(410, "deleted")
        story.send(alice, story.begin(content=b"again")).expect(409, "exists")


@pytest.mark.long
def test_a_deletion_leaves_what_proves_it_and_nothing_else(
    new_user: NewUser, broker: BrokerProcess
) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    grants: Grants = {alice: OWNER, bob: OWNER, carol: READER | Level.ReceiveAccessEvents}
    story = Story(alice).created(grants, header=b"{}", content=b"1", type="secret type")
    story.tell(bob, story.follow(bob, content=bytes(999)))
    story.tell(alice, story.follow(alice, type="another type"))
    bob.view(story, "header=1&content=1")
    wait_until(lambda: carol.events(eventType="Accessed"))
    story.tell(alice, story.follow(alice, tombstone=True))
    url, of = broker.database_url, "WHERE container_id = ?"
    kept = query(
        url, f"SELECT version, body, signature FROM records {of} ORDER BY version", story.id
    )
    bodies = [story.requests[n].record for n in (0, 2, 3)]
    assert kept == [
        (version, bare_body(signed.body), signed.signature)
        for version, signed in zip((1, 3, 4), bodies, strict=True)
    ]
    gone = [
        field
        for record in story.records
        for part in (record.header, record.content)
        if part is not None
        for field in (part.partId, part.segments, part.sealedKey)
    ]
    assert len(gone) == 18
    assert not [field for _, body, _ in kept for field in gone if field in body]
    [(entries,)] = query(url, f"SELECT entries FROM access_lists {of}", story.id)
    assert [user.name in entries for user in (alice, bob, carol)] == [True, False, False]
    members = query(
        url, f"SELECT user_id, permissions, expires_at, wrap FROM members {of}", story.id
    )
    ids = [user.ring.userId.bytes for user in (alice, bob, carol)]
    assert sorted(members) == sorted((each, 0, None, None) for each in ids)
    for table in ("parts", "accesses", "containers_to_purge"):
        assert query(url, f"SELECT 1 FROM {table} {of}", story.id) == []
    kept = query(url, "SELECT type, type_salt FROM containers WHERE id = ?", story.id)
    assert kept == [(None, None)]
    told = query(url, f"SELECT event_type, container_type FROM events {of}", story.id)
    assert {event_type for event_type, _ in told} == {"Added", "Updated", "Deleted", "Accessed"}
    assert {container_type for _, container_type in told} == {None}


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


@pytest.mark.long
def test_of_many_writers_of_one_version_exactly_one_succeeds(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice).created()
    writers = [new_user(alice.ring) for _ in range(6)]
    for _ in range(4):
        requests = [story.follow(alice, content=random_bytes(8)) for _ in writers]
        answers = at_once(story.send, writers, requests)
        assert sorted(answer.status for answer in answers) == [201] + [409] * 5
        winner = next(n for n, answer in enumerate(answers) if answer.status == 201)
        request = requests[winner]
        story.records.append(story._drafts[request.record.body][0])
        assert {answer.code for answer in answers if answer.status == 409} == {"conflict"}


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


def test_records_of_one_container_are_appended_in_order_under_load(new_user: NewUser) -> None:
    alice = new_user()
    stories = [Story(new_user(alice.ring)).created() for _ in range(4)]

    def extend(story: Story) -> None:
        for number in range(8):
            story.tell(story.creator, story.follow(story.creator, content=bytes([number])))

    at_once(extend, stories)
    for story in stories:
        head = alice.view(story).head
        assert head is not None
        assert head.body == encode_object(story.head)


def test_the_largest_inline_content_and_header_are_taken(new_user: NewUser) -> None:
    alice = new_user()
    story = Story(alice).created(header=bytes(262_144), content=bytes(65_536))
    view = alice.view(story, "header=1&content=1")
    assert view.header is not None
    assert view.content is not None
    assert len(view.header) == sealed_size(262_144)
    assert len(view.content) == sealed_size(65_536)


def test_a_header_beyond_262144_bytes_is_refused(new_user: NewUser, unchanged: Unchanged) -> None:
    alice = new_user()
    story = Story(alice)
    with unchanged():
        story.send(alice, story.begin(header=bytes(262_145))).expect(422, "rejected")
