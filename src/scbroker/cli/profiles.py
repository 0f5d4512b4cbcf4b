"""Load and save profiles: each names a broker and one of its users.

`register` and `login` write the file, and a person may edit it:

    default = "work"

    [profiles.work]
    server_url = "https://broker.example"
    api_key = "…"
    fingerprint = "…"
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
import uuid
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import platformdirs
from msgspec import Meta

import scbroker
from scbroker import errors

_FIRST: Final = "default"
"""The name of a profile that `register` or `login` saves without `--profile`."""
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


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
    """What the broker's event log names as the program."""
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
        chosen = "" if self.name == _FIRST else f" --profile {self.name}"
        return f"scbroker {command}{chosen}"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    default: Name = _FIRST
    profiles: dict[Name, Profile] = {}


def path() -> Path:
    """Return the path of the configuration file."""
    return platformdirs.user_config_path("scbroker", appauthor=False) / "config.toml"


def load(name: str | None) -> Profile:
    """Return the named profile, or the default one. Raises `InvalidArgumentError` without it.

    A SCBROKER_SERVER_URL that names another broker is an error without a name: to ignore it could store data
    at a broker that the person does not expect.
    """
    file = read()
    wanted = name or file.default
    found = file.profiles.get(wanted)
    if found is None:
        known = ", ".join(sorted(file.profiles))
        raise errors.InvalidArgumentError(
            f"There is no profile {wanted}: use one of {known}, or run `scbroker login --profile {wanted}`."
            if known
            else "You have no profile yet: run `scbroker register`, or `scbroker login` on another device."
        )
    other = os.environ.get("SCBROKER_SERVER_URL")
    if name is None and other and other.rstrip("/") != found.server_url.rstrip("/"):
        raise errors.InvalidArgumentError(
            f"SCBROKER_SERVER_URL names {other}, and profile {wanted} is of {found.server_url}: unset "
            f"SCBROKER_SERVER_URL, or choose with --profile."
        )
    return found


def read() -> _File:
    """Return what the configuration file has. Raises `InvalidArgumentError` for a wrong file."""
    try:
        text = path().read_text("utf-8")
    except FileNotFoundError:
        return _File()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidArgumentError(f"{path()} cannot be read: {error}.") from None
    try:
        given = tomllib.loads(text)
        for name, profile in given.get("profiles", {}).items():
            profile["name"] = name
        return msgspec.convert(given, _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, AttributeError, TypeError) as error:
        raise errors.InvalidArgumentError(f"{path()} is wrong: {error}. Correct it.") from None


def complete_profile(incomplete: str) -> list[str]:
    """Return the profiles that complete a word on the command line; nothing if they cannot be read."""
    try:
        return [each for each in read().profiles if each.startswith(incomplete)]
    except errors.BrokerError:
        return []


def save(profile: Profile) -> None:
    """Add a profile to the file, or replace the one of its name; comments in the file stay.

    The first profile becomes the default one. The file has API keys, so only its owner may read it.
    """
    import tomlkit

    read()  # what cannot be read is not overwritten
    file = path()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = tomlkit.parse(file.read_text("utf-8")) if file.exists() else tomlkit.document()
    fields: dict[str, Any] = msgspec.to_builtins(profile)
    name = fields.pop("name")
    document.setdefault("default", name)
    document.setdefault("profiles", tomlkit.table(is_super_table=True))[name] = fields
    _replace(file, tomlkit.dumps(document))


def _replace(file: Path, text: str) -> None:
    """Replace a file in one step, so that a crash leaves the one before or the one after."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        Path(temporary).replace(file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
