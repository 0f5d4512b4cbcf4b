"""The objects of a database lie below its id: another database sees none of them and removes none."""

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from scbroker.errors import InvalidArgumentError
from scbroker.server.admin import stores
from scbroker.server.migrations.upgrade import bring_up
from scbroker.server.settings import Settings
from scbroker.server.storage.database import open_database
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.objects import folder_of
from tests.kit.operators import admin
from tests.kit.tables import query
from tests.kit.writers import Story, User

COMMANDS = (("sweep",), ("check", "--quick"))


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A stopped broker that has a large content."""
    broker = BrokerProcess(tmp_path / "broker")
    with broker:
        _add_large_content(broker)
    yield broker
    broker.stop()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A further broker, which has started once and has a large content of its own."""
    broker = BrokerProcess(tmp_path / "other")
    with broker:
        _add_large_content(broker)
    yield broker
    broker.stop()


def _add_large_content(broker: BrokerProcess) -> None:
    with Wire(broker) as wire:
        ring = broker.new_user()
        alice = User(ring, wire.log_in(ring))
        story = Story(alice)
        story.tell(alice, story.begin(content=story.upload(alice, bytes(70_000))))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _make_old(objects: Path) -> None:
    for path in objects.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)


def _delete_everything(broker: BrokerProcess) -> None:
    """Have all parts of a database be due for the sweeper."""
    query(broker.database_url, "UPDATE parts SET replaced_at = 1")


@pytest.mark.long
def test_with_the_wrong_database_nothing_of_another_is_swept(
    stopped: BrokerProcess, other: BrokerProcess
) -> None:
    """Neither a command nor a running broker touches the objects of another; its own are named as missing."""
    objects = stopped.directory / "objects"
    _make_old(objects)
    before = _files(folder_of(stopped))
    other.settings["object_store_url"] = objects.as_uri()
    assert "its object is missing" in admin(other, "check").expect(1).lines[0]
    admin(other, "sweep").expect(0)
    with other:
        _add_large_content(other)
        _delete_everything(other)
        assert "Deleted 2 replaced" in admin(other, "sweep").expect(0).last
    assert _files(folder_of(stopped)) == before
    stopped.start()
    for command in COMMANDS:
        admin(stopped, *command).expect(0)
    assert _files(folder_of(stopped)).items() >= before.items()


@pytest.mark.long
def test_a_database_without_an_id_is_refused_until_its_broker_starts(
    stopped: BrokerProcess, tmp_path: Path
) -> None:
    admin(stopped, "api-keys", "create", "x", at=tmp_path / "new").expect(0)
    url = f"sqlite:///{tmp_path / 'new' / 'broker.sqlite'}"
    query(url, "DELETE FROM checks WHERE name = 'objects'")
    for command in (*COMMANDS, ("backup", str(tmp_path / "copy"))):
        said = admin(stopped, *command, at=tmp_path / "new").expect(2).error
        assert "start the broker" in said


def test_a_key_that_cannot_be_written_is_named_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=str(tmp_path))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)

    async def work() -> None:
        database = open_database(f"sqlite:///{tmp_path / 'broker.sqlite'}")
        try:
            await bring_up(database)
            with pytest.raises(
                InvalidArgumentError, match=r"broker\.key cannot be written: No space"
            ):
                await database.write(lambda c: stores.provision(c, settings))
            assert not (tmp_path / "broker.key").exists()
        finally:
            await database.close()

    asyncio.run(work())


@pytest.mark.long
def test_a_refused_start_keeps_the_first_api_key_for_the_one_that_serves(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "new")
    del broker.settings["api_key"]
    broker.settings["object_store_url"] = "az://container"
    with pytest.raises(RuntimeError) as caught:
        broker.start()
    assert "object_store_url cannot be used" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    broker.settings["object_store_url"] = (tmp_path / "empty").as_uri()
    with broker, Wire(broker) as wire:
        wire.call("GET", "/health/ready").expect(200)
        [key] = [line for line in broker.output.splitlines() if "SCBROKER_API_KEY" in line]
        uuid.UUID(key.rpartition("=")[2])


@pytest.mark.long
def test_while_its_object_store_is_away_a_broker_starts_and_sweeps_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    broker = BrokerProcess(tmp_path, object_store_url="s3://bucket", variables=variables)
    with broker, Wire(broker) as wire:
        wire.call("GET", "/health/live").expect(200)
        wire.call("GET", "/health/ready").expect(503)
        assert "object store" in admin(broker, "sweep").expect(5).error


@pytest.mark.long
def test_a_second_broker_on_a_data_folder_is_refused_and_commands_run_beside_the_first(
    tmp_path: Path,
) -> None:
    """Also after the first one was killed: the system releases the lock."""
    first, second = (BrokerProcess(tmp_path / "data") for _ in range(2))
    with first:
        with pytest.raises(
            RuntimeError, match=f"Another broker serves .*{tmp_path / 'data'}: stop it"
        ):
            second.start()
        with Wire(first) as wire:
            wire.call("GET", "/health/ready").expect(200)
        commands = (*COMMANDS, ("api-keys", "create", "x"), ("backup", str(tmp_path / "copy")))
        for command in commands:
            admin(first, *command).expect(0)
        first.kill()
        with second:
            pass


@pytest.mark.long
@pytest.mark.parametrize("key", [None, bytes(32)], ids=["missing", "wrong"])
def test_a_check_without_the_brokers_key_says_so_and_checks_everything_but_the_key_files(
    stopped: BrokerProcess, key: bytes | None
) -> None:
    path = stopped.directory / "broker.key"
    path.unlink() if key is None else path.write_bytes(key)
    done = admin(stopped, "check").expect(1)
    assert "broker's key is " in done.lines[0]
    assert done.lines[0].endswith("Neither KeyFiles nor the audit log were checked.")
    assert done.last == "Checked 1 chunks, 1 containers, 1 objects, 1 records, 1 users: 1 wrong."
