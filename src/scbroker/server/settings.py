"""The broker's configuration: defaults, then one TOML file, then the environment.

`SCBROKER_DATABASE_URL` sets `database_url`, and so on for every field. A name or value that is not
understood is an error at start, never ignored.
"""

from __future__ import annotations

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
from scbroker.records.access_list import MAX_ENTRIES

PREFIX: Final = "SCBROKER_"
# Names with the prefix that belong to the client or are read elsewhere.
_OTHERS: Final = {"SERVER_URL", "APPLICATION_NAME", "OBJECT_STORE_ORIGINS", "CONFIG"}

_DAY: Final = 86_400

# Ten years: a time beyond would overflow where it is added to another.
_LONGEST: Final = 3650 * _DAY
_STORES: Final = ("s3://", "gs://", "az://", "file:///")

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[int, Meta(ge=1, le=_LONGEST)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an operator can set. Sizes in bytes, times in seconds."""

    data_dir: str = ""
    """Where the embedded default keeps everything; the platform's data folder if empty."""
    database_url: str = ""
    """postgresql://… or sqlite:///…; a SQLite file in data_dir if empty."""
    object_store_url: str = ""
    """s3://…, gs://…, az://… or file:///…; a folder in data_dir if empty."""
    direct_transfer: bool = True
    """Whether clients who ask for it get addresses of the object store, where that is an S3."""
    transfer_seconds: Annotated[int, Meta(ge=1, le=3600)] = 900
    """How long such an address is good."""
    broker_key: str = ""
    """64 hexadecimal digits, the same for every process of a broker; a file in data_dir if empty."""
    origins: list[str] = []
    """The addresses that clients use, as https://broker.example:443; the bound one if empty."""
    api_key: str = ""
    """A first API key to provision; one is made and printed at the first start if empty."""
    session_seconds: Seconds = 3600
    guesses: Positive = 10
    """Wrong passphrases allowed for one user from one address, or with one device pass, in guess_seconds."""
    guesses_user: Positive = 100
    """... for one user from all addresses without a pass; as many again with all passes of the user."""
    guesses_address: Positive = 100
    """... from one address for all users together."""
    reminders_address: Positive = 100
    """Reminders that one address may read in guess_seconds."""
    registrations_address: Positive = 1000
    """Users that one address may register in guess_seconds."""
    guess_seconds: Seconds = 900
    max_new_grants: Positive = 10_000
    """How often one user may give somebody else access that they had not, in an hour."""
    trusted_proxies: str = ""
    """Addresses or networks of proxies whose X-Forwarded-For is believed, comma-separated; "*" is all."""
    max_members: Annotated[int, Meta(ge=1, le=MAX_ENTRIES)] = MAX_ENTRIES
    max_content: Positive = 2**40
    max_pending_parts: Positive = 256
    """Parts that one user may have begun to send and not committed."""
    max_pending_bytes: Positive = 2**41
    """Bytes that one user may have sent for contents that are not committed."""
    max_requests: Positive = 128
    """Requests that a process takes on at once; what is more is refused at its head (503)."""
    max_transfers: Positive = 32
    """Large requests and answers, of up to 8 MiB mostly, that a process holds at once."""
    max_connections: Positive = 900
    """Connections to a process; each beyond is for the operator's own paths, and closed."""
    database_connections: Positive = 16
    """Connections of a process to PostgreSQL."""
    database_wait_seconds: Seconds = 5
    """How long a request waits for its turn at the database; after it, it is refused, and was not done."""
    part_grace_seconds: Seconds = 3600
    """How long a replaced content can still be read to its end."""
    upload_seconds: Annotated[int, Meta(ge=_DAY, le=_LONGEST)] = 172_800
    """How long chunks are kept that no record names."""
    event_retention_seconds: Annotated[int, Meta(ge=0, le=_LONGEST)] = 0
    """How long events are kept, a day or more; 0 is for ever."""

    def __post_init__(self) -> None:
        if 0 < self.event_retention_seconds < _DAY:
            raise ValueError(f"`event_retention_seconds` is 0 or at least {_DAY}")
        if self.object_store_url and not self.object_store_url.startswith(_STORES):
            raise ValueError(f"`object_store_url` begins with one of {', '.join(_STORES)}")
        if self.trusted_proxies not in ("", "*"):
            for proxy in self.trusted_proxies.split(","):
                _check_address(proxy.strip())

    def __repr__(self) -> str:
        return "Settings(…)"  # keys and a database's password stand in it

    @property
    def directory(self) -> Path:
        return (
            Path(self.data_dir) if self.data_dir else Path(platformdirs.user_data_dir("scbroker"))
        )


def _check_address(proxy: str) -> None:
    try:
        ipaddress.ip_network(proxy)  # an address is one as well
    except ValueError:
        raise ValueError(
            "`trusted_proxies` are IP addresses or networks as 10.0.0.0/8, comma-separated"
        ) from None


def load_settings(environment: Mapping[str, str] = os.environ, **overrides: str | None) -> Settings:
    """Settings from file, environment and command line; `InvalidArgumentError` says what is wrong."""
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
