"""Attacks by members on who may do what, with a broker that stores whatever they sign.

Numbers and names are those of `catalogue`. What a user signs is refused by an honest broker first; then
it is put in place behind the broker's back, and the victims' programs refuse it as well.
"""

import functools
from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.records.container_record import Entry, parse_entry
from scbroker.wire.containers import ListView
from tests.hostile_broker.accomplices import (
    HOUR,
    MANAGER,
    NO_LIST,
    WRITES,
    Cast,
    Mallory,
    fresh_and_marked,
    level,
)
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY, VIEW
from tests.hostile_broker.served import content_of, entries_of, instead, relisted, with_list
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, User, rotate


def ghost(entries: list[Entry], who: Cast) -> list[Entry]:
    return [*entries, Entry(who.eve.name, 0, READER, None, bytes(32))]


def of_bobs(entries: list[Entry], who: Cast, **changes: Any) -> list[Entry]:
    return [replace(e, **changes) if e.fingerprint == who.bob.name else e for e in entries]


LISTS: dict[str, Callable[[list[Entry], Cast], list[Entry]]] = {
    "a ghost": ghost,
    "more rights": functools.partial(of_bobs, permissions=OWNER),
    "more time": functools.partial(of_bobs, expiresAt=None),
    "another fingerprint": lambda entries, who: of_bobs(entries, who, fingerprint=who.eve.name),
}


@pytest.mark.sampled
@attack(3, "ghost recipient")
@pytest.mark.parametrize("lie", LISTS)
@fresh_and_marked
def test_nobody_is_let_in_by_a_list_that_the_broker_changed_before_a_write(
    mallory: Mallory, marked: bool, lie: str, who: Cast
) -> None:
    """Carol's access has expired: Alice's next write makes a new key for all users in the list."""
    alice, bob = who.alice, who.bob
    end = clock() + HOUR
    grants: Grants = {
        alice: OWNER,
        bob: Grant(READER, end),
        who.carol: Grant(READER, clock() - MINUTE),
    }
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    device = mallory.victim(alice, story, marked=marked)

    def changed(shown: ListView) -> ListView:
        return relisted(LISTS[lie](entries_of(shown), who))

    def changed_under_its_hashes(shown: ListView) -> ListView:
        return replace(changed(shown), entryHashes=shown.entryHashes)

    for change in (changed, changed_under_its_hashes):
        with mallory.lying(VIEW, functools.partial(with_list, change=change)):
            mallory.check_refused(device, story, INTEGRITY, "getContainerMetadata", *WRITES)
            with mallory.refused(device, INTEGRITY) as attempt:
                attempt(device.updateContainerAccessLevels(story.uuid, [level(alice)]))
    device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    sent = [parse_entry(item.entry) for item in mallory.sent_record().accessList or ()]
    rights = {entry.fingerprint: (entry.permissions, entry.expiresAt) for entry in sent}
    assert rights == {alice.name: (OWNER, None), bob.name: (READER, end)}


