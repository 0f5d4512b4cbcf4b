"""Attacks by members on who may do what, with a broker that stores whatever they sign.

Numbers and names are those of `catalogue`. What a user signs is refused by an honest broker first; then
it is put in place behind the broker's back, and the victims' programs refuse it as well.
"""

import functools
from collections.abc import Callable
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.records.container_record import Entry, parse_entry
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import ListView, RecordRequest
from tests.hostile_broker.accomplices import (
    HOUR,
    MANAGER,
    VIEW,
    Cast,
    altered,
    begun,
    cast,
    device_of,
    entries_of,
    fresh_and_marked,
    id_of,
    level,
    people,
    plant,
    relisted,
    sent_record,
    take,
    take_back,
    twin,
    victim,
    with_list,
)
from tests.hostile_broker.broker import PATIENCE, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.brokers import clock
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, rotate

DECRYPTION = BrokerError.decryptionError
INTEGRITY = BrokerError.integrityError
NO_LIST = Level.Download | Level.Decrypt


# 3


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


@attack(3, "ghost recipient")
@pytest.mark.parametrize("lie", LISTS)
@fresh_and_marked
def test_nobody_is_let_in_by_a_list_that_the_broker_changed_before_a_write(
    mallory: HostileBroker, tmp_path: Path, marked: bool, lie: str
) -> None:
    """Carol's access has expired: Alice's next write makes a new key for whoever is in the list."""
    who = cast(mallory)
    alice, bob = who.alice, who.bob
    end = clock() + HOUR
    grants: Grants = {
        alice: OWNER,
        bob: Grant(READER, end),
        who.carol: Grant(READER, clock() - MINUTE),
    }
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    device = victim(mallory, alice, story, tmp_path, marked=marked)

    def changed(shown: ListView) -> ListView:
        return relisted(LISTS[lie](entries_of(shown), who))

    def changed_under_its_hashes(shown: ListView) -> ListView:
        return replace(changed(shown), entryHashes=shown.entryHashes)

    for change in (changed, changed_under_its_hashes):
        with (
            mallory.lying(VIEW, functools.partial(with_list, change=change)),
            refused(mallory, device, INTEGRITY) as attempt,
        ):
            attempt(device.getContainerMetadata(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"secret"))
            attempt(device.updateContainerAccessLevels(id_of(story), [level(alice)]))
    device.updateContainerContent(id_of(story), b"secret").result(PATIENCE)
    sent = [parse_entry(item.entry) for item in sent_record(mallory).accessList or ()]
    rights = {entry.fingerprint: (entry.permissions, entry.expiresAt) for entry in sent}
    assert rights == {alice.name: (OWNER, None), bob.name: (READER, end)}


# 8

FORGERIES: dict[str, Callable[[Story, Cast], RecordRequest]] = {
    "in their own name": lambda story, who: story.follow(who.bob, content=b"forged"),
    "in the owner's name": lambda story, who: altered(
        story, who.bob, story.follow(who.alice, content=b"forged")
    ),
    "a header": lambda story, who: story.follow(who.bob, header=b'"forged"'),
    "nothing": lambda story, who: story.follow(who.bob, content=None),
    "a tombstone": lambda story, who: story.follow(who.bob, tombstone=True),
}


@attack(8, "reader writes")
@pytest.mark.parametrize("forgery", FORGERIES)
@fresh_and_marked
def test_a_reader_who_has_the_container_key_replaces_and_deletes_nothing(
    mallory: HostileBroker, tmp_path: Path, marked: bool, forgery: str
) -> None:
    who = cast(mallory)
    story = Story(who.alice).created({who.alice: OWNER, who.bob: READER, who.carol: NO_LIST})
    story.tell(who.alice, story.follow(who.alice, content=b"truth"))
    owner, reader = (
        victim(mallory, user, story, tmp_path, marked=marked) for user in (who.alice, who.carol)
    )
    forged = FORGERIES[forgery](story, who)
    story.send(who.bob, forged).expect(403, "permission")
    plant(mallory, story, forged)
    with refused(mallory, owner, INTEGRITY) as attempt:
        attempt(owner.getContainer(id_of(story)))
        attempt(owner.updateContainerContent(id_of(story), b"secret"))
    with refused(mallory, reader, INTEGRITY) as attempt:
        attempt(reader.getContainer(id_of(story)))


