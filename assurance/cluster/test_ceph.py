"""The S3 of the tests: what is missing is named, and nothing of it outlives the test runner."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil
import pytest

from assurance.cluster.ceph import PACKAGES, ObjectGateway

_PATIENCE: Final = 30.0
_SCRIPT: Final = """
import os, signal
from assurance.cluster.ceph import ObjectGateway
with ObjectGateway() as gateway:
    print(gateway._folder, *(process.pid for process in gateway._running.values()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_programs_that_are_missing_are_named_with_the_packages_that_bring_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="radosgw-admin") as caught, ObjectGateway():
        pass
    assert f"apt-get install --no-install-recommends {PACKAGES}" in str(caught.value)


@pytest.mark.cluster("ceph")
def test_nothing_of_it_outlives_the_process_that_started_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    folder, *pids = ended.stdout.split()
    assert len(pids) == 3
    deadline = time.monotonic() + _PATIENCE
    while Path(folder).exists() or any(_runs(int(pid)) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
