"""Brings a database to the tables of this version. Several processes may try at once.

On PostgreSQL other brokers serve meanwhile, of the version before as well. Indexes of tables that are long
are built beside their writers first; then one transaction does the rest, which holds a table for a moment.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Index, text
from sqlalchemy.schema import CreateIndex

from scbroker.server.storage.database import Database
from scbroker.server.storage.tables import metadata

_LOCK: Final = 0x5CB0_0001
_BUILDING: Final = 0x5CB0_0002
_POLL_SECONDS: Final = 0.2
# Whoever needs a table waits behind the one who waits for it: not for long.
_LOCK_TIMEOUT: Final = "3s"
_BESIDE_WRITERS: Final = {
    "events_by_date", "events_of_container", "events_of_type", "events_of_kind", "parts_in_force",
}  # fmt: skip
# Of a table that an operator has parted by user no index can be built so.
_IS_PARTED: Final = text("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('events')")
_IS_WHOLE: Final = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")


def newest() -> str:
    """The revision of this version's tables."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


async def bring_up(database: Database) -> None:
    """Runs what is missing. `OverloadedError` where a table was not to be had for a moment: again, then."""
    await database.build(_build_indexes)
    await database.change(upgrade)


def upgrade(connection: Connection) -> None:
    """Runs what is missing, in the caller's transaction."""
    if connection.dialect.name == "postgresql":
        # The limits of requests are not for this: it waits for the process that came first.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _build_indexes(connection: Connection) -> None:
    """Builds what a revision would else build in its transaction, while nobody could write."""
    if connection.dialect.name != "postgresql" or not _missing(connection):
        return
    # No wait in a statement: an index that is being built waits for all that began before.
    while not connection.execute(text(f"SELECT pg_try_advisory_lock({_BUILDING})")).scalar_one():
        time.sleep(_POLL_SECONDS)
    for index in _missing(connection):
        # One whose building was cut off is there, and serves nothing.
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {index.name}")
        create = str(CreateIndex(index).compile(dialect=connection.dialect))
        connection.exec_driver_sql(create.replace("INDEX", "INDEX CONCURRENTLY", 1))


def _missing(connection: Connection) -> list[Index]:
    """Of tables that are there already."""
    if MigrationContext.configure(connection).get_current_revision() is None:
        return []
    tables = ["parts"] if connection.execute(_IS_PARTED).scalar_one() else ["events", "parts"]
    return [
        index
        for table in tables
        for index in metadata.tables[table].indexes
        if index.name in _BESIDE_WRITERS
        and not connection.execute(_IS_WHOLE, {"name": index.name}).scalar()
    ]
