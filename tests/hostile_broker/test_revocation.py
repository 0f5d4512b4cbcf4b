"""Attacks by who has left a container, or whose access has ended, with a broker that helps them.

Attacks 13 and 14 of `catalogue`. A device that saw the revocation refuses what is built on anything
older; and who left opens nothing that was written later, wherever the bytes come from.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError
from scbroker.client.core.sealing import OpenPart
from scbroker.crypto.verify import sha256
from scbroker.records.container_record import Role, parse_entry, parse_record, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.hostile_broker.accomplices import (
    MANAGER,
    RECORD,
    VIEW,
    altered,
    begun,
    cast,
    device_of,
    fresh_and_marked,
    id_of,
    instead,
    level,
    opened,
    plant,
    restarted_device_of,
    sent_record,
    serve_also,
    take_back,
    twin,
    victim,
    wrap_of,
    wrapped_key,
)
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.brokers import clock
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story

CLOCK = BrokerError.clockError
DECRYPTION = BrokerError.decryptionError
FORK = BrokerError.forkError
INTEGRITY = BrokerError.integrityError
NO_LIST = Level.Download | Level.Decrypt
THE_YEAR_2099 = 4_070_908_800_000_000

# 13

PLACES: dict[str, tuple[Callable[[Story], dict[str, Any]], type[BrokerError]]] = {
    "after what came later": (
        lambda story: {"version": 4, "parent": story.hash(story.records[2])},
        INTEGRITY,
    ),
    "beside what came later": (
        lambda story: {"version": 3, "parent": story.hash(story.records[1])},
        INTEGRITY,
    ),
    "beside the revocation": (lambda _: {}, BrokerError.rollbackError),
}


@attack(13, "revocation bypassed")
@pytest.mark.parametrize("place", PLACES)
def test_who_saw_the_revocation_takes_no_record_of_the_leavers_over_an_older_link(
    mallory: HostileBroker, tmp_path: Path, place: str
) -> None:
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: NO_LIST})
    what_bob_has = twin(story)
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: NO_LIST}))
    story.tell(alice, story.follow(alice, content=b"truth"))
    owner, reader = (restarted_device_of(mallory, u, story, tmp_path, bob) for u in (alice, carol))
    changes, error = PLACES[place]
    record = what_bob_has.follow(bob, content=b"forged")
    forged = altered(what_bob_has, bob, record, **changes(story))
    plant(mallory, twin(story), forged)
    with refused(mallory, owner, error) as attempt:
        attempt(owner.getContainer(id_of(story)))
        attempt(owner.updateContainerContent(id_of(story), b"secret"))
        attempt(owner.updateContainerAccessLevels(id_of(story)))
    with refused(mallory, reader, error) as attempt:
        attempt(reader.getContainer(id_of(story)))


@attack(13, "revocation bypassed")
def test_what_was_served_before_the_revocation_is_a_rollback_for_who_saw_it(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    alice, bob, _, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    before = alice.view(story, "content=1")
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    device = restarted_device_of(mallory, alice, story, tmp_path)
    with (
        mallory.lying(VIEW, lambda _: before),
        refused(mallory, device, BrokerError.rollbackError) as attempt,
    ):
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(13, "revocation bypassed")
def test_who_saw_the_revocation_is_not_made_to_forget_it_by_hiding_it(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """The leaver's record is in its place, or comes last, and nothing of it is served but its hash."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER})
    what_bob_has, before = twin(story), alice.view(story)
    story.tell(alice, story.follow(alice, grants={alice: OWNER, carol: READER}))
    device = restarted_device_of(mallory, alice, story, tmp_path, bob)
    record = what_bob_has.follow(bob, content=b"forged")
    plant(mallory, twin(story), record)
    with refused(mallory, device, FORK) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))
    take_back(mallory, story)
    over = {"version": 3, "parent": story.hash(story.head)}
    plant(mallory, story, altered(what_bob_has, bob, record, **over))
    hidden = instead(governing=before.governing, lastGoverning=1)
    with mallory.lying(VIEW, hidden), refused(mallory, device, FORK) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))
    fresh = device_of(mallory, alice, bob)
    with mallory.lying(VIEW, lambda view: view), refused(mallory, fresh, INTEGRITY) as attempt:
        attempt(fresh.getContainer(id_of(story)))


