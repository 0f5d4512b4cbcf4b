"""Each step of storing a large content, with the broker killed there, or the disk failing there.

What the client is told is success, or an error that says to try again; once the fault is over the same
client finishes the same operation, and nothing is half there. strace injects the faults into a real
broker on SQLite and a folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from assurance.faults import scenes
from assurance.faults.scenes import Scene
from assurance.faults.stored import look, make_old
from assurance.faults.strace import Tampering
from assurance.faults.wholeness import check_numbers, check_objects, check_rows
from assurance.people import PATIENCE, new_device
from scbroker import BrokerError, Promise, ServerProvider
from scbroker.types import SecuredContainer
from tests.kit.brokers import BrokerProcess

pytestmark = pytest.mark.long

LARGE = bytes(range(256)) * 1000
"""Above what stands in a row: one object."""
SYNCS = "fsync,fdatasync"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scenes.sqlite(tmp_path / "data") as found:
        yield found


@pytest.fixture
def device(scene: Scene) -> ServerProvider:
    """A program that has written before: connections are open, the trust store knows its user."""
    device = scene.device(scene.first.new_user(), "the writer")
    device.createContainer(b"before").result(PATIENCE)
    return device


def check_whole(scene: Scene, device: ServerProvider, made: SecuredContainer) -> None:
    """It is there once, everything has its counterpart, and the sweep leaves nothing over."""
    assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
    listed, stored = scene.objects.names(), look(scene.database_url)
    assert [*check_rows(stored), *check_numbers(stored)] == []
    assert dict(check_objects(stored, scene.objects, listed)) == {}
    assert len(stored.rows["containers"]) == 2, "the second attempt made a container of its own"
    make_old(scene.database_url)
    device.deleteContainer(device.createContainer(b"").result(PATIENCE).id).result(PATIENCE)
    stored = look(scene.database_url)
    assert scene.objects.names() == {row.blob for row in stored.rows["chunks"]}


def wait_until_it_dies(scene: Scene) -> None:
    status = Path(f"/proc/{scene.first.pid}/status")
    deadline = time.monotonic() + PATIENCE
    while status.exists() and "State:\tZ" not in status.read_text():
        assert time.monotonic() < deadline, "the step never came"
        time.sleep(0.01)


# In the order in which they come. The object's name is reserved by a commit of its own; it is written
# under another name, renamed, synced with its folder; two more commits name it, and its container.
STEPS = {
    "before the name of the object is durable": ["fdatasync:signal=KILL:when=1"],
    "before the object has its name": ["rename:signal=KILL:when=1"],
    "before the object is durable": ["fsync:signal=KILL:when=1"],
    "before the object's folder is durable": ["fsync:signal=KILL:when=2"],
    "before the row of the object is durable": ["fdatasync:signal=KILL:when=2"],
    "before the record is durable": ["fdatasync:signal=KILL:when=3"],
}


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_killed_at_any_step_has_all_of_it_or_nothing_and_the_client_goes_on(
    scene: Scene, device: ServerProvider, tmp_path: Path, step: str
) -> None:
    victim = scene.victims[0]
    with Tampering(scene.first.pid, tmp_path / "strace", *STEPS[step]):
        promise = device.createContainer(LARGE)
        wait_until_it_dies(scene)
    victim.kill()
    assert not promise.done(), "the client was told something of what is not known"
    stored = look(scene.database_url)
    assert [*check_rows(stored), *check_numbers(stored)] == []
    victim.revive()
    check_whole(scene, device, promise.result(PATIENCE))


FAILURES = {
    "the object cannot be renamed": "rename:error=EIO",
    "the object cannot be synced": "fsync:error=EIO",
    "the database's log cannot be written": "pwrite64:error=ENOSPC",
    "the database's log cannot be synced": "fdatasync:error=EIO",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_disk_that_fails_is_an_error_to_try_again_and_afterwards_the_same_operation_ends_well(
    scene: Scene, tmp_path: Path, failure: str
) -> None:
    """Also after an fsync that failed: what it was for is written anew, to the last byte."""
    ring = scene.first.new_user()
    device = scene.device(ring, "the writer")
    device.createContainer(b"before").result(PATIENCE)
    with Tampering(scene.first.pid, tmp_path / "strace", FAILURES[failure]) as tampering:
        promise = device.createContainer(LARGE)
        deadline = time.monotonic() + PATIENCE
        while tampering.injected < 2 and not promise.done() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not promise.done(), "the broker said that it has what no disk took"
        assert tampering.injected > 1, "it was tried again"
    made = promise.result(PATIENCE)
    check_whole(scene, device, made)
    scene.victims[0].kill()
    scene.victims[0].revive()
    assert (
        scene.device(ring, "a fresh device").getContainerContent(made.id).result(PATIENCE) == LARGE
    )


class _FullLog(BrokerProcess):
    """Its standard error is a disk without room."""

    @property
    def _log_path(self) -> Path:
        return Path("/dev/full")


def test_a_log_that_cannot_be_written_fails_no_request(tmp_path: Path) -> None:
    """The warning of a disk that fails is lost where the log lies on it; the answer is what it was."""
    with _FullLog(tmp_path / "data") as broker, ExitStack() as stack:
        device = new_device(stack, broker, broker.new_user(), timeout=1.5)
        with Tampering(broker.pid, tmp_path / "strace", "fdatasync:error=EIO"):
            promise = device.createContainer(b"x")
            with pytest.raises(BrokerError.overloadedError):
                promise.result(PATIENCE)


def test_whoever_does_not_wait_is_told_that_the_disk_fails_and_may_try_again(
    scene: Scene, tmp_path: Path
) -> None:
    device = scene.device(scene.first.new_user(), "impatient", timeout=1.0)
    container = device.createContainer(b"one").result(PATIENCE).id
    with Tampering(scene.first.pid, tmp_path / "strace", "fdatasync:error=EIO"):
        promise: Promise[SecuredContainer] = device.updateContainerHeader(container, {"n": 2})
        with pytest.raises(BrokerError.overloadedError) as caught:
            promise.result(PATIENCE)
    assert caught.value.retryable
    made = device.updateContainerHeader(container, {"n": 3}).result(PATIENCE)
    assert made.version in (2, 3), "the update that failed may have happened, as a whole"
    stored = look(scene.database_url)
    assert [*check_rows(stored), *check_numbers(stored)] == []
