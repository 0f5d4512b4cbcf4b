"""Fill the database of a stopped broker with rows that clients would take hours to write.

The rows are ballast: no signature in them verifies. The containers and events that are measured are written
and read by a client through the broker.
"""

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from scbroker.server.storage.tables import (
    access_lists,
    containers,
    members,
    metadata,
    parts,
    records,
)

_NUMBERS: Final = (
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
)
_OF_A_CONTAINER: Final = (containers, records, access_lists, members, parts)
_AN_HOUR_AGO: Final = 3_600_000_000


def fill_events(database: Path, user: uuid.UUID, count: int) -> None:
    """Add numbered events to a user's log: updates of a hundred containers in turn."""
    with _filling(database) as connection:
        connection.execute(
            _NUMBERS
            + "INSERT INTO events (user_id, id, event_type, container_id, container_type, date,"
            " version, related_user_id, application, changes, salt)"
            " SELECT :user, n, 'Updated', CAST(printf('container%07d', n % 100) AS BLOB), 'letter',"
            " registered_at - :ago + n, n, :user, 'bench', 1, randomblob(16)"
            " FROM numbers, users WHERE users.id = :user",
            {"count": count, "user": user.bytes, "ago": _AN_HOUR_AGO},
        )
        connection.execute(
            "UPDATE users SET last_event = :count WHERE id = :user",
            {"count": count, "user": user.bytes},
        )


def fill_members(database: Path, user: uuid.UUID | None, count: int) -> None:
    """Add memberships in containers of one type that do not exist: of one user, or each of a new user."""
    with _filling(database) as connection:
        connection.execute(
            _NUMBERS
            + "INSERT INTO members (container_id, user_id, permissions, key_index, expiry_recorded, type)"
            " SELECT randomblob(16), coalesce(:user, randomblob(16)), 511, 0, 0, 'another' FROM numbers",
            {"count": count, "user": None if user is None else user.bytes},
        )


def copy_container(database: Path, real: uuid.UUID, count: int) -> None:
    """Copy a container's rows `count` times, under random ids of containers and parts."""
    with _filling(database) as connection:
        connection.execute("CREATE TEMP TABLE copies (id BLOB PRIMARY KEY) WITHOUT ROWID")
        connection.execute(
            _NUMBERS + "INSERT INTO copies SELECT randomblob(16) FROM numbers", {"count": count}
        )
        for table in _OF_A_CONTAINER:
            own = "id" if table is containers else "container_id"
            new = {own: "copies.id", "part_id": "randomblob(16)"}
            columns = [column.name for column in metadata.tables[table.name].columns]
            chosen = ", ".join(new.get(name, f"{table.name}.{name}") for name in columns)
            connection.execute(
                f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {chosen}"
                f" FROM copies CROSS JOIN {table.name} WHERE {table.name}.{own} = :real",
                {"real": real.bytes},
            )


@contextmanager
def _filling(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a transaction without fsync: after a crash, the database is simply filled again."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        with connection:
            yield connection
