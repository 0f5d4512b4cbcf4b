"""A database is brought to the tables of this version, whoever tries and how often."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from scbroker.server.database import open_database
from scbroker.server.migrations.upgrade import upgrade
from scbroker.server.tables import metadata
from tests.brokers import environment
from tests.server.tables import dump, query

ADMIN = "import sys; from scbroker.cli import main; sys.argv[1:1] = ['admin']; main()"


def _run(url: str, *works: object) -> list[object]:
    async def work() -> list[object]:
        database = open_database(url)
        try:
            return [await database.write(each) for each in works]  # type: ignore[arg-type]
        finally:
            await database.close()

    return asyncio.run(work())


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


def test_migrations_make_exactly_the_tables_that_the_broker_uses(database_url: str) -> None:
    before, _, after = _run(database_url, _differences, upgrade, _differences)
    assert before, "an empty database differs"
    assert after == []


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    _run(database_url, upgrade)
    key = uuid.uuid4().bytes * 2
    query(database_url, "INSERT INTO api_keys VALUES (?, 'x', 1)", key)
    before = dump(database_url)
    _run(database_url, upgrade, upgrade)
    assert dump(database_url) == before
    assert before["api_keys"] == {(key, "x", 1)}


def test_processes_that_upgrade_at_once_all_succeed(database_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ADMIN, "create-api-key"]
    options = ["--data-dir", str(tmp_path / "data")]
    running = [
        subprocess.Popen(
            [*command, f"of {number}", *options],
            env=environment({"database_url": database_url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    finished = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert [code for _, _, code in finished] == [0, 0, 0], finished
    assert {name for (name,) in query(database_url, "SELECT name FROM api_keys")} == {
        "of 0",
        "of 1",
        "of 2",
    }
    assert len({uuid.UUID(output.strip()) for output, _, _ in finished}) == 3
