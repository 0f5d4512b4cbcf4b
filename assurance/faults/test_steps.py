"""A broker that is killed, or whose disk fails, at each step of storing a large content.

The client gets success, or an error that is retryable. Once the fault is over the same client finishes the
same operation, and nothing is half stored. strace injects the faults into a real broker on SQLite.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from assurance.faults import scenes
from assurance.faults.scenes import Scene
from assurance.faults.stored import look, make_old
from assurance.faults.strace import Tampering, is_alive
from assurance.faults.wholeness import check_stored
from assurance.people import new_device
from scbroker import AccessLevel, BrokerError, Promise, ServerProvider
from scbroker.types import SecuredContainer
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import NewProvider
from tests.kit.group_acts import NAME, Act, each_act, start
from tests.kit.group_acts import Scene as Team
from tests.kit.impatience import be_impatient
from tests.kit.stops import Step, Stops
from tests.kit.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.long, pytest.mark.process]

LARGE = bytes(range(256)) * 1000
"""Too large for a row: one object."""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scenes.sqlite(tmp_path / "data") as found:
        yield found


@pytest.fixture
def device(scene: Scene) -> ServerProvider:
    """A program that has written before: its connections are open, and the trust store has marks."""
    device = scene.device(scene.first.new_user(), "the writer")
    device.createContainer(b"before").result(PATIENCE)
    return device


def check_whole(scene: Scene, device: ServerProvider, made: SecuredContainer) -> None:
    """Check that it is stored once and whole, and that a sweep leaves no other object."""
    assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
    assert check_stored(scene.first) == []
    stored = look(scene.database_url)
    assert len(stored.rows["containers"]) == 2, "the second attempt created another container"
    make_old(scene.database_url)
    device.deleteContainer(device.createContainer(b"").result(PATIENCE).id).result(PATIENCE)
    stored = look(scene.database_url)
    assert scene.objects() == {row.blob for row in stored.rows["chunks"]}


def wait_until_it_dies(scene: Scene) -> None:
    wait_until(lambda: not is_alive(scene.first.pid), "the broker never reached the step")


# In their order: a commit reserves the object's name; the object is written under another name, renamed and
# synced with its folder; two more commits store its row, and the record of the container.
STEPS = {
    "before the name of the object is durable": ["fdatasync:signal=KILL:when=1"],
    "before the object has its name": ["rename:signal=KILL:when=1"],
    "before the object is durable": ["fsync:signal=KILL:when=1"],
    "before the object's folder is durable": ["fsync:signal=KILL:when=2"],
    "before the row of the object is durable": ["fdatasync:signal=KILL:when=2"],
    "before the record is durable": ["fdatasync:signal=KILL:when=3"],
}


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_killed_at_any_step_has_stored_all_or_nothing_and_the_client_finishes(
    scene: Scene, device: ServerProvider, tmp_path: Path, step: str
) -> None:
    victim = scene.victims[0]
    with Tampering(scene.first.pid, tmp_path / "strace", *STEPS[step]):
        promise = device.createContainer(LARGE)
        wait_until_it_dies(scene)
    victim.kill()
    assert not promise.done(), "the client got an answer although the outcome is unknown"
    assert check_stored(scene.first) == []
    victim.revive()
    check_whole(scene, device, promise.result(PATIENCE))


@pytest.mark.parametrize("step", ["fdatasync:signal=KILL:when=1", "fdatasync:signal=KILL:when=2"])
def test_a_broker_killed_while_somebody_leaves_has_stored_the_departure_or_not_and_they_leave_once(
    scene: Scene, device: ServerProvider, tmp_path: Path, step: str
) -> None:
    """The departure is one transaction. If the kill comes after it, the client may have its answer."""
    leaver = scene.device(scene.first.new_user(), "the leaver")
    other = leaver.getUserId().result(PATIENCE)
    made = device.createContainer(b"shared").result(PATIENCE)
    device.grantAccess(made.id, AccessLevel(other)).result(PATIENCE)
    victim = scene.victims[0]
    with Tampering(scene.first.pid, tmp_path / "strace", step):
        promise = leaver.leaveContainer(made.id)
        wait_until(lambda: promise.done() or not is_alive(scene.first.pid))
        if step.endswith("1"):
            assert not promise.done(), "the client got an answer although the outcome is unknown"
    victim.kill()
    assert check_stored(scene.first) == []
    victim.revive()
    promise.result(PATIENCE)
    levels = device.getContainerMetadata(made.id).result(PATIENCE).access or ()
    assert other not in {level.userId for level in levels}
    with pytest.raises(BrokerError.notFoundError):
        leaver.getContainer(made.id).result(PATIENCE)
    assert check_stored(scene.first) == []


@on_sqlite
@pytest.mark.parametrize("commit", [1, 2])
@each_act
def test_a_broker_killed_at_any_commit_of_a_change_of_a_group_has_stored_all_or_nothing(
    tmp_path: Path, new_provider: NewProvider, act: Act, commit: int
) -> None:
    """A change is one commit, a deletion and a renewal two. The client's second attempt does what is left.

    It sends nothing while fresh devices look at what the broker has stored.
    """
    looked = threading.Event()
    wait = partial(asyncio.to_thread, looked.wait, PATIENCE)
    with BrokerProcess(tmp_path / "data") as broker:
        team = Team(broker, new_provider)
        with Stops(NAME, Step(0, answered=False), wait) as stops:
            fault = f"fdatasync:signal=KILL:when={commit}"
            with Tampering(broker.pid, tmp_path / "strace", fault):
                promise = start(team.manager, act, team)
                wait_until(lambda: promise.done() or not is_alive(broker.pid))
            broker.kill()
            stops.step = Step(stops.sent + 1, answered=False)
            assert commit == 2 or not promise.done(), "an answer although the outcome is unknown"
            assert check_stored(broker) == []
            wait_until(lambda: promise.done() or stops.stopped)
            broker.start()
            act.is_done(team)
            looked.set()
            promise.result(PATIENCE)
        act.ends(team, False)
        assert check_stored(broker) == []


FAILURES = {
    "the object cannot be renamed": "rename:error=EIO",
    "the object cannot be synced": "fsync:error=EIO",
    "the database's log cannot be written": "pwrite64:error=ENOSPC",
    "the database's log cannot be synced": "fdatasync:error=EIO",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_disk_is_a_retryable_error_and_afterwards_the_same_operation_succeeds(
    scene: Scene, tmp_path: Path, failure: str
) -> None:
    """Also after a failed fsync: everything it was for is written again."""
    ring = scene.first.new_user()
    device = scene.device(ring, "the writer")
    device.createContainer(b"before").result(PATIENCE)
    with Tampering(scene.first.pid, tmp_path / "strace", FAILURES[failure]) as tampering:
        promise = device.createContainer(LARGE)
        retried = "the client did not retry"
        wait_until(lambda: tampering.injected > 1 or promise.done(), retried)
        assert not promise.done(), "the broker acknowledged what is not on the disk"
    made = promise.result(PATIENCE)
    check_whole(scene, device, made)
    scene.victims[0].kill()
    scene.victims[0].revive()
    assert (
        scene.device(ring, "a fresh device").getContainerContent(made.id).result(PATIENCE) == LARGE
    )


class _FullLog(BrokerProcess):
    """A broker whose standard error is a full disk."""

    @property
    def _log_path(self) -> Path:
        return Path("/dev/full")


def test_a_log_that_cannot_be_written_fails_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning about the failing disk is lost, and the answer stays the same."""
    with _FullLog(tmp_path / "data") as broker, ExitStack() as stack:
        device = new_device(stack, broker, broker.new_user())
        be_impatient(monkeypatch)
        with Tampering(broker.pid, tmp_path / "strace", "fdatasync:error=EIO"):
            promise = device.createContainer(b"x")
            with pytest.raises(BrokerError.overloadedError):
                promise.result(PATIENCE)


def test_a_client_that_does_not_wait_gets_a_retryable_error_while_the_disk_fails(
    scene: Scene, tmp_path: Path
) -> None:
    device = scene.device(scene.first.new_user(), "impatient")
    container = device.createContainer(b"one").result(PATIENCE).id
    with (
        pytest.MonkeyPatch.context() as patched,
        Tampering(scene.first.pid, tmp_path / "strace", "fdatasync:error=EIO"),
    ):
        be_impatient(patched)
        promise: Promise[SecuredContainer] = device.updateContainerHeader(container, {"n": 2})
        with pytest.raises(BrokerError.overloadedError) as caught:
            promise.result(PATIENCE)
    assert caught.value.retryable
    made = device.updateContainerHeader(container, {"n": 3}).result(PATIENCE)
    assert made.version in (2, 3), "the update that failed may have happened, as a whole"
    assert check_stored(scene.first) == []
