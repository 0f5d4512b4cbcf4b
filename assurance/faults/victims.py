"""What can be killed, and how it is started again."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer


class Victim(Protocol):
    """Something that can be killed and started again."""

    @property
    def name(self) -> str: ...

    def kill(self) -> None:
        """Send SIGKILL, or what comes closest: nothing more is written, and no answer sent."""
        ...

    def revive(self) -> None:
        """Start it again on the same data and address; return once it is started."""
        ...


@dataclass
class BrokerVictim:
    """A broker with all of its workers."""

    broker: BrokerProcess
    name: str = "broker"

    def kill(self) -> None:
        self.broker.kill()

    def revive(self) -> None:
        self.broker.start()


@dataclass
class WorkerVictim:
    """One worker of a broker that has several; the broker itself starts another."""

    broker: BrokerProcess
    rng: random.Random
    name: str = "worker"

    def kill(self) -> None:
        # The other child is the resource tracker of Python's multiprocessing.
        with suppress(psutil.Error):  # the supervisor was about to replace it
            children = psutil.Process(self.broker.pid).children()
            workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
            if workers:
                self.rng.choice(workers).send_signal(signal.SIGKILL)

    def revive(self) -> None:
        """Do nothing: the supervisor starts another worker."""


@dataclass
class PostgresVictim:
    """A PostgreSQL server with all of its processes."""

    server: PostgresServer
    name: str = "postgresql"

    def kill(self) -> None:
        self.server.crash()

    def revive(self) -> None:
        self.server.start()


@dataclass
class OtherVictim:
    """Anything else, by two functions."""

    name: str
    killing: Callable[[], object]
    reviving: Callable[[], object]

    def kill(self) -> None:
        self.killing()

    def revive(self) -> None:
        self.reviving()


Victims = Sequence[Victim]
