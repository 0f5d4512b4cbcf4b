"""Create the tables of a new database, or apply the revisions that an existing one lacks.

Several processes may do so at once, and on PostgreSQL brokers of the version before go on serving: a
revision that builds an index of a large table does so in an `autocommit_block`, with
`postgresql_concurrently`. tests/server/migrations/later has an example.
"""

import os
import time
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, text
from sqlalchemy.schema import CreateIndex, CreateTable

from scbroker.errors import InvalidArgumentError
from scbroker.server.storage.database import Database
from scbroker.server.storage.tables import APPEND_ONLY, metadata

_FOLDER: Final = Path(__file__).parent
VERSIONS: Final = [_FOLDER / "versions"]
_TRY_LOCK: Final = text(f"SELECT pg_try_advisory_lock({0x5CB0_0001})")
_POLL_SECONDS: Final = 0.2
# While a revision waits for the lock of a table, every later statement on that table waits behind it.
_LOCK_TIMEOUT: Final = "3s"


def newest() -> str:
    """Return the revision of this version's tables."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def is_known(revision: str) -> bool:
    """Return whether this version can bring a database of this revision up to date."""
    known = ScriptDirectory.from_config(_config()).walk_revisions()
    return revision in {each.revision for each in known}


async def bring_up(database: Database) -> tuple[str | None, float]:
    """Bring a database to this version's tables; return its revision before and the seconds that it took.

    The revision of a new database is None.
    Raises `OverloadedError` if another transaction kept a table locked (try again), and
    `InvalidArgumentError` if this version does not know the database's revision.
    """
    started = time.monotonic()
    before = await database.migrate(_upgrade)
    return before, round(time.monotonic() - started, 3)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(str, VERSIONS)))
    return config


def _upgrade(connection: Connection) -> str | None:
    """Upgrade; return the former revision, None for a new database.

    Run in one transaction on SQLite, and on PostgreSQL in one for each revision.
    """
    shared = connection.dialect.name == "postgresql"
    if shared:
        _lock(connection)
    config = _config()
    config.attributes["connection"] = connection
    found = MigrationContext.configure(connection).get_current_revision()
    if found is None:
        _create_tables(connection)
        command.stamp(config, "head")
    elif not is_known(found):
        raise InvalidArgumentError(
            f"The database has the tables of revision {found}, which this version does not know; its own "
            f"is {newest()}. Start the version that the database was last used with, or restore a backup "
            "of this version."
        )
    else:
        if shared:
            connection.commit()
        command.upgrade(config, "head")
    connection.commit()
    return found


def _create_tables(connection: Connection) -> None:
    """Like `metadata.create_all`, which creates indexes in no fixed order.

    Of two equally good indexes SQLite uses the one created last: here it is the first by name.
    """
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name), reverse=True):
            connection.execute(CreateIndex(index))
    for statement in APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def _lock(connection: Connection) -> None:
    """Wait for other processes that upgrade; closing the connection unlocks."""

    @event.listens_for(connection, "begin")
    def _limit_waiting(_: Connection) -> None:
        # LOCAL, so that it ends with the transaction: CREATE INDEX CONCURRENTLY, which runs outside of one,
        # has to wait for older transactions however long they take.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")

    # A blocked pg_advisory_lock would hold a snapshot, and CREATE INDEX CONCURRENTLY waits for all of them.
    while not connection.execute(_TRY_LOCK).scalar_one():
        connection.commit()
        time.sleep(_POLL_SECONDS)
