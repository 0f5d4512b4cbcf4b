"""The end of a user: what goes, what stays, and that it holds whatever happens at the same time.

Spec: docs/spec/protocol.md, section 5. The vectors of orders have wrong ones.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest
from msgspec.structs import replace

from scbroker.keys import KeyRing
from scbroker.records.container_record import Role
from scbroker.records.key_record import RETIRED, KeyChain
from scbroker.server.storage.tables import metadata
from scbroker.server.users.deletion import finish
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire import users as u
from tests.kit.beside import further_broker
from tests.kit.brokers import Answer, BrokerProcess, clock
from tests.kit.fixtures import StartBroker
from tests.kit.objects import objects
from tests.kit.operators import admin
from tests.kit.tables import count_rows, query
from tests.kit.waiting import wait_until
from tests.kit.writers import (
    OWNER,
    READER,
    Grant,
    Grants,
    Story,
    User,
    authorized,
    closing,
    delete_user,
    deletion,
    query_all,
    renewed,
    stalled,
    store,
    storing,
)
from tests.server.conftest import LASTS, NewUser, PassUntil, Unchanged

LARGE: Final = 70_000
"""How long an expiring access lasts, in microseconds: long enough to grant it on a busy machine."""

# Where a deleted user may still be named, by table and column.
TOMB: Final = {("users", "id")}
PUBLIC_KEYS: Final = {
    ("users", "fingerprint"), ("key_records", "user_id"), ("key_records", "body"),
}  # fmt: skip
"""As long as a container needs them."""
OF_OTHERS: Final = {
    ("records", "body"), ("access_lists", "entries"), ("parts", "user_id"), ("authors", "user_id"),
}  # fmt: skip
"""In containers to which others have access."""
LOGS: Final = {("events", "related_user_id")}
"""In the logs of others: who it was that acted."""
AUDIT: Final = {("audit", "actor"), ("audit", "subject")}
"""In the operator's log."""
USAGE: Final = {("usage", "user_id")}
"""They are charged with what others still need."""
DUE: Final = {("pending_blobs", "user_id")}
"""They are charged with objects until the sweeper has deleted these."""
LEFT: Final = TOMB | PUBLIC_KEYS | OF_OTHERS | LOGS | AUDIT | USAGE
ROW: Final = {
    "fingerprint": None, "chain_length": 0, "encryption_index": 0, "signed_until": 0, "registered_at": 0,
    "deleted": True, "last_event": 0, "first_event": 1, "dropped_digest": None,
    "key_file_generation": 0, "signing_sequence": 0, "suspended_at": None, "suspension_reason": None,
    "group_version": None,
}  # fmt: skip
"""All that is left, beside the id, of a user whose keys nobody needs."""


