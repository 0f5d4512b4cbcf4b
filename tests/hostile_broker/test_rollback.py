"""Attacks with old states and with two histories of one container: everything served was valid once.

Attack 21 of `catalogue`. A device that has seen a state takes no older one and no other, whatever it is
asked to do, also once it was started again; a fresh device gets one history that is consistent.
"""

import inspect
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker import BrokerError, FileTrustStore, Promise, ServerProvider
from scbroker.vocabulary import ContainerAccessLevel as Level
from scbroker.wire.containers import Bodies
from tests.hostile_broker.accomplices import (
    RECORD,
    VIEW,
    cast,
    device_of,
    go_on,
    id_of,
    instead,
    people,
    plant,
    restarted_device_of,
    sent_record,
    twin,
)
from tests.hostile_broker.broker import PATIENCE, Exchange, HostileBroker
from tests.hostile_broker.catalogue import attack
from tests.hostile_broker.conftest import marks, refused
from tests.hostile_broker.relay import invent
from tests.kit.writers import OWNER, WRITER, Story, User

FORK = BrokerError.forkError
INTEGRITY = BrokerError.integrityError
ROLLBACK = BrokerError.rollbackError
NO_LIST = Level.Download | Level.Decrypt
BODIES = "GET /v1/containers/{containerId}/records"

NEVER_WRITTEN: Final = Path(tempfile.gettempdir()) / "of an older container"
OPERATIONS: dict[str, Callable[[ServerProvider, uuid.UUID], Promise[Any]]] = {
    "getContainer": lambda device, it: device.getContainer(it),
    "getContainerHeader": lambda device, it: device.getContainerHeader(it),
    "getContainerContent": lambda device, it: device.getContainerContent(it),
    "saveContainerContent": lambda device, it: device.saveContainerContent(it, NEVER_WRITTEN),
    "openContainerContent": lambda device, it: device.openContainerContent(it),
    "getContainerMetadata": lambda device, it: device.getContainerMetadata(it),
    "getSecuredContainer": lambda device, it: device.getSecuredContainer(it),
    "updateContainer": lambda device, it: device.updateContainer(
        it, content=b"secret", customHeaderObject=None, accessLevels=None, type=None
    ),
    "updateContainerHeader": lambda device, it: device.updateContainerHeader(it, "secret"),
    "updateContainerContent": lambda device, it: device.updateContainerContent(it, b"secret"),
    "updateContainerAccessLevels": lambda device, it: device.updateContainerAccessLevels(it),
    "updateContainerType": lambda device, it: device.updateContainerType(it, "secret"),
    "deleteContainer": lambda device, it: device.deleteContainer(it),
}


def check_all_refused(
    mallory: HostileBroker, device: ServerProvider, story: Story, error: type[BrokerError]
) -> None:
    with refused(mallory, device, error) as attempt:
        for operation in OPERATIONS.values():
            attempt(operation(device, id_of(story)))
    assert not NEVER_WRITTEN.exists()


def rewind(mallory: HostileBroker, story: Story, version: int) -> Story:
    """The broker goes back to what it had at this version, with the wraps of that time."""
    older = twin(story)
    for request in story.requests[:version]:
        plant(mallory, older, request)
    return older


def of_four_versions(alice: User, bob: User, carol: User) -> Story:
    """Beginning, content, access (a new key for the same members), type."""
    grants = {alice: OWNER, bob: OWNER, carol: NO_LIST}
    story = Story(alice).created(grants, header=b"1")
    story.tell(alice, story.follow(alice, content=b"2"))
    story.tell(alice, story.follow(alice, grants=grants))
    story.tell(alice, story.follow(alice, type="4"))
    return story


@attack(21, "rollback and fork")
def test_every_operation_on_a_container_is_among_those_that_are_tried_here() -> None:
    takes_one = {
        name
        for name in dir(ServerProvider)
        if not name.startswith("_")
        and callable(method := getattr(ServerProvider, name))
        and "containerId" in inspect.signature(method).parameters
    }
    assert takes_one - {"getEvents"} == set(OPERATIONS)


