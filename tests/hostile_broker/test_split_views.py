"""Attacks that show different things to different members, all of them signed.

Attack 15 of `catalogue`: two keys for one container, a second beginning, a change hidden in another, an old
part brought back, and two records of one version out of a victim's own hands.
"""

from contextlib import suppress

from scbroker.crypto.seal import wrap_key
from scbroker.records.container_record import wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.hostile_broker.accomplices import Mallory
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import DECRYPTION, INTEGRITY
from tests.hostile_broker.served import governing_of, with_wrap
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User

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
