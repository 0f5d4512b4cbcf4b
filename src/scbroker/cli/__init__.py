"""The command line: commands of users, `scbroker serve` and `scbroker admin …`."""

import io
import os
import sys
from typing import Final

import scbroker
from scbroker import errors
from scbroker.extras import install

_EXTRAS: Final = {"ui": "ui", "serve": "server", "admin": "cli,server"}
"""The extras that a command needs, by its name; "cli" for every other command."""

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
    (errors.SuspendedError, REFUSED),
    (errors.ApiKeyError, REFUSED),
    (errors.ChallengeError, REFUSED),
    (errors.PermissionDeniedError, REFUSED),
    (errors.QuotaExceededError, REFUSED),
    (errors.BrokerUnavailableError, UNAVAILABLE),
)

_MORE: Final = {
    errors.NotAuthenticatedError.code: "Run `scbroker login`.",
    errors.SessionStoreError.code: "With --session-folder FOLDER, `scbroker register`, `login` and `ui` keep "
    "the session in a folder: anybody who can read this folder has the account.",
    errors.EventsExpiredError.code: "`scbroker events --since` takes that number.",
    errors.TrustStoreError.code: "`scbroker login --trust-folder FOLDER` chooses another folder.",
    errors.UnsettledAccessError.code: "`scbroker mark access` shows the change, and accepts or undoes it.",
}
"""Advice that the command line adds to a message, by error code: messages themselves are for programs too."""


def main() -> None:
    """Run the `scbroker` command; print an error without its traceback, and exit with its status."""
    os.umask(os.umask(0o077) | 0o022)  # others must not write files that a shell runs
    try:
        _complete_streams()
        from scbroker.cli.command import program

        try:
            program(sys.argv[1:])()
        finally:
            sys.stdout.flush()  # now: nothing handles an error of the flush at interpreter exit
    except ModuleNotFoundError as error:
        module = (error.name or str(error)).partition(".")[0].replace("_", "-")
        extra = install(_EXTRAS.get("".join(sys.argv[1:2]), "cli"))
        sys.exit(f"scbroker: This command needs the Python package {module}: run `{extra}`.")
    except scbroker.BrokerError as error:
        from scbroker.cli.output import Output

        Output(as_json=False, quiet=False).error(sentence(error))
        sys.exit(status_of(error))
    except MemoryError:
        sys.exit("scbroker: There is too little memory for this command: give the process more.")
    except BrokenPipeError:  # the reader of a pipe has ended, as `head` does
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _drop_output()
        from scbroker.cli.output import Output

        what = f"{error.filename} cannot be used: " if error.filename else ""
        Output(as_json=False, quiet=False).error(f"{what}{error.strerror or error}.")
        sys.exit(1)


def _complete_streams() -> None:
    """Replace streams that the caller has closed, as `>&-` does, by streams that fail when used.

    They take the same descriptors: otherwise a file that the program opens could become its standard output.
    Characters that the encoding of standard output lacks are written as escapes.
    """
    unusable = (
        ("stdin", "r", os.O_WRONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    )
    for number, (name, mode, flags) in enumerate(unusable):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            # Stays open until the process ends.
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard unwritten output, so that flushing standard output at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def status_of(error: errors.BrokerError) -> int:
    """Return the exit status for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 1)


def sentence(error: errors.BrokerError) -> str:
    """Return an error's message with advice, and after a fault of the broker the request's id."""
    text = error.message
    more = _MORE.get(error.code)
    if more and "`scbroker" not in text:
        text = f"{text} {more}"
    if error.requestId and isinstance(error, errors.BrokerFaultError | errors.OverloadedError):
        text = f"{text} (request {error.requestId})"
    return text
