"""Read a running broker's metrics, and the state of its database and disks."""

from __future__ import annotations

import http.client
import math
import shutil
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from scbroker.errors import BrokerFaultError, InvalidArgumentError, UnreachableError
from scbroker.server.admin.stores import objects_url, sqlite_file
from scbroker.server.broker import CLOCK_BOUND
from scbroker.server.settings import Settings
from scbroker.server.storage.blobs import path_of
from scbroker.server.storage.database import Database
from scbroker.server.storage.driver import Connection

_METRICS_SECONDS: Final = 10.0
_MOST_METRICS: Final = 8 * 1_048_576
_SERIES = tuple[str, tuple[tuple[str, str], ...]]
_SQLITE_SIZE: Final = text("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
_POSTGRESQL_SIZE: Final = text("SELECT pg_database_size(current_database())")
_POSTGRESQL_VERSION: Final = text("SHOW server_version")


class Disk(NamedTuple):
    """A local disk that the broker writes to, in bytes."""

    folder: Path
    free: int
    size: int

    @property
    def is_nearly_full(self) -> bool:
        return self.free < self.size / 10


class Health(NamedTuple):
    """The state of a broker's stores."""

    engine: str
    database_bytes: int
    clock_difference: float
    """Seconds by which this machine's clock is ahead of the database's."""
    objects: str
    """Folder or host of the object store, without the parts of its URL that may be secret."""
    disks: list[Disk]

    @property
    def is_clock_right(self) -> bool:
        return abs(self.clock_difference) <= CLOCK_BOUND


async def health(settings: Settings, database: Database) -> Health:
    """Read the state of the stores; raise `BrokerUnavailableError` if the database does not answer."""
    engine, size = await database.query(_engine_and_size)
    return Health(
        engine,
        size,
        await database.clock_difference(),
        _objects(objects_url(settings)),
        disks(settings),
    )


def _engine_and_size(connection: Connection) -> tuple[str, int]:
    if connection.dialect.name == "sqlite":
        size = connection.execute(_SQLITE_SIZE).scalar_one()
        return f"SQLite {sqlite3.sqlite_version}", int(size)
    version = str(connection.execute(_POSTGRESQL_VERSION).scalar_one()).partition(" ")[0]
    return f"PostgreSQL {version}", int(connection.execute(_POSTGRESQL_SIZE).scalar_one())


def _objects(url: str) -> str:
    parts = urlsplit(url)
    return str(path_of(url)) if parts.scheme == "file" else f"{parts.scheme}://{parts.hostname}"


def folders(settings: Settings) -> dict[str, Path]:
    """Return the local folders of the database and the objects, or those in which they will be made."""
    database, objects = sqlite_file(settings), objects_url(settings)
    found: dict[str, Path] = {}
    if database is not None:
        found["database"] = database
    if objects.startswith("file:"):
        found["objects"] = path_of(objects)
    return {
        name: next(each for each in (path, *path.parents) if each.is_dir())
        for name, path in found.items()
    }


def disks(settings: Settings) -> list[Disk]:
    """Return the local disks of database and objects, each once."""
    found: dict[int, Disk] = {}
    for folder in folders(settings).values():
        usage = shutil.disk_usage(folder)
        found.setdefault(folder.stat().st_dev, Disk(folder, usage.free, usage.total))
    return list(found.values())


class Reading(NamedTuple):
    """The samples of one reading of /metrics by name and labels, and its time."""

    time: float
    samples: Mapping[_SERIES, float]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name that have these labels."""
        return sum(self.by(name, "", **labels).values())

    def by(self, name: str, key: str, **labels: str) -> dict[str, float]:
        """Return the sums of a name's samples that have these labels, by the value of another label."""
        found: dict[str, float] = {}
        for (sample, pairs), number in self.samples.items():
            have = dict(pairs)
            if sample == name and labels.items() <= have.items():
                value = have.get(key, "")
                found[value] = found.get(value, 0.0) + number
        return found

    def since(self, before: Reading, name: str, key: str = "") -> dict[str, float]:
        """Return by how much counters have grown; a broker that was restarted counts from 0 again."""
        old = before.by(name, key)
        grown = {value: new - old.get(value, 0.0) for value, new in self.by(name, key).items()}
        return {value: each for value, each in grown.items() if each > 0}


def read(url: str) -> Reading:
    """Read the metrics of the broker at this address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgumentError("--url must be an address such as http://127.0.0.1:8400.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=_METRICS_SECONDS)
        connection.request("GET", f"{parts.path.rstrip('/')}/metrics")
        answer = connection.getresponse()
        body = answer.read(_MOST_METRICS + 1)
        connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = type(error).__name__
        raise UnreachableError(
            f"No metrics at {url} ({why}): check --url, and whether the broker runs."
        ) from None
    if answer.status != 200 or len(body) > _MOST_METRICS:
        raise BrokerFaultError(
            f"{url}/metrics answered {answer.status} with {len(body)} bytes: name the broker's own address "
            "with --url, not that of the proxy."
        )
    samples: dict[_SERIES, float] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if not math.isfinite(sample.value):
                    raise ValueError
                samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    except ValueError:
        raise BrokerFaultError(f"{url}/metrics is not in Prometheus' format.") from None
    return Reading(time.monotonic(), samples)