@attack(8, "reader writes")
def test_a_reader_who_has_the_part_key_puts_no_other_bytes_in_a_part(
    mallory: HostileBroker,
) -> None:
    alice, bob = people(mallory, 2)
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = device_of(mallory, alice)
    device.getContainer(id_of(story)).result(PATIENCE)
    assert story.head.content is not None
    part, _ = story.parts[story.head.content.partId]
    forged = part.seal_segment(0, True, b"forgery")  # as long as what it replaces
    with (
        mallory.lying(VIEW, lambda view: replace(view, content=forged)),
        refused(mallory, device, INTEGRITY) as attempt,
    ):
        attempt(device.getContainer(id_of(story)))
        attempt(device.getContainerContent(id_of(story)))


# 9

ESCALATIONS: dict[str, tuple[int, Callable[[Cast], Grants]]] = {
    "a writer becomes a manager": (WRITER, lambda who: {who.alice: OWNER, who.bob: MANAGER}),
    "a writer shares": (WRITER, lambda who: {who.alice: OWNER, who.bob: WRITER, who.carol: READER}),
    "a writer takes the owner out": (WRITER, lambda who: {who.bob: WRITER}),
    "a writer renews without a reason": (WRITER, lambda who: {who.alice: OWNER, who.bob: WRITER}),
    "a manager takes one right more": (
        MANAGER,
        lambda who: {who.alice: OWNER, who.bob: MANAGER | Level.Delete},
    ),
    "a manager gives what they have not": (
        MANAGER,
        lambda who: {who.alice: OWNER, who.bob: MANAGER, who.carol: READER | Level.Delete},
    ),
    "a manager takes the owner out": (MANAGER, lambda who: {who.bob: MANAGER}),
    "a manager takes a right from the owner": (
        MANAGER,
        lambda who: {who.alice: OWNER & ~Level.Delete, who.bob: MANAGER},
    ),
}


@attack(9, "self-escalation")
@pytest.mark.parametrize("name", ESCALATIONS)
@fresh_and_marked
def test_nobody_gives_or_takes_what_they_do_not_hold(
    mallory: HostileBroker, tmp_path: Path, marked: bool, name: str
) -> None:
    who = cast(mallory)
    held, grants = ESCALATIONS[name]
    story = Story(who.alice).created({who.alice: OWNER, who.bob: held})
    device = victim(mallory, who.alice, story, tmp_path, marked=marked)
    forged = story.follow(who.bob, grants=grants(who))
    story.send(who.bob, forged).expect(422, "rejected")
    plant(mallory, story, forged)
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))
        attempt(device.updateContainerAccessLevels(id_of(story)))


@attack(9, "self-escalation")
@fresh_and_marked
def test_nobody_prolongs_access_beyond_the_end_of_their_own(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    alice, bob, carol, _ = cast(mallory)
    end = clock() + HOUR
    story = Story(alice).created({alice: OWNER, bob: Grant(MANAGER, end)})
    device = victim(mallory, alice, story, tmp_path, marked=marked)
    own = Grant(MANAGER, end)
    tries: list[Grants] = [
        {alice: OWNER, bob: Grant(MANAGER, end + HOUR)},
        {alice: OWNER, bob: MANAGER},
        {alice: OWNER, bob: own, carol: Grant(READER, end + HOUR)},
        {alice: OWNER, bob: own, carol: READER},
    ]
    for grants in tries:
        lie = twin(story)
        forged = lie.follow(bob, grants=grants)
        lie.send(bob, forged).expect(422, "rejected")
        plant(mallory, lie, forged)
        with refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"secret"))
        take_back(mallory, story)


