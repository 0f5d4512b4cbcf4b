"""A few kills; `make crash` has hundreds. And what the inspection alone must find."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from assurance.faults import scenes
from assurance.faults.crash import run
from assurance.faults.crowd import Crowd
from assurance.faults.inspection import Inspection
from assurance.faults.scenes import Scene
from assurance.faults.victims import worker_of
from assurance.people import new_device
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer
from tests.kit.tables import query
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.process]

KILLS = 4


def test_nothing_acknowledged_is_lost_when_a_broker_on_sqlite_is_killed(tmp_path: Path) -> None:
    with scenes.sqlite(tmp_path / "data") as scene:
        report = run(scene, KILLS, seed=1, writers=4, readers=2, enough=20)
    assert report.violations == []
    assert report.kills.total() == KILLS
    assert report.checked > report.acknowledged > 20


def test_nothing_acknowledged_is_lost_when_brokers_workers_and_postgresql_are_killed(
    tmp_path: Path,
) -> None:
    with scenes.postgresql(tmp_path / "data", random.Random(1)) as scene:
        for victim in scene.victims:
            victim.kill()
            victim.revive()
        scene.longest_life = 2.0
        report = run(scene, 2, seed=1, writers=3, readers=2, enough=5)
    assert report.violations == []
    assert report.acknowledged > 5


def test_a_worker_that_starts_while_the_database_is_down_waits_and_the_broker_goes_on(
    tmp_path: Path,
) -> None:
    """uvicorn ends the whole broker when one of its workers does not start."""
    with (
        PostgresServer(durable=True) as server,
        BrokerProcess(tmp_path / "data", server.createdatabase(), workers=2) as broker,
    ):
        ring = broker.new_user()
        server.crash()
        worker_of(broker, random.Random(1)).kill()
        wait_until(lambda: "waiting for the database" in broker.log)
        server.start()
        with ExitStack() as stack:
            new_device(stack, broker, ring)
        assert "failed to start" not in broker.log


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Crowd]]:
    """Return a deployment that a crowd has used and that nothing was killed in."""
    with scenes.sqlite(tmp_path_factory.mktemp("lived")) as scene:
        crowd = Crowd(scene, 5, writers=3, readers=2)
        crowd.start()
        wait_until(lambda: crowd.ledger.acknowledged >= 150)
        crowd.stop()
        yield scene, crowd


def test_the_inspection_finds_an_event_that_a_log_has_twice(lived: tuple[Scene, Crowd]) -> None:
    """`scbroker admin check` finds all other damage of rows and objects."""
    scene, crowd = lived
    inspection, url = Inspection(scene, crowd), scene.database_url
    assert inspection.of_everything() == []
    columns = "event_type, container_id, container_type, date, version, related_user_id, application, changes"
    columns = f"user_id, {columns}, previous_type, salt, details_hash"
    twice = f"SELECT {columns} FROM events WHERE version = 1 AND container_type = 'crowd' LIMIT 1"
    query(url, f"INSERT INTO events ({columns}) {twice}")
    try:
        assert any("2 events of version 1" in each for each in inspection.of_everything())
    finally:
        query(url, "DELETE FROM events WHERE row_id = (SELECT max(row_id) FROM events)")
    assert inspection.of_everything() == []


def test_the_inspection_finds_what_only_the_ledger_knows(lived: tuple[Scene, Crowd]) -> None:
    """An acknowledged write without a row is a violation, and so is an acknowledged change of a group."""
    scene, crowd = lived
    inspection, ledger = Inspection(scene, crowd), crowd.ledger
    container = next(iter(ledger.entries))
    entry = ledger.entries[container][1]
    ledger.entries[container][99] = entry
    try:
        assert any("version 99 was acknowledged" in each for each in inspection.of_everything())
    finally:
        del ledger.entries[container][99]
    team = crowd.team
    assert inspection.after_a_kill() == [*team.check()] == []
    team.parts[0].changes += 1
    team.parts[1].content += b"?"
    try:
        assert any("the group is at version" in each for each in inspection.after_a_kill())
        assert {each.partition(": ")[0] for each in team.check()} == {"the group"}
    finally:
        team.parts[0].changes -= 1
        team.parts[1].content = team.parts[1].content[:-1]
