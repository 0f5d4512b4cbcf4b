"""A full disk: a tmpfs of 12 MB, which only root may mount.

Without root, `test_steps` injects ENOSPC into the writes of the database's log.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assurance.faults import scenes
from assurance.faults.wholeness import check_stored
from scbroker import BrokerError
from tests.kit.impatience import be_impatient
from tests.kit.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.long, pytest.mark.process]

LARGE = bytes(range(256)) * 4000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")
def test_on_a_full_disk_nothing_is_half_stored_and_with_space_again_waiting_operations_succeed(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with scenes.sqlite(small_disk / "data") as scene:
        ring = scene.first.new_user()
        device = scene.device(ring, "patient")
        kept = device.createContainer(b"kept", {"n": 1}).result(PATIENCE).id
        filler = small_disk / "filler"
        hasty = scene.device(ring, "hasty")
        _fill(filler)
        with pytest.MonkeyPatch.context() as patched:
            be_impatient(patched)
            for attempt in (
                hasty.createContainer(LARGE),
                hasty.updateContainerContent(kept, b"y" * 60_000),
            ):
                with pytest.raises(BrokerError.overloadedError) as caught:
                    attempt.result(PATIENCE)
                assert caught.value.retryable
        assert device.getContainerContent(kept).result(PATIENCE) == b"kept", (
            "reads fail on a full disk"
        )
        caplog.clear()
        waiting = [
            device.createContainer(LARGE),
            device.updateContainerContent(kept, b"z" * 60_000),
        ]
        wait_until(lambda: "is sent again" in caplog.text)
        assert not any(promise.done() for promise in waiting)
        filler.unlink()
        made, changed = (promise.result(PATIENCE) for promise in waiting)
        assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
        assert device.getContainerContent(changed.id).result(PATIENCE) == b"z" * 60_000
        assert check_stored(scene.first) == []


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
