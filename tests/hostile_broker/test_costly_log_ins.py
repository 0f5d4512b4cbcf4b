"""Attacks on the broker's time by log-ins and deletions that it refuses.

Attack 53 of `catalogue`.
"""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from scbroker import KeyRing
from scbroker.crypto.seal import random_bytes
from scbroker.wire.users import SessionRequest
from tests.hostile_broker.catalogue import all_mount
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.tables import count_rows, query
from tests.kit.writers import User, closing, delete_user, deletion, rotate

all_mount(__name__, 53, "costly log-ins")
SPOIL = "UPDATE key_records SET signature = ? WHERE user_id = ? AND sequence = 1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("costly")) as started:
        yield started


@pytest.fixture
def stranger(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker) as wire:
        yield wire


def forged(stranger: Wire, ring: KeyRing, nonce: bytes | None = None) -> SessionRequest:
    """A statement in a user's name that somebody else signed."""
    other = stranger.log_in_request(KeyRing.generate())
    return replace(stranger.log_in_request(ring, nonce), signature=other.signature)


def test_neither_a_log_in_nor_a_refused_deletion_verifies_the_stored_chain(
    broker: BrokerProcess, stranger: Wire
) -> None:
    """One signature of the chain is spoilt: code that verifies the whole chain fails."""
    ring = broker.new_user()
    with Wire(broker) as wire:
        alice = rotate(broker.database_url, User(ring, wire.log_in(ring)), signing=2, encryption=1)
    query(broker.database_url, SPOIL, random_bytes(3373), ring.userId.bytes)
    stranger.call("POST", "/v1/sessions", forged(stranger, alice.ring)).expect(401, "challenge")
    user = User(alice.ring, stranger.log_in(alice.ring))
    unlinked = closing(user, previous=random_bytes(32))
    delete_user(user, deletion(user, unlinked)).expect(422, "rejected")
    delete_user(user, deletion(user, closing(user, time=1))).expect(422, "clock")
    delete_user(user).expect(500, "internal")  # this one follows, so the whole chain is verified


def test_a_refused_log_in_uses_up_its_nonce_of_a_known_user_and_of_an_unknown_one(
    broker: BrokerProcess, stranger: Wire
) -> None:
    """Otherwise one nonce would serve for any number of attempts, or tell which users exist."""
    mine, known = broker.new_user(), broker.new_user()
    for victim in (known, KeyRing.generate()):
        nonce = stranger.nonce()
        for request in (forged(stranger, victim, nonce), stranger.log_in_request(mine, nonce)):
            stranger.call("POST", "/v1/sessions", request).expect(401, "challenge")
    stranger.log_in(mine)


def test_a_stranger_whose_log_ins_are_refused_makes_the_broker_write_nothing(
    broker: BrokerProcess, stranger: Wire
) -> None:
    victim, before = broker.new_user(), count_rows(broker.database_url, "nonces")
    for ring in (victim, KeyRing.generate(), victim):
        stranger.call("POST", "/v1/sessions", forged(stranger, ring)).expect(401, "challenge")
    assert count_rows(broker.database_url, "nonces") == before
