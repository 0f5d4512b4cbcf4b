"""Load the broker's settings: defaults, then one TOML file, then the environment, then options.

`SCBROKER_DATABASE_URL` sets `database_url`, and so on for every field. An unknown name or a wrong value is an
error at start, never ignored.

The text of each field is its description in docs/reference/broker.toml and `scbroker admin config show`:
meaning, unit, and the reason for the default if it needs one.
"""

# ruff: noqa: RUF009  # `_setting` declares a field, as `field` does

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from scbroker.errors import InvalidArgumentError
from scbroker.folders import platform_folder
from scbroker.records.canonical import parse_uuid
from scbroker.records.container_record import MAX_ENTRIES
from scbroker.records.roster import MAX_GROUPS, MAX_MEMBERS

PREFIX: Final = "SCBROKER_"
# Names with the prefix that configure the client or are read elsewhere.
_OTHERS: Final = {
    "SERVER_URL", "APPLICATION_NAME", "OBJECT_STORE_ORIGINS", "PROFILE", "LINK_PASSWORD", "PASSWORD",
    "PASSPHRASE", "NEW_PASSWORD", "NEW_PASSPHRASE", "CONFIG",
}  # fmt: skip
SECRET: Final = ("broker_key", "broker_key_next", "api_key")
# The parts of a URL that may contain a password: before the @, even with a slash in it, and the query.
_PASSWORD: Final = re.compile(r"(?<=://)\S*:\S*(?=@)|(?<=\?)\S+")
_DAY: Final = 86_400
# Ten years: a sum of longer times would overflow.
_LONGEST: Final = 3650 * _DAY
_STORES: Final = ("s3://", "gs://", "az://", "file:///")

T = TypeVar("T")
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[int, Meta(ge=1, le=_LONGEST)]


