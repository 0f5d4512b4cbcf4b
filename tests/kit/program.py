"""`scbroker` as a test runs it: its clock may be ahead, and Argon2id may cost nothing.

The variable CLOCK names a file of eight bytes, the microseconds by which the clock is ahead. The test writes
them, also while the process runs, and the process reads them each time that it asks for the time. The
monotonic clock stays.
"""

import fcntl
import mmap
import os
import struct
import sys
import termios
import time
from pathlib import Path

_AHEAD = struct.Struct("<q")


def set_clock(file: Path, seconds: float) -> None:
    """Set the clock of the process that reads this file."""
    file.touch(0o600)  # as all files of a broker
    with file.open("r+b") as opened:
        opened.write(_AHEAD.pack(round(seconds * 1e6)))


def _follow(file: Path) -> None:
    """Let the clock of this process be ahead by what the file says."""
    right = time.time_ns
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
    time.time_ns = lambda: right() + _AHEAD.unpack_from(ahead)[0] * 1000
    time.time = lambda: time.time_ns() / 1e9


def make_argon2id_cheap() -> None:
    """Let the commands of this process use the Argon2id of the tests."""
    import scbroker.keys
    from tests.kit import argon2

    vars(scbroker.keys)["stretch"] = argon2.stretch


def main(*, is_cheap: bool) -> None:
    """Run the command, in a session of its own."""
    if os.isatty(1):  # Ctrl-C is for this process from now on
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    if clock := os.environ.pop("CLOCK", ""):
        _follow(Path(clock))
    if is_cheap:
        make_argon2id_cheap()
    sys.argv[0] = "scbroker"

    from scbroker.cli import main as command

    command()