@attack(8, "reader writes")
def test_a_reader_who_has_the_part_key_puts_no_other_bytes_in_a_part(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = mallory.device_of(alice)
    device.getContainer(story.uuid).result(PATIENCE)
    part, _ = story.parts[content_of(story.requests[0]).partId]
    forged = part.seal_segment(0, True, b"forgery")  # as long as what it replaces
    mallory.check_lie_refused(
        device, story, instead(content=forged), INTEGRITY, "getContainer", "getContainerContent"
    )


@attack(9, "self-escalation")
def test_no_member_moves_another_back_to_a_key_that_was_retired(mallory: Mallory) -> None:
    """Somebody has Alice's old encryption key; Bob, who may change access, wraps to it."""
    alice, bob = mallory.people(2)
    alice = rotate(mallory.behind.database_url, alice, encryption=1)
    story = Story(alice).created({alice: OWNER, bob: MANAGER})
    device = mallory.device_of(alice, bob)
    device.getContainer(story.uuid).result(PATIENCE)
    forged = story.follow(bob, grants={alice: Grant(OWNER, key_index=0), bob: MANAGER})
    mallory.force(story, bob, forged, 422, "rejected")
    mallory.check_refused(device, story, INTEGRITY)


@pytest.mark.sampled
@attack(9, "self-escalation")
@fresh_and_marked
def test_a_writer_does_not_make_an_owners_device_believe_that_the_owner_was_removed(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """The broker hides every entry but Bob's, so that a renewal looks as if it left out nobody."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST})
    devices = [mallory.victim(user, story, marked=marked) for user in (alice, carol)]
    lie = story.twin()
    mallory.plant(lie, lie.follow(bob, grants={bob: WRITER}))

    def only_bobs(shown: ListView) -> ListView:
        kept = [d for d in shown.disclosed if parse_entry(d.entry).fingerprint == bob.name]
        return replace(shown, disclosed=kept)

    with mallory.lying(VIEW, lambda view: with_list(view, only_bobs)):
        for device in devices:
            mallory.check_refused(device, story, INTEGRITY, "getContainerMetadata", *WRITES)
    mallory.take_back(story)
    for device in devices:
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"content"


@attack(9, "self-escalation")
def test_no_renewal_by_a_writer_keeps_an_owner_from_changing_access(mallory: Mallory) -> None:
    """Bob renews for an encryption key that Alice will never have, and no index may fall afterwards."""
    alice, bob, carol = mallory.people(3)
    grants: Grants = {alice: OWNER, bob: WRITER, carol: Grant(READER, clock() - MINUTE)}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    device = mallory.device_of(alice, bob)
    forged = story.follow(bob, grants={alice: Grant(OWNER, key_index=255), bob: WRITER})
    mallory.force(story, bob, forged, 409, "stale-keys")
    refusals = []
    try:
        device.updateContainer(
            story.uuid,
            content=b"anew",
            customHeaderObject=None,
            accessLevels=[level(alice)],
            type=None,
        ).result(PATIENCE)
    except BrokerError as error:
        refusals.append(error)
    assert refusals == [], "by her own record the index falls again"


@pytest.mark.sampled
@attack(10, "re-attribution")
@fresh_and_marked
def test_nobody_opens_the_owners_ciphertext_as_somebody_elses(
    mallory: Mallory, marked: bool, alice: User, bob: User, carol: User
) -> None:
    """Bob, who has every key, claims a part of Alice's: a fresh device does not know what it was before."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER}, header=b"1")
    story.tell(alice, story.follow(alice, content=b"Alice's own words"))
    story.tell(alice, story.follow(alice, header=b"2"))
    device = mallory.victim(carol, story, marked=marked)
    hers = content_of(story.requests[-1])
    part, length = story.parts[hers.partId]
    claimed = with_fields(part, author=bob.name).finish(story.key, length, b"")
    claimed = replace(claimed, segments=hers.segments)
    forged = story.altered(bob, story.follow(bob, header=None), content=claimed)
    mallory.force(story, bob, forged, 422, "rejected")
    if not marked:  # the chain itself is right, as far as it can be seen
        device.getContainerMetadata(story.uuid).result(PATIENCE)
    mallory.check_refused(
        device, story, INTEGRITY if marked else DECRYPTION, "getContainer", "getContainerContent"
    )


@attack(10, "re-attribution")
def test_a_ciphertext_does_not_open_in_a_container_of_somebody_elses(mallory: Mallory) -> None:
    """Bob begins a container with Alice's sealed bytes in it; the broker cannot tell."""
    alice, bob, carol = mallory.people(3)
    hers = Story(alice)
    request = hers.begin({alice: OWNER, bob: READER}, content=b"Alice's own words")
    hers.tell(alice, request)
    part = content_of(request)
    new, length = hers.parts[part.partId]
    his = Story(bob)
    claimed = with_fields(new, container_id=his.id, author=bob.name, part_id=bytes(16))
    claim = replace(claimed.finish(his.key, length, b""), segments=part.segments)
    begun_by_bob = his.altered(bob, his.begin({bob: OWNER, carol: READER}), content=claim)
    his.tell(bob, replace(begun_by_bob, content=request.content))
    device = mallory.device_of(carol, bob)
    device.getContainerMetadata(his.uuid).result(PATIENCE)
    mallory.check_refused(device, his, DECRYPTION, "getContainer", "getContainerContent")
