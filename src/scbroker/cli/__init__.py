"""The command line: commands of users, `scbroker serve` and `scbroker admin …`."""

import os
import sys
from typing import Final

import scbroker
from scbroker import errors

_OF_USERS: Final = ("keyring", "rich", "segno", "tomlkit")
"""Packages that the extra `cli` installs and `server` does not."""

# The exit statuses, which docs/guide/command-line.md lists. 1 is any other error, 130 is Ctrl-C.
WRONG_USE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
UNAVAILABLE: Final = 5
_STATUS: Final[tuple[tuple[type[errors.BrokerError], int], ...]] = (
    (errors.InvalidArgumentError, WRONG_USE),
    (errors.NotFoundError, NOT_FOUND),
    (errors.DeletedError, NOT_FOUND),
    (errors.NotAuthenticatedError, REFUSED),
    (errors.CredentialsError, REFUSED),
    (errors.ApiKeyError, REFUSED),
    (errors.ChallengeError, REFUSED),
    (errors.PermissionDeniedError, REFUSED),
    (errors.BrokerUnavailableError, UNAVAILABLE),
)


def main() -> None:
    """Run the `scbroker` command; print an error without its traceback, and exit with its status."""
    if "_SCBROKER_COMPLETE" in os.environ:  # a shell asks what completes a command line
        from scbroker.cli.completion import answer

        answer()
    try:
        from scbroker.cli.app import app

        app()
    except ModuleNotFoundError as error:  # the extra is not installed, or only that of the client
        extra = "cli" if error.name in _OF_USERS else "server"
        sys.exit(
            f'This command needs {error.name}: install it with `pip install "scbroker[{extra}]"`.'
        )
    except scbroker.BrokerError as error:
        from scbroker.cli.output import printable

        print(f"scbroker: {printable(error.message)}", file=sys.stderr)
        sys.exit(status_of(error))
    except BrokenPipeError:  # the reader of a pipe has ended, as `head` does
        sys.stderr.close()
        sys.exit(1)


def status_of(error: errors.BrokerError) -> int:
    """Return the exit status for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 1)
