"""Attacks with old states and with two histories of one container: everything served was valid once.

Attacks 15 and 21 of attacks.toml. A device that has seen a state takes no older one and no other, whatever
it is asked to do, also once it was started again.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scbroker import BrokerError, FileTrustStore
from scbroker.records.container_record import wrap_info
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import Bodies
from tests.hostile_broker.accomplices import NO_LIST, OPERATIONS, Mallory
from tests.hostile_broker.protocol import BODIES, DECRYPTION, FORK, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.served import governing_of, instead, with_wrap
from tests.kit.crypto import wrap_key
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, READER, WRITER, Story, User


def of_four_versions(alice: User, bob: User, carol: User) -> Story:
    """Beginning, content, access (a new key for the same members), type."""
    grants = {alice: OWNER, bob: OWNER, carol: NO_LIST}
    story = Story(alice).created(grants, header=b"1")
    story.tell(alice, story.follow(alice, content=b"2"))
    story.tell(alice, story.follow(alice, grants=grants))
    story.tell(alice, story.follow(alice, type="4"))
    return story


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_older_state_is_taken_by_any_operation_of_a_device_that_was_started_again(
    mallory: Mallory, version: int, alice: User, bob: User, carol: User
) -> None:
    """Alice sees the list; Carol does not, so that her device judges the past again each time."""
    story = of_four_versions(alice, bob, carol)
    devices = [mallory.restarted_device_of(user, story) for user in (alice, carol)]
    mallory.rewind(story, version)
    for device in devices:
        mallory.check_refused(device, story, ROLLBACK, *OPERATIONS)
    mallory.rewind(story, 4)
    for device in devices:
        found = device.getContainer(story.uuid).result(PATIENCE)
        assert (found.content, found.version) == (b"2", 4)


BRANCHES: dict[str, Callable[[Story, User], dict[str, Any]]] = {
    "content": lambda _, __: {"content": b"other"},
    "nothing": lambda _, __: {},
    "access": lambda story, _: {"grants": story.grants},
    "type": lambda _, __: {"type": "other"},
    "removal": lambda story, by: {
        "grants": {user: given for user, given in story.grants.items() if user is by}
    },
    "deletion": lambda _, __: {"tombstone": True},
}


@pytest.mark.long
@pytest.mark.parametrize("branch", BRANCHES)
def test_no_other_history_is_taken_by_any_operation_of_a_device_that_was_started_again(
    mallory: Mallory, branch: str, alice: User, bob: User, carol: User
) -> None:
    """Bob, who may do anything, signs another fourth version; then a fifth on top of it."""
    story = of_four_versions(alice, bob, carol)
    devices = [mallory.restarted_device_of(user, story) for user in (alice, carol)]
    lie = mallory.rewind(story, 3)
    mallory.plant(lie, lie.follow(bob, **BRANCHES[branch](lie, bob)))
    for device in devices:
        mallory.check_refused(device, story, FORK, *OPERATIONS)
    if branch != "deletion":
        mallory.plant(lie, lie.follow(bob, content=b"on top of it"))
        for device in devices:
            mallory.check_refused(device, story, FORK)


PAGES: dict[str, tuple[Callable[[Story, Story], list[bytes]], type[BrokerError]]] = {
    "nothing": (lambda _, __: [], FORK),
    "what was before": (lambda story, _: bodies_of(story, 1, 2), FORK),
    "what was then": (lambda story, _: bodies_of(story, 2, 3), FORK),
    "another history": (lambda _, other: bodies_of(other, 2, 5), INTEGRITY),
    "another history from its beginning": (lambda _, other: bodies_of(other, 3, 5), FORK),
}


def bodies_of(story: Story, first: int, end: int) -> list[bytes]:
    return [request.record.body for request in story.requests[first - 1 : end - 1]]


def once(bodies: list[bytes]) -> Callable[[Any], Bodies]:
    """One page, and then no more."""
    pages = iter([bodies])
    return lambda _: Bodies(bodies=next(pages, []))


@pytest.mark.sampled
@pytest.mark.parametrize("page", PAGES)
def test_no_page_leads_from_what_was_seen_to_another_history(mallory: Mallory, page: str) -> None:
    """Many records between the mark and the head come in pages of their own."""
    alice, bob, carol = mallory.people(3)
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: NO_LIST})
    story.tell(alice, story.follow(alice, content=b"2"))
    devices = [mallory.device_of(user, alice, bob) for user in (alice, carol)]
    for device in devices:
        device.getContainer(story.uuid).result(PATIENCE)
    other = story.twin()
    for _ in range(2):
        other.took(other.follow(bob, content=b"other"))
    for number in (3, 4, 5):
        story.tell(alice, story.follow(alice, content=b"%d" % number))
    answers, error = PAGES[page]
    for device in devices:
        with mallory.lying(VIEW, instead(skipped=[])):
            with mallory.lying(BODIES, once(answers(story, other))):
                mallory.check_refused(device, story, error, "getContainer")
            # The true pages do.
            assert device.getContainerContent(story.uuid).result(PATIENCE) == b"5"


# Different things for different members, all of them signed: two keys for one container, a second beginning,
# an old part brought back.


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


# Limits

TYPIST = WRITER | Level.ModifyType


def test_which_of_two_histories_a_fresh_device_gets_is_the_limit(mallory: Mallory) -> None:
    """It gets one that is consistent, not the newest; and then it stays with that one."""
    alice, bob, carol = mallory.people(3)
    story = of_four_versions(alice, bob, carol)
    older = mallory.rewind(story, 2)
    first = mallory.device_of(carol, alice)
    found = first.getContainer(story.uuid).result(PATIENCE)
    assert (found.content, found.version) == (b"2", 2)
    mallory.plant(older, older.follow(bob, content=b"other"))
    assert first.getContainerContent(story.uuid).result(PATIENCE) == b"other"
    mallory.rewind(story, 4)
    mallory.check_refused(first, story, FORK, *OPERATIONS)
    second = mallory.device_of(carol, alice)
    assert second.getContainerContent(story.uuid).result(PATIENCE) == b"2"


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["lost", "copied back"])
def test_a_trust_store_that_is_lost_or_copied_back_is_the_limit(
    mallory: Mallory, tmp_path: Path, how: str, alice: User
) -> None:
    """A copy knows what was seen when it was made, and no more."""
    story, copy = Story(alice).created(content=b"1"), tmp_path / "copy"
    with mallory.device_of(alice, store=FileTrustStore(tmp_path / "store")) as before:
        before.getContainer(story.uuid).result(PATIENCE)
    shutil.copytree(tmp_path / "store", copy)
    story.tell(alice, story.follow(alice, content=b"2"))
    with mallory.device(alice.ring, FileTrustStore(tmp_path / "store")) as device:
        assert device.getContainerContent(story.uuid).result(PATIENCE) == b"2"
    shutil.rmtree(tmp_path / "store")
    if how == "copied back":
        shutil.copytree(copy, tmp_path / "store")
    mallory.rewind(story, 1)
    device = mallory.device(alice.ring, FileTrustStore(tmp_path / "store"))
    assert device.getContainerContent(story.uuid).result(PATIENCE) == b"1"


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