def _setting(default: T, meaning: str) -> T:
    """Declare a field with its description."""
    made: T = field(default_factory=lambda: default, metadata={"meaning": meaning})
    return made


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """The settings of a broker. Sizes are in bytes, times in seconds."""

    # fmt: off
    host: str = _setting("127.0.0.1",
        "The address to listen on. By default only programs of this machine, such as a TLS proxy, reach it.")
    port: Annotated[int, Meta(ge=0, le=65535)] = _setting(8400,
        "The port to listen on; 0 chooses a free one.")
    workers: Positive = _setting(1,
        "Processes that serve. More than one needs PostgreSQL: SQLite allows one.")
    data_dir: str = _setting("",
        "The folder for database, objects and broker's key, unless another setting says where they are; if "
        "empty, the platform's folder for the user's data, such as ~/.local/share/scbroker.")
    database_url: str = _setting("",
        "postgresql://… or sqlite:///…; if empty, a SQLite file in data_dir.")
    object_store_url: str = _setting("",
        "s3://…, gs://…, az://… or file:///…; if empty, a folder in data_dir.")
    direct_transfer: bool = _setting(True,
        "Whether clients that ask for presigned URLs get them, if the object store is an S3.")
    transfer_seconds: Annotated[int, Meta(ge=1, le=3600)] = _setting(900,
        "Seconds for which a presigned URL is valid: long enough for a chunk on a slow line.")
    broker_key: str = _setting("",
        "64 hexadecimal digits, the same for all brokers of a database; if empty, broker.key in data_dir.")
    broker_key_next: str = _setting("",
        "The new key during a rotation, 64 hexadecimal digits; if empty, broker.key.next in data_dir.")
    origins: list[str] = _setting([],
        "The origins of clients' serverUrl, as https://broker.example:443; if empty, that of host and port.")
    api_key: str = _setting("",
        "An API key that the start adds; if empty, the first start creates one and prints it.")
    session_seconds: Seconds = _setting(3600,
        "Seconds after which a session ends, and a stolen token with it. Clients log in again by themselves.")
    guesses: Positive = _setting(10,
        "Wrong passphrases for one user from one address, or with one device pass, in guess_seconds.")
    guesses_user: Positive = _setting(100,
        "Wrong passphrases for one user without a device pass in guess_seconds; as many again with one.")
    guesses_address: Positive = _setting(100,
        "Wrong passphrases from one address for all users, without a device pass, in guess_seconds.")
    reminders_address: Positive = _setting(100,
        "Reminders that one address may read in guess_seconds.")
    registrations_address: Positive = _setting(1000,
        "Users that one address may register in guess_seconds.")
    guess_seconds: Seconds = _setting(900,
        "The window, in seconds, in which wrong passphrases, reminders and registrations are counted.")
    max_new_grants: Positive = _setting(10_000,
        "New grants of access to others that one user may make in an hour.")
    max_key_records: Annotated[int, Meta(ge=4)] = _setting(64,
        "Key records that one user may add in 30 days: at least four, which one change of keys adds.")
    trusted_proxies: str = _setting("",
        "Addresses or networks of the proxies whose X-Forwarded-For and X-Request-Id the broker trusts, "
        'comma-separated; "*" means all.')
    max_members: Annotated[int, Meta(ge=1, le=MAX_ENTRIES)] = _setting(MAX_ENTRIES,
        "Entries of an access list; the protocol allows no more than the default.")
    max_listed_groups: Annotated[int, Meta(ge=0, le=MAX_GROUPS)] = _setting(MAX_GROUPS,
        "Groups in an access list; the protocol allows no more than the default.")
    max_group_members: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)] = _setting(MAX_MEMBERS,
        "Members of a group; the protocol allows no more than the default.")
    max_new_epochs: Positive = _setting(256,
        "How often the key of one group may change in a day.")
    max_content: Positive = _setting(2**40,
        "Bytes that one content may have.")
    max_pending_parts: Positive = _setting(256,
        "Unfinished uploads of one user; one session may have at most three quarters of them.")
    max_pending_bytes: Positive = _setting(2**41,
        "Bytes of one user's unfinished uploads; one session may have at most three quarters of them.")
    max_requests: Positive = _setting(128,
        "Requests that a process admits at once; further ones are refused at their head (503).")
    max_transfers: Positive = _setting(32,
        "Large requests and answers, mostly of up to 8 MiB, that a process handles at once.")
    max_connections: Positive = _setting(900,
        "Connections to a process; a further one is answered only on the operator's paths, and closed.")
    max_followers: Positive = _setting(512,
        "Requests of a process that wait for events, each on a connection of its own.")
    database_connections: Positive = _setting(16,
        "Connections of a process to PostgreSQL.")
    database_wait_seconds: Seconds = _setting(5,
        "Seconds that a request waits for the database; then it is refused and has no effect.")
    part_grace_seconds: Seconds = _setting(3600,
        "Seconds for which a replaced content is kept for readers that have started to read it.")
    upload_seconds: Annotated[int, Meta(ge=_DAY, le=_LONGEST)] = _setting(172_800,
        "Seconds for which the chunks of an unfinished upload are kept after its last chunk; a day or more.")
    slow_seconds: Annotated[float, Meta(gt=0, le=_LONGEST)] = _setting(2.0,
        "Seconds after which a request is logged as slow, without the time that it waits for its client.")
    access_log: bool = _setting(False,
        "Whether the log has a line for each request, with its user, operation and time.")
    event_retention_seconds: Annotated[int, Meta(ge=0, le=_LONGEST)] = _setting(0,
        "Seconds for which events are kept: a day or more, or 0 to keep them for ever.")
    # fmt: on

    def __post_init__(self) -> None:
        if self.data_dir:
            # Absolute: a program that embeds the broker may change its working directory.
            object.__setattr__(self, "data_dir", str(Path(self.data_dir).absolute()))
        if 0 < self.event_retention_seconds < _DAY:
            raise ValueError(f"`event_retention_seconds` must be 0 or at least {_DAY}")
        if self.object_store_url and not self.object_store_url.startswith(_STORES):
            raise ValueError(f"`object_store_url` must begin with one of {', '.join(_STORES)}")
        try:
            if self.trusted_proxies not in ("", "*"):
                for proxy in self.trusted_proxies.split(","):
                    ipaddress.ip_network(proxy.strip())  # accepts single addresses too
        except ValueError:
            raise ValueError(
                "`trusted_proxies` must be IP addresses or networks as 10.0.0.0/8, comma-separated"
            ) from None

        try:
            if self.api_key:
                parse_uuid(self.api_key)
        except InvalidArgumentError:  # its text may have the key
            raise ValueError("`api_key` must be a UUID in lower case, with hyphens") from None

    def __repr__(self) -> str:
        return "Settings(…)"  # the fields include keys and the database's password

    @property
    def directory(self) -> Path:
        if self.data_dir:
            return Path(self.data_dir)
        return platform_folder("data", ", or set SCBROKER_DATA_DIR")


