"""The machines under test: where clients reach them, where their rows and objects lie, what can die."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scbroker import MemoryTrustStore, ServerProvider
from scbroker.keys import KeyRing
from tests.brokers import BrokerProcess
from tests.engines import PostgresServer
from tests.faults.quick import QuickBroker
from tests.faults.stored import Folder, Objects
from tests.faults.victims import BrokerVictim, PostgresVictim, Victim, Victims, WorkerVictim

PATIENCE = 120.0
"""Seconds that a request may take with its retries: many times what a restart takes."""
_START_OF_WORKERS: Final = 6.0


@dataclass
class Scene:
    """One deployment. `urls` are brokers on the same data; clients take them in turn."""

    api_key: uuid.UUID
    urls: Sequence[str]
    database_url: str
    objects: Objects
    victims: Victims
    first: BrokerProcess
    """Registers users before anything dies."""
    longest_life: float = 1.2
    """Seconds from a start to the next kill, at most: also while a broker is still starting."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def device(self, ring: KeyRing, name: str, number: int = 0) -> ServerProvider:
        """A program of this user's that has seen nothing yet."""
        url = self.urls[number % len(self.urls)]
        provider = ServerProvider(
            self.api_key, url, name, trustStore=MemoryTrustStore(), timeout=PATIENCE
        )
        self._stack.enter_context(provider)
        provider.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
        return provider

    def close(self) -> None:
        """Closes all devices."""
        self._stack.close()


@contextmanager
def sqlite(folder: Path) -> Iterator[Scene]:
    """One broker on SQLite and a folder, with every fsync real."""
    with QuickBroker(folder) as broker:
        yield from _scene(broker, [BrokerVictim(broker)])


@contextmanager
def postgresql(folder: Path, rng: random.Random) -> Iterator[Scene]:
    """One broker of two workers on a PostgreSQL that keeps its promises, and a folder."""
    with (
        PostgresServer(durable=True) as server,
        BrokerProcess(folder, server.createdatabase(), workers=2) as broker,
    ):
        victims: list[Victim] = [
            BrokerVictim(broker),
            WorkerVictim(broker, rng),
            PostgresVictim(server),
        ]
        yield from _scene(broker, victims, _START_OF_WORKERS)


def _scene(broker: BrokerProcess, victims: Victims, longest_life: float = 1.2) -> Iterator[Scene]:
    objects = Folder(broker.directory / "objects")
    scene = Scene(
        broker.api_key, [broker.url], broker.database_url, objects, victims, broker, longest_life
    )
    try:
        yield scene
    finally:
        scene.close()