@attack(13, "revocation bypassed")
def test_a_fresh_device_that_is_not_shown_the_revocation_is_the_limit(
    mallory: HostileBroker,
) -> None:
    """It gets one history that is consistent, and not the newest: the leaver reads what it writes."""
    alice, bob, _, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER})
    what_bob_has = twin(story)
    story.tell(alice, story.follow(alice, grants={alice: OWNER}))
    plant(mallory, what_bob_has, what_bob_has.follow(bob, content=b"forged"))
    serve_also(mallory, id_of(story), alice, wrap_of(story.requests[0], alice))
    device = device_of(mallory, alice)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"forged"
    device.updateContainerContent(id_of(story), b"secret").result(PATIENCE)
    assert opened(sent_record(mallory), what_bob_has.key) == b"secret"


@attack(13, "revocation bypassed")
def test_who_was_removed_opens_nothing_that_is_written_afterwards(mallory: HostileBroker) -> None:
    """With every key that Bob ever had, everything that the broker has, and his own program."""
    alice, bob, carol, _ = cast(mallory)
    device, his = device_of(mallory, alice), device_of(mallory, bob, alice)
    levels = [level(alice), level(bob, WRITER), level(carol, READER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    first = sent_record(mallory)
    old_key = wrapped_key(first, bob)
    assert his.getContainerContent(made.id).result(PATIENCE) == b"before"
    device.updateContainerAccessLevels(made.id, [levels[0], levels[2]]).result(PATIENCE)
    revocation = sent_record(mallory)
    device.updateContainerContent(made.id, b"secret").result(PATIENCE)
    written = sent_record(mallory)
    with pytest.raises(DECRYPTION):
        opened(written, old_key)
    governing = parse_record(revocation.record.body).governing
    assert governing is not None
    for item in revocation.accessList or ():
        assert item.wrap is not None
        for name in (bob.name, parse_entry(item.entry).fingerprint):
            info = wrap_info(made.id.bytes, governing, name, 0)
            with pytest.raises(DECRYPTION):
                bob.ring.encryption[0].unwrap(item.wrap, info)
    for item in revocation.accessList or ():
        serve_also(mallory, made.id, bob, item.wrap)
        with refused(mallory, his, INTEGRITY) as attempt:
            attempt(his.getContainer(made.id))
            attempt(his.updateContainerContent(made.id, b"forged"))


@attack(13, "revocation bypassed")
def test_what_the_leaver_could_read_before_is_the_limit(mallory: HostileBroker) -> None:
    """The content stays as it was, under the part key that Bob may have kept."""
    alice, bob, _, _ = cast(mallory)
    device = device_of(mallory, alice)
    levels = [level(alice), level(bob, READER)]
    made = device.createContainer(b"before", accessLevels=levels).result(PATIENCE)
    first = sent_record(mallory)
    device.updateContainerAccessLevels(made.id, levels[:1]).result(PATIENCE)
    head = parse_record(sent_record(mallory).record.body)
    part = parse_record(first.record.body).content
    assert part is not None
    assert head.content is not None
    assert head.content.segments == part.segments
    assert opened(first, wrapped_key(first, bob)) == b"before"


@attack(13, "revocation bypassed")
def test_who_joins_or_comes_back_opens_nothing_that_was_overwritten_meanwhile(
    mallory: HostileBroker,
) -> None:
    alice, bob, carol, _ = cast(mallory)
    device = device_of(mallory, alice)
    both, everybody = [level(alice), level(bob)], [level(alice), level(bob), level(carol)]
    made = device.createContainer(b"before", accessLevels=both).result(PATIENCE)
    first = sent_record(mallory)
    device.updateContainerAccessLevels(made.id, [level(alice)]).result(PATIENCE)
    device.updateContainerContent(made.id, b"while he was out").result(PATIENCE)
    meanwhile = sent_record(mallory)
    device.updateContainerContent(made.id, b"after").result(PATIENCE)
    device.updateContainerAccessLevels(made.id, everybody).result(PATIENCE)
    back = sent_record(mallory)
    for key in (wrapped_key(first, bob), wrapped_key(back, bob), wrapped_key(back, carol)):
        with pytest.raises(DECRYPTION):
            opened(meanwhile, key)
    with pytest.raises(DECRYPTION):
        opened(first, wrapped_key(back, carol))
    his = device_of(mallory, bob)
    assert his.getContainerContent(made.id).result(PATIENCE) == b"after"


@attack(13, "revocation bypassed")
@pytest.mark.parametrize("left", ["not in the list", "without Decrypt", "expired"])
def test_who_chose_the_key_and_is_out_has_no_key_that_later_writes_use(
    mallory: HostileBroker, left: str
) -> None:
    alice, bob, _, _ = cast(mallory)
    entry = {
        "not in the list": {},
        "without Decrypt": {alice: Grant(Level.ViewType)},
        "expired": {alice: Grant(OWNER, clock() - MINUTE)},
    }[left]
    story = begun(alice, {bob: WRITER, **entry}, time=clock() - 2 * MINUTE)
    story.send(bob, story.follow(bob, content=b"secret")).expect(422, "rejected")
    device = device_of(mallory, bob)
    for content in (b"secret", b"secret again"):
        device.updateContainerContent(id_of(story), content).result(PATIENCE)
        with pytest.raises(DECRYPTION):
            opened(sent_record(mallory), story.key)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"secret again"


@attack(13, "revocation bypassed")
def test_a_write_that_is_tried_again_over_a_revocation_uses_nothing_that_the_leaver_has(
    mallory: HostileBroker,
) -> None:
    """Carol removes Bob while Alice's record is on its way; Bob and the broker keep that record."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(carol).created({carol: OWNER, alice: WRITER, bob: READER})
    old_key, device = story.key, device_of(mallory, alice)
    device.getContainer(id_of(story)).result(PATIENCE)
    sent: list[Any] = []

    def revoke(exchange: Exchange) -> None:
        sent.append(exchange.message)
        if len(sent) == 1:
            story.tell(carol, story.follow(carol, grants={carol: OWNER, alice: WRITER}))

    with mallory.meddling(RECORD, before=revoke):
        device.updateContainerContent(id_of(story), b"secret").result(PATIENCE)
    first, second = sent
    assert opened(first, old_key) == b"secret"  # it was written to Bob as well
    with pytest.raises(DECRYPTION):
        opened(second, old_key)
    before, after = (parse_record(request.record.body).content for request in sent)
    assert before is not None
    assert after is not None
    known = OpenPart.open(story.id, Role.Content, before, old_key)
    with pytest.raises(DECRYPTION):
        OpenPart(story.id, Role.Content, after, known.key, known.length).open_segment(
            0, second.content, sha256(second.content)
        )


# 14


@attack(14, "expired grant")
def test_until_the_next_write_expiry_is_the_brokers_word_which_is_the_limit(
    mallory: HostileBroker,
) -> None:
    alice, bob, _, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: Grant(READER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    his = device_of(mallory, bob, alice)
    with pytest.raises(BrokerError.notFoundError):
        his.getContainer(id_of(story)).result(PATIENCE)
    serve_also(mallory, id_of(story), bob, wrap_of(story.requests[0], bob))
    assert his.getContainerContent(id_of(story)).result(PATIENCE) == b"content"


@attack(14, "expired grant")
def test_from_the_next_write_on_who_has_expired_opens_and_writes_nothing(
    mallory: HostileBroker,
) -> None:
    alice, bob, carol, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE), carol: WRITER}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    his, hers = device_of(mallory, bob, alice, carol), device_of(mallory, alice, bob, carol)
    device = device_of(mallory, carol)
    device.updateContainerHeader(id_of(story), {"not": "even content"}).result(PATIENCE)
    renewal = sent_record(mallory)
    part = parse_record(renewal.record.body).header
    assert part is not None
    with pytest.raises(DECRYPTION):
        OpenPart.open(story.id, Role.Header, part, story.key)
    hers.getContainer(id_of(story)).result(PATIENCE)
    assert len(renewal.accessList or ()) == 2
    for item in renewal.accessList or ():
        serve_also(mallory, id_of(story), bob, item.wrap)
        with refused(mallory, his, INTEGRITY) as attempt:
            attempt(his.getContainer(id_of(story)))
    record = altered(
        story, bob, story.follow(bob, content=b"forged"), version=3,
        parent=story.hash(parse_record(renewal.record.body)),
    )  # fmt: skip
    story.records.append(parse_record(renewal.record.body))
    plant(mallory, story, record)
    with refused(mallory, hers, INTEGRITY) as attempt:
        attempt(hers.getContainer(id_of(story)))
        attempt(hers.updateContainerContent(id_of(story), b"secret"))


@attack(14, "expired grant")
@fresh_and_marked
def test_who_has_expired_writes_nothing_even_before_the_next_write(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    alice, bob, _, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    device = victim(mallory, alice, story, tmp_path, marked=marked)
    forged = story.follow(bob, content=b"forged")
    story.send(bob, forged).expect(404, "not-found")
    plant(mallory, story, forged)
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(14, "expired grant")
def test_a_record_dated_back_to_before_the_end_is_the_limit_of_expiry(
    mallory: HostileBroker,
) -> None:
    alice, bob, _, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: Grant(WRITER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    dated_back = story.follow(bob, content=b"late", time=clock() - 3 * MINUTE // 2)
    story.send(bob, dated_back).expect(404, "not-found")
    plant(mallory, story, dated_back)
    device = device_of(mallory, alice)
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"late"


@attack(14, "expired grant")
@pytest.mark.parametrize("held", [WRITER, MANAGER], ids=["a writer", "a manager"])
@fresh_and_marked
def test_nobody_ends_the_owners_access_by_an_expiry(
    mallory: HostileBroker, tmp_path: Path, marked: bool, held: int
) -> None:
    """A writer tries in a renewal, for which there is reason: Carol's access has expired."""
    alice, bob, carol, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: held, carol: Grant(READER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    device = victim(mallory, alice, story, tmp_path, marked=marked)
    forged = story.follow(bob, grants={alice: Grant(OWNER, clock() + MINUTE), bob: held})
    story.send(bob, forged).expect(422, "rejected")
    plant(mallory, story, forged)
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(14, "expired grant")
@pytest.mark.parametrize("dated", [THE_YEAR_2099, 16 * MINUTE], ids=["2099", "16 minutes ahead"])
@fresh_and_marked
def test_no_record_of_the_future_drops_who_has_not_expired_yet(
    mallory: HostileBroker, tmp_path: Path, marked: bool, dated: int
) -> None:
    alice, bob, carol, _ = cast(mallory)
    end = clock() + 5 * MINUTE
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: Grant(READER, end)})
    devices = [victim(mallory, u, story, tmp_path, marked=marked) for u in (alice, carol)]
    time = dated if dated == THE_YEAR_2099 else clock() + dated
    for forged in (
        story.follow(bob, grants={alice: OWNER, bob: WRITER}, time=time),
        story.follow(bob, content=b"forged", time=time),
    ):
        story.send(bob, forged).expect(422, "clock")
        plant(mallory, twin(story), forged)
        for device in devices:
            with refused(mallory, device, CLOCK) as attempt:
                attempt(device.getContainer(id_of(story)))
        take_back(mallory, story)


@attack(14, "expired grant")
def test_minutes_that_a_clock_may_be_ahead_are_the_limit_of_how_early_somebody_is_dropped(
    mallory: HostileBroker,
) -> None:
    alice, bob, carol, _ = cast(mallory)
    end = clock() + 5 * MINUTE
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: Grant(READER, end)})
    early = story.follow(bob, grants={alice: OWNER, bob: WRITER}, time=clock() + 10 * MINUTE)
    story.send(bob, early).expect(422, "clock")
    plant(mallory, story, early)
    found = device_of(mallory, alice).getContainerMetadata(id_of(story)).result(PATIENCE)
    assert {entry.userId for entry in found.access or ()} == {alice.ring.userId, bob.ring.userId}
