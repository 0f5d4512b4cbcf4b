"""Attacks on log-ins and tokens: what a broker gets signed, what a thief of a token gets.

Attacks 35 and 36 of `catalogue`. A client signs what it built itself, for the address that it was given;
a token goes to that address alone, in its header alone, and for an hour.
"""

import base64
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, ServerProvider
from scbroker.records import container_record, key_record
from scbroker.records.canonical import encode_object
from scbroker.vocabulary import KeyType
from scbroker.wire.users import Authorization, Challenge, SessionRequest
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import CHALLENGES, FAULT, SESSIONS
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    OWNER,
    Story,
    User,
    chain_of,
    delete_key_file,
    delete_user,
    deletion,
    ordered,
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


@attack(35, "signing oracle and relayed challenge")
def test_what_is_no_challenge_is_not_signed(mallory: Mallory, alice: User, eve: User) -> None:
    story = Story(alice).created({alice: OWNER, eve: OWNER})
    for data in bytes_to_be_signed(alice, eve, story).values():
        device = mallory.device()
        answer = b"\x81\xa5nonce\xc5" + len(data).to_bytes(2, "big") + data
        with mallory.answering(CHALLENGES, answer), mallory.refused(device, FAULT) as attempt:
            attempt(device.logIn(keyRing=alice.ring, userId=alice.ring.userId))
        assert mallory.heard[-1].name == CHALLENGES


@attack(35, "signing oracle and relayed challenge")
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


@attack(35, "signing oracle and relayed challenge")
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


@attack(35, "signing oracle and relayed challenge")
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


@attack(35, "signing oracle and relayed challenge")
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


@attack(36, "stolen token")
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


@attack(36, "stolen token")
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


@attack(36, "stolen token")
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


@attack(36, "stolen token")
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
