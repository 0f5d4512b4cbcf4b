"""Brings a database to the tables of this version. Several processes may try at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

_LOCK: Final = 0x5CB0_0001


def newest() -> str:
    """The revision of this version's tables."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


def upgrade(connection: Connection) -> None:
    """Runs what is missing, in the caller's transaction."""
    if connection.dialect.name == "postgresql":
        # The limits of requests are not for this: it waits for the process that came first.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
