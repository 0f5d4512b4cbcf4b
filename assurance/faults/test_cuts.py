"""Connections cut before a request is done, and before its answer arrives.

Between client and broker, and between broker and PostgreSQL at the commit.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from assurance.faults.proxy import Link
from assurance.faults.stored import look
from assurance.faults.wholeness import check_stored
from assurance.people import new_device
from scbroker import ServerProvider
from scbroker.keys import KeyRing
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer, free_port
from tests.kit.fixtures import NewProvider
from tests.kit.group_acts import Act, Scene, each_act, start
from tests.kit.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.long, pytest.mark.process]

LARGE = b"large" * 40_000
RECORD = b"PUT /v1/containers"
answered = pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])


@dataclass
class Cables:
    """A program, its broker, and the links to both sides of the broker."""

    device: ServerProvider
    ring: KeyRing
    broker: BrokerProcess
    to_broker: Link
    to_database: Link | None

    def check(self, versions: int) -> None:
        """Check that every write happened exactly once."""
        assert check_stored(self.broker) == []
        stored = look(self.broker.database_url)
        assert [row.version for row in stored.rows["containers"]] == [versions]
        told = [event.version for event in self.device.getEvents().result(PATIENCE)]
        assert told == list(range(1, versions + 1))


@pytest.fixture
def cables(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cables]:
    with ExitStack() as stack:
        url, to_database = "", None
        if engine == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = server.createdatabase()
            port = urlsplit(url).port or 0
            to_database = stack.enter_context(Link(port))
            url = url.replace(f":{port}/", f":{to_database.port}/")
        port = free_port()
        to_broker = stack.enter_context(Link(port))
        link_url = f"http://127.0.0.1:{to_broker.port}"
        origins = f"http://127.0.0.1:{port},{link_url}"
        broker = BrokerProcess(tmp_path / "data", url, port=port, origins=origins)
        ring = stack.enter_context(broker).new_user()
        device = new_device(stack, broker, ring, url=link_url)
        yield Cables(device, ring, broker, to_broker, to_database)


@answered
def test_a_request_cut_between_client_and_broker_is_retried_and_happens_once(
    cables: Cables, answered: bool
) -> None:
    link, device = cables.to_broker, cables.device
    link.cut_once(RECORD, answered=answered)
    made = device.createContainer(b"one", {"n": 1}).result(PATIENCE)
    link.cut_once(RECORD, answered=answered, times=2)
    device.updateContainerContent(made.id, LARGE).result(PATIENCE)
    link.cut_once(RECORD, answered=answered)
    device.updateContainerHeader(made.id, {"n": 2}).result(PATIENCE)
    assert link.cuts == 4
    assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
    cables.check(3)


@answered
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_commit_cut_between_broker_and_database_happens_once_and_is_answered_truly(
    cables: Cables, answered: bool
) -> None:
    link, device = cables.to_database, cables.device
    assert link is not None
    made = device.createContainer(b"one", {"n": 1}).result(PATIENCE)
    for version in range(2, 6):
        link.cut_once(b"COMMIT", answered=answered)
        done = device.updateContainerHeader(made.id, {"n": version}).result(PATIENCE)
        assert done.version == version
    link.cut_once(b"COMMIT", answered=answered, times=3)
    device.updateContainerContent(made.id, LARGE).result(PATIENCE)
    assert link.cuts == 7
    assert device.getContainerContent(made.id).result(PATIENCE) == LARGE
    cables.check(6)


@answered
@each_act
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_change_of_a_group_whose_commit_is_cut_happens_once(
    cables: Cables, new_provider: NewProvider, act: Act, answered: bool
) -> None:
    link, scene = cables.to_database, Scene(cables.broker, new_provider)
    assert link is not None
    link.cut_once(b"COMMIT", answered=answered)
    start(scene.manager, act, scene).result(PATIENCE)
    assert link.cuts == 1
    act.ends(scene, False)
    assert check_stored(cables.broker) == []


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_client_waits_while_the_database_is_unreachable(
    cables: Cables, caplog: pytest.LogCaptureFixture
) -> None:
    link, device = cables.to_database, cables.device
    assert link is not None
    made = device.createContainer(b"one").result(PATIENCE)
    link.cut()
    promise = device.updateContainerHeader(made.id, {"n": 2})
    wait_until(lambda: "is sent again" in caplog.text)
    assert not promise.done()
    link.heal()
    assert promise.result(PATIENCE).version == 2
    cables.check(2)
