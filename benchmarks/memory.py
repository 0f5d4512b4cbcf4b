"""Measure the peak of a process's resident memory on Linux, and prepare the memory of what is measured."""

import contextlib
import os
from pathlib import Path
from typing import Final

import psutil

_MIB: Final = 1024 * 1024
_RESET_PEAK: Final = "5"


def reuse_memory(folder: Path, size: int) -> None:
    """Write and delete a file of `size` bytes, so that a measured program writes into memory in use before.

    The host of a virtual machine provides a page only at its first use, which takes ten times as long as
    writing to it. The first program that is measured would otherwise pay for that.
    """
    path, block = folder / "scratch", bytes(8 * _MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
    path.unlink()


class Peak:
    """The peak of a process's resident memory since `begin`, above that at construction."""

    def __init__(self, pid: int | None = None) -> None:
        self._folder = Path("/proc") / str(os.getpid() if pid is None else pid)
        self._start: float | None = None
        with contextlib.suppress(OSError):
            self._start = self._read("VmRSS")
            self.begin()

    def begin(self) -> None:
        """Reset the peak; the value that it is compared with stays."""
        if self._start is not None:
            (self._folder / "clear_refs").write_text(_RESET_PEAK)

    def above(self) -> float | None:
        """Return the peak in MiB; None if the platform does not count it."""
        return None if self._start is None else self._read("VmHWM") - self._start

    def highest(self) -> float | None:
        """Return the peak in MiB since the program began; None if it ended or the platform has no count."""
        with contextlib.suppress(OSError):
            return self._read("VmHWM")
        return None

    def _read(self, name: str) -> float:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise OSError(f"{self._folder} does not contain {name}")


def resident(pid: int) -> tuple[float, float | None]:
    """Return the resident and the proportional set size (RSS, PSS) in MiB; no PSS outside Linux."""
    process = psutil.Process(pid)
    share = getattr(process.memory_full_info(), "pss", None)
    return process.memory_info().rss / _MIB, None if share is None else share / _MIB
