"""Attacks on log-ins and tokens: what a broker gets signed, what a thief of a token gets, where tokens go.

Attacks 35, 36, 52 and 53 of attacks.toml. A client signs what it built itself, for the address that it was
given; a token goes to that address alone, in its header alone, and for an hour.
"""

import base64
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import aiohttp
import pytest
from msgspec.structs import replace

from scbroker import BrokerError, KeyRing, MemoryTrustStore, ServerProvider
from scbroker.records import container_record, key_record
from scbroker.records.canonical import encode_object
from scbroker.vocabulary import KeyType
from scbroker.wire.users import Authorization, Challenge, Session, SessionRequest
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.accounts import file_of
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import CHALLENGES, FAULT, SESSIONS
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.crypto import random_bytes
from tests.kit.tables import count_rows, query
from tests.kit.tcp import PROTOCOL, BadBroker, http
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    OWNER,
    READER,
    Story,
    User,
    chain_of,
    closing,
    delete_key_file,
    delete_user,
    deletion,
    ordered,
    rotate,
    storing,
)


def token_of(device: ServerProvider) -> str:
    session: Any = device._current
    token: str = session.token.value
    return token


def sent_log_in(mallory: Mallory) -> SessionRequest:
    """The last statement that any client signed."""
    sent = [exchange for exchange in mallory.heard if exchange.name == SESSIONS]
    request: SessionRequest = sent[-1].message
    return request


def bytes_to_be_signed(alice: User, eve: User, story: Story) -> dict[str, bytes]:
    """Return bytes that a broker would like to have Alice's signature for."""
    chain = chain_of(alice)
    theirs = key_record.KeyRecord(
        alice.name, 2, KeyType.Encryption, 1, eve.ring.encryption[0].public, 0, clock(),
        chain.hashes[-1],
    )  # fmt: skip
    return {
        "a record": story.follow(eve, tombstone=True).record.body,
        "a key record": encode_object(theirs),
        "an order": ordered(alice, "delete-user", signed_by=eve.ring.signing[0]).order,
        "a hash": container_record.record_hash(story.requests[0].record.body),
        "nothing": b"",
    }


def test_what_is_no_challenge_is_not_signed(mallory: Mallory, alice: User, eve: User) -> None:
    story = Story(alice).created({alice: OWNER, eve: OWNER})
    for data in bytes_to_be_signed(alice, eve, story).values():
        device = mallory.device()
        answer = b"\x81\xa5nonce\xc5" + len(data).to_bytes(2, "big") + data
        with mallory.answering(CHALLENGES, answer), mallory.refused(device, FAULT) as attempt:
            attempt(device.logIn(keyRing=alice.ring, userId=alice.ring.userId))
        assert mallory.heard[-1].name == CHALLENGES


def test_what_was_signed_for_one_thing_is_good_for_no_other(mallory: Mallory) -> None:
    """Taken from the wire, and sent to the real broker for another purpose."""
    alice, url = mallory.people(1)[0], mallory.behind.database_url
    device = mallory.device_of(alice)
    device.createContainer(b"x").result(PATIENCE)
    log_in, record = sent_log_in(mallory), mallory.sent_record().record
    order = ordered(alice, "delete-key-file")
    body, signature = order.order, order.signature
    for taken in (
        Authorization(order=log_in.statement, signature=log_in.signature),
        Authorization(order=record.body[:1024], signature=record.signature),
        order,  # for another act
    ):
        delete_user(alice, taken).expect(401, "challenge")
    leaving = deletion(alice).authorization
    for taken in (leaving, ordered(alice, "delete-user"), ordered(alice, "store-key-file")):
        delete_key_file(alice, taken).expect(401, "challenge")
    for statement in (body, record.body[:1024], log_in.statement):
        request = SessionRequest(statement=statement, signature=signature)
        alice.wire.call("POST", "/v1/sessions", request).expect(401, "challenge")
    stored = replace(storing(alice), authorization=order)
    alice.wire.call("PUT", "/v1/key-file", stored).expect(401, "challenge")
    assert query(url, "SELECT deleted FROM users WHERE id = ?", alice.ring.userId.bytes) == [
        (False,)
    ]
    delete_key_file(alice, order).expect(204)


