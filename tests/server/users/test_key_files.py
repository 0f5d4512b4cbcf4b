"""KeyFiles on the broker: replaced and removed by signed orders, with key records or without.

Spec: docs/spec/protocol.md, 3 and 5; keyfile.md, 4; ids.md, 4.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy.schema import CreateTable

from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import sha256
from scbroker.keys import KeyRing
from scbroker.records.canonical import UserId
from scbroker.records.key_record import RETIRED, KeyChain
from scbroker.server.broker import ChainCache
from scbroker.server.storage import tables
from scbroker.server.storage.driver import Connection, SqliteConnection
from scbroker.vocabulary import KeyType
from scbroker.wire import users as u
from scbroker.wire.codec import SignedObject
from tests.kit.brokers import Answer, BrokerProcess, clock
from tests.kit.tables import count_rows, query
from tests.kit.writers import (
    MINUTE,
    OWNER,
    Step,
    Story,
    User,
    authorized,
    chain_of,
    delete_key_file,
    delete_user,
    deletion,
    key_records,
    ordered,
    renewed,
    stalled,
    store,
    storing,
)
from tests.server.conftest import NewUser, Unchanged, at_once

SIGNING, ENCRYPTION = KeyType.Signing, KeyType.Encryption


def _state(user: User) -> u.KeyFileState:
    return user.wire.call("GET", "/v1/key-file").expect(200).message(u.KeyFileState)


def _open(user: User, auth: bytes) -> Answer:
    return user.wire.call("POST", f"/v1/users/{user.id}/key-file/open", {"auth": auth})


def _reminder(user: User) -> str:
    answer = user.wire.call("GET", f"/v1/users/{user.id}/reminder").expect(200)
    return answer.message(u.ReminderAnswer).reminder


def _is_in_session(user: User) -> bool:
    answer = user.wire.call("GET", "/v1/key-file")
    if answer.status != 200:
        answer.expect(401, "session")
    return answer.status == 200


def _without_key_file(user: User) -> User:
    delete_key_file(user, ordered(user, "delete-key-file")).expect(204)
    return user


# Storing


def test_a_storing_without_reminder_keeps_the_stored_one_and_an_empty_one_removes_it(
    new_user: NewUser,
) -> None:
    alice = new_user()
    for reminder, expected in (
        (None, ""), ("one", "one"), (None, "one"), ("two", "two"), ("", ""), (None, ""),
    ):  # fmt: skip
        store(alice, authorized(alice, storing(alice, reminder=reminder))).expect(204)
        assert _reminder(alice) == expected
    store(alice, authorized(alice, storing(alice, reminder="three"))).expect(204)
    message = msgspec.to_builtins(authorized(alice, storing(alice)), builtin_types=(bytes,))
    del message["reminder"]
    alice.wire.call("PUT", "/v1/key-file", message).expect(204)
    assert _reminder(alice) == "three"
    delete_key_file(alice, ordered(alice, "delete-key-file")).expect(204)
    store(alice, authorized(alice, storing(alice))).expect(204)
    assert _reminder(alice) == "", "it went with the KeyFile"


# Conflicts


def test_after_a_deletion_a_key_file_replaces_nothing_and_is_not_older(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    last = storing(alice, generation=5)
    store(alice, authorized(alice, last)).expect(204)
    _without_key_file(alice)
    with unchanged():
        for changes in ({"generation": 4}, {"replaces": sha256(last.keyFile)}):
            message = authorized(alice, storing(alice, **changes))
            store(alice, message).expect(409, "conflict")
    store(alice, authorized(alice, storing(alice, generation=5))).expect(204)


def test_of_two_rotations_at_once_one_alone_publishes_its_keys(new_user: NewUser) -> None:
    alice = new_user()
    sessions = [alice, *(new_user(alice.ring) for _ in range(3))]
    new = [renewed(user) for user in sessions]
    messages = [
        authorized(user, storing(user, keyRecords=records))
        for user, (_, records) in zip(sessions, new, strict=True)
    ]
    answers = at_once(store, sessions, messages)
    # The later of two gets a conflict, or a challenge error because its key is retired now.
    assert sorted(answer.status for answer in answers)[0] == 204
    assert {answer.code for answer in answers if answer.status != 204} <= {"conflict", "challenge"}
    [winner] = [n for n, answer in enumerate(answers) if answer.status == 204]
    new[winner][0].ring.check_chain(chain_of(alice))


# Orders


# The same again


def test_a_storing_is_not_carried_out_again_once_its_key_file_was_deleted(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = _without_key_file(new_user())
    first = authorized(alice, storing(alice))
    assert first.replaces is None
    store(alice, first).expect(204)
    _without_key_file(alice)
    with unchanged():
        store(alice, first).expect(401, "challenge")


def test_a_repeated_storing_that_differs_in_anything_needs_an_order(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    """Or a token would tell whether a guess at `auth` is right, and change what it pleases."""
    alice = new_user()
    new, records = renewed(alice)
    last = authorized(alice, storing(alice, reminder="r", keyRecords=records))
    store(alice, last).expect(204)
    mine = [SignedObject.of(signed) for signed in records]
    changes: tuple[dict[str, Any], ...] = (
        {"auth": random_bytes(32)}, {"reminder": ""}, {"keyFile": last.keyFile + b"\0"},
        {"keyRecords": mine[:-1]}, {"keyRecords": [*mine, *mine]},
        {"keyRecords": [*mine[:-1], replace(mine[-1], signature=mine[0].signature)]},
    )  # fmt: skip
    with unchanged():
        for change in changes:
            store(alice, replace(last, **change)).expect(401, "challenge")
        # The whole chain is the end of the chain.
        whole = [SignedObject.of(signed) for signed in chain_of(new).records]
        for keys in ([], mine[1:], whole):
            store(alice, replace(last, keyRecords=keys)).expect(204)
        # Without a reminder the stored one is to stay, as it does.
        store(alice, replace(last, reminder=None)).expect(204)


# Key records


def test_from_a_rotation_on_the_old_signing_key_is_refused_for_everything(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    story = Story(alice).created()
    new, records = renewed(alice)
    store(alice, authorized(alice, storing(alice, keyRecords=records))).expect(204)
    with unchanged():
        # The retirement is dated ahead: at these times the key was good, and is refused all the same.
        for time in (story.head.time, clock(), clock() + 4 * MINUTE):
            request = story.follow(alice, content=b"x", time=time)
            story.send(alice, request).expect(422, "rejected")
        other = Story(alice)
        other.send(alice, other.begin()).expect(422, "rejected")
        request_to_log_in = alice.wire.log_in_request(alice.ring)
        alice.wire.call("POST", "/v1/sessions", request_to_log_in).expect(401, "challenge")
        store(alice, authorized(alice, storing(alice))).expect(401, "challenge")
        delete_user(alice).expect(401, "challenge")
    story.tell(new, story.follow(new, content=b"x", grants={new: OWNER}))
    new.wire.log_in(new.ring)
    store(new, authorized(new, storing(new))).expect(204)


def _extended(ring: KeyRing, *kinds: KeyType) -> KeyRing:
    """The KeyRing with another key of each of these types, of which one may come twice."""
    for kind in kinds:
        new = KeyRing.generate()
        if kind is SIGNING:
            ring = KeyRing(ring.generation, (*ring.signing, *new.signing), ring.encryption)
        else:
            ring = KeyRing(ring.generation, ring.signing, (*ring.encryption, *new.encryption))
    return ring


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "introduced, retired, code",
    [(-5.1, 10, "clock"), (5.1, 10, "clock"), (0, 6.9, "clock"), (0, 13.1, "clock"),
     (0, -10, "rejected"), (-4.9, 7.1, None), (4.9, 12.9, None)],
)  # fmt: skip
def test_key_records_are_dated_in_minutes_around_the_brokers_clock(
    new_user: NewUser, unchanged: Unchanged, introduced: float, retired: float, code: str | None
) -> None:
    alice = new_user()
    now = clock()
    steps = (
        Step(ENCRYPTION, 1, time=now + int(introduced * MINUTE)),
        Step(ENCRYPTION, 0, RETIRED, time=now + int(retired * MINUTE)),
    )
    records = key_records(_extended(alice.ring, ENCRYPTION), chain_of(alice), *steps)
    message = authorized(alice, storing(alice, keyRecords=records))
    if code is None:
        store(alice, message).expect(204)
    else:
        with unchanged():
            store(alice, message).expect(422, code)


NEW: Final = Step(ENCRYPTION, 1)


def test_a_key_file_that_is_a_conflict_takes_its_key_records_with_it(
    new_user: NewUser, unchanged: Unchanged
) -> None:
    alice = new_user()
    _, records = renewed(alice)
    with unchanged():
        for changes in ({"replaces": random_bytes(32)}, {"generation": 1}):
            message = authorized(alice, storing(alice, keyRecords=records, **changes))
            store(alice, message).expect(409, "conflict")
    assert len(chain_of(alice).records) == 2


# Sessions


@pytest.mark.sampled
@pytest.mark.parametrize("ends", [True, False], ids=["ended", "kept"])
def test_a_storing_ends_the_other_sessions_if_it_says_so_and_no_others(
    new_user: NewUser, ends: bool
) -> None:
    alice, bob = new_user(), new_user()
    others = [new_user(alice.ring) for _ in range(3)]
    message = authorized(alice, storing(alice, endOtherSessions=ends))
    store(alice, message).expect(204)
    assert [_is_in_session(user) for user in others] == [not ends] * 3
    assert _is_in_session(alice)
    assert _is_in_session(bob)
    again = new_user(alice.ring)
    store(alice, message).expect(204)
    assert _is_in_session(again), "nothing happens for a second time"


# A retirement and what comes at the same time


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_record_under_way_comes_before_the_retirement_that_waits_for_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice, writer = (user := new_user()), new_user(user.ring)
    story = Story(writer)
    message = authorized(alice, storing(alice, keyRecords=renewed(alice)[1]))
    request = story.begin()
    with ThreadPoolExecutor(2) as pool, stalled(broker.database_url, "records") as wait_for:
        writing = pool.submit(story.send, writer, request)
        wait_for(1)
        retiring = pool.submit(store, alice, message)
        wait_for(2)
        assert not retiring.done()
        assert len(chain_of(new_user(alice.ring)).records) == 2
    writing.result().expect(201)
    retiring.result().expect(204)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_retirement_under_way_comes_before_what_waits_for_it(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """A record, a log-in, an order and the deletion of the user, each signed with the old key."""
    alice = new_user()
    sessions = [new_user(alice.ring) for _ in range(5)]
    story = Story(alice).created()
    message = authorized(alice, storing(alice, keyRecords=renewed(alice)[1]))
    acts: list[tuple[Callable[[], Answer], str]] = [
        (lambda: story.send(sessions[0], story.follow(alice, content=b"x")), "overloaded"),
        (lambda: _create(sessions[1], alice), "overloaded"),
        (lambda: sessions[2].wire.call("POST", "/v1/sessions", log_in), "challenge"),
        (lambda: delete_key_file(sessions[3], forget), "challenge"),
        (lambda: delete_user(sessions[4], leave), "challenge"),
    ]
    log_in = alice.wire.log_in_request(alice.ring)
    forget, leave = ordered(alice, "delete-key-file"), deletion(alice)
    with ThreadPoolExecutor(6) as pool, stalled(broker.database_url, "key_records") as wait_for:
        retiring = pool.submit(store, alice, message)
        wait_for(1)
        late = [pool.submit(act) for act, _ in acts]
        wait_for(1 + len(acts))
    retiring.result().expect(204)
    for answer, (_, code) in zip(late, acts, strict=True):
        assert answer.result().code == code
    assert _state(alice).hash == sha256(message.keyFile)


def _create(session: User, author: User) -> Answer:
    story = Story(author)
    return story.send(session, story.begin())


# Removing


def test_a_deleted_key_file_goes_with_verifier_and_reminder_and_its_generation_stays(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    alice = new_user()
    message = authorized(alice, storing(alice, generation=9, reminder="cat"))
    store(alice, message).expect(204)
    delete_key_file(alice, ordered(alice, "delete-key-file")).expect(204)
    assert _state(alice) == u.KeyFileState(hash=None, generation=9)
    _open(alice, message.auth).expect(401, "credentials")
    assert _reminder(alice) == ""
    mine = alice.ring.userId.bytes
    assert count_rows(broker.database_url, "key_files", "user_id = ?", mine) == 0
    assert _is_in_session(alice)


def test_a_user_changes_the_stored_key_file_so_many_times_in_a_day(
    broker: BrokerProcess, new_user: NewUser
) -> None:
    """Each time is an entry of the audit log, which is kept for ever."""
    alice, counters = new_user(), "SELECT bucket FROM guesses"
    before = query(broker.database_url, counters)
    store(alice, authorized(alice, storing(alice))).expect(204)
    [(bucket,)] = {*query(broker.database_url, counters)} - {*before}
    query(broker.database_url, "UPDATE guesses SET guesses = 999 WHERE bucket = ?", bucket)
    delete_key_file(alice, ordered(alice, "delete-key-file")).expect(204)
    store(alice, authorized(alice, storing(alice))).expect(429, "throttled")


def test_a_key_files_deletion_deletes_no_later_one(new_user: NewUser, unchanged: Unchanged) -> None:
    alice = new_user()
    order = ordered(alice, "delete-key-file")
    delete_key_file(alice, order).expect(204)
    store(alice, authorized(alice, storing(alice))).expect(204)
    with unchanged():
        delete_key_file(alice, order).expect(401, "challenge")


# Attempts of a hostile client


@pytest.fixture
def key_table() -> Iterator[Connection]:
    """A database with a table of key records, and nothing in it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as driver:
        connection = SqliteConnection(driver)
        connection.run(str(CreateTable(tables.key_records).compile(dialect=connection.dialect)))
        yield connection


