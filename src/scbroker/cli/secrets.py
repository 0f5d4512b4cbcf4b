"""Read secrets: from a file, from the environment, or from a hidden prompt; never from an argument.

The arguments of a process can be read by other users of the machine, and shells keep them.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from scbroker import errors

_LONGEST: Final = 4096
"""Bytes of a file with a secret: more is a wrong file."""

PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help="A file that has the passphrase in its first line. Otherwise SCBROKER_PASSPHRASE has it, or "
        "you are asked."
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        help="A file that has the password in its first line. Otherwise SCBROKER_PASSWORD has it, or "
        "you are asked."
    ),
]


def secret(what: str, file: Path | None, *, new: bool = False) -> str:
    """Return the secret named `what`: "password" or "passphrase". A new one is asked for twice.

    Raises `InvalidArgumentError` for a file that others can read, and if nobody can be asked.
    """
    if file is not None:
        return _from_file(what, file)
    variable = f"SCBROKER_{what.upper()}"
    if (found := os.environ.get(variable)) is not None:
        return found
    if not sys.stdin.isatty():
        raise errors.InvalidArgumentError(
            f"The {what} is missing: set {variable}, pass --{what}-file, or run the command in a terminal."
        )
    label = f"{'New ' if new else ''}{what}".capitalize()
    found = typer.prompt(label, hide_input=True, confirmation_prompt=new, err=True)
    return str(found)


def _from_file(what: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
                raise errors.InvalidArgumentError(
                    f"Other users of this machine can read {file}: run `chmod 600 {file}`."
                )
            text = opened.read(_LONGEST + 1)
    except OSError as error:
        raise errors.InvalidArgumentError(f"{file} cannot be read: {error.strerror}.") from None
    try:
        line = text.decode("utf-8").partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        line = ""
    if not line or len(text) > _LONGEST:
        raise errors.InvalidArgumentError(
            f"{file} has no {what} in its first line, or is larger than {_LONGEST} bytes."
        )
    return line
