"""Attacks that show different things to different members, all of them signed.

Attack 15 of `catalogue`: two keys for one container, a second beginning, a change hidden in another, an old
part brought back, and two records of one version out of a victim's own hands.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from scbroker import BrokerError
from scbroker.client.core.sealing import OpenPart
from scbroker.crypto.seal import wrap_key
from scbroker.records.container_record import Role, parse_record, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire import codec
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import (
    MANAGER,
    RECORD,
    VIEW,
    Cast,
    altered,
    begun,
    cast,
    device_of,
    fresh_and_marked,
    id_of,
    instead,
    opened,
    plant,
    restarted_device_of,
    take,
    twin,
    victim,
    with_wrap,
    wrapped_key,
)
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import refused
from tests.kit.brokers import clock
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story

DECRYPTION = BrokerError.decryptionError
FORK = BrokerError.forkError
INTEGRITY = BrokerError.integrityError
TYPIST = WRITER | Level.ModifyType


@attack(15, "split view by the sender")
def test_a_member_who_is_given_another_key_than_the_others_notices_and_writes_nothing_under_it(
    mallory: HostileBroker,
) -> None:
    """Nothing is sealed in the container yet: the commitment alone tells Bob."""
    alice, bob, _, eve = cast(mallory)
    story = Story(eve)
    request = story.begin({eve: OWNER, alice: READER, bob: WRITER}, content=None)
    governing = parse_record(request.record.body).governing
    assert governing is not None
    info = wrap_info(story.id, governing, bob.name, 0)
    other = wrap_key(bob.ring.encryption[0].public, info, bytes(32))
    take(story, eve, with_wrap(story, eve, request, bob, other))
    hers, his = device_of(mallory, alice, eve), device_of(mallory, bob, eve)
    assert hers.getContainer(id_of(story)).result(PATIENCE).content is None
    with suppress(BrokerError.integrityError):  # the chain itself is right, and is marked
        his.getContainer(id_of(story)).result(PATIENCE)
    with refused(mallory, his, INTEGRITY) as attempt:
        attempt(his.getContainer(id_of(story)))
        attempt(his.getContainerMetadata(id_of(story)))
    with refused(mallory, his, DECRYPTION) as attempt:
        attempt(his.updateContainerContent(id_of(story), b"secret"))
        attempt(his.updateContainerHeader(id_of(story), {"secret": 1}))


@attack(15, "split view by the sender")
@fresh_and_marked
def test_a_container_has_one_beginning_and_it_is_its_creators(
    mallory: HostileBroker, tmp_path: Path, marked: bool
) -> None:
    """Eve begins it anew under its id; then its creator does, for who saw the first beginning."""
    alice, bob, _, eve = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = victim(mallory, bob, story, tmp_path, marked=marked)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    again = Story(alice, nonce=story.nonce)
    hers = again.begin({eve: OWNER, bob: READER}, author=eve)
    again.send(eve, hers).expect(422, "rejected")
    plant(mallory, again, hers)
    with refused(mallory, device, FORK if marked else INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
    second = again.begin({alice: OWNER, bob: READER}, content=b"for Bob alone")
    again.send(alice, second).expect(409, "exists")
    plant(mallory, again, second)
    if marked:
        with refused(mallory, device, FORK) as attempt:
            attempt(device.getContainer(id_of(story)))


@attack(15, "split view by the sender")
def test_two_beginnings_by_their_creator_are_the_limit_of_a_fresh_device(
    mallory: HostileBroker,
) -> None:
    """Each is shown one of them, and stays with it."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: READER, carol: READER}, content=b"for Bob")
    his, hers = device_of(mallory, bob, alice), device_of(mallory, carol, alice)
    assert his.getContainerContent(id_of(story)).result(PATIENCE) == b"for Bob"
    again = Story(alice, nonce=story.nonce)
    plant(
        mallory,
        again,
        again.begin({alice: OWNER, bob: READER, carol: READER}, content=b"for Carol"),
    )
    assert hers.getContainerContent(id_of(story)).result(PATIENCE) == b"for Carol"
    with refused(mallory, his, FORK) as attempt:
        attempt(his.getContainer(id_of(story)))
    plant(mallory, story, story.requests[0])
    with refused(mallory, hers, FORK) as attempt:
        attempt(hers.getContainer(id_of(story)))


HIDDEN: dict[str, tuple[int, int, Callable[[Story, Cast], RecordRequest]]] = {
    "in a change of content": (
        WRITER,
        403,
        lambda story, who: story.follow(who.bob, content=b"x", type="forged"),
    ),
    "in a change of access": (
        MANAGER,
        403,
        lambda story, who: story.follow(
            who.bob, grants={who.alice: OWNER, who.bob: MANAGER}, type="forged"
        ),
    ),
    "in a renewal": (
        TYPIST,
        422,
        lambda story, who: story.follow(
            who.bob, grants={who.alice: OWNER, who.bob: TYPIST}, type="forged"
        ),
    ),
}


@attack(15, "split view by the sender")
@pytest.mark.parametrize("where", HIDDEN)
@fresh_and_marked
def test_no_change_of_type_is_hidden_in_another_change(
    mallory: HostileBroker, tmp_path: Path, marked: bool, where: str
) -> None:
    """There is reason for a renewal, since Carol's access has expired; a renewal changes nothing else."""
    who = cast(mallory)
    held, status, forge = HIDDEN[where]
    expired = Grant(READER, clock() - MINUTE)
    grants: Grants = {who.alice: OWNER, who.bob: held, who.carol: expired}
    story = begun(who.alice, grants, time=clock() - 2 * MINUTE, type="t")
    device = victim(mallory, who.alice, story, tmp_path, marked=marked)
    forged = forge(story, who)
    story.send(who.bob, forged).expect(status)
    plant(mallory, story, forged)
    with refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(15, "split view by the sender")
