"""System calls that fail: `strace` injects the faults into a running broker.

`inject` is strace's expression: `fsync:error=EIO:when=2` fails the second fsync of each thread,
`rename:signal=KILL:when=1` kills the process where it would rename for the first time.
"""

import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import psutil

from tests.kit.waiting import wait_until

PROGRAM: Final = shutil.which("strace")


class Tampering:
    """strace attached to a process until the `with` block or the process ends."""

    def __init__(self, pid: int, log: Path, *injections: str) -> None:
        assert PROGRAM is not None, "strace is not installed: apt-get install strace"
        names = ",".join(injection.partition(":")[0] for injection in injections)
        options = [f"--inject={injection}" for injection in injections]
        self._log = log
        self._command = [PROGRAM, "-f", "-q", "-o", str(log), f"--trace={names}", *options]
        self._command += ["-p", str(pid)]
        self._pid = pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # A commit of the broker's own, such as that of its log's clearing, may be the one that kills it.
        wait_until(
            lambda: _is_traced(self._pid) or not is_alive(self._pid), "strace did not attach"
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Detach strace, which does not notice that a process ended whose main thread was killed."""
        self._process.send_signal(signal.SIGINT)
        wait_until(lambda: self._process.poll() is not None or not is_alive(self._pid))
        self._process.kill()
        self._process.wait()

    @property
    def injected(self) -> int:
        """Return how many faults were injected."""
        return len(
            re.findall(r"\(INJECTED|killed by SIGKILL", self._log.read_text("utf-8", "replace"))
        )


def is_alive(pid: int) -> bool:
    """Return whether a process runs: one that was killed stays as a zombie until its parent waits."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_traced(pid: int) -> bool:
    """Return whether every thread has a tracer."""
    # A thread, or the process, may end meanwhile.
    with suppress(FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        threads = [Path(f"/proc/{pid}/task/{t.id}/status") for t in psutil.Process(pid).threads()]
        return all("TracerPid:\t0" not in each.read_text() for each in threads)
    return False
