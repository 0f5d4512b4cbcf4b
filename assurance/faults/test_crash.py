"""A few kills; `make crash` has hundreds. And damage of each kind, which the inspection must find."""

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
from assurance.faults.stored import damage, look
from assurance.faults.victims import worker_of
from assurance.people import new_device
from scbroker.server.storage.blobs import new_blob_name
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer
from tests.kit.objects import folder_of
from tests.kit.waiting import PATIENCE, wait_until

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
        # One with an object, whatever the crowd happened to make.
        device = scene.device(crowd.rings[0], "writer 0")
        made = device.createContainer(bytes(100_000)).result(PATIENCE)
        crowd.ledger.wrote(0, "writer 0", {}, made)
        yield scene, crowd


LIVING = "(SELECT id FROM containers WHERE NOT deleted AND type = 'crowd' AND version > 1 LIMIT 1)"
DAMAGES = {
    "a record is lost": (
        f"DELETE FROM records WHERE container_id IN {LIVING} AND version = 1",
        f"INSERT INTO records SELECT * FROM kept WHERE container_id IN {LIVING} AND version = 1",
        "records",
    ),
    "a container goes back": (
        f"UPDATE containers SET version = version - 1 WHERE id IN {LIVING}",
        f"UPDATE containers SET version = version + 1 WHERE id IN {LIVING}",
        "records",
    ),
    "a member is lost": (
        f"DELETE FROM members WHERE container_id IN {LIVING}",
        "INSERT INTO members SELECT * FROM kept WHERE container_id NOT IN "
        "(SELECT container_id FROM members)",
        "members",
    ),
    "a member of a group is lost": (
        "DELETE FROM leaves WHERE version > 1",
        "INSERT INTO leaves SELECT * FROM kept WHERE version > 1",
        "leaves",
    ),
    "a list is lost": (
        f"DELETE FROM access_lists WHERE container_id IN {LIVING}",
        f"INSERT INTO access_lists SELECT * FROM kept WHERE container_id IN {LIVING}",
        "access_lists",
    ),
    "a part is lost": (
        f"UPDATE parts SET replaced_at = 1 WHERE container_id IN {LIVING} AND replaced_at IS NULL",
        f"UPDATE parts SET replaced_at = NULL WHERE replaced_at = 1 AND container_id IN {LIVING}",
        "parts",
    ),
    "an event is lost": (
        f"DELETE FROM events WHERE container_id IN {LIVING} AND version = 1",
        "INSERT INTO events SELECT * FROM kept WHERE row_id NOT IN (SELECT row_id FROM events)",
        "events",
    ),
    "an event stands there twice": (
        f"INSERT INTO events SELECT NULL, user_id, NULL, event_type, container_id, container_type, "
        f"date, version, related_user_id, application, changes, previous_type, salt, details_hash "
        f"FROM events "
        f"WHERE container_id IN {LIVING} AND version = 1",
        "DELETE FROM events WHERE row_id > (SELECT max(row_id) FROM kept)",
        "events",
    ),
    "a number is left out": (
        "UPDATE users SET last_event = last_event + 1 WHERE last_event > 0",
        "UPDATE users SET last_event = last_event - 1 WHERE last_event > 0",
        "users",
    ),
    "an object's row is lost": (
        "DELETE FROM chunks",
        "INSERT INTO chunks SELECT * FROM kept WHERE part_id NOT IN (SELECT part_id FROM chunks)",
        "chunks",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_the_inspection_finds_what_is_wrong(lived: tuple[Scene, Crowd], what: str) -> None:
    scene, crowd = lived
    inspection, url = Inspection(scene, crowd), scene.database_url
    harm, mend, table = DAMAGES[what]
    assert inspection.of_everything() == []
    damage(url, f"CREATE TABLE kept AS SELECT * FROM {table}")
    try:
        damage(url, harm)
        assert inspection.of_everything() != []
    finally:
        damage(url, mend)
        damage(url, "DROP TABLE kept")
    assert inspection.of_everything() == []


def test_the_inspection_finds_objects_that_are_missing_changed_or_unreferenced(
    lived: tuple[Scene, Crowd],
) -> None:
    scene, crowd = lived
    inspection, root = Inspection(scene, crowd), folder_of(scene.first)
    stored = look(scene.database_url)
    committed = {row.part_id for row in stored.rows["parts"] if row.committed}
    name: str = next(row.blob for row in stored.rows["chunks"] if row.part_id in committed)
    data = (root / name).read_bytes()
    for harm in (
        lambda: (root / name).unlink(),
        lambda: (root / name).write_bytes(data[:-1] + b"?"),
    ):
        harm()
        assert inspection.of_everything() != []
        (root / name).write_bytes(data)
    stray = root / new_blob_name(bytes(16))
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"")
    assert inspection.of_everything() != []
    stray.unlink()
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
