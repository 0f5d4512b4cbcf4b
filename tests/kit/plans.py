"""Which index serves which statement, by the word of the database itself.

Every SELECT, UPDATE and DELETE of `MODULES` is asked for its plan, over the broker's own connection
and with the parameters that it would be executed with: against tables with rows enough for the planner
to have a choice, of which no setting deprives it.
"""

import asyncio
import hashlib
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import BindParameter, Executable, Insert, LargeBinary, TextClause, Update, text
from sqlalchemy.sql.visitors import iterate

from scbroker import server
from scbroker.records.canonical import UserId
from scbroker.server.admin import check
from scbroker.server.events.pages import events_page
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.storage.database import open_database
from scbroker.server.storage.driver import Connection
from scbroker.server.storage.tables import metadata
from scbroker.wire.events import EventQuery

MODULES: Final = (
    *(
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(server.__path__, "scbroker.server.")
        if not each.name.startswith(("scbroker.server.admin", "scbroker.server.migrations"))
    ),
    check,
)
ROWS: Final = 5_000
NOW: Final = 1_800_000_000_000_000
ENGINES: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
_ID, _HASH = bytes(16), bytes(32)
# As `_USER` below has them.
_USUAL, _HEAVY = hashlib.md5(b"user1").digest(), hashlib.md5(b"user0").digest()
_GROUP = hashlib.md5(b"group1").digest()
# By the name of the parameter; what is long gone by `now` and `before` is little.
_VALUES: Final[Mapping[str, Any]] = {
    "new_verifier": b"", "new_key_file": b"", "old": b"", "actions": ["version-started"], "after_id": 1,
    "all_hashes": b"", "before": NOW, "blob": "name", "blocked": _ID, "blocking": _ID, "container_id": _ID,
    "buckets": [_HASH] * 2, "check": "name", "chunk": 1, "container": _ID, "count": 500, "date": NOW,
    "deleted_at": NOW, "deletion": 3, "marked": NOW, "end": 9, "ends": NOW, "first": 1, "from": 1,
    "gone": [_ID] * 10, "hash": _HASH, "id": _ID, "ids": [_ID] * 10, "kept": _HASH, "kept_users": [_ID] * 2,
    "key": _HASH, "last": _ID, "later": NOW, "more": 1, "names": ["name"] * 10, "now": NOW, "number": 1,
    "one": _ID, "part": _ID, "part_id": _ID, "replaced": [_ID] * 2, "row": 1,
    "session": _HASH, "some": [_ID] * 10, "time": NOW, "to": 2**53, "text": "letter", "token_hash": _HASH,
    "type": "letter", "until": NOW, "used": NOW, "user": _USUAL, "user_id": _USUAL, "value": _ID,
    "group": _GROUP, "leaf": _HASH, "epoch": 1, "less": 1, "position": _HASH, "named": None, "below": 9,
    "other": _ID,
    "version": 0, "versions": [1, 2], "wanted": True, "more_bytes": 1, "more_containers": 1, "size": 1,
}  # fmt: skip
# Rows as there are many: a container has three records, a user many containers, a heavy user a tenth.
_CONTAINER: Final = "decode(md5('container' || n / 3), 'hex')"
_USER: Final = "decode(md5('user' || CASE WHEN n % 10 = 0 THEN 0 ELSE n % 500 END), 'hex')"
_COLUMNS: Final = {
    "access_version": "n % 3 + 1",
    "committed": "false",
    "container_id": _CONTAINER,
    "container_type": "'letter'",
    "containers.id": "decode(md5('container' || n), 'hex')",
    "chunk": "n % 3",
    "creator_id": _USER,
    "deleted": "n % 100 = 0",
    "event_type": "(ARRAY['Accessed', 'Added', 'Deleted', 'Updated'])[n / 10 % 4 + 1]",
    "events.id": "CASE WHEN n % 100 <> 0 THEN n END",
    "expires_at": f"{NOW} + n",
    "ends_at": f"{NOW} + n",
    "expiry_recorded": "false",
    "governing": "n % 3 = 0",
    "accepted": "n % 10 <> 1",
    "gone": "n % 100 = 0",
    "groups": "CASE WHEN n % 10 = 0 THEN decode(md5('group' || n), 'hex') END",
    "is_group": "CASE WHEN n % 100 = 7 THEN true END",
    "group_id": "decode(md5('group' || n / 10), 'hex')",
    "group_members.permissions": "CASE WHEN n % 10 = 0 THEN 511 ELSE 0 END",
    "group_infos.group_id": "decode(md5('group' || n), 'hex')",
    "pending_groups.group_id": "decode(md5('group' || n), 'hex')",
    "rosters.version": "n % 10",
    "group_version": "CASE WHEN n % 10 = 0 THEN n END",
    "leaves.until": f"CASE WHEN n % 2 = 0 THEN {2**53} ELSE n % 10 + 1 END",
    "chunks.part_id": "decode(md5('part' || n / 3), 'hex')",
    "replaced_at": f"CASE WHEN n % 10 = 0 THEN {NOW} + n END",
    "sequence": "n % 3",
    "key_records.user_id": "decode(md5('user' || n / 3), 'hex')",
    "key_files.user_id": "decode(md5('user' || n), 'hex')",
    "containers_to_purge.deleted_at": "n",
    "containers_to_purge.container_id": "decode(md5('container' || n), 'hex')",
    "pending_users.user_id": "decode(md5('user' || n), 'hex')",
    "since": f"{NOW} + n",
    "touched_at": f"{NOW} + n",
    "usage.user_id": "decode(md5('user' || n), 'hex')",
    "user_id": _USER,
    "version": "n % 3 + 1",
}