def test_an_order_is_signed_for_all_that_it_does_and_for_nothing_else(mallory: Mallory) -> None:
    """A broker in between that holds the order of one storing sends another KeyFile with it."""
    [alice] = mallory.people(1)
    message = storing(alice)
    order = ordered(alice, "store-key-file", message.digest)
    spoiled = {
        "keyFile": b"another", "generation": message.generation + 1, "auth": bytes(32),
        "reminder": "set", "replaces": None, "endOtherSessions": True,
    }  # fmt: skip
    for name, value in spoiled.items():
        changed: Any = {name: value}
        other = replace(message, authorization=order, **changed)
        alice.wire.call("PUT", "/v1/key-file", other).expect(401, "challenge")
    alice.wire.call("PUT", "/v1/key-file", replace(message, authorization=order)).expect(204)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_challenge_of_an_honest_broker_that_is_relayed_opens_no_session_there(
    mallory: Mallory, broker: BrokerProcess, alice: User
) -> None:
    """Alice has the same keys at both; Mallory asks the other broker, as Alice, in Mallory's own time."""
    with Wire(broker) as relay:
        relay.register(alice.ring).expect(201)
        nonce = relay.nonce()
        with (
            mallory.answering(CHALLENGES, Challenge(nonce=nonce)),
            pytest.raises(BrokerError.credentialsError),
        ):
            mallory.device(alice.ring)
        relay.call("POST", "/v1/sessions", sent_log_in(mallory)).expect(401, "challenge")
        # An order likewise: for a deletion at the one it is nothing at the other.
        there = User(alice.ring, relay)
        delete_user(there, deletion(there, origin=mallory.origin)).expect(401, "challenge")
        # It was for the address alone: the nonce is still good.
        own = relay.log_in_request(alice.ring, nonce)
        relay.call("POST", "/v1/sessions", own).expect(201)


def test_a_log_in_and_an_order_that_were_heard_are_not_good_a_second_time(mallory: Mallory) -> None:
    alice = mallory.people(1)[0]
    mallory.device_of(alice)
    heard = sent_log_in(mallory)
    with Wire(mallory.behind) as thief:
        thief.call("POST", "/v1/sessions", heard).expect(401, "challenge")
    order = ordered(alice, "delete-key-file")
    delete_key_file(alice, order).expect(204)
    message = storing(alice)
    fresh = ordered(alice, "store-key-file", message.digest)
    alice.wire.call("PUT", "/v1/key-file", replace(message, authorization=fresh)).expect(204)
    delete_key_file(alice, order).expect(401, "challenge")


def test_what_a_thief_finds_in_the_database_is_no_token(mallory: Mallory, alice: User) -> None:
    device = mallory.device_of(alice)
    token, url = token_of(device), mallory.behind.database_url
    statement = "SELECT token_hash FROM sessions WHERE user_id = ?"
    found = [row[0] for row in query(url, statement, alice.ring.userId.bytes)]
    assert len(found) == 2, "Alice's device and the accomplice"
    for value in found:
        assert value not in (token.encode(), token.encode()[:32])
        whole = base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        for forged in (whole, value.hex(), value.hex()[:43]):
            assert not is_good(mallory, forged)
    assert is_good(mallory, token)


def is_good(mallory: Mallory, token: str) -> bool:
    with Wire(mallory.behind, token=token) as thief:
        answer = thief.call("GET", "/v1/key-file")
    if answer.status == 200:
        return True
    answer.expect(401, "session")
    return False


def test_a_token_that_is_written_in_another_way_is_none(mallory: Mallory) -> None:
    """The last of 43 characters has bits to spare: base64 decoders take four spellings for one value."""
    device = mallory.device_of(mallory.people(1)[0])
    token = token_of(device)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    at = alphabet.index(token[-1])
    same = [token[:-1] + alphabet[at & ~3 | low] for low in range(4) if at & 3 != low]
    assert {base64.urlsafe_b64decode(each + "=") for each in same} == {
        base64.urlsafe_b64decode(token + "=")
    }
    for each in (*same, token + "=", token.replace("-", "+").replace("_", "/") + " "):
        assert not is_good(mallory, each)


def test_a_stolen_token_ends_with_its_hour_and_with_its_session(mallory: Mallory) -> None:
    alice, url = mallory.people(1)[0], mallory.behind.database_url
    device = mallory.device_of(alice)
    stolen, mine = token_of(device), "SELECT expires_at FROM sessions WHERE user_id = ?"
    left = [row[0] - clock() for row in query(url, mine, alice.ring.userId.bytes)]
    assert all(0 < each <= 3600 * 10**6 for each in left)
    end = "UPDATE sessions SET expires_at = ? WHERE user_id = ?"
    query(url, end, clock(), alice.ring.userId.bytes)
    assert not is_good(mallory, stolen)
    device.getEvents().result(PATIENCE)  # the owner has the keys, and gets another
    stolen = token_of(device)
    assert is_good(mallory, stolen)
    device.logout().result(PATIENCE)
    assert not is_good(mallory, stolen)