def _rows(url: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row of every table, by column."""
    columns = {name: [c.name for c in table.columns] for name, table in metadata.tables.items()}
    statements = {
        name: "SELECT {} FROM {}".format(", ".join(f'"{column}"' for column in found), name)
        for name, found in columns.items()
    }
    for name, rows in query_all(url, statements).items():
        for row in rows:
            yield name, dict(zip(columns[name], row, strict=True))


def _traces(url: str, user: User) -> set[tuple[str, str, bytes | None]]:
    """Where the user's id or fingerprint stands: table, column, and the row's container if it has one."""
    wanted = (user.ring.userId.bytes, user.name)
    texts = (user.id, user.ring.userId.hex, user.name.hex())
    found = set()
    for table, row in _rows(url):
        for column, value in row.items():
            if (isinstance(value, bytes) and any(name in value for name in wanted)) or (
                isinstance(value, str) and any(text in value for text in texts)
            ):
                found.add((table, column, row.get("container_id")))
    return found


def _assert_forgotten(url: str, user: User, shared: set[bytes]) -> None:
    """Nothing names the user but their id, containers of others, and keys while one of these needs them."""
    found = _traces(url, user)
    places = {(table, column) for table, column, _ in found}
    assert places <= LEFT | DUE, places - LEFT
    boxes = {box for table, column, box in found if (table, column) in OF_OTHERS}
    assert boxes <= shared
    signed = {box for table, _, box in found if table == "authors"}
    assert (places & PUBLIC_KEYS) == (PUBLIC_KEYS if signed else set())
    if not signed:
        [row] = _rows_of_user(url, user)
        assert row == {"id": user.ring.userId.bytes, **ROW}


def _rows_of_user(url: str, user: User) -> list[dict[str, Any]]:
    mine = user.ring.userId.bytes
    return [row for name, row in _rows(url) if name == "users" and row["id"] == mine]


def _objects(broker: BrokerProcess, *stories: Story) -> set[bytes]:
    """The parts of these containers of which an object is in the store."""
    names = {name.rpartition("/")[2].partition("-")[0] for name in objects(broker)}
    return {part for story in stories for part in story.parts if part.hex() in names}


def _with_large(story: Story, user: User, grants: Grants | None = None, **options: Any) -> Story:
    story.tell(user, story.begin(grants, content=story.upload(user, bytes(LARGE)), **options))
    return story


@dataclass(frozen=True)
class World:
    """Alice, who will go, two others, and containers of every kind."""

    broker: BrokerProcess
    alice: User
    bob: User
    carol: User
    own: Mapping[str, Story]
    """The containers that are deleted with Alice."""
    others: Mapping[str, tuple[Story, User]]
    """The containers that stay, and their other members."""
    unfinished: set[bytes]
    """Parts that Alice began to send."""

    @property
    def url(self) -> str:
        return self.broker.database_url

    @property
    def purged(self) -> set[bytes]:
        return {story.id for story in self.own.values()}

    @property
    def shared(self) -> set[bytes]:
        return {story.id for story, _ in self.others.values()}

    @property
    def stories(self) -> list[Story]:
        return [*self.own.values(), *(story for story, _ in self.others.values())]


@pytest.fixture
def world(broker: BrokerProcess, new_user: NewUser, pass_until: PassUntil) -> World:
    alice, bob, carol = new_user(), new_user(), new_user()
    store(alice, authorized(alice, storing(alice, reminder="the cat"))).expect(204)
    new_user(alice.ring)
    access = OWNER | Level.ReceiveAccessEvents

    def of(user: User, grants: Grants, **options: Any) -> Story:
        return _with_large(Story(user), user, grants, **options)

    expired, only_expired = Story(alice), Story(alice)
    parts = [story.upload(alice, bytes(LARGE)) for story in (expired, only_expired)]
    ends = clock() + LASTS
    grants: list[Grants] = [{alice: OWNER, bob: Grant(OWNER, ends)}, {bob: Grant(OWNER, ends)}]
    expired.tell(alice, expired.begin(grants[0], content=parts[0], type="secret"))
    only_expired.tell(alice, only_expired.begin(grants[1], content=parts[1]))
    alone = of(alice, {alice: OWNER}, header=b"{}", type="secret")
    alone.tell(alice, alone.follow(alice, content=b"small"))
    buried = of(alice, {alice: OWNER}, type="secret")
    buried.tell(alice, buried.follow(alice, tombstone=True))
    given = of(bob, {alice: OWNER})
    given_back = of(alice, {alice: OWNER, bob: OWNER})
    given_back.tell(bob, given_back.follow(bob, grants={alice: OWNER}))
    own = {
        "of hers alone": alone,
        "of hers, with a tombstone": buried,
        "of hers, with one whose access has expired": expired,
        "of hers, for one whose access has expired": only_expired,
        "of Bob's, for her": given,
        "of hers, that Bob has left": given_back,
    }

    began = of(alice, {alice: access, bob: access}, header=b"{}", type="note")
    began.tell(alice, began.follow(alice, content=began.upload(alice, bytes(LARGE + 1))))
    joined = of(bob, {alice: access, bob: access}, header=b"{}", type="note")
    joined.tell(alice, joined.follow(alice, content=joined.upload(alice, bytes(LARGE + 2))))
    ended = of(bob, {alice: OWNER, bob: OWNER}, type="note")
    ended.tell(alice, ended.follow(alice, tombstone=True))
    left = of(alice, {alice: OWNER, bob: OWNER})
    left.tell(alice, left.follow(alice, grants={bob: OWNER}))
    others = {
        "of hers, with Bob": (began, bob),
        "of Bob's, with her": (joined, bob),
        "of hers, for others": (of(alice, {bob: OWNER, carol: READER}), carol),
        "of Bob's, for her and Carol": (of(bob, {alice: OWNER, carol: OWNER}), carol),
        "of Bob's, with a tombstone of hers": (ended, bob),
        "of hers, which she left": (left, bob),
        "of Bob's, that she never saw": (of(bob, {bob: OWNER}), bob),
    }

    new = Story(alice)
    unfinished = {box.upload(alice, bytes(LARGE + 3)).partId for box in (new, alone, began, joined)}
    for box in (began, joined):
        box.upload(bob, bytes(LARGE + 3))
    for reader, box in ((alice, joined), (bob, began)):
        reader.view(box, "header=1")
    wait_until(lambda: ("accesses", "user_id", joined.id) in _traces(broker.database_url, alice))
    pass_until(ends)
    return World(broker, alice, bob, carol, {**own, "never begun": new}, others, unfinished)


@pytest.mark.long
def test_after_a_users_deletion_only_rows_that_others_need_are_left(world: World) -> None:
    url, alice = world.url, world.alice
    named = {(table, column) for table, column, _ in _traces(url, alice)}
    assert named > LEFT, "the scan sees what it is to look for"
    parts = {part for story in world.stories for part in story.parts}
    before = _objects(world.broker, *world.stories)
    assert world.unfinished < before
    log = world.bob.events()

    delete_user(alice).expect(204)

    _assert_forgotten(url, alice, world.shared)
    assert {(table, column) for table, column, _ in _traces(url, alice)} == LEFT
    found = list(_rows(url))
    of_purged = [(name, row) for name, row in found if row.get("container_id") in world.purged]
    assert {name for name, _ in of_purged} == {"events"}
    assert {row["user_id"] for _, row in of_purged} == {world.bob.ring.userId.bytes}
    states = [
        (row["deleted"], row["type"], row["type_salt"], row["creator_id"])
        for name, row in found
        if name == "containers" and row["id"] in world.purged
    ]
    theirs = world.bob.ring.userId.bytes
    assert states == [(True, None, None, theirs)], "ids that only Bob can use stay in use"
    # Every object left is a chunk of a container of others, and none is pending.
    kept = {row["part_id"] for name, row in found if name == "parts"} & parts
    assert kept & world.unfinished == set()
    left = _objects(world.broker, *world.stories)
    assert left == {row["part_id"] for name, row in found if name == "chunks"} & parts
    assert left == kept & before
    assert left
    pending = {
        row["name"].rpartition("/")[2][:32] for name, row in found if name == "pending_blobs"
    }
    assert pending & {part.hex() for part in parts} == set()
    # Bob's log goes on as it was, but for what it says of containers that went.
    purged = {str(uuid.UUID(bytes=container)) for container in world.purged}
    now = world.bob.events()[: len(log)]
    assert [event for event in now if event.containerId not in purged] == [
        event for event in log if event.containerId not in purged
    ]
    assert {event.version for event in now if event.containerId in purged} == {0}
    assert len(log) > 9


@pytest.mark.long
def test_a_container_deleted_with_its_user_is_unknown_and_its_id_stays_taken(
    world: World, unchanged: Unchanged
) -> None:
    delete_user(world.alice).expect(204)
    bob, given = world.bob, world.own["of Bob's, for her"]
    part, sealed = given.seal(Role.Content, bob, bytes(LARGE), given.key)
    with unchanged():
        for story in world.own.values():
            for user in (bob, world.carol):
                user.wire.call("GET", story.path).expect(404, "not-found")
        given.send(bob, given.requests[0]).expect(409, "exists")
        given.send(bob, given.begin(content=b"again")).expect(409, "exists")
        given.send(bob, given.follow(bob, content=b"on")).expect(404, "not-found")
    given.chunk(bob, part, 0, sealed).expect(204)  # as for an id that no container has
    given.send(bob, given.follow(bob, content=part)).expect(404, "not-found")


# The user themselves


def key_records_of(user: User, asker: User) -> u.UserKeyRecords:
    asked = {"users": [{"userId": user.id}]}
    answer = asker.wire.call("POST", "/v1/key-records", asked).expect(200)
    [found] = answer.message(u.KeyRecords).users
    return found


def _everything_kept(broker: BrokerProcess) -> dict[str, bytes]:
    """Each row, file and object of a broker as bytes; of a database file its rows alone."""
    found = {
        f"{name} {number}": b"|".join(_as_bytes(value) for value in row.values())
        for number, (name, row) in enumerate(_rows(broker.database_url))
    }
    for path in broker.directory.rglob("*"):
        if path.is_file() and ".sqlite" not in path.name and path.suffix != ".log":
            found[str(path)] = path.name.encode() + path.read_bytes()
    return found


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.mark.long
def test_a_user_who_shared_nothing_leaves_their_id_and_nothing_else(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    """Every row, every file, every object; events, parts, keys, counts of guesses, and half an upload."""
    broker = start_broker()
    bob = new_user(at=broker)
    Story(bob).created()
    before = _everything_kept(broker)
    alice = new_user(at=broker)
    changed, records = renewed(alice)
    message = storing(alice, reminder="the cat", keyRecords=records)
    store(alice, authorized(alice, message)).expect(204)
    alice = new_user(changed.ring, at=broker)
    stories = [
        _with_large(Story(alice), alice, {alice: OWNER}, header=b"{}", type="secret"),
        Story(alice).created({alice: OWNER}, type="secret"),
        Story(alice),
    ]
    stories[0].tell(alice, stories[0].follow(alice, content=b"small"))
    stories[1].tell(alice, stories[1].follow(alice, tombstone=True))
    stories[2].upload(alice, bytes(LARGE))
    alice.events()
    path = f"/v1/users/{alice.id}/key-file/open"
    bob.wire.call("POST", path, {"auth": bytes(32)}).expect(401, "credentials")
    ring = alice.ring
    traces = {
        "id": alice.ring.userId.bytes, "id as text": alice.id.encode(), "fingerprint": alice.name,
        "reminder": b"the cat", "type": b"secret", "KeyFile": message.keyFile, "auth": message.auth,
        **{f"signing key {n}": key.public for n, key in enumerate(ring.signing)},
        **{f"encryption key {n}": key.public for n, key in enumerate(ring.encryption)},
        **{f"container {n}": story.id for n, story in enumerate(stories)},
        **{f"part {part.hex()}": part for story in stories for part in story.parts},
        **{f"part's object {part.hex()}": part.hex().encode() for s in stories for part in s.parts},
    }  # fmt: skip

    def found() -> set[str]:
        kept = _everything_kept(broker).values()
        return {name for name, trace in traces.items() if any(trace in data for data in kept)}

    present = found()
    assert present > {"id", "fingerprint", "reminder", "type", "container 0"}
    assert "KeyFile" not in present  # it is sealed

    delete_user(alice).expect(204)
    admin(broker, "sweep").expect(0)
    assert found() == {"id", "id as text"}, "the latter in the audit log"
    [row] = _rows_of_user(broker.database_url, alice)
    assert row == {"id": alice.ring.userId.bytes, **ROW}
    query(broker.database_url, "DELETE FROM nonces")  # hashes of nonces, which are nobody's
    new = sorted(name.partition(" ")[0] for name in _everything_kept(broker))
    old = sorted(name.partition(" ")[0] for name in before)
    # Beside what expires by itself: how often this address registered, and guessed, also with this id.
    # And the audit log.
    brief = {"nonces", "guesses", "sessions", "audit"}
    assert [name for name in new if name not in brief] == sorted(
        [*(name for name in old if name not in brief), "users", "usage"]
    )
    assert count_rows(broker.database_url, "guesses") == 3
    admin(broker, "check", "--quick").expect(0)


@pytest.mark.long
def test_the_key_records_of_a_deleted_user_go_with_the_last_container_that_needs_them(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    """She began one, wrote in another, and has left a third; nothing is forgotten on the way."""
    broker = start_broker()
    alice, bob, carol = (new_user(at=broker) for _ in range(3))
    began = Story(alice).created({alice: OWNER, bob: OWNER})
    wrote = Story(bob).created({alice: OWNER, bob: OWNER, carol: OWNER})
    for number in range(3):  # the same author again and again
        wrote.tell(alice, wrote.follow(alice, content=b"%d" % number))
    has_left = Story(bob).created({alice: OWNER, carol: OWNER})
    has_left.tell(alice, has_left.follow(alice, grants={carol: OWNER}))
    listed = Story(bob).created({alice: READER, bob: OWNER})
    url = broker.database_url
    delete_user(alice).expect(204)
    _assert_forgotten(url, alice, {began.id, wrote.id, has_left.id, listed.id})
    needs = "SELECT container_id FROM authors WHERE user_id = ?"

    def needing() -> set[bytes]:
        rows = query(url, needs, alice.ring.userId.bytes)
        assert bool(rows) == bool(key_records_of(alice, carol).keyRecords)
        return {bytes(row) for (row,) in rows}

    assert needing() == {began.id, wrote.id, has_left.id}
    delete_user(bob).expect(204)
    assert needing() == {wrote.id, has_left.id}
    assert key_records_of(bob, carol).keyRecords, "he began what is Carol's"
    everything = [carol.wire.call("GET", story.path).expect(200) for story in (wrote, has_left)]
    assert everything
    admin(broker, "check", "--quick").expect(0)
    dave = new_user(at=broker)
    delete_user(carol).expect(204)
    admin(broker, "sweep").expect(0)
    for user in (alice, bob, carol):
        assert key_records_of(user, dave).keyRecords == []
        _assert_forgotten(url, user, set())
    assert count_rows(url, "authors") == count_rows(url, "containers") == 0
    admin(broker, "check", "--quick").expect(0)


def purge_all(url: str) -> int:
    """Has another broker finish all deletions; returns how many users were pending."""

    async def run() -> int:
        async with further_broker(url) as beside:
            return await finish(beside)

    return asyncio.run(run())


def test_a_closing_record_is_taken_as_the_spec_says_and_else_nothing_is_changed(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice, bob = new_user(), new_user()
    minute = 60_000_000
    good = closing(alice)
    changed = {
        "another state": (closing(alice, state=RETIRED), "challenge"),
        "signed by another": (closing(alice, signed_by=bob.ring.signing[0]), "challenge"),
        "another's": (closing(bob), "challenge"),
        "no record": (replace(good, body=b"\x01"), "challenge"),
        "not the next": (closing(alice, sequence=3), "rejected"),
        "behind another record": (closing(alice, previous=bytes(32)), "rejected"),
        "not of key 0": (closing(alice, index=1), "rejected"),
        "dated now": (closing(alice, time=clock()), "clock"),
        "dated too little ahead": (closing(alice, time=clock() + 6 * minute), "clock"),
        "dated too far ahead": (closing(alice, time=clock() + 14 * minute), "clock"),
    }
    with unchanged():
        for name, (record, code) in changed.items():
            answer = delete_user(alice, deletion(alice, record))
            assert answer.code == code, name
        other = replace(deletion(alice), keyRecord=closing(alice, time=clock() + 8 * minute))
        for order in (
            other,
            deletion(alice, nonce=bytes(48)),
            deletion(alice, signed_by=bob.ring.signing[0]),
        ):
            delete_user(alice, order).expect(401, "challenge")
    delete_user(alice, deletion(alice, good)).expect(204)


def test_only_a_users_deletion_closes_their_chain(new_user: NewUser, unchanged: Unchanged) -> None:
    alice = new_user()
    message = storing(alice, keyRecords=[closing(alice).signed])
    with unchanged():
        store(alice, authorized(alice, message)).expect(422, "rejected")
    ring = KeyRing.generate()
    first = ring.first_records(clock())
    chain = KeyChain.verify(first, clock())
    assert chain.extend([ring.closing_record(chain, clock())], clock()).closed


# Later acts of other users


@pytest.mark.long
def test_later_changes_by_others_write_no_row_for_a_deleted_user(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob, carol = (new_user() for _ in range(3))
    access = OWNER | Level.ReceiveAccessEvents
    story = Story(alice).created({alice: access, bob: access}, header=b"{}", type="a")
    delete_user(alice).expect(204)

    def check() -> None:
        _assert_forgotten(broker.database_url, alice, {story.id})
        hers = (story.id, alice.ring.userId.bytes)
        where = "container_id = ? AND user_id = ?"
        assert count_rows(broker.database_url, "members", where, *hers) == 0

    kept: Grants = {alice: Grant(access, wrapped=False), bob: access}
    wrapped: Grants = {alice: Grant(access), bob: access}
    for changes in (
        {"content": b"2"}, {"type": "b"}, {"grants": kept, "content": b"3"},
        {"grants": {**kept, carol: access}}, {"grants": {**wrapped, carol: access}},
        {"header": b'{"a":1}'}, {"grants": {bob: access, carol: access}}, {"content": b"4"},
    ):  # fmt: skip
        story.tell(bob, story.follow(bob, **changes))
        check()
    carol.view(story, "header=1&content=1")
    wait_until(lambda: len(bob.events(eventType="Accessed")) == 1)
    again: Grants = {alice: OWNER, bob: OWNER}
    story.send(bob, story.follow(bob, grants=again)).expect(404, "not-found")
    story.tell(bob, story.follow(bob, tombstone=True))
    check()
    found = bob.events()
    assert [event.id for event in found] == list(range(1, len(found) + 1))
    kinds = [event.eventType for event in found if event.eventType != "Accessed"]
    assert kinds == ["Added", *["Updated"] * 8, "Deleted"]


def test_a_container_left_to_a_deleted_user_is_nobodys_and_goes_with_the_last_of_its_authors(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    story = Story(alice).created({alice: OWNER, bob: OWNER})
    delete_user(alice).expect(204)
    story.tell(bob, story.follow(bob, grants={alice: Grant(OWNER, wrapped=False)}))
    assert count_rows(broker.database_url, "members", "container_id = ?", story.id) == 0
    _assert_forgotten(broker.database_url, alice, {story.id})
    assert [event.eventType for event in bob.events()] == ["Added", "Deleted"]
    bob.wire.call("GET", story.path).expect(404, "not-found")
    delete_user(bob).expect(204)
    wait_until(lambda: purge_all(broker.database_url) == 0)
    for user in (alice, bob):
        _assert_forgotten(broker.database_url, user, set())
    assert count_rows(broker.database_url, "containers", "id = ?", story.id) == 0


# Concurrent requests

PAGE: Final = "/v1/events"


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_requests_that_wait_for_their_users_deletion_are_refused(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, bob = new_user(), new_user()
    sessions = [new_user(alice.ring) for _ in range(5)]
    new, first, sent = Story(alice), Story(bob), Story(alice)
    theirs = Story(bob).created()
    part, sealed = sent.seal(Role.Content, alice, bytes(LARGE), sent.key)
    log_in = alice.wire.log_in_request(alice.ring)
    forget = authorized(alice, storing(alice))
    joining = theirs.follow(bob, grants={alice: OWNER, bob: OWNER})
    other = User(bob.ring, new_user(bob.ring).wire)
    acts: list[tuple[Callable[[], Answer], str]] = [
        (lambda: new.send(sessions[0], new.begin()), "session"),
        (lambda: sent.chunk(sessions[1], part, 0, sealed), "session"),
        (lambda: sessions[2].wire.call("POST", "/v1/sessions", log_in), "challenge"),
        (lambda: store(sessions[3], forget), "session"),
        (lambda: theirs.send(bob, joining), "not-found"),
        (lambda: first.send(other, first.begin({alice: OWNER, bob: OWNER})), "not-found"),
    ]
    with ThreadPoolExecutor(8) as pool, stalled(broker.database_url, "key_files") as wait_for:
        ending = pool.submit(delete_user, alice)
        wait_for(1)
        late = [pool.submit(act) for act, _ in acts]
        again = pool.submit(delete_user, sessions[4])
        wait_for(2 + len(acts))
    ending.result().expect(204)
    again.result().expect(204)
    for answer, (_, code) in zip(late, acts, strict=True):
        assert answer.result().code == code
    _assert_forgotten(broker.database_url, alice, set())
    theirs.tell(bob, theirs.follow(bob, content=b"on"))


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_user_who_looks_while_they_are_deleted_leaves_no_event_behind(
    broker: BrokerProcess, new_user: NewUser, pass_until: PassUntil
) -> None:
    alice, bob = new_user(), new_user()
    looking = new_user(alice.ring)
    ends = clock() + LASTS
    story = Story(bob).created({alice: Grant(READER, ends), bob: OWNER})
    pass_until(ends)
    message = deletion(alice)
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "events") as wait_for:
        look = pool.submit(looking.wire.call, "GET", PAGE)
        wait_for(1)
        ending = pool.submit(delete_user, alice, message)
        wait_for(2)
    ending.result().expect(204)
    look.result().expect(401, "session")
    _assert_forgotten(broker.database_url, alice, {story.id})
