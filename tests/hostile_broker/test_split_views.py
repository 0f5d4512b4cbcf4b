"""Attacks that show different things to different members, all of them signed.

Attack 15 of `catalogue`: two keys for one container, a second beginning, a change hidden in another, an old
part brought back, and two records of one version out of a victim's own hands.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from scbroker import BrokerError
from scbroker.client.core.sealing import OpenPart
from scbroker.crypto.seal import wrap_key
from scbroker.records.container_record import Role, wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import RecordRequest
from tests.hostile_broker.accomplices import MANAGER, Cast, Mallory, fresh_and_marked
from tests.hostile_broker.broker import Exchange
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import DECRYPTION, FORK, INTEGRITY, RECORD
from tests.hostile_broker.served import (
    content_of,
    governing_of,
    instead,
    opened,
    with_wrap,
    wrapped_key,
)
from tests.kit.brokers import clock
from tests.kit.waiting import PATIENCE
from tests.kit.writers import MINUTE, OWNER, READER, WRITER, Grant, Grants, Story, User

all_mount(__name__, 15, "split view by the sender")

TYPIST = WRITER | Level.ModifyType


def test_a_member_who_is_given_another_key_than_the_others_notices_and_writes_nothing_under_it(
    mallory: Mallory, alice: User, bob: User, eve: User
) -> None:
    """Nothing is sealed in the container yet: the commitment alone tells Bob."""
    story = Story(eve)
    request = story.begin({eve: OWNER, alice: READER, bob: WRITER}, content=None)
    info = wrap_info(story.id, governing_of(request), bob.name, 0)
    other = wrap_key(bob.ring.encryption[0].public, info, bytes(32))
    story.tell(eve, with_wrap(story, eve, request, bob, other))
    hers, his = mallory.device_of(alice, eve), mallory.device_of(bob, eve)
    assert hers.getContainer(story.uuid).result(PATIENCE).content is None
    with suppress(INTEGRITY):  # the chain itself is right, and is marked
        his.getContainer(story.uuid).result(PATIENCE)
    mallory.check_refused(his, story, INTEGRITY, "getContainer", "getContainerMetadata")
    mallory.check_refused(his, story, DECRYPTION, "updateContainerContent", "updateContainerHeader")


@pytest.mark.sampled
@fresh_and_marked
def test_a_container_has_one_beginning_and_it_is_its_creators(
    mallory: Mallory, marked: bool, alice: User, bob: User, eve: User
) -> None:
    """Eve begins it anew under its id; then its creator does, for who saw the first beginning."""
    story = Story(alice).created({alice: OWNER, bob: READER})
    device = mallory.victim(bob, story, marked=marked)
    device.getPublicKeys(eve.ring.userId).result(PATIENCE)
    again = Story(alice, nonce=story.nonce)
    hers = again.begin({eve: OWNER, bob: READER}, author=eve)
    mallory.force(again, eve, hers, 422, "rejected")
    mallory.check_refused(device, story, FORK if marked else INTEGRITY)
    second = again.begin({alice: OWNER, bob: READER}, content=b"for Bob alone")
    mallory.force(again, alice, second, 409, "exists")
    if marked:
        mallory.check_refused(device, story, FORK)


def test_two_beginnings_by_their_creator_are_the_limit_of_a_fresh_device(mallory: Mallory) -> None:
    """Each is shown one of them, and stays with it."""
    alice, bob, carol = mallory.people(3)
    story = Story(alice).created({alice: OWNER, bob: READER, carol: READER}, content=b"for Bob")
    his, hers = mallory.device_of(bob, alice), mallory.device_of(carol, alice)
    assert his.getContainerContent(story.uuid).result(PATIENCE) == b"for Bob"
    again = Story(alice, nonce=story.nonce)
    mallory.plant(
        again, again.begin({alice: OWNER, bob: READER, carol: READER}, content=b"for Carol")
    )
    assert hers.getContainerContent(story.uuid).result(PATIENCE) == b"for Carol"
    mallory.check_refused(his, story, FORK)
    mallory.plant(story, story.requests[0])
    mallory.check_refused(hers, story, FORK)


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


@pytest.mark.sampled
@pytest.mark.parametrize("where", HIDDEN)
@fresh_and_marked
def test_no_change_of_type_is_hidden_in_another_change(
    mallory: Mallory, marked: bool, where: str, who: Cast
) -> None:
    """There is reason for a renewal, since Carol's access has expired; a renewal changes nothing else."""
    held, status, forge = HIDDEN[where]
    expired = Grant(READER, clock() - MINUTE)
    grants: Grants = {who.alice: OWNER, who.bob: held, who.carol: expired}
    story = Story(who.alice).created(grants, time=clock() - 2 * MINUTE, type="t")
    device = mallory.victim(who.alice, story, marked=marked)
    forged = forge(story, who)
    mallory.force(story, who.bob, forged, status)
    mallory.check_refused(device, story, INTEGRITY)