@attack(21, "rollback and fork")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_older_state_is_taken_by_any_operation_of_a_device_that_was_started_again(
    mallory: HostileBroker, tmp_path: Path, version: int
) -> None:
    """By one who sees the list, and by one who does not and judges the past again each time."""
    alice, bob, carol, _ = cast(mallory)
    story = of_four_versions(alice, bob, carol)
    devices = [restarted_device_of(mallory, user, story, tmp_path) for user in (alice, carol)]
    rewind(mallory, story, version)
    for device in devices:
        check_all_refused(mallory, device, story, ROLLBACK)
    rewind(mallory, story, 4)
    for device in devices:
        found = device.getContainer(id_of(story)).result(PATIENCE)
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


@attack(21, "rollback and fork")
@pytest.mark.parametrize("branch", BRANCHES)
def test_no_other_history_is_taken_by_any_operation_of_a_device_that_was_started_again(
    mallory: HostileBroker, tmp_path: Path, branch: str
) -> None:
    """Bob, who may do anything, signs another fourth version; then a fifth on top of it."""
    alice, bob, carol, _ = cast(mallory)
    story = of_four_versions(alice, bob, carol)
    devices = [restarted_device_of(mallory, user, story, tmp_path) for user in (alice, carol)]
    lie = rewind(mallory, story, 3)
    plant(mallory, lie, lie.follow(bob, **BRANCHES[branch](lie, bob)))
    for device in devices:
        check_all_refused(mallory, device, story, FORK)
    if branch != "deletion":
        plant(mallory, lie, lie.follow(bob, content=b"on top of it"))
        for device in devices:
            with refused(mallory, device, FORK) as attempt:
                attempt(device.getContainer(id_of(story)))
                attempt(device.updateContainerContent(id_of(story), b"secret"))


