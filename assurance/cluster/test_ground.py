"""The processes of a deployment end with its block, and with a test runner that was killed."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from assurance.cluster import ceph
from assurance.cluster import ground as ground_module
from assurance.cluster.ground import Ground
from tests.kit.waiting import wait_until

SHELL = """
    from assurance.cluster.ground import Ground
    from tests.kit.waiting import wait_until
    with Ground() as ground:
        ground.start("parent", ["sh", "-c", "sleep 600 & wait"])
        wait_until(lambda: len(ground.processes()) == 2)
"""
CEPH = """
    from assurance.cluster.ceph import ObjectGateway
    with ObjectGateway() as gateway:
        ground = gateway.ground
"""
SAY = """
        print(ground.folder, *(process.pid for process in ground.processes()), flush=True)
        input()
"""


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.cluster("patroni")
def test_leaving_the_block_ends_what_its_processes_started_and_removes_the_folder() -> None:
    with Ground() as ground:
        ground.start("parent", ["sh", "-c", "sleep 600 & wait"])
        wait_until(lambda: len(ground.processes()) == 2)
        found = [process.pid for process in ground.processes()]
    assert not any(map(lives, found))
    assert not ground.folder.exists()


@pytest.mark.parametrize(
    "code, count",
    [
        pytest.param(SHELL, 2, marks=pytest.mark.cluster("patroni"), id="shell"),
        pytest.param(CEPH, 3, marks=pytest.mark.cluster("ceph"), id="ceph"),
    ],
)
def test_when_a_test_runner_is_killed_its_processes_end_and_the_folder_goes(
    code: str, count: int
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(code + SAY)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        folder, *pids = runner.stdout.readline().split()
        runner.send_signal(signal.SIGKILL)
    assert len(pids) == count
    wait_until(lambda: not any(lives(int(pid)) for pid in pids) and not Path(folder).exists())


@pytest.mark.cluster("patroni")
def test_a_process_that_ended_by_itself_is_not_waited_for_and_its_output_is_shown() -> None:
    with Ground() as ground:
        process = ground.start("false", ["sh", "-c", "echo why; exit 3"])
        with pytest.raises(RuntimeError, match="why"):
            ground_module.wait_until(lambda: False, lambda: ground.log("false"), [process])


def test_missing_programs_are_named_with_the_packages_that_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ground_module, "_PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="radosgw-admin") as caught, ceph.ObjectGateway():
        pass
    assert f"apt-get install --no-install-recommends {ceph.PACKAGES}" in str(caught.value)
