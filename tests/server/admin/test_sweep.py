"""`scbroker admin sweep` removes what nothing needs, and nothing else."""

import os
import re
import time
import uuid
from contextlib import ExitStack

import obstore
import pytest

from scbroker.records.container_record import Role
from tests.kit import objects as stored
from tests.kit.both_engines import both_engines
from tests.kit.brokers import ENGINES, BrokerProcess, Wire, clock
from tests.kit.fixtures import StartBroker
from tests.kit.operators import admin
from tests.kit.tables import dump, query
from tests.kit.writers import Story, User

SIZE = 100_000
HOUR = 3_600_000_000


def objects(broker: BrokerProcess) -> set[str]:
    root = stored.folder_of(broker)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in found if re.search("-[0-9a-f]{32}$", name)}


def names(broker: BrokerProcess, story: Story) -> set[str]:
    """The objects of a container, as rows name them."""
    statement = "SELECT blob FROM chunks JOIN parts USING (part_id) WHERE container_id = ?"
    return {name for (name,) in query(broker.database_url, statement, story.id)}


def large(author: User) -> Story:
    story = Story(author)
    part = story.upload(author, bytes(SIZE))
    story.tell(author, story.begin(content=part))
    return story


def pending(author: User) -> Story:
    story = Story(author)
    part, sealed = story.seal(Role.Content, author, bytes(SIZE), story.key)
    story.chunk(author, part, 0, sealed).expect(204)
    return story


def planted(broker: BrokerProcess, hours: float, *, pending: float | None = None) -> str:
    """An object of this age that no row names, and that is pending since so many hours."""
    part = uuid.uuid4().hex
    name = f"parts/{part[:2]}/{part}-{uuid.uuid4().hex}"
    path = stored.folder_of(broker) / name
    path.write_bytes(b"left over")
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    if pending is not None:
        since = clock() - int(pending * HOUR)
        query(
            broker.database_url,
            "INSERT INTO pending_blobs (name, since) VALUES (?, ?)",
            name,
            since,
        )
    return name


@pytest.mark.long
@pytest.mark.only_on(*ENGINES)  # an S3 dates its objects itself
@both_engines
def test_a_sweep_deletes_exactly_what_is_due_and_says_how_much(start_broker: StartBroker) -> None:
    broker = start_broker()
    url = broker.database_url
    with Wire(broker) as wire, ExitStack():
        ring = broker.new_user()
        alice = User(ring, wire.log_in(ring))
        needed, replaced, lately = large(alice), large(alice), large(alice)
        for story in (replaced, lately):
            story.tell(alice, story.follow(alice, content=b"small"))
        sending, given_up = pending(alice), pending(alice)
        query(url, "UPDATE parts SET replaced_at = 1 WHERE replaced_at > 0 AND container_id = ?",
              replaced.id)  # fmt: skip
        query(url, "UPDATE parts SET touched_at = 1 WHERE container_id = ?", given_up.id)
        kept = {name for story in (needed, lately, sending) for name in names(broker, story)}
        young = planted(broker, 0.5)
        arriving = planted(broker, 2, pending=0.5)
        for hours in (1.5, 30):
            planted(broker, hours)
        planted(broker, 2, pending=2)
        other = stored.folder_of(broker) / "parts" / "00" / "check"
        other.write_bytes(b"not a chunk")
        os.utime(other, (1, 1))
        before = dump(url)

        done = admin(broker, "sweep").expect(0)
        assert done.lines == [
            "Deleted 2 replaced or abandoned contents, 3 objects that were pending deletion, 2 unreferenced "
            "objects; 1 unreferenced objects were kept: they are younger than an hour."
        ]
        assert objects(broker) == kept | {young, arriving}
        assert other.exists()
        after = dump(url)
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"parts", "chunks", "pending_blobs", "usage"}
        assert len(before["parts"] - after["parts"]) == len(before["chunks"] - after["chunks"]) == 2
        again = admin(broker, "sweep").expect(0)
        assert again.last.startswith("Deleted 0 replaced")
        assert ", 0 objects that were pending deletion, 0 unreferenced" in again.last
        assert objects(broker) == kept | {young, arriving}
        (stored.folder_of(broker) / young).unlink()
        admin(broker, "check").expect(0)


@pytest.mark.cluster("ceph")
@pytest.mark.only_on("cluster")
def test_a_sweep_of_an_s3_deletes_the_same_and_keeps_young_objects(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    url, store = broker.database_url, stored.store_of(broker)
    with Wire(broker) as wire:
        ring = broker.new_user()
        alice = User(ring, wire.log_in(ring))
        needed, replaced, sending, given_up = (
            large(alice),
            large(alice),
            pending(alice),
            pending(alice),
        )
        replaced.tell(alice, replaced.follow(alice, content=b"small"))
        query(url, "UPDATE parts SET replaced_at = 1 WHERE replaced_at > 0 AND container_id = ?",
              replaced.id)  # fmt: skip
        query(url, "UPDATE parts SET touched_at = 1 WHERE container_id = ?", given_up.id)
        kept = {name for story in (needed, sending) for name in names(broker, story)}
        part = uuid.uuid4().hex
        young, marked = (f"parts/{part[:2]}/{part}-{uuid.uuid4().hex}" for _ in range(2))
        for name in (young, marked):
            obstore.put(store, name, b"left over")
        since = clock() - 2 * HOUR
        query(url, "INSERT INTO pending_blobs (name, since) VALUES (?, ?)", marked, since)

        done = admin(broker, "sweep").expect(0)
        assert done.lines == [
            "Deleted 2 replaced or abandoned contents, 3 objects that were pending deletion, 0 unreferenced "
            "objects; 1 unreferenced objects were kept: they are younger than an hour."
        ]
        assert stored.objects(broker).keys() == kept | {young}
        obstore.delete(store, young)
        admin(broker, "check").expect(0)