class Setting(NamedTuple):
    """A setting as `scbroker admin config show` prints it."""

    name: str
    value: str
    source: str
    """default, file, variable or option."""
    meaning: str


def load_settings(environment: Mapping[str, str] = os.environ, **options: Any) -> Settings:
    """Load settings; raise `InvalidArgumentError` if one is wrong. An option of None was not given."""
    given = _given(environment, options)
    try:
        return msgspec.convert(
            {name: value for name, (value, _) in given.items()}, Settings, strict=False
        )
    except msgspec.ValidationError as error:
        why, _, name = str(error).rstrip("`").partition(" - at `$.")
        if name not in given:
            raise InvalidArgumentError(f"A setting is wrong: {why}.") from None
        where = {
            "file": f"{name} in {environment.get(PREFIX + 'CONFIG')}",
            "variable": PREFIX + name.upper(),
            "option": f"--{name.replace('_', '-')}",
        }[given[name][1]]
        raise InvalidArgumentError(f"A setting is wrong: {where}: {why}.") from None


def explain_settings(environment: Mapping[str, str] = os.environ, **options: Any) -> list[Setting]:
    """Return every setting with its value and source; a secret's value is "set"."""
    loaded, given = load_settings(environment, **options), _given(environment, options)
    return [
        Setting(
            name, _shown(name, getattr(loaded, name)), given.get(name, ("", "default"))[1], meaning
        )
        for name, meaning in meanings().items()
    ]


def changed(settings: Settings) -> dict[str, str]:
    """Return the settings that differ from their defaults; a secret's value is "set"."""
    defaults = Settings()
    return {
        name: _shown(name, getattr(settings, name))
        for name in meanings()
        if getattr(settings, name) != getattr(defaults, name)
    }


def _shown(name: str, value: object) -> str:
    if name in SECRET:
        return "set" if value else ""
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return _PASSWORD.sub("…", str(value))


def _given(
    environment: Mapping[str, str], options: Mapping[str, object]
) -> dict[str, tuple[object, str]]:
    """Return the values that were given, by name, each with the source that wins: option, variable, file."""
    found: dict[str, tuple[object, str]] = {}
    if config := environment.get(PREFIX + "CONFIG"):
        try:
            from_file = tomllib.loads(Path(config).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"Cannot read the settings in {config}: {error}") from None
        found |= {
            _known(name, name): (_listed(name, value), "file") for name, value in from_file.items()
        }
    for variable, text in environment.items():
        key = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and key not in _OTHERS:
            name = _known(key.lower(), variable)
            found[name] = (_listed(name, text), "variable")
    for name, value in options.items():
        if value == "":
            option = name.replace("_", "-")
            raise InvalidArgumentError(f"--{option} is empty: give it a value, or leave it out.")
        if value is not None:
            found[name] = (value, "option")
    return found


def _listed(name: str, value: object) -> object:
    """Split a text of several origins into a list; return any other value as it is."""
    return value.split(",") if name == "origins" and isinstance(value, str) else value


def _known(name: str, given: str) -> str:
    """Return the name of a setting; raise `InvalidArgumentError` for any other."""
    if name in meanings():
        return name
    raise InvalidArgumentError(
        f"{given} is not a setting: `scbroker admin config show` lists the settings."
    )


def meanings() -> dict[str, str]:
    """Return the description of each setting, by name."""
    return {each.name: each.metadata["meaning"] for each in fields(Settings)}
