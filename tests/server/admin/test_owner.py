"""An object store belongs to one database: with another no broker starts, and no command removes anything."""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.operators import admin
from tests.kit.tables import query
from tests.kit.writers import Story, User

OWNER = "parts/00/owner"
COMMANDS = (("sweep",), ("check", "--quick"))


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that has a large content, stopped."""
    broker = BrokerProcess(tmp_path / "broker")
    with broker, Wire(broker) as wire:
        ring = broker.new_user()
        alice = User(ring, wire.log_in(ring))
        story = Story(alice)
        story.tell(alice, story.begin(content=story.upload(alice, bytes(70_000))))
    yield broker
    broker.stop()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Another broker, which has started once and is empty."""
    broker = BrokerProcess(tmp_path / "other")
    with broker:
        pass
    yield broker
    broker.stop()


def _names(objects: Path) -> dict[str, bytes]:
    return {str(p.relative_to(objects)): p.read_bytes() for p in objects.rglob("*") if p.is_file()}


def _forget(broker: BrokerProcess) -> None:
    """As a database of an earlier version."""
    query(broker.database_url, "DELETE FROM checks WHERE name = 'objects'")


def _refusal(broker: BrokerProcess) -> str:
    with pytest.raises(RuntimeError) as caught:
        broker.start()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def _old(objects: Path) -> None:
    for path in objects.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)


@pytest.mark.parametrize("fresh", [False, True])
def test_with_the_wrong_database_nothing_is_swept_and_no_broker_starts(
    stopped: BrokerProcess, other: BrokerProcess, fresh: bool
) -> None:
    objects = stopped.directory / "objects"
    _old(objects)
    before = _names(objects)
    other.settings["object_store_url"] = objects.as_uri()
    if fresh:
        shutil.rmtree(other.directory)
    else:
        for command in COMMANDS:
            assert "another database" in admin(other, *command).expect(1).error
    assert "another database" in _refusal(other)
    assert _names(objects) == before
    stopped.start()
    for command in COMMANDS:
        admin(stopped, *command).expect(0)


def test_a_store_that_belongs_to_nobody_is_not_taken_from_what_nobody_names(
    stopped: BrokerProcess, other: BrokerProcess
) -> None:
    objects = stopped.directory / "objects"
    (objects / OWNER).unlink()
    before = _names(objects)
    _forget(other)
    other.settings["object_store_url"] = objects.as_uri()
    assert "none that this database names" in _refusal(other)
    assert _names(objects) == before


@pytest.mark.parametrize("lost", ["both", "row", "object"])
def test_what_an_earlier_version_left_is_bound_at_the_next_start_and_not_swept_before(
    stopped: BrokerProcess, lost: str
) -> None:
    owner = stopped.directory / "objects" / OWNER
    if lost != "object":
        _forget(stopped)
    if lost != "row":
        owner.unlink()
    for command in COMMANDS:
        said = admin(stopped, *command).expect(1).error
        assert ("another database" if lost == "row" else "start the broker") in said
    stopped.start()
    [(value,)] = query(stopped.database_url, "SELECT value FROM checks WHERE name = 'objects'")
    assert owner.read_text() == f"{value.hex()}\n"
    for command in COMMANDS:
        admin(stopped, *command).expect(0)


def test_a_store_without_the_objects_that_the_database_names_is_refused_until_they_are_given_up(
    stopped: BrokerProcess,
) -> None:
    objects = stopped.directory / "objects"
    shutil.rmtree(objects)
    said = _refusal(stopped)
    assert "none of the objects" in said
    line = said.partition("with the line ")[2].partition(",")[0]
    (objects / OWNER).write_text(f"{line}\n")
    stopped.start()


@pytest.mark.parametrize("damage", ["", "x" * 64, "ab" * 31])
def test_a_damaged_owner_is_no_owner(stopped: BrokerProcess, damage: str) -> None:
    (stopped.directory / "objects" / OWNER).write_text(damage)
    assert "damaged" in _refusal(stopped)
    assert "damaged" in admin(stopped, "sweep").expect(1).error


def test_a_refused_start_keeps_the_first_api_key_for_the_one_that_serves(
    stopped: BrokerProcess, tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "new")
    del broker.settings["api_key"]
    broker.settings["object_store_url"] = (stopped.directory / "objects").as_uri()
    _refusal(broker)
    broker.settings["object_store_url"] = (tmp_path / "empty").as_uri()
    with broker, Wire(broker) as wire:
        wire.call("GET", "/health/ready").expect(200)
        [key] = [line for line in broker.output.splitlines() if "SCBROKER_API_KEY" in line]
        uuid.UUID(key.rpartition("=")[2])


def test_while_its_object_store_is_away_a_broker_starts_and_nothing_is_swept(
    tmp_path: Path,
) -> None:
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
        assert "could not be asked" in broker.log
        assert "object store" in admin(broker, "sweep").expect(1).error


def test_what_was_restored_belongs_together_before_any_start(
    stopped: BrokerProcess, tmp_path: Path
) -> None:
    copy, restored = tmp_path / "copy", tmp_path / "restored"
    admin(stopped, "backup", copy).expect(0)
    admin(stopped, "restore", copy, at=restored).expect(0)
    owner = stopped.directory / "objects" / OWNER
    assert (restored / "objects" / OWNER).read_bytes() == owner.read_bytes()
    for command in COMMANDS:
        admin(stopped, *command, at=restored).expect(0)
