"""Attacks by who has left a container, or whose access has ended, with a broker that helps them.

Attacks 13 and 14 of `catalogue`. A device that saw the revocation refuses what is built on anything
older; and who left opens nothing that was written later, wherever the bytes come from.
"""

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import pytest

from scbroker import BrokerError
from scbroker.client.core.sealing import OpenPart
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Role, parse_entry, parse_record, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.hostile_broker.accomplices import NO_LIST, WRITES, Mallory, level
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY, RECORD, ROLLBACK
from tests.hostile_broker.served import content_of, governing_of, opened, wrapped_key
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, User

PLACES: dict[str, tuple[Callable[[Story], dict[str, Any]], type[BrokerError]]] = {
    "after what came later": (
        lambda story: {"version": 4, "parent": story.hash(story.records[2])},
        INTEGRITY,
    ),
    "beside what came later": (
        lambda story: {"version": 3, "parent": story.hash(story.records[1])},
        INTEGRITY,
    ),
    "beside the revocation": (lambda _: {}, ROLLBACK),
}


@pytest.mark.long
@attack(13, "revocation bypassed")
@pytest.mark.parametrize("place", PLACES)
def test_who_saw_the_revocation_takes_no_record_of_the_leavers_over_an_older_link(
    mallory: Mallory, place: str, alice: User, bob: User, carol: User
) -> None:
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST})
    what_bob_has = story.twin()
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: NO_LIST}))
    story.tell(alice, story.follow(alice, content=b"truth"))
    owner, reader = (mallory.restarted_device_of(u, story, bob) for u in (alice, carol))
    changes, error = PLACES[place]
    record = what_bob_has.follow(bob, content=b"forged")
    forged = what_bob_has.altered(bob, record, **changes(story))
    mallory.plant(story.twin(), forged)
    mallory.check_refused(owner, story, error, "getContainer", *WRITES)
    mallory.check_refused(reader, story, error)


@pytest.mark.long
@attack(13, "revocation bypassed")
def test_who_was_removed_opens_nothing_that_is_written_afterwards(mallory: Mallory) -> None:
    """Bob uses every key that he ever had, everything that the broker has, and his own program."""
    alice, bob, carol = mallory.people(3)
    device, his = mallory.device_of(alice), mallory.device_of(bob, alice)
    levels = [level(alice), level(bob, WRITER), level(carol, READER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    first = mallory.sent_record()
    old_key = wrapped_key(first, bob)
    assert his.getContainerContent(made.id).result(PATIENCE) == b"before"
    device.updateContainerAccessLevels(made.id, [levels[0], levels[2]]).result(PATIENCE)
    revocation = mallory.sent_record()
    device.updateContainerContent(made.id, b"secret").result(PATIENCE)
    written = mallory.sent_record()
    with pytest.raises(DECRYPTION):
        opened(written, old_key)
    governing = governing_of(revocation)
    for item in revocation.accessList or ():
        assert item.wrap is not None
        for name in (bob.name, parse_entry(item.entry).fingerprint):
            info = wrap_info(made.id.bytes, governing, name, 0)
            with pytest.raises(DECRYPTION):
                bob.ring.encryption[0].unwrap(item.wrap, info)
    for item in revocation.accessList or ():
        mallory.serve_also(made.id, bob, item.wrap)
        mallory.check_refused(his, made.id, INTEGRITY)


@pytest.mark.sampled
@attack(13, "revocation bypassed")
@pytest.mark.parametrize("left", ["not in the list", "without Decrypt", "expired"])
def test_who_chose_the_key_and_is_out_has_no_key_that_later_writes_use(
    mallory: Mallory, left: str, alice: User, bob: User
) -> None:
    entry = {
        "not in the list": {},
        "without Decrypt": {alice: Grant(Level.ViewType)},
        "expired": {alice: Grant(OWNER, clock() - MINUTE)},
    }[left]
    story = Story(alice).created({bob: WRITER, **entry}, time=clock() - 2 * MINUTE)
    story.send(bob, story.follow(bob, content=b"secret")).expect(422, "rejected")
    device = mallory.device_of(bob)
    for content in (b"secret", b"secret again"):
        device.updateContainerContent(story.uuid, content).result(PATIENCE)
        with pytest.raises(DECRYPTION):
            opened(mallory.sent_record(), story.key)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"secret again"


@attack(13, "revocation bypassed")
def test_a_write_that_is_tried_again_over_a_revocation_uses_nothing_that_the_leaver_has(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Carol removes Bob while Alice's record is on its way; Bob and the broker keep that record."""
    story = Story(carol).created({carol: OWNER, alice: WRITER, bob: READER})
    old_key, device = story.key, mallory.device_of(alice)
    device.getContainer(story.uuid).result(PATIENCE)
    sent: list[Any] = []

    def revoke(exchange: Exchange) -> None:
        sent.append(exchange.message)
        if len(sent) == 1:
            story.tell(carol, story.follow(carol, grants={carol: OWNER, alice: WRITER}))

    with mallory.meddling(RECORD, before=revoke):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    first, second = sent
    assert opened(first, old_key) == b"secret"  # it was written to Bob as well
    with pytest.raises(DECRYPTION):
        opened(second, old_key)
    before, after = map(content_of, sent)
    known = OpenPart.open(story.id, Role.Content, before, old_key)
    with pytest.raises(DECRYPTION):
        with_fields(known, part=after).open_segment(0, second.content, sha256(second.content))


@attack(14, "expired grant")
def test_from_the_next_write_on_who_has_expired_opens_and_writes_nothing(mallory: Mallory) -> None:
    alice, bob, carol = mallory.people(3)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE), carol: WRITER}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    his, hers = mallory.device_of(bob, alice, carol), mallory.device_of(alice, bob, carol)
    device = mallory.device_of(carol)
    device.updateContainerHeader(story.uuid, {"not": "even content"}).result(PATIENCE)
    renewal = mallory.sent_record()
    part = parse_record(renewal.record.body).header
    assert part is not None
    with pytest.raises(DECRYPTION):
        OpenPart.open(story.id, Role.Header, part, story.key)
    hers.getContainer(story.uuid).result(PATIENCE)
    assert len(renewal.accessList or ()) == 2
    for item in renewal.accessList or ():
        mallory.serve_also(story.uuid, bob, item.wrap)
        mallory.check_refused(his, story, INTEGRITY)
    record = story.altered(bob, story.follow(bob, content=b"forged"), version=3,
        parent=story.hash(parse_record(renewal.record.body)),
    )  # fmt: skip
    story.records.append(parse_record(renewal.record.body))
    mallory.plant(story, record)
    mallory.check_refused(hers, story, INTEGRITY)