def _leading() -> Iterator[tuple[str, str]]:
    """Each index and the column that it is ordered by: without that it is read from end to end."""
    for name, table in metadata.tables.items():
        yield f"{name}_pkey", table.primary_key.columns[0].name
        for index in table.indexes:
            yield str(index.name), index.columns[0].name


_LEADING: Final = dict(_leading())


@dataclass(frozen=True)
class Plan:
    """What a statement reads: tables, the indexes of them, and what it reads from end to end."""

    tables: list[str] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)
    scans: list[str] = field(default_factory=list)


def asked() -> dict[str, tuple[Executable, dict[str, Any]]]:
    """Every statement with its parameters, by name; those of a tuple are numbered."""
    found = {}
    for name, value in itertools.chain(*(vars(module).items() for module in MODULES)):
        several = value if isinstance(value, tuple) else (value,)
        for number, statement in enumerate(several, start=1):
            reads = isinstance(statement, Executable) and not isinstance(
                statement, Insert | TextClause
            )
            if reads and not name.startswith("_"):  # what others are made of
                numbered = f"{name} {number}" if isinstance(value, tuple) else name
                found[numbered] = statement, values_of(statement)
    return dict(sorted(found.items())) | dict(_pages())


def values_of(statement: Any) -> dict[str, Any]:
    parameters = [each for each in iterate(statement) if isinstance(each, BindParameter)]
    names = {each.key for each in parameters if each.required}
    values = {key: _VALUES[key] for key in names}
    if isinstance(statement, Update) and not statement._values:
        # What is set is named when it is executed, and no plan depends on it.
        free = next(column.name for column in statement.table.columns if not column.primary_key)
        values[free] = None
    return values


def _pages() -> Iterator[tuple[str, tuple[Executable, dict[str, Any]]]]:
    """A page of events by every criterion, alone and together."""
    criteria: dict[str, Any] = {
        "containerId": "00000000-0000-0000-0000-000000000000",
        "containerType": "rare",
        "eventType": ["Deleted", "Added"],
        "startId": 1000,
    }
    for count in range(len(criteria) + 1):
        for names in itertools.combinations(criteria, count):
            query = EventQuery(limit=100, **{name: criteria[name] for name in names})
            yield f"events_page by {', '.join(names) or 'id'}", events_page(UserId(_HEAVY), query)


def plans(database_url: str, *works: Callable[[Connection], object]) -> dict[str, Plan]:
    """The plan of each statement once these are done."""

    async def ask() -> dict[str, Plan]:
        database = open_database(database_url)
        try:
            await bring_up(database)
            for work in works:
                await database.write(work)
            return await database.write(_ask)
        finally:
            await database.close()

    return asyncio.run(ask())


