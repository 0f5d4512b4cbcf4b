"""The command line: `scbroker serve` and `scbroker admin …`."""

import sys

from scbroker import BrokerError


def main() -> None:
    """Run the `scbroker` command; print an error without its traceback, and exit with status 1."""
    try:
        from scbroker.cli.commands import app

        app()
    except ModuleNotFoundError as error:  # the extra is not installed, or only that of the client
        sys.exit(
            f"The scbroker command needs {error.name}: install it with `pip install scbroker[server]`."
        )
    except BrokerError as error:
        sys.exit(f"scbroker: {error}")
