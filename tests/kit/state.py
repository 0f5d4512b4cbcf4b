"""Read and change the rows of a device's state file, as anybody who can write to the disk may."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def read(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query to the state file of a trust store's folder."""
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        return connection.execute(query).fetchall()


def change(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / "state.db")) as connection, connection:
        assert connection.execute(statement, values).rowcount != 0
