"""A deleted container is purged in parts: each part is durable, and no part serves more than what stays.

The conformance kit asks what is served of it. Spec: docs/spec/container.md, 10.
"""

import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import pytest

from scbroker.records.container_record import Role
from scbroker.records.judge import Known
from scbroker.server.broker import Broker
from scbroker.server.containers import tombstones
from scbroker.server.containers.appending import append_each
from scbroker.server.containers.incoming import Incoming
from scbroker.server.events import log as event_log
from scbroker.server.storage.driver import Connection
from scbroker.server.storage.tables import metadata
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.events import NO_EVENTS, Event, digest_with
from tests.kit.beside import beside
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.tables import count_rows, query
from tests.kit.waiting import PATIENCE, wait_until
from tests.kit.writers import OWNER, READER, WRITER, Grants, Story, User, delete_user, session_of
from tests.server.conftest import NewUser
from tests.server.events.test_following import metric
from tests.server.users.test_deletion_in_parts import check

LARGE: Final = 70_000


def delete_and_stop(broker: BrokerProcess, user: User, story: Story) -> None:
    """Store the tombstone as a broker that ends before it purges anything."""
    request = story.follow(user, tombstone=True)
    signed = request.record.signed
    session = session_of(user)
    incoming = Incoming(Known.parse(signed.body), signed, None, request, session, "deleter")
    assert beside(broker, lambda b: append_each(b, [incoming])) == [True]
    story.took(request)


def purge_some(broker: BrokerProcess, story: Story) -> bool:
    return beside(broker, lambda b: b.database.write(lambda c: tombstones.purge_some(c, story.id)))


def pending(broker: BrokerProcess) -> list[bytes]:
    found = query(broker.database_url, "SELECT container_id FROM containers_to_purge")
    return [bytes(each) for (each,) in found]


def rows_of(broker: BrokerProcess, table: str, story: Story, where: str = "") -> int:
    return count_rows(broker.database_url, table, f"container_id = ? {where}", story.id)


def digest(log: list[Event]) -> bytes:
    return functools.reduce(digest_with, log, NO_EVENTS)


def everything(broker: BrokerProcess) -> list[bytes]:
    """Every value of every row of every table."""
    found = []
    for table in metadata.tables:
        for row in query(broker.database_url, f"SELECT * FROM {table}"):
            found += [bytes(v) if isinstance(v, bytes) else str(v).encode() for v in row]
    return found


def secrets_of(story: Story) -> dict[str, bytes]:
    """Return the values in a container's records and requests that do not prove its deletion."""
    found: dict[str, bytes] = {}
    for record, request in zip(story.records, story.requests, strict=True):
        for role in Role:
            part, name = record.part(role), f"{role.name} of version {record.version}"
            if part is not None:
                found[f"{name}: id"] = part.partId
                found[f"{name}: segments"] = part.segments
                found[f"{name}: sealed key"] = part.sealedKey
        for number, item in enumerate(request.accessList or ()):
            if item.wrap is not None:
                found[f"wrap {number} of version {record.version}"] = item.wrap
        if request.type is not None:
            found[f"type of version {record.version}"] = (request.type.type or "").encode()
            found[f"type's salt of version {record.version}"] = request.type.salt
        for name, sealed in (("header", request.header), ("content", request.content)):
            if sealed is not None:
                found[f"sealed {name} of version {record.version}"] = sealed
        if record.governing is None:
            found[f"body of version {record.version}"] = request.record.body
            found[f"signature of version {record.version}"] = request.record.signature
    return found


