"""Attacks by members on who may do what, with a broker that stores whatever they sign.

Attacks 3, 8 to 10, 13 to 15 and 38 of attacks.toml. An honest broker refuses the record that a user
signs; then it is stored behind the broker's back, and the victims' programs refuse it as well, whether or not
they have read the container before.
"""

import functools
from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from scbroker import BrokerError
from scbroker.records.container_record import Entry, Role, parse_entry, parse_record, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import ListView, RecordRequest
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
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.protocol import CLOCK, DECRYPTION, INTEGRITY, RECORD, ROLLBACK, VIEW
from tests.hostile_broker.served import (
    content_of,
    entries_of,
    governing_of,
    instead,
    opened,
    relisted,
    with_list,
    wrap_of,
    wrapped_key,
)
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, User


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


@pytest.mark.sampled
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


# Records that their author may not make: one row for each, with who has what and what Bob signs.


With = Callable[[Cast], Grants]
Forge = Callable[[Story, Cast], RecordRequest]


class Row(NamedTuple):
    given: With
    forge: Forge
    refusal: tuple[int, str]
    """The answer of an honest broker."""
    error: type[BrokerError] = INTEGRITY


FORBIDDEN: Final = 403, "permission"
REJECTED: Final = 422, "rejected"


def bob_has(rights: int, end: int | None = None) -> With:
    """Bob's access ends so long from now."""
    return lambda who: {who.alice: OWNER, who.bob: Grant(rights, end and clock() + end)}


def beside_bob(rights: int, carols: int, end: int | None = None) -> With:
    """Carol has access as well, which may end; once it has, there is a reason for a renewal."""
    return lambda who: {**bob_has(rights)(who), who.carol: Grant(carols, end and clock() + end)}


def does(ahead: int = 0, **changes: Any) -> Forge:
    """Bob signs this."""
    return lambda story, who: story.follow(who.bob, time=clock() + ahead, **changes)


def gives(given: With, ahead: int = 0, **changes: Any) -> Forge:
    """Bob changes access to this."""
    return lambda story, who: does(ahead, grants=given(who), **changes)(story, who)


READS, WRITES_ONLY, MANAGES = beside_bob(READER, NO_LIST), bob_has(WRITER), bob_has(MANAGER)
HOURLY, SOON = bob_has(MANAGER, HOUR), beside_bob(WRITER, READER, 5 * MINUTE)
RENEWS: Final = beside_bob(WRITER, READER, -MINUTE)
ROWS: Final[dict[str, Row]] = {
    "a reader writes in their own name": Row(READS, does(content=b"forged"), FORBIDDEN),
    "a reader writes in the owner's name": Row(
        READS, lambda story, who: story.altered(who.bob, story.follow(who.alice, content=b"x")), FORBIDDEN
    ),
    "a writer deletes": Row(WRITES_ONLY, does(tombstone=True), FORBIDDEN),
    "a writer becomes a manager": Row(WRITES_ONLY, gives(MANAGES), REJECTED),
    "a manager takes one right more": Row(MANAGES, gives(bob_has(MANAGER | Level.Delete)), REJECTED),
    "a manager removes another owner as if they had left": Row(
        beside_bob(MANAGER, OWNER), gives(MANAGES), REJECTED
    ),
    "a manager prolongs their access": Row(HOURLY, gives(bob_has(MANAGER, 2 * HOUR)), REJECTED),
    "a writer ends the owner's access": Row(
        RENEWS, gives(lambda who: {who.alice: Grant(OWNER, clock() + MINUTE), who.bob: WRITER}), REJECTED
    ),
    "a type in a change of content": Row(RENEWS, does(content=b"x", type="forged"), FORBIDDEN),
    "an expired writer writes": Row(
        bob_has(WRITER, -MINUTE), does(content=b"forged"), (404, "not-found")
    ),
    "a removal that is dated ahead": Row(SOON, gives(WRITES_ONLY, 16 * MINUTE), (422, "clock"), CLOCK),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("row", ROWS)
@fresh_and_marked
def test_no_record_is_taken_that_its_author_may_not_make(
    mallory: Mallory, row: str, marked: bool, who: Cast
) -> None:
    given, forge, refusal, error = ROWS[row]
    now = clock()
    story = Story(who.alice).created(given(who), time=now - 2 * MINUTE, type="t")
    devices = [
        mallory.victim(user, story, marked=marked)
        for user in (who.alice, who.carol)
        if (grant := story.grants.get(user)) and (grant.expires_at or now) >= now
    ]
    mallory.force(story, who.bob, forge(story, who), *refusal)
    for device in devices:
        mallory.check_refused(device, story, error, "getContainer", *WRITES)


# Users who have left a container, or whose access has ended. A device that saw the revocation refuses what is
# built on anything older; and they open nothing that was written later, wherever the bytes come from.


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
    with pytest.raises(DECRYPTION):
        opened(second, old_key, key_of=first)


def test_from_the_next_write_on_who_has_expired_opens_and_writes_nothing(mallory: Mallory) -> None:
    alice, bob, carol = mallory.people(3)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE), carol: WRITER}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    his, hers = mallory.device_of(bob, alice, carol), mallory.device_of(alice, bob, carol)
    device = mallory.device_of(carol)
    device.updateContainerHeader(story.uuid, {"not": "even content"}).result(PATIENCE)
    renewal = mallory.sent_record()
    with pytest.raises(DECRYPTION):
        opened(renewal, story.key, Role.Header)
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


