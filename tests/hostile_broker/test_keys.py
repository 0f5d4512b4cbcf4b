"""Attacks on public keys: whose they are, where they come from, and what a client does without them.

Numbers and names are those of `catalogue`. Whatever the broker answers, keys are verified from the user
id on, and nothing is wrapped or sent before they were.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError, FileTrustStore, KeyRing
from scbroker.client.users import directory
from scbroker.crypto.seal import DecryptionKey, wrap_key
from scbroker.crypto.verify import labelled_hash
from scbroker.records import canonical
from scbroker.records.canonical import encode_object, user_id_of
from scbroker.records.container_record import wrap_info
from scbroker.records.key_record import ACTIVE, KeyRecord, Signed, parse_key_record
from scbroker.records.key_record import LABEL as KEY_LABEL
from scbroker.vocabulary import KeyType
from tests.hostile_broker.accomplices import WRITES, Mallory, fresh_and_marked, level, records_of
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, FORK, INTEGRITY, ROLLBACK, SUBSTITUTION, VIEW
from tests.hostile_broker.served import governing_of, instead, wrapped_key
from tests.kit.brokers import clock
from tests.kit.tables import query
from tests.kit.waiting import PATIENCE
from tests.kit.writers import (
    OWNER,
    Step,
    Story,
    User,
    chain_of,
    delete_user,
    deletion,
    key_records,
    rotate,
)


def forged_key(of: User, by: User) -> Signed:
    """Another user's encryption key as if it were the next one of this user's."""
    chain = chain_of(of)
    record = KeyRecord(
        of.name, len(chain.records), KeyType.Encryption, 1, by.ring.encryption[0].public, ACTIVE,
        clock(), chain.hashes[-1],
    )  # fmt: skip
    body = encode_object(record)
    return Signed(body, by.ring.signing[0].sign(KEY_LABEL, body))


@attack(1, "public-key substitution")
def test_keys_of_somebody_else_are_refused_at_the_first_contact_and_nothing_is_wrapped(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    device = mallory.device_of(alice)
    mine, both = device.createContainer(b"mine").result(PATIENCE), [level(alice), level(bob)]
    hers = records_of(eve)
    mallory.check_keys_refused(device, bob, hers, SUBSTITUTION)
    with mallory.serving_keys(bob, hers), mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(device.createContainer(b"secret", accessLevels=both))
        attempt(device.updateContainerAccessLevels(mine.id, both))
    assert wrapped_key(mallory.sent_record(), alice)
    assert len(mallory.sent_record().accessList or ()) == 1


@attack(1, "public-key substitution")
def test_no_large_content_is_uploaded_for_a_recipient_whose_keys_are_somebody_elses(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    device, both, hers = mallory.device_of(alice), [level(alice), level(bob)], records_of(eve)
    with mallory.serving_keys(bob, hers), mallory.refused(device, SUBSTITUTION) as attempt:
        attempt(device.createContainer(bytes(70_000), accessLevels=both))


@attack(1, "public-key substitution")
def test_keys_that_change_after_the_first_contact_are_refused_also_after_a_restart(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    known, both, store = records_of(bob), [level(alice), level(bob)], mallory.new_store()
    device = mallory.device_of(alice, bob, store=store)
    mine = device.createContainer(b"mine").result(PATIENCE)
    for served, error in (
        ([*known, forged_key(bob, eve)], INTEGRITY),
        (records_of(eve), SUBSTITUTION),
        ([known[0], records_of(eve)[1]], INTEGRITY),
    ):
        fresh = mallory.device(alice.ring, FileTrustStore(store.directory))
        with mallory.serving_keys(bob, served), mallory.refused(fresh, error) as attempt:
            attempt(fresh.createContainer(b"secret", accessLevels=both))
            attempt(fresh.updateContainerAccessLevels(mine.id, both))
    with (
        mallory.serving_keys(bob, [forged_key(bob, eve)], again=True),
        mallory.refused(device, INTEGRITY) as attempt,
    ):
        attempt(device.createContainer(b"secret", accessLevels=both))


@attack(1, "public-key substitution")
def test_who_saw_a_key_retired_is_not_brought_to_use_it_again(
    mallory: Mallory, alice: User, bob: User
) -> None:
    before = records_of(bob)
    bob = rotate(mallory.behind.database_url, bob, (KeyType.Encryption, 0), encryption=1)
    device = mallory.restarted(mallory.device_of(alice, bob, store=mallory.new_store()))
    mallory.check_keys_refused(device, bob, before, ROLLBACK)


def by_the_broker(alice: User, eve: User, nonce: bytes) -> tuple[Story, Any]:
    twin = Story(alice, nonce=nonce)
    return twin, twin.begin({eve: OWNER, alice: OWNER}, author=eve, content=b"forged")


def in_the_victims_name(alice: User, eve: User, nonce: bytes) -> tuple[Story, Any]:
    twin = Story(alice, nonce=nonce)
    return twin, twin.altered(eve, twin.begin({alice: OWNER}, content=b"forged"))


@pytest.mark.sampled
@attack(2, "container overwritten under the broker's key")
@pytest.mark.parametrize("forge", [by_the_broker, in_the_victims_name], ids=lambda f: f.__name__)
@fresh_and_marked
def test_a_container_under_the_brokers_key_is_neither_read_nor_written_to(
    mallory: Mallory, forge: Callable[..., Any], marked: bool, alice: User, eve: User
) -> None:
    story = Story(alice).created({alice: OWNER})
    device = mallory.restarted_device_of(alice, story) if marked else mallory.device_of(alice, eve)
    mallory.plant(*forge(alice, eve, story.nonce))
    error = FORK if marked else INTEGRITY
    mallory.check_refused(device, story, error, "getContainer", *WRITES)


@attack(2, "container overwritten under the broker's key")
def test_a_wrap_of_the_brokers_key_is_not_opened_and_nothing_is_sealed_under_it(
    mallory: Mallory, alice: User
) -> None:
    story = Story(alice).created({alice: OWNER})
    device = mallory.device_of(alice)
    device.getContainer(story.uuid).result(PATIENCE)
    info = wrap_info(story.id, governing_of(story.requests[0]), alice.name, 0)
    theirs = wrap_key(alice.ring.encryption[0].public, info, bytes(32))
    with mallory.lying(VIEW, instead(wrap=theirs)):
        mallory.check_refused(device, story, INTEGRITY, "getContainer")
        mallory.check_refused(device, story, DECRYPTION, *WRITES[:2])


@attack(5, "own keys replaced")
def test_a_thief_who_adds_keys_to_an_account_does_not_go_unnoticed_at_the_next_log_in(
    mallory: Mallory, alice: User
) -> None:
    """Signing key 0 was stolen: the account is lost, and its owner is told so instead of joined."""
    theirs, owns = (
        KeyRing(2, alice.ring.signing, (*alice.ring.encryption, DecryptionKey.generate()))
        for _ in range(2)
    )
    added = key_records(theirs, chain_of(alice), Step(KeyType.Encryption, 1))
    with mallory.serving_keys(alice, [*records_of(alice), *added]):
        for ring, error in ((alice.ring, ROLLBACK), (owns, SUBSTITUTION)):
            device = mallory.device()
            with pytest.raises(error):
                device.logIn(keyRing=ring, userId=ring.userId).result(PATIENCE)
            with pytest.raises(BrokerError.notAuthenticatedError):
                device.createContainer(b"secret").result(PATIENCE)


@attack(6, "user id taken again")
def test_nobody_registers_other_keys_under_an_id_that_is_known_or_was_deleted(
    mallory: Mallory, bob: User, eve: User
) -> None:
    own, others = records_of(bob), eve.ring.first_records(clock())
    claimed: list[Signed] = []
    for record in others:  # all of it Eve's but the name
        previous = labelled_hash(KEY_LABEL, claimed[0].body) if claimed else None
        theirs = replace(parse_key_record(record), fingerprint=bob.name, previous=previous)
        body = encode_object(theirs)
        claimed.append(Signed(body, eve.ring.signing[0].sign(KEY_LABEL, body)))
    mallory.register(*claimed).expect(422, "rejected")
    mallory.register(own[0], others[1]).expect(422, "rejected")
    again = KeyRing(1, bob.ring.signing, (DecryptionKey.generate(),))
    mallory.register(*again.first_records(clock())).expect(409, "exists")
    delete_user(bob).expect(204)
    mallory.register(*again.first_records(clock())).expect(409, "exists")
    mallory.register(*own).expect(409, "exists")


@attack(6, "user id taken again")
def test_a_user_who_was_deleted_gets_no_key_any_more_of_a_device_that_has_seen_it(
    mallory: Mallory, tmp_path: Path, alice: User, bob: User
) -> None:
    """The broker hides the record that closed the chain, or Bob, in league with it, signs another key."""
    Story(bob).created({bob: OWNER, alice: OWNER})  # so that his keys are still needed
    leaving = deletion(bob)
    delete_user(bob, leaving).expect(204)
    with mallory.device_of(alice, store=FileTrustStore(tmp_path)) as before:
        assert not any(k.active for k in before.getPublicKeys(bob.ring.userId).result(PATIENCE))
    url, his = mallory.behind.database_url, bob.ring.userId.bytes
    forged = KeyRecord(
        bob.name, 3, KeyType.Encryption, 1, DecryptionKey.generate().public, ACTIVE, clock(),
        leaving.digest,
    )  # fmt: skip
    body = encode_object(forged)
    later = (body, bob.ring.signing[0].sign(KEY_LABEL, body))
    for length, statement, values, error in (
        (4, "INSERT INTO key_records (body, signature, user_id, sequence) VALUES (?, ?, ?, 3)",
         (*later, his), INTEGRITY),
        (2, "DELETE FROM key_records WHERE user_id = ? AND sequence > 1", (his,),
         ROLLBACK),
    ):  # fmt: skip
        query(url, statement, *values)
        lie = "UPDATE users SET deleted = false, chain_length = ? WHERE id = ?"
        query(url, lie, length, his)
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
        with mallory.refused(device, error) as attempt:
            attempt(device.getPublicKeys(bob.ring.userId))
            attempt(device.createContainer(b"secret", accessLevels=[level(alice), level(bob)]))
        device.close()


@attack(6, "user id taken again")
def test_even_two_keys_of_one_user_id_are_told_apart_by_the_pin_and_the_mark(
    mallory: Mallory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch makes a collision, which takes 2^61 work: Eve's first key gives Bob's user id as well."""
    alice, bob, eve = mallory.people(3)
    with mallory.device_of(alice, bob, store=FileTrustStore(tmp_path)):
        pass
    again = KeyRing(1, bob.ring.signing, (DecryptionKey.generate(),))
    for module in (directory, canonical):
        decreed = {eve.name: bob.ring.userId}
        monkeypatch.setattr(
            module, "user_id_of", lambda name, d=decreed: d.get(name) or user_id_of(name)
        )
    for served, error in ((records_of(eve), SUBSTITUTION), (again.first_records(clock()), FORK)):
        device = mallory.device(alice.ring, FileTrustStore(tmp_path))
        mallory.check_keys_refused(device, bob, served, error)
