"""Load the broker's settings: defaults, then one TOML file, then the environment.

`SCBROKER_DATABASE_URL` sets `database_url`, and so on for every field. An unknown name or a wrong value is an
error at start, never ignored.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import platformdirs
from msgspec import Meta

from scbroker.errors import InvalidArgumentError
from scbroker.records.container_record import MAX_ENTRIES

PREFIX: Final = "SCBROKER_"
# Names with the prefix that configure the client or are read elsewhere.
_OTHERS: Final = {"SERVER_URL", "APPLICATION_NAME", "OBJECT_STORE_ORIGINS", "CONFIG"}
_DAY: Final = 86_400
# Ten years: a sum of longer times would overflow.
_LONGEST: Final = 3650 * _DAY
_STORES: Final = ("s3://", "gs://", "az://", "file:///")

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[int, Meta(ge=1, le=_LONGEST)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a broker. Sizes are in bytes, times in seconds."""

    data_dir: str = ""
    """The folder of a broker on SQLite and a folder; the platform's data folder if empty."""
    database_url: str = ""
    """postgresql://… or sqlite:///…; a SQLite file in data_dir if empty."""
    object_store_url: str = ""
    """s3://…, gs://…, az://… or file:///…; a folder in data_dir if empty."""
    direct_transfer: bool = True
    """Whether clients that ask for presigned URLs get them, if the object store is an S3."""
    transfer_seconds: Annotated[int, Meta(ge=1, le=3600)] = 900
    """How long a presigned URL is valid."""
    broker_key: str = ""
    """64 hexadecimal digits, the same for all processes of a broker; a file in data_dir if empty."""
    origins: list[str] = []
    """The origins that clients use, as https://broker.example:443; the bound address if empty."""
    api_key: str = ""
    """An API key to add; if empty, the first start creates one and prints it."""
    session_seconds: Seconds = 3600
    guesses: Positive = 10
    """Wrong passphrases for one user from one address, or with one device pass, in guess_seconds."""
    guesses_user: Positive = 100
    """Wrong passphrases for one user from all addresses without a pass; as many again with passes."""
    guesses_address: Positive = 100
    """Wrong passphrases from one address for all users together."""
    reminders_address: Positive = 100
    """Reminders that one address may read in guess_seconds."""
    registrations_address: Positive = 1000
    """Users that one address may register in guess_seconds."""
    guess_seconds: Seconds = 900
    max_new_grants: Positive = 10_000
    """New grants of access to others that one user may make in an hour."""
    max_key_records: Positive = 64
    """Key records that one user may add in 30 days; a change of both keys adds four."""
    trusted_proxies: str = ""
    """Proxies whose X-Forwarded-For is believed: addresses or networks, comma-separated; "*" means all."""
    max_members: Annotated[int, Meta(ge=1, le=MAX_ENTRIES)] = MAX_ENTRIES
    max_content: Positive = 2**40
    max_pending_parts: Positive = 256
    """Unfinished uploads of one user."""
    max_pending_bytes: Positive = 2**41
    """Bytes of one user's unfinished uploads."""
    max_requests: Positive = 128
    """Requests that a process admits at once; further ones are refused at their head (503)."""
    max_transfers: Positive = 32
    """Large requests and answers, mostly of up to 8 MiB, that a process handles at once."""
    max_connections: Positive = 900
    """Connections to a process; a further one is answered only on the operator's paths, and closed."""
    max_followers: Positive = 512
    """Requests of a process that wait for events, each on a connection of its own."""
    database_connections: Positive = 16
    """Connections of a process to PostgreSQL."""
    database_wait_seconds: Seconds = 5
    """How long a request waits for a database connection; then it is refused and has no effect."""
    part_grace_seconds: Seconds = 3600
    """How long a replaced content is kept for readers that have started to read it."""
    upload_seconds: Annotated[int, Meta(ge=_DAY, le=_LONGEST)] = 172_800
    """How long the chunks of an unfinished upload are kept after its last chunk."""
    slow_seconds: Annotated[float, Meta(gt=0, le=_LONGEST)] = 2.0
    """A request that takes the broker so long, without waiting for its client, is logged as slow."""
    access_log: bool = False
    """Whether the log has a line for each request; it says who asked for what, and when."""
    event_retention_seconds: Annotated[int, Meta(ge=0, le=_LONGEST)] = 0
    """How long events are kept: a day or more, or 0 to keep them for ever."""

    def __post_init__(self) -> None:
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

    def __repr__(self) -> str:
        return "Settings(…)"  # the fields include keys and the database's password

    @property
    def directory(self) -> Path:
        return Path(self.data_dir or platformdirs.user_data_dir("scbroker"))


def load_settings(environment: Mapping[str, str] = os.environ, **overrides: str | None) -> Settings:
    """Load settings from file, environment and command line; raise `InvalidArgumentError` if one is wrong."""
    values: dict[str, Any] = {}
    if config := environment.get(PREFIX + "CONFIG"):
        try:
            values.update(tomllib.loads(Path(config).read_text("utf-8")))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(f"Cannot read the settings in {config}: {error}") from None
    for name, text in environment.items():
        if name.startswith(PREFIX) and (key := name.removeprefix(PREFIX)) not in _OTHERS:
            values[key.lower()] = text.split(",") if key == "ORIGINS" else text
    values.update({key: value for key, value in overrides.items() if value is not None})
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"A setting is wrong (file, or environment as {PREFIX}NAME): {error}"
        ) from None
