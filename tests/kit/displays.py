"""A virtual display for tests with windows."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def screen(size: str = "320x240") -> Iterator[dict[str, str]]:
    """Start a virtual display; yield the environment of a program that shows windows on it."""
    if shutil.which("Xvfb") is None:
        pytest.skip("no Xvfb, the virtual display: apt-get install xvfb")
    read, write = os.pipe()
    with subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{size}x24", "-nolisten", "tcp"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    ) as server:
        os.close(write)
        try:
            with os.fdopen(read) as chosen:
                yield {"DISPLAY": f":{chosen.readline().strip()}"}
        finally:
            server.terminate()
