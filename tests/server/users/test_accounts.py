"""Registration, KeyFiles, reminders and key records, as a stranger's program would ask for them."""

import os

import pytest
from msgspec.structs import replace

from scbroker.keys import KeyRing
from scbroker.wire import users as u
from scbroker.wire.codec import SignedObject
from tests.kit.brokers import Answer, BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.tables import dump, query
from tests.kit.writers import User, authorized, store, storing
from tests.server.conftest import NewUser, Unchanged, at_once


def _registration(ring: KeyRing, **changes: object) -> u.Registration:
    records = [SignedObject.of(signed) for signed in ring.first_records(clock())]
    message = u.Registration(keyRecords=records, keyFile=b"key file", auth=os.urandom(32))
    return replace(message, **changes)


def test_another_registration_of_the_same_user_finds_the_id_taken(
    wire: Wire, unchanged: Unchanged
) -> None:
    ring = KeyRing.generate()
    message = _registration(ring)
    wire.call("POST", "/v1/users", message).expect(201)
    others = [
        replace(message, keyFile=b"another"),
        replace(message, auth=os.urandom(32)),
        replace(message, reminder="another"),
        replace(message, keyRecords=_registration(ring).keyRecords),
    ]
    with unchanged():
        for other in others:
            wire.call("POST", "/v1/users", other).expect(409, "exists")


def test_a_registration_for_another_origin_is_refused_before_anything_is_stored(
    wire: Wire, unchanged: Unchanged
) -> None:
    ring, origin = KeyRing.generate(), wire.broker.origin
    with unchanged():
        for other in ("https://broker.example:443", f"{origin}/", "\x1b[2J\u202e", "x" * 512):
            message = _registration(ring, origin=other)
            answer = wire.call("POST", "/v1/users", message).expect(400, "invalid")
            assert origin in answer.problem["detail"]
            assert answer.problem["detail"].isprintable()
    message = _registration(ring, origin=origin)
    for _ in range(2):
        wire.call("POST", "/v1/users", message).expect(201)


def test_neither_auth_nor_token_stand_in_the_database(broker: BrokerProcess, wire: Wire) -> None:
    auth, ring = os.urandom(32), KeyRing.generate()
    wire.register(ring, auth=auth).expect(201)
    wire.log_in(ring)
    assert wire.token is not None
    cells = {cell for rows in dump(broker.database_url).values() for row in rows for cell in row}
    stored = b"\0".join(cell for cell in cells if isinstance(cell, bytes))
    assert ring.userId.bytes in stored, "the dump sees this user"
    assert auth not in stored
    assert wire.token.encode() not in stored
    assert wire.device_pass is not None
    assert wire.device_pass not in stored


def test_any_text_but_nul_is_a_reminder_on_both_engines(wire: Wire, unchanged: Unchanged) -> None:
    for reminder in ("\x01", "\x7f", "two\nlines\n", "O'Neill'); --", "\U0001f511", "\ufffe"):
        ring = KeyRing.generate()
        wire.register(ring, reminder=reminder).expect(201)
        answer = wire.call("GET", f"/v1/users/{ring.userId}/reminder").expect(200)
        assert answer.message(u.ReminderAnswer).reminder == reminder
    with unchanged():
        for reminder in ("\0", "a\0b", "a\n\0"):
            wire.register(KeyRing.generate(), reminder=reminder).expect(400, "invalid")


def test_an_answer_has_at_most_256_key_records(broker: BrokerProcess, new_user: NewUser) -> None:
    alice, bob = new_user(), new_user()
    _many_records(broker, bob.ring)
    asked = {"users": [{"userId": user.id} for user in (alice, bob, new_user())]}
    answer = alice.wire.call("POST", "/v1/key-records", asked).expect(200)
    counts = [len(user.keyRecords) for user in answer.message(u.KeyRecords).users]
    assert counts == [2, 254, 0]


def _many_records(broker: BrokerProcess, ring: KeyRing) -> None:
    """300 key records of which nobody here looks at more than the number."""
    numbers = ", ".join(f"({n})" for n in range(2, 300))
    query(
        broker.database_url,
        "INSERT INTO key_records (user_id, sequence, body, signature) "
        f"SELECT k.user_id, n.column1, k.body, k.signature FROM (VALUES {numbers}) n, "
        "(SELECT * FROM key_records WHERE user_id = ? AND sequence = 1) k",
        ring.userId.bytes,
    )


def _guess(wire: Wire, ring: KeyRing, auth: bytes | None = None, **headers: str) -> Answer:
    path = f"/v1/users/{ring.userId}/key-file/open"
    return wire.call("POST", path, {"auth": auth or os.urandom(32)}, **headers)


@pytest.mark.long
def test_parallel_guesses_are_never_more_than_the_limit(start_broker: StartBroker) -> None:
    broker = start_broker(guesses=5, database_wait_seconds=600)
    ring = broker.new_user()

    def guess(_: int) -> int:
        with Wire(broker) as wire:
            return _guess(wire, ring).status

    assert sorted(at_once(guess, range(24))) == [401] * 5 + [429] * 19


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_guesses_from_one_ipv6_network_of_64_bits_are_counted_together(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(guesses_address=3, trusted_proxies="127.0.0.1")
    with Wire(broker) as wire:

        def guess(address: str) -> int:
            return _guess(wire, KeyRing.generate(), X_Forwarded_For=address).status

        assert [guess(f"2001:db8::{n}") for n in (1, 2, "ffff", 3)] == [401, 401, 401, 429]
        assert guess("2001:db8:0:1::1") == 401


def test_a_device_pass_outlasts_a_change_of_credentials(start_broker: StartBroker) -> None:
    broker = start_broker(guesses=1)
    ring = broker.new_user()
    with Wire(broker) as wire:
        alice = User(ring, wire.log_in(ring))
        message = authorized(alice, storing(alice, endOtherSessions=True))
        store(alice, message).expect(204)
        for status in (401, 429):
            wire.open_key_file(ring.userId, os.urandom(32)).expect(status)
        wire.open_key_file(ring.userId, message.auth, wire.device_pass).expect(200)