# Limits


def test_a_fresh_device_that_is_not_shown_the_revocation_is_the_limit(mallory: Mallory) -> None:
    """It gets one history that is consistent, and not the newest: the leaver reads what it writes."""
    alice, bob = mallory.people(2)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    what_bob_has = story.twin()
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    mallory.plant(what_bob_has, what_bob_has.follow(bob, content=b"forged"))
    mallory.serve_also(story.uuid, alice, wrap_of(story.requests[0], alice))
    device = mallory.device_of(alice)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"forged"
    device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    assert opened(mallory.sent_record(), what_bob_has.key) == b"secret"


def test_what_the_leaver_could_read_before_is_the_limit(mallory: Mallory) -> None:
    """The content stays as it was, under the part key that Bob may have kept."""
    alice, bob = mallory.people(2)
    device = mallory.device_of(alice)
    levels = [level(alice), level(bob, READER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    first = mallory.sent_record()
    device.updateContainerAccessLevels(made.id, levels[:1]).result(PATIENCE)
    assert content_of(mallory.sent_record()).segments == content_of(first).segments
    assert opened(first, wrapped_key(first, bob)) == b"before"


def test_until_the_next_write_expiry_is_the_brokers_word_which_is_the_limit(
    mallory: Mallory, alice: User, bob: User
) -> None:
    grants: Grants = {alice: OWNER, bob: Grant(READER, clock() - MINUTE)}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    his = mallory.device_of(bob, alice)
    with pytest.raises(BrokerError.notFoundError):
        his.getContainer(story.uuid).result(PATIENCE)
    mallory.serve_also(story.uuid, bob, wrap_of(story.requests[0], bob))
    assert his.getContainerContent(story.uuid).result(PATIENCE) == b"content"


def test_a_record_dated_back_to_before_the_end_is_the_limit_of_expiry(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE)}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    dated_back = story.follow(bob, content=b"late", time=clock() - 3 * MINUTE // 2)
    mallory.force(story, bob, dated_back, 404, "not-found")
    device = mallory.device_of(alice)
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"late"


def test_minutes_that_a_clock_may_be_ahead_are_the_limit_of_how_early_somebody_is_dropped(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    end = clock() + 5 * MINUTE
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: Grant(READER, end)})
    early = story.follow(bob, grants={alice: OWNER, bob: WRITER}, time=clock() + 10 * MINUTE)
    mallory.force(story, bob, early, 422, "clock")
    found = mallory.device_of(alice).getContainerMetadata(story.uuid).result(PATIENCE)
    assert {entry.userId for entry in found.access or ()} == {alice.ring.userId, bob.ring.userId}


def test_who_else_is_in_the_list_is_the_limit_of_a_reader_who_does_not_see_it(
    mallory: Mallory, alice: User, bob: User, carol: User, eve: User
) -> None:
    """Bob and the broker show Carol a list without the owner; members who see the list refuse it."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST, eve: READER})
    hers, eves = mallory.device_of(carol, alice, bob), mallory.device_of(eve, alice, bob)
    without_the_owner: Grants = {bob: WRITER, carol: NO_LIST, eve: READER}
    mallory.plant(story, story.follow(bob, grants=without_the_owner, content=b"Bob's"))
    found = hers.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.access, found.modifiedBy) == (b"Bob's", None, bob.ring.userId)
    mallory.check_refused(eves, story, INTEGRITY)


def test_who_signed_last_is_shown_and_who_wrote_a_carried_part_is_the_limit_of_a_fresh_device(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """Alice's record is withheld, and Bob's carries her new part: who saw what was before refuses it."""
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER})
    story.tell(alice, story.follow(alice, header=b"1"))
    device = mallory.device_of(carol, *story.grants)
    device.getContainer(story.uuid).result(PATIENCE)
    hers = story.follow(alice, content=b"Alice's own words")
    mallory.plant(story, story.altered(bob, hers, author=bob.name))
    mallory.check_refused(device, story, INTEGRITY)
    found = mallory.device_of(carol).getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.modifiedBy) == (b"Alice's own words", bob.ring.userId)
