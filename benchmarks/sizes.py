"""Measure the size of tables and indexes on disk."""

from typing import Final

import msgspec
from sqlalchemy import Connection, text

from scbroker.server.storage.tables import metadata

_POSTGRESQL: Final = text(
    "SELECT coalesce(toasted.relname, indexed.relname, class.relname) AS of_table, class.relname AS name,"
    " class.relkind::text AS kind, pg_relation_size(class.oid) AS size"
    " FROM pg_class AS class"
    " LEFT JOIN pg_index AS own ON own.indexrelid = class.oid"
    " LEFT JOIN pg_class AS indexed ON indexed.oid = own.indrelid"
    " LEFT JOIN pg_class AS toasted ON toasted.reltoastrelid = coalesce(indexed.oid, class.oid)"
    " WHERE class.relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace)"
)
_SQLITE: Final = text(
    "SELECT tbl_name AS of_table, dbstat.name, 'i' AS kind, sum(pgsize) AS size"
    " FROM dbstat JOIN sqlite_schema USING (name) GROUP BY 1, 2"
)
_MANY: Final = 100


class TableSize(msgspec.Struct):
    """The bytes of a table: rows, long values (TOAST), and indexes."""

    name: str
    rows: int
    heap: int = 0
    toast: int = 0
    indexes: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.heap + self.toast + sum(self.indexes.values())


def sizes(connection: Connection) -> list[TableSize]:
    """Return the tables of 100 or more rows, the largest first."""
    counted = {
        name: TableSize(name, connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one())
        for name in metadata.tables
    }
    sqlite = connection.dialect.name == "sqlite"
    for row in connection.execute(_SQLITE if sqlite else _POSTGRESQL):
        table = counted.get(row.of_table)
        if table is None:
            continue
        if row.name == table.name:
            table.heap = row.size
        elif row.name.startswith("pg_toast"):
            table.toast += row.size
        else:
            table.indexes[row.name] = row.size
    found = [table for table in counted.values() if table.rows >= _MANY]
    return sorted(found, key=lambda table: -table.total)


def size_table(found: list[TableSize]) -> str:
    """Return a Markdown table with bytes per row."""
    lines = [
        "| table | rows | MB | bytes a row | rows themselves | long values beside them | indexes |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for table in found:
        indexes = ", ".join(
            f"`{name}` {size / table.rows:,.0f}" for name, size in sorted(table.indexes.items())
        )
        lines.append(
            f"| `{table.name}` | {table.rows:,} | {table.total / 1e6:,.1f} |"
            f" {table.total / table.rows:,.0f} | {table.heap / table.rows:,.0f} |"
            f" {table.toast / table.rows:,.0f} | {indexes} |"
        )
    return "\n".join(lines)
