"""Open the database that a URL names."""

from pathlib import Path

from scbroker.errors import InvalidArgumentError
from scbroker.server.storage.database import WAIT_SECONDS, Database
from scbroker.server.storage.postgresql import PostgresDatabase
from scbroker.server.storage.sqlite import SqliteDatabase


def open_database(url: str, pool_size: int = 16, wait: float = WAIT_SECONDS) -> Database:
    """Open a SQLite file, or a pool of `pool_size` connections to a PostgreSQL server.

    A request that waits longer than `wait` seconds for a thread or connection is refused. Raises
    `InvalidArgumentError` if the URL names another engine.
    """
    if url.startswith("sqlite:///"):
        return SqliteDatabase(Path(url.removeprefix("sqlite:///")), wait)
    if url.startswith(("postgresql://", "postgresql+asyncpg://")):
        return PostgresDatabase(async_url(url), pool_size, wait)
    raise InvalidArgumentError("database_url must begin with sqlite:/// or postgresql://.")


def async_url(url: str) -> str:
    """Return the URL of a PostgreSQL database with the driver that SQLAlchemy is to use."""
    return "postgresql+asyncpg://" + url.split("://", 1)[1]
