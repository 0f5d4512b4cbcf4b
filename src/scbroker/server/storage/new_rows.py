"""Rows that are added together: what several records of a batch add, each statement adds at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection


class NewRows:
    """Rows to be added, by the statement that adds them, in the order in which those came first."""

    def __init__(self) -> None:
        self._rows: dict[Any, list[dict[str, Any]]] = {}

    def add(self, statement: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._rows.setdefault(statement, []).extend(rows)

    def of(self, statement: Any) -> Sequence[dict[str, Any]]:
        return self._rows.get(statement, ())

    def take(self, other: NewRows) -> None:
        """Adds these of another's, behind one's own."""
        for statement, rows in other._rows.items():
            self.add(statement, rows)

    def write(self, connection: Connection) -> None:
        """Has them in the database, and none of them left."""
        rows, self._rows = self._rows, {}
        for statement, some in rows.items():
            connection.execute(statement, some)
