"""Attacks by a thief of an encryption key that its user has replaced, with a broker that helps.

Attack 63 of `catalogue`. The thief has every key and every record of the time before, and all that the broker
has; what is written from then on has to stay closed.
"""

from typing import Any

import pytest

from scbroker.records.container_record import parse_entry, parse_record
from scbroker.vocabulary import KeyType
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import Mallory, level
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY, RECORD, VIEW
from tests.hostile_broker.served import instead, opened, wrapped_key
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, WRITER, Grant, Grants, Story, User, rotate

SECRETS = "A password 1", "A passphrase 1"
NEW_SECRETS = "A password 2", "A passphrase 2"


def check_closed_to(thief: User, request: RecordRequest, old_key: bytes) -> None:
    """What this record brought opens neither with the old container key nor with the thief's."""
    with pytest.raises(DECRYPTION):
        opened(request, old_key)
    indices = {
        entry.fingerprint: entry.keyIndex
        for entry in (parse_entry(item.entry) for item in request.accessList or ())
    }
    assert indices[thief.name] == 1
    with pytest.raises(DECRYPTION):
        wrapped_key(request, thief)


@pytest.mark.sampled
@attack(63, "wrap for a replaced key")
@pytest.mark.parametrize("field", ["content", "header"])
def test_what_is_written_after_a_change_of_keys_opens_by_none_of_the_keys_before(
    mallory: Mallory, bob: User, field: str
) -> None:
    """Bob has Upload alone, and his device has not heard of the change before."""
    device = mallory.device()
    device.register(*SECRETS).result(PATIENCE)
    thief = mallory.accomplice(device.getKeyRing().result(PATIENCE))
    his = mallory.device_of(bob, thief)
    levels = [level(thief), level(bob, WRITER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    old_key = wrapped_key(mallory.sent_record(), thief)
    his.getContainer(made.id).result(PATIENCE)
    device.changeCredentials(*NEW_SECRETS, compromised=True).result(PATIENCE)
    if field == "content":
        his.updateContainerContent(made.id, b"secret").result(PATIENCE)
        check_closed_to(thief, mallory.sent_record(), old_key)
    else:
        his.updateContainerHeader(made.id, "secret").result(PATIENCE)
        assert parse_record(mallory.sent_record().record.body).changes_access
    assert device.getContainer(made.id).result(PATIENCE).access == made.access
    count = len(mallory.heard)
    his.updateContainerContent(made.id, b"secret again").result(PATIENCE)
    assert mallory.sent_record().accessList is None, "one renewal is enough"
    assert mallory.since(count) == [VIEW, RECORD], "and no keys are looked up"


@attack(63, "wrap for a replaced key")
def test_a_device_that_knows_the_new_key_renews_whatever_the_broker_says(
    mallory: Mallory, alice: User, bob: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    his = mallory.device_of(bob, alice)
    rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)
    his.getPublicKeys(alice.ring.userId).result(PATIENCE)
    count = len(mallory.heard)
    with mallory.lying(VIEW, instead(recipients=[])):
        his.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert mallory.since(count).count(RECORD) == 1
    check_closed_to(alice, mallory.sent_record(), story.key)


@attack(63, "wrap for a replaced key")
def test_the_broker_takes_nothing_new_under_a_key_that_is_wrapped_to_a_replaced_one(
    mallory: Mallory, alice: User, bob: User
) -> None:
    """A member with Upload alone may renew for this reason; a record that seals nothing new is taken."""
    story = Story(alice).created({alice: OWNER, bob: WRITER}, header=b"{}")
    story.tell(bob, story.follow(bob, content=b"before"))
    alices = rotate(mallory.behind.database_url, alice, (KeyType.Encryption, 0), encryption=1)
    changes: list[dict[str, Any]] = [{"content": b"secret"}, {"header": b'"secret"'}]
    for change in changes:
        story.send(bob, story.follow(bob, **change)).expect(409, "stale-keys")
    stale: Grants = {alice: Grant(OWNER, key_index=0), bob: WRITER}
    story.send(bob, story.follow(bob, grants=stale)).expect(422, "rejected")
    story.tell(bob, story.follow(bob, content=None))
    moved = [(item.userId, item.sequence) for item in bob.view(story, "recipients=1").recipients]
    assert moved == [(alice.id, 3)]
    story.tell(bob, story.follow(bob, grants={alices: OWNER, bob: WRITER}, content=b"secret"))
    assert bob.view(story, "recipients=1").recipients == []
    story.send(bob, story.follow(bob, grants={alices: OWNER, bob: WRITER})).expect(422, "rejected")


@pytest.mark.sampled
@attack(63, "wrap for a replaced key")
@pytest.mark.parametrize("index", [1, 255])
def test_a_list_that_names_a_key_which_does_not_exist_is_refused_by_who_knows_its_user(
    mallory: Mallory, index: int, alice: User, bob: User, carol: User
) -> None:
    """Bob, with Upload alone, and the broker would make a reason to renew, and shut Alice out."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: WRITER})
    fresh, marked, hers = (mallory.device_of(user, alice, bob) for user in (carol, carol, alice))
    for device in (marked, hers):
        device.getContainerMetadata(story.uuid).result(PATIENCE)
    grants: Grants = {alice: Grant(OWNER, key_index=index), bob: WRITER, carol: WRITER}
    mallory.force(story, bob, story.follow(bob, grants=grants), 409, "stale-keys")
    for device in (fresh, marked, hers):
        mallory.check_refused(device, story, INTEGRITY)
    everybody = [level(alice), level(bob, WRITER), level(carol, WRITER)]
    hers.updateContainer(story.uuid, b"anew", None, everybody, None).result(PATIENCE)
    for device in (fresh, marked, hers):
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"anew"