def test_a_stolen_token_changes_nothing_without_a_key(mallory: Mallory) -> None:
    """Eve has Alice's token and keys of her own."""
    alice, eve = mallory.people(2)
    story = Story(alice).created()
    token = token_of(mallory.device_of(alice))
    with Wire(alice.wire.broker, token=token) as wire:
        thief, head = User(eve.ring, wire), story.hash(story.head)
        link = container_record.Link(1, head)
        follower = replace(
            story.head, version=2, nonce=None, parent=head, link=link, governing=None
        )
        forged = story.sign(thief, follower)
        story.send(thief, forged, 2).expect(422, "rejected")
        story.send(thief, story.follow(thief, content=None), 2).expect(403, "permission")
        for order in (
            ordered(thief, "delete-key-file"),
            ordered(thief, "delete-key-file", fingerprint=alice.name),
            Authorization(order=b"", signature=bytes(3373)),
        ):
            delete_key_file(thief, order).expect(401, "challenge")
            message = replace(storing(thief), authorization=order)
            thief.wire.call("PUT", "/v1/key-file", message).expect(401, "challenge")
            assert delete_user(alice, order).status == 401
    assert alice.view(story).head is None


# A client knows one address, that of its own configuration, and asks no other.


STATUSES: Final = (301, 302, 303, 307, 308)


@pytest.mark.parametrize("status", STATUSES)
def test_no_redirect_is_followed_on_a_connection(status: int) -> None:
    with BadBroker([http(200)]) as other:
        location = b"Location: %s/v1/elsewhere\r\n" % other.url.encode()
        with (
            BadBroker([http(status, headers=PROTOCOL + location)]) as broker,
            ServerProvider(uuid.uuid4(), broker.url, "d", trustStore=MemoryTrustStore()) as device,
        ):
            with pytest.raises(FAULT):
                device.getReminder(uuid.uuid4()).result(PATIENCE)
            assert len(broker.requests) == 1
        assert other.requests == []


# The broker's time, taken by log-ins and deletions that it refuses.


SPOIL = "UPDATE key_records SET signature = ? WHERE user_id = ? AND sequence = 1"


@pytest.fixture
def stranger(mallory: Mallory) -> Iterator[Wire]:
    with Wire(mallory.behind) as wire:
        yield wire


def forged(stranger: Wire, ring: KeyRing, nonce: bytes | None = None) -> SessionRequest:
    """A statement in a user's name that somebody else signed."""
    other = stranger.log_in_request(KeyRing.generate())
    return replace(stranger.log_in_request(ring, nonce), signature=other.signature)


def test_neither_a_log_in_nor_a_refused_deletion_verifies_the_stored_chain(
    mallory: Mallory, stranger: Wire
) -> None:
    """One signature of the chain is spoilt: code that verifies the whole chain fails."""
    ring = mallory.behind.new_user()
    with Wire(mallory.behind) as wire:
        alice = rotate(
            mallory.behind.database_url, User(ring, wire.log_in(ring)), signing=2, encryption=1
        )
    query(mallory.behind.database_url, SPOIL, random_bytes(3373), ring.userId.bytes)
    stranger.call("POST", "/v1/sessions", forged(stranger, alice.ring)).expect(401, "challenge")
    user = User(alice.ring, stranger.log_in(alice.ring))
    unlinked = closing(user, previous=random_bytes(32))
    delete_user(user, deletion(user, unlinked)).expect(422, "rejected")
    delete_user(user, deletion(user, closing(user, time=1))).expect(422, "clock")
    delete_user(user).expect(500, "internal")  # this one follows, so the whole chain is verified


def test_a_refused_log_in_uses_up_its_nonce_of_a_known_user_and_of_an_unknown_one(
    mallory: Mallory, stranger: Wire
) -> None:
    """Otherwise one nonce would serve for any number of attempts, or tell which users exist."""
    mine, known = mallory.behind.new_user(), mallory.behind.new_user()
    for victim in (known, KeyRing.generate()):
        nonce = stranger.nonce()
        for request in (forged(stranger, victim, nonce), stranger.log_in_request(mine, nonce)):
            stranger.call("POST", "/v1/sessions", request).expect(401, "challenge")
    stranger.log_in(mine)