def _publish(connection: Connection, ring: KeyRing, *steps: Step) -> KeyChain:
    """A new user's chain, stored."""
    first = KeyChain.verify(ring.first_records(clock()), clock())
    chain = first.extend(key_records(ring, first, *steps), clock())
    rows = [
        {
            "user_id": ring.userId.bytes,
            "sequence": n,
            "body": signed.body,
            "signature": signed.signature,
        }
        for n, signed in enumerate(chain.records)
    ]
    connection.add(tables.key_records, rows)
    return chain


def test_a_chain_that_grows_is_kept_once_and_not_for_each_of_its_lengths(
    key_table: Connection,
) -> None:
    """Or who publishes their keys one by one makes a broker verify and keep the square of them."""
    ring = _extended(KeyRing.generate(), ENCRYPTION)
    stored, chains = _publish(key_table, ring, NEW), ChainCache()
    lengths = [2, 3, 2]
    found = [chains.get(key_table, UserId(ring.userId.bytes), length) for length in lengths]
    assert [list(chain.records) for chain in found] == [list(stored.records[:n]) for n in lengths]
    assert all(one is other for one, other in zip(found[0].records, found[1].records, strict=False))


def test_a_chain_that_is_used_stays_cached_however_many_others_come(
    key_table: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a few accounts with long chains make a broker verify everybody's chain for each request."""
    monkeypatch.setattr("scbroker.server.broker._CACHED_RECORDS", 4)
    rings, chains = [KeyRing.generate() for _ in range(4)], ChainCache()
    for ring in rings:
        _publish(key_table, ring)
    mine, *others = (UserId(ring.userId.bytes) for ring in rings)
    used = chains.get(key_table, mine, 2)
    for other in others:
        chains.get(key_table, other, 2)
        assert chains.cached(mine, 2) is used
    assert [chains.cached(other, 2) is not None for other in others] == [False, False, True]