@attack(9, "self-escalation")
def test_no_member_moves_another_back_to_a_key_that_was_retired(mallory: HostileBroker) -> None:
    """Somebody has Alice's old encryption key; Bob, who may change access, wraps to it."""
    alice, bob = people(mallory, 2)
    alice = rotate(mallory.behind.database_url, alice, encryption=1)
    story = Story(alice).created({alice: OWNER, bob: MANAGER})
    device = device_of(mallory, alice, bob)
    device.getContainer(id_of(story)).result(PATIENCE)
    forged = story.follow(bob, grants={alice: Grant(OWNER, key_index=0), bob: MANAGER})
    story.send(bob, forged).expect(422, "rejected")
    plant(mallory, story, forged)
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(9, "self-escalation")
@fresh_and_marked
def test_a_right_that_was_never_given_carries_no_later_record(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """Bob lets Eve in without the right to; all that follows is signed by who then has every right."""
    alice, bob, _, eve = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    device = victim(mallory, alice, story, tmp_path, marked=marked)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    plant(mallory, story, story.follow(bob, grants={alice: OWNER, bob: WRITER, eve: OWNER}))
    further: list[dict[str, Any]] = [
        {"content": b"forged"},
        {"grants": {alice: OWNER, eve: OWNER}},
        {"type": "forged"},
    ]
    for changes in further:
        plant(mallory, story, story.follow(eve, **changes))
        with refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(9, "self-escalation")
@fresh_and_marked
def test_a_writer_does_not_make_an_owners_device_believe_that_the_owner_was_removed(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """The broker hides every entry but Bob's, so that a renewal looks as if it left out nobody."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST})
    devices = [victim(mallory, user, story, tmp_path, marked=marked) for user in (alice, carol)]
    lie = twin(story)
    plant(mallory, lie, lie.follow(bob, grants={bob: WRITER}))

    def only_bobs(shown: ListView) -> ListView:
        kept = [d for d in shown.disclosed if parse_entry(d.entry).fingerprint == bob.name]
        return replace(shown, disclosed=kept)

    with mallory.lying(VIEW, lambda view: with_list(view, only_bobs)):
        for device in devices:
            with refused(mallory, device, INTEGRITY) as attempt:
                attempt(device.getContainer(id_of(story)))
                attempt(device.getContainerMetadata(id_of(story)))
                attempt(device.updateContainerContent(id_of(story), b"secret"))
    take_back(mallory, story)
    for device in devices:
        assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"content"


@attack(9, "self-escalation")
def test_who_else_is_in_the_list_is_the_limit_of_a_reader_who_does_not_see_it(
    mallory: HostileBroker,
) -> None:
    """For Carol, Bob and the broker take the owner out; whoever sees the list does not believe it."""
    alice, bob, carol, eve = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST, eve: READER})
    hers, eves = device_of(mallory, carol, alice, bob), device_of(mallory, eve, alice, bob)
    without_the_owner: Grants = {bob: WRITER, carol: NO_LIST, eve: READER}
    plant(mallory, story, story.follow(bob, grants=without_the_owner, content=b"Bob's"))
    found = hers.getContainer(id_of(story)).result(PATIENCE)
    assert (found.content, found.access, found.modifiedBy) == (b"Bob's", None, bob.ring.userId)
    with refused(mallory, eves, INTEGRITY) as attempt:
        attempt(eves.getContainer(id_of(story)))


@attack(9, "self-escalation")
def test_no_renewal_by_a_writer_keeps_an_owner_from_changing_access(mallory: HostileBroker) -> None:
    """Bob renews for an encryption key that Alice will never have, and no index may fall afterwards."""
    alice, bob, carol, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: WRITER, carol: Grant(READER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    device = device_of(mallory, alice, bob)
    forged = story.follow(bob, grants={alice: Grant(OWNER, key_index=255), bob: WRITER})
    story.send(bob, forged).expect(409, "stale-keys")
    plant(mallory, story, forged)
    refusals = []
    try:
        device.updateContainer(
            id_of(story),
            content=b"anew",
            customHeaderObject=None,
            accessLevels=[level(alice)],
            type=None,
        ).result(PATIENCE)
    except BrokerError as error:
        refusals.append(error)
    assert refusals == [], "by her own record the index falls again"


# 10


@attack(10, "re-attribution")
@fresh_and_marked
def test_nobody_opens_the_owners_ciphertext_as_somebody_elses(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """Bob, who has every key, claims a part of Alice's: a fresh device does not know what it was before."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER}, header=b"1")
    story.tell(alice, story.follow(alice, content=b"Alice's own words"))
    story.tell(alice, story.follow(alice, header=b"2"))
    device = victim(mallory, carol, story, tmp_path, marked=marked)
    hers = story.head.content
    assert hers is not None
    part, length = story.parts[hers.partId]
    claimed = with_fields(part, author=bob.name).finish(story.key, length, b"")
    claimed = replace(claimed, segments=hers.segments)
    forged = altered(story, bob, story.follow(bob, header=None), content=claimed)
    story.send(bob, forged).expect(422, "rejected")
    plant(mallory, story, forged)
    if not marked:  # the chain itself is right, as far as it can be seen
        device.getContainerMetadata(id_of(story)).result(PATIENCE)
    with refused(mallory, device, INTEGRITY if marked else DECRYPTION) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.getContainerContent(id_of(story)))


@attack(10, "re-attribution")
@fresh_and_marked
def test_a_record_whose_signature_was_stripped_is_nobody_elses(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """The broker withholds Alice's record, and Bob signs it: in her name, and in his own."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER})
    device = victim(mallory, carol, story, tmp_path, marked=marked)
    hers = story.follow(alice, content=b"Alice's own words")
    for forged in (altered(story, bob, hers), altered(story, bob, hers, author=bob.name)):
        lie = twin(story)
        plant(mallory, lie, forged)
        with refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.getContainerContent(id_of(story)))


@attack(10, "re-attribution")
def test_a_ciphertext_does_not_open_in_a_container_of_somebody_elses(
    mallory: HostileBroker,
) -> None:
    """Bob begins a container with Alice's sealed bytes in it; the broker cannot tell."""
    alice, bob, carol, _ = cast(mallory)
    hers = Story(alice)
    request = hers.begin({alice: OWNER, bob: READER}, content=b"Alice's own words")
    take(hers, alice, request)
    part = hers.head.content
    assert part is not None
    new, length = hers.parts[part.partId]
    his = Story(bob)
    claimed = with_fields(new, container_id=his.id, author=bob.name, part_id=bytes(16))
    claim = replace(claimed.finish(his.key, length, b""), segments=part.segments)
    begun_by_bob = altered(his, bob, his.begin({bob: OWNER, carol: READER}), content=claim)
    take(his, bob, replace(begun_by_bob, content=request.content))
    device = device_of(mallory, carol, bob)
    device.getContainerMetadata(id_of(his)).result(PATIENCE)
    with refused(mallory, device, DECRYPTION) as attempt:
        attempt(device.getContainer(id_of(his)))
        attempt(device.getContainerContent(id_of(his)))


@attack(10, "re-attribution")
def test_who_signed_last_is_shown_and_who_wrote_a_carried_part_is_the_limit_of_a_fresh_device(
    mallory: HostileBroker,
) -> None:
    """Alice's record is withheld, and Bob's carries her new part: who saw what was before refuses it."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER})
    story.tell(alice, story.follow(alice, header=b"1"))
    device = device_of(mallory, carol, *story.grants)
    device.getContainer(id_of(story)).result(PATIENCE)
    hers = story.follow(alice, content=b"Alice's own words")
    plant(mallory, story, altered(story, bob, hers, author=bob.name))
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
    found = device_of(mallory, carol).getContainer(id_of(story)).result(PATIENCE)
    assert (found.content, found.modifiedBy) == (b"Alice's own words", bob.ring.userId)