_GENERIC: Final = """
CREATE FUNCTION pg_temp.generic(statement text) RETURNS json LANGUAGE plpgsql AS $f$
DECLARE answer json;
BEGIN
  EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || statement INTO answer;
  RETURN answer;
END $f$
"""


def plans_for_any(database_url: str) -> dict[str, Plan]:
    """PostgreSQL's plans for whatever parameters: what it may go over to for a statement asked often."""
    found: dict[str, Plan] = {}

    def ask(connection: Connection) -> None:
        connection.run(_GENERIC)
        for name, each in asked().items():
            answer = connection.execute(
                text("SELECT pg_temp.generic(:statement)"),
                {"statement": connection.plan(*each).sql},
            )
            found[name] = _read(answer.scalar_one())

    plans(database_url, ask)
    return found


def prepare(connection: Connection) -> None:
    """Tables that are filled; SQLite chooses without knowing what is in them."""
    if connection.dialect.name == "postgresql":
        for name, table in metadata.tables.items():
            columns = [column for column in table.columns if column.name != "row_id"]
            names = ", ".join(f'"{column.name}"' for column in columns)
            chosen = ", ".join(_expression(name, column) for column in columns)
            rows = f"generate_series(1, {ROWS}) AS numbers (n)"
            connection.execute(text(f"INSERT INTO {name} ({names}) SELECT {chosen} FROM {rows}"))
        connection.execute(text("ANALYZE"))


def _expression(table: str, column: Any) -> str:
    known = _COLUMNS.get(f"{table}.{column.name}") or _COLUMNS.get(column.name)
    if known is not None:
        return known
    if isinstance(column.type, LargeBinary):
        octets = f"decode(md5('{column.name}' || n), 'hex')"
        return octets if column.type.length else f"{octets} || decode(repeat('5a', 300), 'hex')"
    if column.type.python_type is str:
        return f"left(md5(n::text), {getattr(column.type, 'length', None) or 32})"
    return "n"


def _ask(connection: Connection) -> dict[str, Plan]:
    read = _of_postgresql if connection.dialect.name == "postgresql" else _of_sqlite
    return {name: read(connection, *each) for name, each in asked().items()}


def _of_postgresql(connection: Connection, statement: Any, values: Any) -> Plan:
    return _read(_explained(connection, "EXPLAIN (FORMAT JSON)", statement, values)[0][0])


def _explained(connection: Connection, explain: str, statement: Any, values: Any) -> Sequence[Any]:
    plan = connection.plan(statement, values)
    return connection.fetch(f"{explain} {plan.sql}", plan.arguments(values))[0]


def _read(answer: Any) -> Plan:
    [root] = msgspec.json.decode(answer) if isinstance(answer, str) else answer
    plan = Plan()
    for node in _nodes(root["Plan"]):
        if "Relation Name" in node:
            plan.tables.append(node["Relation Name"])
        index = node.get("Index Name")
        if index is not None and _LEADING.get(index, "") in node.get("Index Cond", ""):
            plan.indexes.append(index)
        elif index is not None or node["Node Type"] == "Seq Scan":
            plan.scans.append(index or node["Relation Name"])
    return plan


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)


def _of_sqlite(connection: Connection, statement: Any, values: Any) -> Plan:
    plan = Plan()
    for *_, detail in _explained(connection, "EXPLAIN QUERY PLAN", statement, values):
        words = detail.replace("COVERING ", "").split()
        if words[0] == "SEARCH" and "AUTOMATIC" not in words:  # made for this once, of all rows
            plan.indexes.append(_index(words))
        elif words[0] in {"SCAN", "SEARCH"} and not words[1].startswith(("(", "anon_", "CONSTANT")):
            plan.scans.append(words[1])
    return plan


def _index(words: list[str]) -> str:
    """What SQLite makes for a primary key has the name that PostgreSQL gives it."""
    name = words[words.index("INDEX") + 1] if "INDEX" in words else f"sqlite_autoindex_{words[1]}_1"
    if not name.startswith("sqlite_autoindex_"):
        return name
    return name.removeprefix("sqlite_autoindex_").rpartition("_")[0] + "_pkey"
