"""Fixtures for tests of commands: Alice, Bob, and Alice's session as a program has it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assurance.faults.proxy import Link
from scbroker import ServerProvider
from scbroker.cli.command import program
from tests.kit.brokers import BrokerProcess
from tests.kit.browsers import browser, view
from tests.kit.fixtures import StartBroker
from tests.kit.people import Person

__all__ = ["browser", "view"]  # fixtures
program()


@pytest.fixture
def engine() -> str:
    """SQLite: commands know nothing of the broker's engine."""
    return "sqlite"


@pytest.fixture
def alice(person: Callable[[str], Person]) -> Person:
    return person("Alice")


@pytest.fixture
def bob(person: Callable[[str], Person]) -> Person:
    return person("Bob")


@pytest.fixture
def carol(person: Callable[[str], Person]) -> Person:
    return person("Carol")


@pytest.fixture
def session(alice: Person) -> Iterator[ServerProvider]:
    with alice.session() as provider:
        yield provider


@pytest.fixture
def broker_kind() -> type[BrokerProcess]:
    """Commands are processes, which reach a broker by its port."""
    return BrokerProcess


class Halting(Link):
    """The way to a broker: after so many requests about parts nothing passes, until `heal`."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[bytes] = []
        """The first lines of requests about parts."""
        self.last = 0

    def halt_after(self, requests: int) -> None:
        self.last = len(self.asked) + requests

    def _rule(self, data: bytes) -> None:
        first = data.partition(b"\r\n")[0]
        if b"/parts/" in first and first.endswith(b" HTTP/1.1"):
            self.asked.append(first)
            if len(self.asked) == self.last:
                self.freeze()


@pytest.fixture
def halting() -> Iterator[Halting]:
    with Halting() as link:
        yield link


@pytest.fixture
def halted(halting: Halting, start_broker: StartBroker, tmp_path: Path) -> Person:
    """Carol, whose way to a broker of her own is `halting`."""
    broker = start_broker(origins=f"http://127.0.0.1:{halting.port}")
    halting.to, broker.port = broker.port, halting.port
    carol = Person(tmp_path / "home of Carol", broker)
    carol.join("Carol")
    return carol