@pytest.mark.long
@both_engines
def test_a_purge_that_stops_after_any_part_does_no_harm_and_is_continued_by_any_broker(
    start_broker: StartBroker, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end no table has more of the container than what proves its deletion."""
    for name, most in (("_RECORDS", 1), ("_EVENTS", 2), ("_ACCESSES", 1)):
        monkeypatch.setattr(tombstones, name, most)
    broker = start_broker()
    alice, bob, carol, dora = (
        new_user(at=broker, name=f"application of {name}") for name in ("A", "B", "C", "D")
    )
    grants: Grants = {alice: OWNER, bob: WRITER, carol: READER, dora: OWNER}
    story = Story(alice).created(grants, header=b"{}", content=b"1", type="secret type")
    other = Story(alice).created({alice: OWNER, bob: WRITER}, type="kept type")
    story.tell(bob, story.follow(bob, content=b"2"))
    story.tell(alice, story.follow(alice, type="another type"))
    without_dora = {user: given for user, given in grants.items() if user is not dora}
    story.tell(alice, story.follow(alice, grants=without_dora))
    story.tell(bob, story.follow(bob, content=story.upload(bob, bytes(LARGE))))
    for user in (bob, carol):
        user.view(story, "header=1")
    wait_until(lambda: rows_of(broker, "accesses", story) >= 2)
    logs = {user: user.events() for user in (alice, bob, dora)}  # carol's gets no numbers
    secrets = {**secrets_of(story), "who read it": b"application of C"}
    before = everything(broker)
    found = {name for name, secret in secrets.items() if any(secret in each for each in before)}
    assert found >= {
        "Header of version 1: id", "Header of version 5: sealed key", "sealed header of version 1",
        "Content of version 5: id", "Content of version 5: segments", "wrap 0 of version 4",
        "type of version 1", "type's salt of version 3", "body of version 2",
        "signature of version 5", "who read it",
    }  # fmt: skip

    delete_and_stop(broker, alice, story)
    secrets |= {name: value for name, value in secrets_of(story).items() if "version 6" not in name}
    queries = ("", "since=1", "since=3", "since=6", "header=1&content=1")
    paths = [f"{story.path}?{text}" for text in queries]
    paths += [f"{story.path}/governing?from=1&to=6"]
    views = [user.wire.call("GET", path).body for user in (alice, bob, carol) for path in paths]
    shown = b"".join(views)
    assert not [name for name, secret in secrets.items() if secret in shown]
    assert not [user for user in (bob, carol, dora) if user.name in shown]
    parts, more = 0, True
    while more:
        assert pending(broker) == [story.id]
        check(broker)
        again = [user.wire.call("GET", path).body for user in (alice, bob, carol) for path in paths]
        assert again == views
        dora.wire.call("GET", story.path).expect(404, "not-found")
        for user, log in logs.items():
            assert digest(user.events()[: len(log)]) == digest(log)
        more, parts = purge_some(broker, story), parts + 1
    assert parts > 5 + 2 + 4 + 1, "records, accesses, logs"
    assert pending(broker) == []
    admin(broker, "sweep").expect(0)
    check(broker)
    kept = everything(broker)
    assert not [name for name, secret in secrets.items() if any(secret in each for each in kept)]
    of_container = [
        bytes(value)
        for table in ("records", "access_lists", "members")
        for row in query(broker.database_url, f"SELECT * FROM {table} WHERE container_id = ?", story.id)
        for value in row
        if isinstance(value, bytes)
    ]  # fmt: skip
    of_members = (bob.name, carol.name, dora.name, dora.ring.userId.bytes)
    assert not [each for each in of_container for name in of_members if name in each]
    assert alice.view(other).type is not None


@pytest.mark.long
@both_engines
def test_events_of_former_members_are_emptied_even_if_the_last_member_is_deleted_meanwhile(
    start_broker: StartBroker, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the last member the container's records go: the purge does not need them any more."""
    monkeypatch.setattr(tombstones, "_RECORDS", 1)
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    story = Story(alice).created({alice: OWNER, bob: READER}, type="secret type")
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    kept = Story(bob).created()
    log = bob.events()
    delete_and_stop(broker, alice, story)
    assert purge_some(broker, story)
    delete_user(alice).expect(204)
    assert rows_of(broker, "records", story) == 0
    check(broker)
    assert pending(broker) == []
    emptied = bob.events()
    assert digest(emptied) == digest(log)
    assert [event.salt is None for event in emptied] == [True, True, False]
    assert [event.containerType for event in emptied] == [None, None, None]
    assert bob.view(kept).head is None
    check(broker)


def is_waiting(broker: BrokerProcess) -> bool:
    """Return whether a request waits for a lock; on SQLite another process that writes locks everything."""
    if broker.engine == "sqlite":
        return metric(broker, "scbroker_requests_present") > 0
    return query(broker.database_url, "SELECT 1 FROM pg_locks WHERE NOT granted") != []


@contextmanager
def telling(
    broker: BrokerProcess, story: Story, reader: User, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """While the block begins, another process has recorded a fetch and has not committed it."""
    recorded, deleted = threading.Event(), threading.Event()

    async def tell(found: Broker) -> None:
        write = found.database.write

        def paused(work: Callable[[Connection], object]) -> Awaitable[object]:
            def work_and_wait(connection: Connection) -> None:
                work(connection)
                recorded.set()
                wait_until(lambda: deleted.is_set() or is_waiting(broker))

            return write(work_and_wait)

        monkeypatch.setattr(found.database, "write", paused)
        access = (story.id, session_of(reader).id)
        found.accesses[access] = "reader"
        await event_log.record_accesses(found)

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(beside, broker, tell)
        assert recorded.wait(PATIENCE)
        yield
        deleted.set()
        answer.result()


@pytest.mark.long
@both_engines
def test_a_fetch_that_is_recorded_while_the_container_is_deleted_leaves_nothing_of_it(
    start_broker: StartBroker, new_user: NewUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    alice, bob = new_user(at=broker), new_user(at=broker)
    listening = OWNER | Level.ReceiveAccessEvents
    story = Story(alice).created({alice: listening, bob: OWNER})
    with telling(broker, story, bob, monkeypatch):
        story.tell(bob, story.follow(bob, tombstone=True))
    told = [event for event in alice.events() if event.eventType == "Accessed"]
    assert [(event.version, event.relatedUserId) for event in told] == [(0, None)]
    assert rows_of(broker, "accesses", story) == 0
    assert pending(broker) == []
    check(broker)
