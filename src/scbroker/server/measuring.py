"""Measure what is stored and what waits to be deleted, for the metrics.

Every process does so once a minute: each statement reads an index, and a number of rows that is bounded, or
one row for each user.
"""

import shutil
from typing import Any, Final

from sqlalchemy import Select, bindparam, func, select, text

from scbroker.server import metrics
from scbroker.server.admin import health, usage
from scbroker.server.broker import SECOND, Broker, now
from scbroker.server.parts.sweeping import DUE_AFTER
from scbroker.server.storage.driver import Connection
from scbroker.server.storage.tables import parts, pending_blobs, users

_MOST: Final = 100_000
"""Rows that wait for the sweeper are counted up to this number."""
_BEFORE: Final[Any] = bindparam("before")


def _counted(column: Any, *conditions: Any) -> Select[Any]:
    found = select(column).where(column <= _BEFORE, *conditions).limit(_MOST).subquery()
    return select(func.count()).select_from(found)


_OBJECTS_DUE: Final = _counted(pending_blobs.c.since)
_REPLACED: Final = _counted(parts.c.replaced_at)
_ABANDONED: Final = _counted(parts.c.touched_at, ~parts.c.committed)
# Groups have rows of `users` as well.
_USERS: Final = select(
    func.count(users.c.id).filter(users.c.group_version.is_(None)).label("users"),
    func.count(users.c.group_version).label("groups"),
).where(~users.c.deleted)
# A role without pg_monitor reads the rows of standbys without their positions.
_REPLICATION: Final = text(
    "SELECT count(*), coalesce(max(extract(epoch FROM replay_lag)), 0), "
    "coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) FROM pg_stat_replication"
)


async def measure(broker: Broker) -> None:
    """Set the metrics of what is stored, of free disks, and of PostgreSQL's standbys."""
    found = await broker.database.read(lambda c: _stored(c, broker), large=True)
    for name, value in found.items():
        metrics.STORED[name].set(value)
    for of, folder in health.folders(broker.settings).items():
        metrics.DISK_FREE.labels(of).set(shutil.disk_usage(folder).free)


def _stored(connection: Connection, broker: Broker) -> dict[str, float]:
    moment, settings = now(), broker.settings

    def count(statement: Select[Any], seconds: int) -> int:
        values = {"before": moment - seconds * SECOND}
        return int(connection.execute(statement, values).scalar_one())

    total, users_and_groups = usage.total(connection), connection.execute(_USERS).one()
    found: dict[str, float] = {
        "stored_bytes": total.bytes,
        "containers": total.containers,
        "users": users_and_groups.users,
        "groups": users_and_groups.groups,
        "objects_due": count(_OBJECTS_DUE, DUE_AFTER // SECOND),
        "parts_due": (
            count(_REPLACED, settings.part_grace_seconds)
            + count(_ABANDONED, settings.upload_seconds)
        ),
    }
    if connection.dialect.name == "postgresql":
        names = ("replicas", "replication_lag_seconds", "replication_lag_bytes")
        row = connection.execute(_REPLICATION).one()
        found |= {name: float(value) for name, value in zip(names, row, strict=True)}
    return found
