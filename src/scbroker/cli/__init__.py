"""The command line: `scbroker serve`, `scbroker admin …` and commands for users."""

import sys
from typing import Final

from scbroker import BrokerError

_OF_USERS: Final = ("rich", "segno")
"""Packages that the extra `cli` installs and `server` does not."""


def main() -> None:
    """Run the `scbroker` command; print an error without its traceback, and exit with status 1."""
    try:
        from scbroker.cli.commands import app

        app()
    except ModuleNotFoundError as error:  # the extra is not installed, or only that of the client
        extra = "cli" if error.name in _OF_USERS else "server"
        sys.exit(
            f'The scbroker command needs {error.name}: install it with `pip install "scbroker[{extra}]"`.'
        )
    except BrokerError as error:
        sys.exit(f"scbroker: {error}")