def test_two_members_are_not_shown_two_types_of_one_record(mallory: HostileBroker) -> None:
    alice, bob, _, _ = cast(mallory)
    story = Story(bob).created({alice: READER | Level.ViewType, bob: OWNER}, type="one")
    before = alice.view(story).type
    story.tell(bob, story.follow(bob, type="two"))
    device = device_of(mallory, alice, bob)
    assert device.getContainerMetadata(id_of(story)).result(PATIENCE).type == "two"
    with mallory.lying(VIEW, instead(type=before)), refused(mallory, device, INTEGRITY) as attempt:
        attempt(device.getContainer(id_of(story)))
        attempt(device.getContainerMetadata(id_of(story)))


@attack(15, "split view by the sender")
def test_no_stale_part_comes_back_in_a_change_of_type(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """Bob may change the type, and puts Alice's first content back beside it, as if it had stayed."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: TYPIST, carol: READER}, content=b"old")
    stale = story.head.content
    story.tell(alice, story.follow(alice, content=b"new"))
    devices = [restarted_device_of(mallory, user, story, tmp_path) for user in (alice, carol)]
    forged = altered(story, bob, story.follow(bob, type="t"), content=stale)
    story.send(bob, forged).expect(422, "rejected")
    plant(mallory, story, forged)
    for device in devices:
        with refused(mallory, device, INTEGRITY) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.getContainerContent(id_of(story)))


@attack(15, "split view by the sender")
def test_a_stale_part_that_a_writer_signs_for_is_the_limit_of_a_fresh_device(
    mallory: HostileBroker,
) -> None:
    """It does not know what was there before; what it is shown is what Bob, who may write, signed for."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: TYPIST, carol: READER}, content=b"old")
    stale = story.head.content
    story.tell(alice, story.follow(alice, content=b"new"))
    plant(mallory, story, altered(story, bob, story.follow(bob, type="t"), content=stale))
    found = device_of(mallory, carol).getContainer(id_of(story)).result(PATIENCE)
    assert (found.content, found.modifiedBy) == (b"old", bob.ring.userId)


def inventing_a_conflict(kept: list[RecordRequest]) -> Callable[[Exchange], None]:
    """Keeps the records that are sent, and answers the first as if another had come before it."""

    def before(exchange: Exchange) -> None:
        kept.append(exchange.message)
        if len(kept) == 1:
            exchange.status = 409
            exchange.answer_headers = {"content-type": codec.PROBLEM}
            members = {
                "type": "about:blank",
                "title": "conflict",
                "status": 409,
                "code": "conflict",
            }
            exchange.answer_body = msgspec.json.encode({**members, "detail": "invented"})

    return before


@attack(15, "split view by the sender")
def test_of_two_records_of_one_version_that_a_writer_was_made_to_sign_one_is_believed(
    mallory: HostileBroker,
) -> None:
    """Alice's program tries again after an invented conflict; the broker keeps both, for two audiences."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: READER})
    hers, his, fresh = (device_of(mallory, user, alice, bob) for user in (alice, bob, carol))
    kept: list[RecordRequest] = []
    with mallory.meddling(RECORD, before=inventing_a_conflict(kept)):
        hers.updateContainerContent(id_of(story), b"secret").result(PATIENCE)
    first, second = kept
    assert his.getContainerContent(id_of(story)).result(PATIENCE) == b"secret"
    lie = twin(story)
    plant(mallory, lie, first)
    for device in (hers, his):
        with refused(mallory, device, FORK) as attempt:
            attempt(device.getContainer(id_of(story)))
            attempt(device.updateContainerContent(id_of(story), b"more"))
    assert fresh.getContainerContent(id_of(story)).result(PATIENCE) == b"secret"
    plant(mallory, lie, lie.follow(bob, content=b"on top of the first"))
    for device in (hers, his):
        with refused(mallory, device, FORK) as attempt:
            attempt(device.getContainer(id_of(story)))
    plant(mallory, story, second)
    with refused(mallory, fresh, FORK) as attempt:
        attempt(fresh.getContainer(id_of(story)))
    # Nothing was sealed twice in one place: what both name is one part, with the same bytes.
    one, other = (parse_record(request.record.body).content for request in kept)
    assert one is not None
    assert other is not None
    assert (one.partId, one.segments) == (other.partId, other.segments)
    assert first.content == second.content


@attack(15, "split view by the sender")
def test_two_renewals_that_a_writer_was_made_to_sign_share_neither_key_nor_part(
    mallory: HostileBroker,
) -> None:
    """Whoever gets to open the one that was refused has nothing of the one that was taken."""
    alice, bob, carol, _ = cast(mallory)
    grants: Grants = {alice: OWNER, bob: READER, carol: Grant(READER, clock() - MINUTE)}
    story = begun(alice, grants, time=clock() - 2 * MINUTE)
    device = device_of(mallory, alice, bob)
    kept: list[RecordRequest] = []
    with mallory.meddling(RECORD, before=inventing_a_conflict(kept)):
        device.updateContainerContent(id_of(story), b"secret").result(PATIENCE)
    keys = [wrapped_key(request, bob) for request in kept]
    assert keys[0] != keys[1]
    assert opened(kept[1], keys[1]) == b"secret"
    one, other = (parse_record(request.record.body).content for request in kept)
    assert one is not None
    assert other is not None
    assert one.partId != other.partId
    refused_part, taken = (
        OpenPart.open(story.id, Role.Content, part, key)
        for part, key in zip((one, other), keys, strict=True)
    )
    assert refused_part.key != taken.key
