"""The command line: `scbroker serve`, `scbroker admin …`. Says which extra is missing, if one is."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the console script."""
    try:
        from scbroker.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"The scbroker command needs {error.name}: install it with `pip install scbroker[server]`."
        )
    app()