@attack(21, "rollback and fork")
def test_two_histories_that_honest_writers_were_shown_are_never_joined(
    mallory: HostileBroker, tmp_path: Path
) -> None:
    """Carol's version is hidden from Bob, who writes another; neither is believed by who saw the other."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: WRITER, carol: WRITER})
    hers = restarted_device_of(mallory, alice, story, tmp_path)
    his, carols = (restarted_device_of(mallory, user, story, tmp_path) for user in (bob, carol))
    carols.updateContainerContent(id_of(story), b"Carol's").result(PATIENCE)
    assert hers.getContainerContent(id_of(story)).result(PATIENCE) == b"Carol's"
    go_on(story, sent_record(mallory))
    other = rewind(mallory, story, 1)
    for content in (b"Bob's", b"Bob's again"):
        his.updateContainerContent(id_of(story), content).result(PATIENCE)
        go_on(other, sent_record(mallory))
    for device in (hers, carols):
        check_all_refused(mallory, device, story, FORK)
    # As if Bob's second version followed from Carol's.
    joined = instead(skipped=[story.requests[1].record.body])
    with mallory.lying(VIEW, joined):
        for device in (hers, carols):
            check_all_refused(mallory, device, story, INTEGRITY)
    # Bob is never shown Carol's as if it were what he saw, so that he never signs over it.
    rewind(mallory, story, 2)
    check_all_refused(mallory, his, story, ROLLBACK)
    story.tell(carol, story.follow(carol, content=b"Carol's again"))
    check_all_refused(mallory, his, story, FORK)
    story.tell(carol, story.follow(carol, content=b"and again"))
    check_all_refused(mallory, his, story, FORK)
    assert hers.getContainerContent(id_of(story)).result(PATIENCE) == b"and again"


@attack(21, "rollback and fork")
def test_which_of_two_histories_a_fresh_device_gets_is_the_limit(mallory: HostileBroker) -> None:
    """It gets one that is consistent, not the newest; and then it stays with that one."""
    alice, bob, carol, _ = cast(mallory)
    story = of_four_versions(alice, bob, carol)
    older = rewind(mallory, story, 2)
    first = device_of(mallory, carol, alice)
    found = first.getContainer(id_of(story)).result(PATIENCE)
    assert (found.content, found.version) == (b"2", 2)
    plant(mallory, older, older.follow(bob, content=b"other"))
    assert first.getContainerContent(id_of(story)).result(PATIENCE) == b"other"
    rewind(mallory, story, 4)
    check_all_refused(mallory, first, story, FORK)
    second = device_of(mallory, carol, alice)
    assert second.getContainerContent(id_of(story)).result(PATIENCE) == b"2"


@attack(21, "rollback and fork")
@pytest.mark.parametrize("how", ["lost", "copied back"])
def test_a_trust_store_that_is_lost_or_copied_back_is_the_limit(
    mallory: HostileBroker, tmp_path: Path, how: str
) -> None:
    """A copy knows what was seen when it was made, and no more."""
    [alice] = people(mallory, 1)
    story, copy = Story(alice).created(content=b"1"), tmp_path / "copy"
    restarted_device_of(mallory, alice, story, tmp_path / "store")
    shutil.copytree(tmp_path / "store", copy)
    story.tell(alice, story.follow(alice, content=b"2"))
    with mallory.device(alice.ring, FileTrustStore(tmp_path / "store")) as device:
        assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"2"
    shutil.rmtree(tmp_path / "store")
    if how == "copied back":
        shutil.copytree(copy, tmp_path / "store")
    rewind(mallory, story, 1)
    device = mallory.device(alice.ring, FileTrustStore(tmp_path / "store"))
    assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"1"


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


@attack(21, "rollback and fork")
@pytest.mark.parametrize("page", PAGES)
def test_no_page_leads_from_what_was_seen_to_another_history(
    mallory: HostileBroker, page: str
) -> None:
    """What lies between the mark and the head comes in pages of its own where it is much."""
    alice, bob, carol, _ = cast(mallory)
    story = Story(alice).created({alice: OWNER, bob: OWNER, carol: NO_LIST})
    story.tell(alice, story.follow(alice, content=b"2"))
    devices = [device_of(mallory, user, alice, bob) for user in (alice, carol)]
    for device in devices:
        device.getContainer(id_of(story)).result(PATIENCE)
    other = twin(story)
    for _ in range(2):
        go_on(other, other.follow(bob, content=b"other"))
    for number in (3, 4, 5):
        story.tell(alice, story.follow(alice, content=b"%d" % number))
    answers, error = PAGES[page]
    for device in devices:
        with mallory.lying(VIEW, instead(skipped=[])):
            with (
                mallory.lying(BODIES, once(answers(story, other))),
                refused(mallory, device, error) as attempt,
            ):
                attempt(device.getContainer(id_of(story)))
            # The true pages do.
            assert device.getContainerContent(id_of(story)).result(PATIENCE) == b"5"


@attack(21, "rollback and fork")
def test_a_state_that_is_rolled_back_between_two_attempts_of_a_write_is_noticed(
    mallory: HostileBroker,
) -> None:
    """The broker invents a conflict, so that the program reads again before it signs again."""
    [alice] = people(mallory, 1)
    story = Story(alice).created()
    story.tell(alice, story.follow(alice, content=b"2"))
    device = device_of(mallory, alice)
    device.getContainer(id_of(story)).result(PATIENCE)
    before, count = marks(device), len(mallory.heard)

    def conflict(exchange: Exchange) -> None:
        rewind(mallory, story, 1)
        invent(exchange, BrokerError.conflictError())

    with mallory.meddling(RECORD, before=conflict), pytest.raises(BrokerError) as caught:
        device.updateContainerHeader(id_of(story), "secret").result(PATIENCE)
    assert type(caught.value) is ROLLBACK
    assert marks(device) == before
    assert mallory.since(count).count(RECORD) == 1