def test_a_stranger_whose_log_ins_are_refused_makes_the_broker_write_nothing(
    mallory: Mallory, stranger: Wire
) -> None:
    victim, before = mallory.behind.new_user(), count_rows(mallory.behind.database_url, "nonces")
    for ring in (victim, KeyRing.generate(), victim):
        stranger.call("POST", "/v1/sessions", forged(stranger, ring)).expect(401, "challenge")
    assert count_rows(mallory.behind.database_url, "nonces") == before


# DNS may give any address for a name under `localhost`, to which http is allowed. The attacker's machine is
# 127.0.0.2 here, and has the broker's port.


ELSEWHERE = "127.0.0.2"
NAMES = [
    "localhost", "localhost.", "LOCALHOST", "x.localhost", "a.b.localhost.",
    "\u217cocalhost", "x.\uff4cocalhost", "localhost\u3002",
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have DNS give the attacker's address for every name; return the names that it is asked for."""
    names: list[str] = []

    async def resolve(_: object, host: str, port: int = 0, *__: int) -> list[dict[str, object]]:
        names.append(host)
        found = {"hostname": host, "host": ELSEWHERE, "port": port, "family": socket.AF_INET}
        return [{**found, "proto": 0, "flags": socket.AI_NUMERICHOST}]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    return names


@contextmanager
def attacker(port: int) -> Iterator[BadBroker]:
    try:
        server = socket.create_server((ELSEWHERE, port))
    except OSError:
        pytest.skip(f"this machine has no {ELSEWHERE}")
    with BadBroker([http(200)], _server=server) as found:
        yield found


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_requests_to_a_name_of_this_machine_stay_on_it_whatever_dns_says(
    mallory: Mallory, asked: list[str], name: str
) -> None:
    port = mallory.url.rpartition(":")[2]
    environment = {
        "SCBROKER_API_KEY": str(mallory.behind.api_key),
        "SCBROKER_SERVER_URL": f"http://{name}:{port}",
        "SCBROKER_APPLICATION_NAME": "tests",
    }
    key_file = None
    with (
        attacker(int(port)) as elsewhere,
        ServerProvider.fromEnvironment(environment, trustStore=MemoryTrustStore()) as device,
        suppress(BrokerError),
    ):
        key_file = device.register("Pass word 1", "pass Phrase 1").result(PATIENCE)
        device.createContainer(b"x").result(PATIENCE)
    assert (elsewhere.requests, asked) == ([], [])
    assert key_file is not None


@pytest.mark.process
@pytest.mark.parametrize("proxy", ["http://proxy.example:3128", "http://u:p@10.0.0.1", "proxy", ""])
@pytest.mark.parametrize("plain", ["broker", "store"])
def test_a_proxy_on_another_machine_reads_no_plain_http(proxy: str, plain: str) -> None:
    url = "http://127.0.0.1:8400" if plain == "broker" else "https://broker.example"
    stores = ["http://localhost:9000"] if plain == "store" else []
    key = random_bytes(16).hex()
    with pytest.raises(BrokerError.invalidArgumentError, match="proxy must be on this machine"):
        ServerProvider(key, url, "tests", proxy=proxy, objectStoreOrigins=stores)
    ServerProvider(key, url, "tests", proxy="http://u:p@localhost:8080", objectStoreOrigins=stores)
    ServerProvider(key, "https://broker.example", "tests", proxy="http://proxy.example:3128")


# Limits


def some_file_of(user: User) -> bytes:
    """Bytes in the form of a user's KeyFile, which open under nothing."""
    return file_of([user.name, bytes(32), b"p", b"p"])


def test_who_stole_a_token_reads_sealed_data_for_its_time_and_that_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """So does an attacker at the broker's own address, which TLS is there to prevent."""
    story = Story(alice).created({alice: OWNER, bob: READER}, content=b"the plaintext")
    stolen: list[str] = []

    def take(exchange: Exchange) -> None:
        session: Session = exchange.answer
        stolen.append(session.token)

    with mallory.meddling(SESSIONS, after=take):
        mallory.device_of(bob)
    with Wire(mallory.behind, token=stolen[0]) as thief:
        answer = thief.call("GET", f"{story.path}?content=1").expect(200)
    sealed = story.requests[0].content
    assert sealed is not None
    assert sealed in answer.body
    assert b"the plaintext" not in answer.body
