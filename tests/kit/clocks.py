"""`scbroker` on a machine whose clock is wrong: the command of another process, by file name.

python tests/kit/clocks.py SECONDS serve --port 0
"""

import sys
import time


def main() -> None:
    """Run the command with a clock that is ahead by so many seconds."""
    ahead = int(sys.argv.pop(1)) * 10**9
    right = time.time_ns
    time.time_ns = lambda: right() + ahead
    time.time = lambda: time.time_ns() / 1e9

    from scbroker.cli import main as command

    command()


if __name__ == "__main__":
    main()
