"""A disk with no room left: a real one where the tests run as root, a tmpfs of a few megabytes.

Only root may mount one. For everybody else `test_steps` injects ENOSPC where the database's log is
written.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assurance.faults import scenes
from assurance.faults.stored import look
from assurance.faults.wholeness import check_numbers, check_objects, check_rows
from assurance.people import PATIENCE
from scbroker import BrokerError

pytestmark = pytest.mark.long

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


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk of one's own takes root")
def test_on_a_full_disk_nothing_is_half_there_and_with_room_again_everything_goes_on(
    small_disk: Path,
) -> None:
    with scenes.sqlite(small_disk / "data") as scene:
        ring = scene.first.new_user()
        device = scene.device(ring, "patient")
        kept = device.createContainer(b"kept", {"n": 1}).result(PATIENCE).id
        filler = small_disk / "filler"
        hasty = scene.device(ring, "hasty", timeout=1.5)
        _fill(filler)
        for attempt in (
            hasty.createContainer(LARGE),
            hasty.updateContainerContent(kept, b"y" * 60_000),
        ):
            with pytest.raises(BrokerError.overloadedError) as caught:
                attempt.result(PATIENCE)
            assert caught.value.retryable
        assert device.getContainerContent(kept).result(PATIENCE) == b"kept", "reading goes on"
        waiting = [
            device.createContainer(LARGE),
            device.updateContainerContent(kept, b"z" * 60_000),
        ]
        with pytest.raises(TimeoutError):
            waiting[0].result(1.0)
        filler.unlink()
        made, changed = (promise.result(PATIENCE) for promise in waiting)
        assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
        assert device.getContainerContent(changed.id).result(PATIENCE) == b"z" * 60_000
        listed, stored = scene.objects.names(), look(scene.database_url)
        assert [*check_rows(stored), *check_numbers(stored)] == []
        assert dict(check_objects(stored, scene.objects, listed)) == {}


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
