"""A broker that cannot start says why, in one line and with exit status 1; what it can, it does."""

import asyncio
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from scbroker.errors import InvalidArgumentError, OverloadedError
from scbroker.server import commands
from scbroker.server.settings import Settings, load_settings
from scbroker.server.storage.database import SqliteDatabase
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire, environment
from tests.kit.engines import PostgresServer
from tests.kit.processes import run
from tests.kit.waiting import PATIENCE, wait_until


def _refusal(data_dir: Path, *options: str, settings: Mapping[str, object] = {}) -> str:
    """What a broker that does not start says."""
    arguments = ["serve", "--port", "0", "--data-dir", str(data_dir), *options]
    return _refused(*run(arguments, environment(settings), PATIENCE))


def _refused(status: int, output: str, error: str) -> str:
    assert (status, output) == (2, ""), error
    assert "Traceback" not in error, error
    *_, last = error.splitlines()  # behind the log
    assert last.startswith("scbroker: "), error
    return last


@pytest.mark.parametrize(
    "name, value",
    [("gueses", "3"), ("guesses", "0"), ("guesses", "many"), ("session_seconds", "-1"),
     ("max_members", "1025"), ("max_key_records", "3"), ("upload_seconds", "60"), ("transfer_seconds", "0"),
     ("event_retention_seconds", "86399"), ("transfer_seconds", "3601"), ("direct_transfer", "perhaps"),
     ("CONFIG", "/nonexistent/scbroker.toml"),
     *(("object_store_url", url) for url in ("memory:///", "http://127.0.0.1/x", "s3a://bucket", "s3:bucket",
                                             "file://relative", "objects")),
     *(("trusted_proxies", some) for some in ("nonsense", "10.0.0.1,", "10.0.0.1/8", "::1/200", "*,::1")),
     *((f"{kind}_seconds", "315360001")
       for kind in ("session", "guess", "database_wait", "part_grace", "upload", "event_retention")),
     ("session_seconds", "99999999999999999999"), ("api_key", "hunter2")],
)  # fmt: skip
def test_a_setting_that_is_not_understood_is_named_and_refused(name: str, value: str) -> None:
    match = value if name == "CONFIG" else f"(?i){name}"
    with pytest.raises(InvalidArgumentError, match=match) as caught:
        load_settings({f"SCBROKER_{name.upper()}": value})
    assert "hunter2" not in str(caught.value)


def test_a_relative_data_folder_is_of_the_working_directory_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = load_settings({}, data_dir="data")
    monkeypatch.chdir("/")
    assert found.directory == tmp_path / "data"


def test_no_secret_setting_stands_in_a_repr() -> None:
    found = Settings(broker_key="ab" * 32, api_key=str(uuid.uuid4()))
    assert found.broker_key not in repr(found)
    assert found.api_key not in repr(found)


@pytest.mark.sampled
@pytest.mark.parametrize("damage", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_broker_key_is_never_replaced(tmp_path: Path, damage: bytes) -> None:
    """Another key would make every passphrase wrong."""
    path = tmp_path / "broker.key"
    path.write_bytes(damage)
    assert str(path) in _refusal(tmp_path)
    assert path.read_bytes() == damage


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in _refusal(tmp_path, "--port", str(port))


# As `serve` is, with few attempts.
IMPATIENT: Final = """
import sys, tenacity
from scbroker.server import commands
commands._WAITING.stop = tenacity.stop_after_attempt(2)
sys.argv[1:1] = ["serve"]
from scbroker.cli import main
main()
"""


@pytest.mark.long
def test_a_missing_postgresql_is_waited_for_and_then_an_error_in_words(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"postgresql://x:secret@127.0.0.1:{port}/x"
        finished = subprocess.run(
            [sys.executable, "-c", IMPATIENT, "--port", "0", "--data-dir", str(tmp_path)],
            env=environment({"database_url": url}), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert (finished.returncode, finished.stdout) == (5, ""), finished
    *waited, said = finished.stderr.splitlines()
    assert waited
    assert all("waiting for the database" in line for line in waited)
    assert said.startswith("scbroker: ")
    assert "database" in said
    assert "secret" not in finished.stderr


@on_sqlite
def test_a_worker_waits_whatever_it_asks_the_database_when_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, fresh_broker: BrokerProcess
) -> None:
    """uvicorn ends the whole broker when one of its workers does not start."""
    fresh_broker.stop()
    settings = load_settings(
        environment(fresh_broker.settings), data_dir=str(fresh_broker.directory)
    )
    read, asked = SqliteDatabase.read, 0

    async def gone_every_other_time(self: SqliteDatabase, *args: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked % 2:
            raise OverloadedError("The broker's database is not reachable.")
        return await read(self, *args, **options)

    async def work() -> None:
        broker = await commands.open_broker(settings, frozenset())
        await broker.database.close()

    monkeypatch.setattr(SqliteDatabase, "read", gone_every_other_time)
    asyncio.run(work())
    assert asked == 4


@pytest.mark.long
def test_a_broker_that_starts_before_its_postgresql_waits_and_serves_when_that_is_there(
    tmp_path: Path,
) -> None:
    with PostgresServer(durable=True) as server, ThreadPoolExecutor(1) as beside:
        broker = BrokerProcess(tmp_path, server.createdatabase())
        server.crash()
        started = beside.submit(broker.start)
        try:
            wait_until((tmp_path / "stderr").exists)
            wait_until(lambda: "waiting for the database" in broker.log)
            server.start()
            started.result(PATIENCE)
            with Wire(broker) as wire:
                wire.call("GET", "/health/ready").expect(200)
        finally:
            broker.stop()
