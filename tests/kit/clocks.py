"""A process of `scbroker` whose clock a test sets: by this program, or in a fork of the nursery.

    python tests/kit/clocks.py FILE serve --port 0

FILE has eight bytes, the microseconds by which the clock is ahead. The test writes them, also while the
process runs, and the process reads them each time that it asks for the time. The monotonic clock stays.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

_AHEAD = struct.Struct("<q")


def write(file: Path, seconds: float) -> None:
    """Set the clock of the process that reads this file."""
    file.touch(0o600)  # as all files of a broker
    with file.open("r+b") as opened:
        opened.write(_AHEAD.pack(round(seconds * 1e6)))


def follow(file: Path) -> None:
    """Let the clock of this process be ahead by what the file says."""
    right = time.time_ns
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
    time.time_ns = lambda: right() + _AHEAD.unpack_from(ahead)[0] * 1000
    time.time = lambda: time.time_ns() / 1e9


def main() -> None:
    """Run the command."""
    follow(Path(sys.argv.pop(1)))

    from scbroker.cli import main as command

    command()


if __name__ == "__main__":
    main()
