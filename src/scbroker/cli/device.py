"""Check whether this device can keep a session, before a command asks for a secret or registers a user."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import scbroker  # loads its names when they are used: a command without a session needs few
from scbroker import errors
from scbroker.folders import make_folder, platform_folder

if TYPE_CHECKING:
    from scbroker.cli.profiles import Profile


def check(session_folder: str | None, trust_folder: str | None) -> None:
    """Check that a session and what this device verifies can be kept there; None is the default place.

    Raises `SessionStoreError` without a keychain, and `InvalidArgumentError` for a folder that cannot be
    written. Both messages name the option that chooses another place.
    """
    sessions(session_folder)
    marks(trust_folder)


def check_for(
    profile: Profile | None, session_folder: str | None, trust_folder: str | None
) -> None:
    """Check the folders that options give; for those that they do not, what the saved profile has."""
    check(
        session_folder or (profile.session_folder if profile else None),
        trust_folder or (profile.trust_folder if profile else None),
    )


def sessions(folder: str | None) -> str:
    """Check that a session can be kept; return where."""
    if folder is None:
        scbroker.KeychainSessionStore().check()
        return "the system's keychain"
    scbroker.FileSessionStore(folder).check()
    _check_written(Path(folder))
    return f"{folder}, whose files anybody can use who can read them"


def marks(folder: str | None) -> Path:
    """Check that what this device verifies can be kept; return the folder."""
    found = Path(folder or platform_folder("state", ", or pass --trust-folder"))
    _check_written(found)
    scbroker.FileTrustStore(found).read_pass(uuid.UUID(int=0))  # refuses what others can write
    return found


def _check_written(folder: Path) -> None:
    try:
        make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"{error.filename or folder} cannot be written ({error.strerror}): choose other folders with "
            "--session-folder and --trust-folder."
        ) from None
