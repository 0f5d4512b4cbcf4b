"""Attacks by a thief of a broker's key that was rotated since.

Numbers and names are those of `catalogue`.
"""

from dataclasses import dataclass

import pytest

from scbroker.crypto.at_rest import open_stored, seal_stored
from scbroker.crypto.seal import random_bytes
from scbroker.crypto.verify import keyed_hash
from scbroker.errors import IntegrityError
from scbroker.keys import KeyRing
from scbroker.server.keys import KEY_FILE, VERIFIER
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.test_data_at_rest import stolen
from tests.kit.brokers import BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.operators import rotate_to_the_end
from tests.kit.tables import query

STORED = "SELECT key_file, verifier FROM key_files WHERE user_id = ?"


@dataclass
class Theft:
    """A thief has the old key, and a copy of the database from before the rotation."""

    broker: BrokerProcess
    old: bytes
    before: bytes
    """The KeyFile as the copy has it."""
    ring: KeyRing
    auth: bytes
    key_file: bytes

    @property
    def user(self) -> bytes:
        return self.ring.userId.bytes

    @property
    def new(self) -> bytes:
        return (self.broker.directory / "broker.key").read_bytes()


@pytest.fixture
def theft(start_broker: StartBroker) -> Theft:
    """The broker was restarted since: a running one forgets the old key after two minutes."""
    broker = start_broker(trusted_proxies="127.0.0.1", guesses=1)
    auth, key_file = random_bytes(32), random_bytes(500)
    ring = broker.new_user(auth, key_file)
    old = (broker.directory / "broker.key").read_bytes()
    [(before, _)] = query(broker.database_url, STORED, ring.userId.bytes)
    rotate_to_the_end(broker)
    broker.restart()
    return Theft(broker, old, before, ring, auth, key_file)


@pytest.mark.long
@attack(109, "rotated broker's key")
def test_nothing_in_the_database_after_a_rotation_opens_or_tests_a_guess_under_the_old_key(
    theft: Theft,
) -> None:
    """The thief is given even the right proof of the passphrase: nothing stored can be compared with it."""
    verifier = keyed_hash(theft.old, "verifier", theft.user, theft.auth)
    data = stolen(theft.broker)
    [(key_file, sealed)] = query(theft.broker.database_url, STORED, theft.user)
    assert any(key_file in each for each in data)  # it is searched
    if theft.broker.engine == "sqlite":
        assert not any(theft.before in each for each in data)
    for secret in (verifier, theft.auth, theft.key_file, theft.old, theft.new):
        assert not any(secret in each for each in data)
    for name, stored in ((KEY_FILE, key_file), (VERIFIER, sealed)):
        open_stored(theft.new, name, theft.user, stored)
        with pytest.raises(IntegrityError):
            open_stored(theft.old, name, theft.user, stored)


@pytest.mark.long
@attack(109, "rotated broker's key")
def test_a_nonce_that_a_thief_of_the_old_key_makes_is_refused(theft: Theft) -> None:
    fresh = random_bytes(16) + (clock() + 10**8).to_bytes(8, "big")
    with Wire(theft.broker) as wire:
        for key, status in ((theft.old, 401), (theft.new, 201)):
            nonce = fresh + keyed_hash(key, "nonce", fresh)[:24]
            request = wire.log_in_request(theft.ring, nonce)
            wire.call("POST", "/v1/sessions", request).expect(status)


@pytest.mark.long
@attack(109, "rotated broker's key")
def test_a_proof_that_a_thief_of_the_old_key_writes_into_the_database_releases_no_key_file(
    theft: Theft,
) -> None:
    """The broker would open the KeyFile for whoever proves what is stored."""
    own = random_bytes(32)
    verifier = keyed_hash(theft.old, "verifier", theft.user, own)
    for planted in (verifier, seal_stored(theft.old, VERIFIER, theft.user, verifier)):
        statement = "UPDATE key_files SET verifier = ? WHERE user_id = ?"
        query(theft.broker.database_url, statement, planted, theft.user)
        theft.broker.restart(guesses=10)
        with Wire(theft.broker) as wire:
            wire.open_key_file(theft.ring.userId, own).expect(401, "credentials")


@pytest.mark.long
@attack(109, "rotated broker's key")
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_proof_that_a_thief_of_the_old_key_writes_before_the_next_rotation_is_not_taken_into_it(
    theft: Theft,
) -> None:
    own = random_bytes(32)
    planted = keyed_hash(theft.old, "verifier", theft.user, own)
    query(theft.broker.database_url, "UPDATE key_files SET verifier = ?", planted)
    rotate_to_the_end(theft.broker)
    with Wire(theft.broker) as wire:
        wire.open_key_file(theft.ring.userId, own).expect(401, "credentials")


@pytest.mark.long
@attack(109, "rotated broker's key")
def test_a_copy_from_before_the_rotation_opens_under_the_old_key_and_is_the_limit(
    theft: Theft,
) -> None:
    assert open_stored(theft.old, KEY_FILE, theft.user, theft.before) == theft.key_file
