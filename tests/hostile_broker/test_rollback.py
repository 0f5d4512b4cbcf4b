"""Attacks with old states and with two histories of one container: everything served was valid once.

Attack 21 of `catalogue`. A device that has seen a state takes no older one and no other, whatever it is
asked to do, also once it was started again; a fresh device gets one history that is consistent.
"""

from collections.abc import Callable
from typing import Any

import pytest

from scbroker import BrokerError
from scbroker.wire.containers import Bodies
from tests.hostile_broker.accomplices import NO_LIST, OPERATIONS, Mallory
from tests.hostile_broker.catalogue import all_mount
from tests.hostile_broker.protocol import BODIES, FORK, INTEGRITY, ROLLBACK, VIEW
from tests.hostile_broker.served import instead
from tests.kit.waiting import PATIENCE
from tests.kit.writers import OWNER, Story, User

all_mount(__name__, 21, "rollback and fork")


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
