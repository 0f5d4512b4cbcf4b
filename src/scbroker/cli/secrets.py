"""Read KeyFiles, and secrets: from a file, the environment or a hidden prompt; never from an argument.

The arguments of a process can be read by other users of the machine, and shells keep them.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import scbroker  # lazy: each name is imported at its first use, so that commands start quickly
from scbroker import errors

_LARGEST_KEY_FILE: Final = 65_536
_LONGEST: Final = 4096
"""Maximum bytes of a file with a secret: a longer one is the wrong file."""


def _file_option(what: str) -> Any:
    return typer.Option(
        metavar="FILE",
        help=f"A file with the {what} in its first line; `-` reads a line of standard input. Without it, "
        f"{_variable(what)} is used, or you are asked.",
    )


def _variable(what: str) -> str:
    return f"SCBROKER_{what.upper().replace(' ', '_')}"


PassphraseFile = Annotated[Path | None, _file_option("passphrase")]
PasswordFile = Annotated[Path | None, _file_option("password")]
NewPassphraseFile = Annotated[Path | None, _file_option("new passphrase")]
NewPasswordFile = Annotated[Path | None, _file_option("new password")]
LinkPasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the link's password in its first line; `-` reads a line of standard input.",
    ),
]
LinkArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="LINK",
        help="The link; `-` or a pipe gives it on standard input. Without it, you are asked.",
    ),
]
ApiKeyFile = Annotated[Path | None, _file_option("API key")]


def secret(what: str, file: Path | None, *, new: bool = False) -> str:
    """Return the secret named `what`, such as "passphrase" or "new password". A new one is asked for twice.

    Raises `InvalidArgumentError` for a file that others can read, and if nobody can be asked.
    """
    if file is not None:
        return _from_file(what, file)
    variable = _variable(what)
    if (found := os.environ.get(variable)) is not None:
        if not found:
            raise errors.InvalidArgumentError(
                f"{variable} is empty: set it to the {what}, or unset it."
            )
        return found
    if not sys.stdin.isatty():
        # A link's password has the option --password-file: such a command takes no other password.
        option = f"--{what.lower().removeprefix('link ').replace(' ', '-')}-file"
        raise errors.InvalidArgumentError(
            f"The {what} is missing: set {variable}, pass {option}, or run the command in a terminal."
        )
    label = f"{'New ' if new and not what.startswith('new') else ''}{what}"
    return _asked(label[0].upper() + label[1:], twice=new)


def link_url(given: str | None) -> str:
    """Return the URL of a link from the command line, standard input or a hidden prompt."""
    if given is not None and given != "-":
        return given
    if sys.stdin.isatty():
        return _asked("Link", twice=False)
    return _from_file("link", Path("-"))


def _asked(label: str, *, twice: bool) -> str:
    """Ask until the person types something; if `twice`, ask for the same text again."""
    again = f"{label} again" if twice else False
    return str(typer.prompt(label, hide_input=True, confirmation_prompt=again, err=True))


def _from_file(what: str, file: Path) -> str:
    if str(file) == "-":
        text, shown = sys.stdin.buffer.readline(_LONGEST + 1), "Standard input"
    else:
        text, shown = _read(what, file), str(file)
    try:
        # utf-8-sig drops the byte order mark that editors on Windows write before the text.
        line = text.decode("utf-8-sig").partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        line = ""
    if not line or len(text) > _LONGEST:
        raise errors.InvalidArgumentError(
            f"{shown} has no {what} in its first line, or is larger than {_LONGEST} bytes."
        )
    return line


def _read(what: str, file: Path) -> bytes:
    """Read a file. If it cannot be opened, the error omits its name, which may be the secret itself."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                raise errors.InvalidArgumentError(
                    f"Other users of this machine can read {file}: run `chmod 600 {shlex.quote(str(file))}`."
                )
            return opened.read(_LONGEST + 1)
    except errors.InvalidArgumentError:  # before ValueError, of which it is a subclass
        raise
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"The file with the {what} cannot be read: {_reason(error)}."
        ) from None


def _reason(error: OSError | ValueError) -> object:
    """Return why a file cannot be opened; ValueError is raised for a NUL in its path."""
    return error.strerror if isinstance(error, OSError) else error


def key_file_of(file: Path) -> scbroker.KeyFile:
    """Read a KeyFile from a file. Raises `InvalidArgumentError` if the file is not a KeyFile."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LARGEST_KEY_FILE + 1)
    except (OSError, ValueError) as error:
        raise errors.InvalidArgumentError(f"{file} cannot be read: {_reason(error)}.") from None
    try:
        return scbroker.KeyFile(data)
    except errors.IntegrityError:
        raise errors.InvalidArgumentError(
            f"{file} is not a KeyFile: `scbroker key-file export` saves one."
        ) from None
