"""Fetches that were noted, and cannot be written just now: none is lost, and none is told of twice."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from sqlalchemy.exc import DBAPIError

from assurance.faults.proxy import Link
from scbroker.errors import OverloadedError
from scbroker.records.canonical import ContainerId, UserId
from scbroker.server.broker import Broker
from scbroker.server.events import log
from scbroker.server.events.log import record_accesses
from scbroker.vocabulary import ContainerAccessLevel as Level
from tests.kit.beside import further_broker
from tests.kit.both_engines import both_engines
from tests.kit.brokers import BrokerProcess
from tests.kit.fixtures import StartBroker
from tests.kit.tables import query
from tests.kit.writers import OWNER, READER, Story, User, session_of
from tests.server.conftest import NewUser

Access = tuple[ContainerId, UserId]


@dataclass
class Scene:
    """A listener, and fetches of their containers that a process of the broker has noted."""

    listener: User
    noted: dict[Access, str]
    url: str

    def recorded(self) -> list[tuple[str, str | None]]:
        """Return container and reader of each fetch in the listener's log."""
        found = self.listener.events(eventType="Accessed")
        return [(event.containerId, event.relatedUserId) for event in found]

    def run(self, work: Callable[[Broker], Awaitable[None]], url: str = "") -> None:
        """By a process that has noted all of them."""

        async def opened() -> None:
            async with further_broker(url or self.url, wait=1.0) as broker:
                broker.accesses = dict(self.noted)
                await work(broker)

        asyncio.run(opened())


def scene(broker: BrokerProcess, new_user: NewUser) -> Scene:
    alice, bob, carol = (new_user(at=broker) for _ in range(3))
    grants = {alice: OWNER | Level.ReceiveAccessEvents, bob: READER, carol: READER}
    stories = [Story(alice).created(grants) for _ in range(2)]
    readers = [session_of(user).id for user in (bob, carol)]
    noted = {(story.id, reader): "program" for story in stories for reader in readers}
    return Scene(alice, noted, broker.database_url)


@pytest.fixture
def noted(start_broker: StartBroker, new_user: NewUser) -> Scene:
    return scene(start_broker(), new_user)


def _check_all(scene: Scene) -> None:
    """Each is told of once, and so it stays when it is noted again."""
    assert len(scene.recorded()) == len(scene.noted) == len({*scene.recorded()})
    scene.run(record_accesses)
    assert len(scene.recorded()) == len(scene.noted)


def _change(url: str, *statements: str) -> Awaitable[None]:
    """Behind the broker's back, while it goes on."""

    def work() -> None:
        for statement in statements:
            query(url, statement)

    return asyncio.to_thread(work)


@pytest.mark.long
@both_engines
def test_fetches_not_written_are_recorded_when_the_database_works_again(noted: Scene) -> None:
    async def work(broker: Broker) -> None:
        await _change(noted.url, "ALTER TABLE accesses RENAME TO elsewhere")
        for _ in range(2):
            with pytest.raises(DBAPIError, match="accesses"):
                await record_accesses(broker)
            assert broker.accesses == noted.noted
        await _change(noted.url, "ALTER TABLE elsewhere RENAME TO accesses")
        await record_accesses(broker)
        assert broker.accesses == {}

    noted.run(work)
    _check_all(noted)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_fetches_whose_commit_was_cut_off_are_recorded_once(noted: Scene, answered: bool) -> None:
    port = urlsplit(noted.url).port or 0

    async def work(broker: Broker) -> None:
        link.cut_once(b"COMMIT", answered=answered)
        with pytest.raises(OverloadedError):
            await record_accesses(broker)
        assert link.cuts == 1
        assert broker.accesses == noted.noted
        await record_accesses(broker)
        assert broker.accesses == {}

    with Link(port) as link:
        noted.run(work, noted.url.replace(f":{port}/", f":{link.port}/"))
    _check_all(noted)


@pytest.mark.long
@both_engines
def test_fetches_that_the_database_refuses_are_given_up_and_keep_back_no_others(
    noted: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_ACCESSES_AT_ONCE", 1)
    refused = {
        "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.application = 'no' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END",
        "postgresql": "ALTER TABLE events ADD CHECK (application <> 'no')",
    }
    query(noted.url, refused[noted.url.partition(":")[0].partition("+")[0]])
    first = min(noted.noted)
    noted.noted[first] = "no"

    async def work(broker: Broker) -> None:
        await record_accesses(broker)
        assert broker.accesses == {}

    noted.run(work)
    del noted.noted[first]
    _check_all(noted)
