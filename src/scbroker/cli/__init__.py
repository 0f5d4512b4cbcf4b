"""The command line: `scbroker serve` and `scbroker admin …`."""

import sys


def main() -> None:
    """Run the `scbroker` command; name the missing package if the extra is not installed."""
    try:
        from scbroker.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"The scbroker command needs {error.name}: install it with `pip install scbroker[server]`."
        )
    app()