def test_two_members_are_not_shown_two_types_of_one_record(mallory: Mallory) -> None:
    alice, bob = mallory.people(2)
    story = Story(bob).created({alice: READER | Level.ViewType, bob: OWNER}, type="one")
    before = alice.view(story).type
    story.tell(bob, story.follow(bob, type="two"))
    device = mallory.device_of(alice, bob)
    assert device.getContainerMetadata(story.uuid).result(PATIENCE).type == "two"
    mallory.check_lie_refused(
        device, story, instead(type=before), INTEGRITY, "getContainer", "getContainerMetadata"
    )


def test_no_stale_part_comes_back_in_a_change_of_type(mallory: Mallory) -> None:
    """Bob may change the type, and puts Alice's first content back beside it, as if it had stayed."""
    alice, bob, carol = mallory.people(3)
    story = Story(alice).created({alice: OWNER, bob: TYPIST, carol: READER}, content=b"old")
    stale = story.head.content
    story.tell(alice, story.follow(alice, content=b"new"))
    devices = [mallory.restarted_device_of(user, story) for user in (alice, carol)]
    forged = story.altered(bob, story.follow(bob, type="t"), content=stale)
    mallory.force(story, bob, forged, 422, "rejected")
    for device in devices:
        mallory.check_refused(device, story, INTEGRITY, "getContainer", "getContainerContent")


def test_a_stale_part_that_a_writer_signs_for_is_the_limit_of_a_fresh_device(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """It does not know what was there before; what it is shown is what Bob, who may write, signed for."""
    story = Story(alice).created({alice: OWNER, bob: TYPIST, carol: READER}, content=b"old")
    stale = story.head.content
    story.tell(alice, story.follow(alice, content=b"new"))
    mallory.plant(story, story.altered(bob, story.follow(bob, type="t"), content=stale))
    found = mallory.device_of(carol).getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.modifiedBy) == (b"old", bob.ring.userId)


def inventing_a_conflict(kept: list[RecordRequest]) -> Callable[[Exchange], None]:
    """Keeps the records that are sent, and answers the first as if another had come before it."""

    def before(exchange: Exchange) -> None:
        kept.append(exchange.message)
        if len(kept) == 1:
            exchange.fail(BrokerError.conflictError("invented"))

    return before


def test_two_renewals_that_a_writer_was_made_to_sign_share_neither_key_nor_part(
    mallory: Mallory, alice: User, bob: User, carol: User
) -> None:
    """A reader who can open the refused one learns nothing of the one that was stored."""
    grants: Grants = {alice: OWNER, bob: READER, carol: Grant(READER, clock() - MINUTE)}
    story = Story(alice).created(grants, time=clock() - 2 * MINUTE)
    device = mallory.device_of(alice, bob)
    kept: list[RecordRequest] = []
    with mallory.meddling(RECORD, before=inventing_a_conflict(kept)):
        device.updateContainerContent(story.uuid, b"secret").result(PATIENCE)
    keys = [wrapped_key(request, bob) for request in kept]
    assert keys[0] != keys[1]
    assert opened(kept[1], keys[1]) == b"secret"
    one, other = map(content_of, kept)
    assert one.partId != other.partId
    opened_parts = [
        OpenPart.open(story.id, Role.Content, part, key)
        for part, key in zip((one, other), keys, strict=True)
    ]
    assert opened_parts[0].key != opened_parts[1].key
