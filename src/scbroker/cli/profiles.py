"""Load and save profiles: each names a broker and one of its users.

`register` and `login` write the file, and a person may edit it:

    default = "work"

    [profiles.work]
    server_url = "https://broker.example"
    api_key = "…"
    fingerprint = "…"
    card_name = "Alice"

Several commands may change it at the same time: each locks it from reading to replacing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

import scbroker
from scbroker import errors
from scbroker.folders import make_folder, platform_folder, regular

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

FIRST: Final = "default"
"""The name of a profile that `register` or `login` saves without `--profile`."""
UNKNOWN: Final = "0000 " * 16
"""The fingerprint in a profile whose user is not registered or logged in yet."""
_NAME: Final = r"^[A-Za-z0-9_.-]{1,64}$"
_LOCK_SECONDS: Final = 10.0
Name = Annotated[str, Meta(pattern=_NAME)]


class Profile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A broker and a user of it."""

    name: Name
    server_url: str
    api_key: str
    fingerprint: str
    """The user's; the user id is derived from it."""
    card_name: str
    """The name on the user's contact card."""
    application_name: str = "scbroker"
    """The name of this program in the broker's event log."""
    session_folder: str | None = None
    """A folder for kept sessions; the system's keychain if None."""
    trust_folder: str | None = None
    """The folder of the trust store; the platform's state folder if None."""
    object_store_origins: list[str] = []
    """Origins of the broker's object store that large contents may be sent to directly."""

    def __repr__(self) -> str:  # the API key stays out of logs
        return f"<Profile {self.name}: user {self.user_id} of {self.server_url}>"

    @property
    def card(self) -> scbroker.ContactCard:
        return scbroker.ContactCard(self.fingerprint, self.server_url, self.card_name)

    @property
    def user_id(self) -> uuid.UUID:
        return self.card.userId

    def command(self, command: str) -> str:
        """Return a command line of this profile, for a message."""
        chosen = "" if self.name == FIRST else f" --profile {self.name}"
        return f"scbroker {command}{chosen}"

    def __post_init__(self) -> None:
        """Raise `InvalidArgumentError` for a value that no command could use."""
        _ = self.card
        for folder in (self.session_folder, self.trust_folder):
            if folder is not None and not Path(folder).is_absolute():
                raise errors.InvalidArgumentError(f"{folder!r} is not an absolute path")


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the configuration file."""

    default: Name = FIRST
    profiles: dict[Name, Profile] = {}


def path() -> Path:
    """Return the path of the configuration file."""
    return (
        platform_folder("config", ", or XDG_CONFIG_HOME to a folder for configuration")
        / "config.toml"
    )


def load(name: str | None) -> Profile:
    """Return the named profile, or the default one. Raises `InvalidArgumentError` without it."""
    if (found := find(name)) is None:
        file = read()
        raise _unknown(file.default if name is None else name, file)
    return found


def find(name: str | None) -> Profile | None:
    """Return the named profile, or the default one; None if it was not saved yet.

    Without a profile's name, a SCBROKER_SERVER_URL of another broker is an error: ignoring it could store
    data at a broker that the person does not expect.
    """
    file = read()
    found = file.profiles.get(file.default if name is None else name)
    other = os.environ.get("SCBROKER_SERVER_URL")
    if found and name is None and other and other.rstrip("/") != found.server_url.rstrip("/"):
        raise errors.InvalidArgumentError(
            f"SCBROKER_SERVER_URL names {other}, and profile {found.name} is for {found.server_url}: unset "
            f"SCBROKER_SERVER_URL, or choose a profile with --profile."
        )
    return found


def _unknown(name: str, file: File) -> errors.BrokerError:
    known = ", ".join(sorted(file.profiles))
    return errors.InvalidArgumentError(
        f"Profile {name} does not exist: use one of {known}, or run `scbroker login --profile {name}`."
        if known
        else "You have no profile yet: run `scbroker register`, or `scbroker login` on another device."
    )


def new_name(given: str | None) -> str:
    """Return the name of a profile that is to be added: the given one, or that of the default profile.

    Raises `InvalidArgumentError` if it exists already, and if the file cannot be written.
    """
    name = read().default if given is None else given
    if not re.fullmatch(_NAME, name):
        raise errors.InvalidArgumentError(
            f"{name!r} cannot be the name of a profile: use 1 to 64 letters, digits and the characters _.-"
        )
    with _locked():
        if name in read().profiles:
            raise _taken(name)
        import tempfile

        tempfile.TemporaryFile(dir=path().resolve().parent).close()
    return name


def changed(profile: Profile, **values: str | None) -> Profile:
    """Return a profile with other values; those that are None stay as they are."""
    given = {field: value for field, value in values.items() if value is not None}
    return msgspec.structs.replace(profile, **given)


def _taken(name: str) -> errors.BrokerError:
    return errors.InvalidArgumentError(
        f"Profile {name} exists already: choose another name with --profile, or log in to it with "
        f"`scbroker login --profile {name}`."
    )


def read() -> File:
    """Read the configuration file. Raises `InvalidArgumentError` for a wrong file."""
    text, where = _text(), ""
    try:
        given = tomllib.loads(text)
        for name, profile in given.get("profiles", {}).items():
            where, profile["name"] = f"in profile {name}, ", name
            msgspec.convert(profile, Profile)
        where = ""
        return msgspec.convert(given, File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, AttributeError, TypeError) as error:
        raise errors.InvalidArgumentError(
            f"{path()} is wrong: {where}{error}. Correct it."
        ) from None


def _text() -> str:
    """Return the text of the file, "" without one. Raises `InvalidArgumentError` if others can access it.

    Another user who can write the file could name a broker of their own in it; one who can read it has the
    API keys.
    """
    try:
        with open(path(), encoding="utf-8", opener=regular) as file:
            state = os.fstat(file.fileno())
            if os.name == "posix" and (state.st_uid != os.geteuid() or state.st_mode & 0o077):
                raise errors.InvalidArgumentError(
                    f"Other users of this machine can access {path()}, which has API keys: check it, then "
                    f"run `chmod 600 {shlex.quote(str(path()))}`."
                )
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise errors.InvalidArgumentError(f"{path()} cannot be read: {why}.") from None


def save(profile: Profile, *, replace: bool = False) -> None:
    """Add a profile to the file, or replace the one of its name; comments in the file stay.

    The first profile becomes the default one. The file has API keys, so only its owner may read it.
    """
    import tomlkit

    fields: dict[str, Any] = msgspec.to_builtins(profile)
    name = fields.pop("name")
    with _editing() as (document, file):
        if name in file.profiles and not replace:
            raise _taken(name)
        if not file.profiles:
            document["default"] = name
        document.setdefault("profiles", tomlkit.table(is_super_table=True))[name] = fields


def use(name: str) -> None:
    """Make a profile the default one."""
    with _editing() as (document, file):
        if name not in file.profiles:
            raise _unknown(name, file)
        document["default"] = name


def remove(name: str) -> None:
    """Remove a profile from the file. No other one becomes the default: the person chooses."""
    with _editing() as (document, file):
        if name not in file.profiles:
            raise _unknown(name, file)
        del document["profiles"][name]
        if document.get("default") == name:
            del document["default"]


@contextlib.contextmanager
def _editing() -> Iterator[tuple[TOMLDocument, File]]:
    """Lock the file, yield it as a TOML document and decoded, and write the changed document back."""
    import tomlkit

    from scbroker.cli.files import Folder

    with _locked():
        file = read()  # raises for a wrong file, which is then not overwritten
        document = tomlkit.parse(_text())
        yield document, file
        # Where the file is a link, its target is replaced, so that the link stays.
        real = Path(os.path.realpath(path()))
        with Folder(real.parent) as folder:
            folder.write(tomlkit.dumps(document).encode(), PurePosixPath(real.name), replace=True)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    import filelock

    folder = path().parent
    try:
        make_folder(folder)
        with filelock.FileLock(folder / ".config.lock", timeout=_LOCK_SECONDS, mode=0o600):
            yield
    except filelock.Timeout:
        raise errors.InvalidArgumentError(
            f"Another process keeps {path()} locked: end it, or try again."
        ) from None
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"{path()} cannot be written ({error.strerror}): make its folder writable for you."
        ) from None


def check_device(session_folder: str | None, trust_folder: str | None) -> None:
    """Check that a session and what this device verifies can be kept there; None is the default place.

    Raises `SessionStoreError` without a keychain, and `InvalidArgumentError` for a folder that cannot be
    written. Both messages name the option that chooses another place.
    """
    sessions(session_folder)
    marks(trust_folder)


def sessions(folder: str | None) -> str:
    """Return the place where sessions are kept; raise if one cannot be kept there."""
    if folder is None:
        scbroker.KeychainSessionStore().check()
        return "the system's keychain"
    scbroker.FileSessionStore(folder).check()
    return f"{folder}, whose files anybody can use who can read them"


def marks(folder: str | None) -> Path:
    """Return the trust store's folder; raise if marks cannot be kept there."""
    found = Path(folder or platform_folder("state", ", or pass --trust-folder"))
    try:
        make_folder(found)
    except OSError as error:
        raise errors.InvalidArgumentError(
            f"{found} cannot be made ({error.strerror}): choose another folder with --trust-folder."
        ) from None
    # Raises if this user cannot write it, or if others can.
    scbroker.FileTrustStore(found).read_pass(uuid.UUID(int=0))
    return found
