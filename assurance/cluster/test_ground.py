"""What a deployment starts ends with it, also when nobody ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from assurance.cluster import ground as ground_module
from assurance.cluster.ground import Ground

pytestmark = pytest.mark.cluster("patroni")

SECONDS = 20.0


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_leaving_the_block_ends_what_its_processes_started_and_removes_the_folder() -> None:
    with Ground() as ground:
        ground.start("parent", ["sh", "-c", "sleep 600 & wait"])
        wait_until(lambda: len(ground.processes()) == 2)
        found = [process.pid for process in ground.processes()]
    assert not any(map(lives, found))
    assert not ground.folder.exists()


def test_a_killed_test_runner_takes_everything_along() -> None:
    code = (
        "from assurance.cluster.ground import Ground\n"
        "with Ground() as ground:\n"
        "    ground.start('parent', ['sh', '-c', 'sleep 600 & wait'])\n"
        "    while len(ground.processes()) < 2: pass\n"
        "    print(ground.folder, *(p.pid for p in ground.processes()), flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        folder, *pids = runner.stdout.readline().split()
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(lives(int(pid)) for pid in pids))
    wait_until(lambda: not Path(folder).exists())


def test_what_ends_by_itself_is_not_waited_for() -> None:
    with Ground() as ground:
        process = ground.start("false", ["sh", "-c", "echo why; exit 3"])
        with pytest.raises(RuntimeError, match="why"):
            ground_module.wait_until(lambda: False, SECONDS, lambda: ground.log("false"), [process])
