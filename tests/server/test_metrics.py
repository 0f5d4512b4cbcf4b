"""What /metrics says: of one process, and of several workers together."""

import os
import re
import signal
import urllib.request
import uuid
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scbroker.server import metrics
from scbroker.wire import codec
from tests.kit.both_engines import on_sqlite
from tests.kit.brokers import BrokerProcess, Wire
from tests.kit.fixtures import StartBroker
from tests.kit.waiting import wait_until
from tests.kit.writers import Story
from tests.server.conftest import NewUser

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


class Reading:
    """The samples of /metrics, as Prometheus reads them."""

    def __init__(self, url: str) -> None:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            self._samples = [each for family in families for each in family.samples]

    def total(self, name: str, **labels: str) -> float:
        return sum(self.by(name, "", **labels).values())

    def by(self, name: str, key: str, **labels: str) -> dict[str, float]:
        """Return the sums of a name's samples that have these labels, by the value of another label."""
        found: dict[str, float] = {}
        for each in self._samples:
            if each.name == name and labels.items() <= each.labels.items():
                value = each.labels.get(key, "")
                found[value] = found.get(value, 0.0) + each.value
        return found


def of(broker: BrokerProcess) -> Reading:
    return Reading(broker.url)


def test_the_page_names_the_family_of_every_metric() -> None:
    families = PAGE.read_text("utf-8").split("**Labels**")[0]
    named = re.findall(r"`(?:scbroker_)?([a-z]+_?[a-z_]*)(…?)`", families)
    for metric in metrics._REGISTRY.collect():
        name = metric.name.removeprefix("scbroker_") + "_total" * (metric.type == "counter")
        assert metric.documentation
        assert any(name == one or (rest and name.startswith(one)) for one, rest in named), name


@pytest.mark.long
def test_requests_bytes_and_the_database_are_counted(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    alice = new_user(at=broker)
    Story(alice).created()
    found = of(broker)
    assert found.total("scbroker_received_bytes_total") > 1000
    assert found.total("scbroker_sent_bytes_total") > 100
    assert found.total("scbroker_database_seconds_count", kind="write") >= 3
    assert found.total("scbroker_database_wait_seconds_count") >= 3
    assert found.total("scbroker_database_connections_limit") >= 5
    assert found.total("scbroker_requests_limit") == 128
    assert found.total("scbroker_connections") >= 1
    assert found.total("process_resident_memory_bytes") > 2**24


@pytest.mark.long
@pytest.mark.only_on("sqlite", "postgresql")  # an object store has no free space
def test_what_is_stored_is_measured_at_the_start(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    users = [new_user(at=broker) for _ in range(3)]
    broker.restart()
    wait_until(lambda: of(broker).total("scbroker_users") == len(users))
    if broker.engine == "sqlite":
        assert of(broker).total("scbroker_disk_free_bytes", of="database") > 0
    assert of(broker).total("scbroker_disk_free_bytes", of="objects") > 0


@pytest.mark.long
@on_sqlite
@pytest.mark.only_on("sqlite")  # the folder of the objects is moved away
def test_requests_to_the_object_store_are_timed_and_their_failures_counted(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker()
    alice = new_user(at=broker)
    story = Story(alice)
    story.upload(alice, bytes(70_000))
    path = f"/v1/containers/{uuid.UUID(bytes=story.id)}/parts/{uuid.uuid4()}/chunks/0"
    before = of(broker)
    assert before.total("scbroker_store_seconds_count", action="put") >= 1
    assert before.total("scbroker_store_failures_total") == 0
    for folder in (broker.directory / "objects").rglob("parts"):
        folder.rename(folder.with_name("gone"))
        folder.write_bytes(b"a file in the way of the folder")
    alice.wire.call("PUT", path, bytes(70_000), Content_Type=codec.OCTETS).expect(503)
    assert of(broker).total("scbroker_store_failures_total", action="put") >= 1


@pytest.mark.long
@on_sqlite
def test_background_work_that_fails_is_counted_by_its_name(start_broker: StartBroker) -> None:
    found = of(start_broker())
    works = set(found.by("scbroker_background_failures_total", "work"))
    assert {"sweep", "measure storage", "check the clock"} <= works
    page = (PAGE.parents[1] / "guide/three-in-the-morning.md").read_text("utf-8")
    assert all(f"`{work}`" in page for work in works)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_any_worker_answers_for_all_also_after_one_was_killed(
    start_broker: StartBroker, new_user: NewUser
) -> None:
    broker = start_broker(workers=2)
    new_user(at=broker)

    def pids() -> set[str]:
        return set(of(broker).by("process_resident_memory_bytes", "pid"))

    wait_until(lambda: len(pids()) == 2)
    for _ in range(20):  # each on a connection of its own: they reach both workers
        with Wire(broker) as wire:
            wire.nonce()
    sums = {count(broker) for _ in range(10)}
    assert sums == {count(broker)}
    assert count(broker) >= 20
    wait_until(lambda: of(broker).total("scbroker_requests_limit") == 256)
    [killed, _] = before = sorted(pids())
    os.kill(int(killed), signal.SIGKILL)
    wait_until(lambda: len(pids()) == 2 and pids() != set(before))
    assert count(broker) >= 20
    wait_until(lambda: of(broker).total("scbroker_requests_limit") == 256)
    assert of(broker).total("scbroker_build_info") == 1


def count(broker: BrokerProcess) -> float:
    path = "/v1/session-challenges"
    return of(broker).total("scbroker_requests_total", path=path)
