"""Attacks with an older KeyFile: served again, or opened by a thief who learned its passphrase.

Numbers and names are those of `catalogue`. What an old KeyFile opens cannot be taken back; what comes
after a rotation is out of its reach.
"""

import pytest

from scbroker import BrokerError, KeyRing, KeyType
from scbroker.crypto.verify import sha256
from scbroker.keys import seal_key_file
from scbroker.records.container_record import parse_entry, parse_record, wrap_info
from scbroker.wire.users import Session
from tests.hostile_broker.accomplices import WRITES, Mallory, fresh_and_marked, level
from tests.hostile_broker.accounts import (
    NEW_PASSPHRASE,
    NEW_PASSWORD,
    PASSPHRASE,
    PASSWORD,
    STATE,
    account,
    serving,
    turned_down,
)
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, FORK, INTEGRITY, ROLLBACK
from tests.hostile_broker.served import governing_of, instead, opened, wrap_of, wrapped_key
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import User, chain_of

pytestmark = pytest.mark.usefixtures("derivations")


@attack(29, "KeyFile rolled back")
def test_nothing_is_stored_in_the_place_of_an_old_key_file_that_the_broker_names(
    mallory: Mallory,
) -> None:
    alice, device = account(mallory, "changed"), mallory.device()
    device.logIn(alice.user, passphrase=NEW_PASSPHRASE).result(PATIENCE)
    other = seal_key_file(alice.ring_now, PASSWORD, alice.keys)
    for key_file, generation, error in (
        (alice.key_file, 1, ROLLBACK),
        (None, 1, ROLLBACK),
        (other, 2, FORK),
    ):
        digest = None if key_file is None else sha256(key_file)
        with (
            mallory.lying(STATE, instead(hash=digest, generation=generation)),
            mallory.refused(device, error) as attempt,
        ):
            attempt(device.needToSyncAccount(alice.user, alice.key_file_now))
            attempt(device.changeCredentials(PASSWORD, PASSPHRASE))
            attempt(device.createOrUpdateKeyFile(alice.key_file_now, NEW_PASSWORD, NEW_PASSPHRASE))
    with serving(mallory, other):
        turned_down(mallory, device, FORK, lambda: device.getKeyFile(PASSPHRASE))


@attack(29, "KeyFile rolled back")
def test_an_old_key_file_on_a_fresh_device_is_the_limit_unless_keys_were_added_since(
    mallory: Mallory,
) -> None:
    """Without a mark only the published keys tell, and a mere change of secrets adds none."""
    alice = account(mallory, "changed")
    with serving(mallory, alice.key_file):
        assert mallory.device().logIn(alice.user, passphrase=PASSPHRASE).result(PATIENCE)
    alice = account(mallory, "rotated")
    fresh, count = mallory.device(), len(mallory.heard)
    token = mallory.accomplice(alice.ring_now).wire.token  # the real one refuses a retired key
    given = Session(token=str(token), expiresAt=clock() + 10**10, devicePass=bytes(48))
    with (
        serving(mallory, alice.key_file),
        mallory.answering("POST /v1/sessions", given, 201),
        pytest.raises(ROLLBACK, match="older than the user's published keys"),
    ):
        fresh.logIn(alice.user, passphrase=PASSPHRASE).result(PATIENCE)
    assert mallory.since(count)[-1] == "POST /v1/key-records"
    with pytest.raises(BrokerError.notAuthenticatedError):
        fresh.getUserId().result(PATIENCE)
    assert fresh.logIn(alice.user, passphrase=NEW_PASSPHRASE).result(PATIENCE)


@attack(30, "old KeyFile with its passphrase")
def test_after_a_rotation_an_old_key_file_opens_what_was_wrapped_before_as_the_limit_and_no_new_wrap(
    mallory: Mallory,
) -> None:
    alice, story = account(mallory, "rotated"), account(mallory, "rotated").stories[0]
    ring = KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE)
    thief, owner = User(ring, alice.alice.wire), User(alice.ring_now, alice.alice.wire)
    before = story.requests[-1]
    assert opened(before, wrapped_key(before, thief)) == b"content"
    with pytest.raises(BrokerError.credentialsError):
        mallory.device().logIn(keyRing=ring, userId=alice.user).result(PATIENCE)
    bob, both = mallory.device_of(alice.bob), [level(alice.alice), level(alice.bob)]
    for write in (
        lambda: bob.createContainer(b"new", accessLevels=both),
        lambda: bob.updateContainerAccessLevels(story.uuid, both),
        lambda: mallory.device(alice.ring_now).createContainer(b"own"),
    ):
        write().result(PATIENCE)
        sent = mallory.sent_record()
        entries = [parse_entry(item.entry) for item in sent.accessList or ()]
        assert [entry.keyIndex for entry in entries if entry.fingerprint == owner.name] == [1]
        assert wrapped_key(sent, owner, 1)
        container = parse_record(sent.record.body).containerId
        for index in (0, 1):
            info = wrap_info(container, governing_of(sent), thief.name, index)
            with pytest.raises(DECRYPTION):
                ring.encryption[0].unwrap(wrap_of(sent, thief), info)


@pytest.mark.sampled
@attack(30, "old KeyFile with its passphrase")
@fresh_and_marked
def test_no_record_of_a_retired_key_is_taken_from_its_retirement_on_and_backdating_is_the_limit(
    mallory: Mallory, marked: bool
) -> None:
    """A retirement is dated minutes ahead, so that at first the broker need not even backdate (ids.md, 4).

    A broker that is honest takes neither, whatever the date: from the retirement on the key is refused.
    """
    alice = account(mallory, "rotated")
    story, owner = alice.stories[1 + marked], mallory.accomplice(alice.ring_now)
    thief = User(KeyRing.open(alice.key_file, alice.user, passphrase=PASSPHRASE), owner.wire)
    retired = chain_of(owner).of_type(KeyType.Signing)[0].retired
    assert retired is not None
    device = mallory.victim(alice.bob, story, marked=marked)
    late = story.follow(thief, content=b"late", time=retired)
    early = story.follow(thief, content=b"backdated", time=retired - 1)
    for request in (late, early):
        story.send(owner, request).expect(422, "rejected")
    mallory.plant(story.twin(), late)
    mallory.check_refused(device, story, INTEGRITY, "getContainer", *WRITES)
    mallory.plant(story.twin(), early)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"backdated"
