"""Deployments: where clients reach them, where their rows and objects are, and what can be killed."""

import http.client
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from assurance.cluster.cluster import Cluster
from assurance.faults.stored import files, in_bucket
from assurance.faults.victims import Victim, all_of, worker_of
from assurance.people import new_device
from scbroker import ServerProvider
from scbroker.keys import KeyRing
from tests.kit.brokers import Address, BrokerProcess
from tests.kit.engines import PostgresServer
from tests.kit.waiting import PATIENCE, wait_until

_LIFE_OF_WORKERS: Final = 3.0
_FAILOVER: Final = 6.0
EPOCHS: Final = 1_000_000
"""More than managers may begin in a day by default."""


@dataclass
class Scene:
    """One deployment, which clients reach at an address."""

    at: Address
    objects: Callable[[], set[str]]
    """The names of all objects."""
    victims: Sequence[Victim]
    first: BrokerProcess
    """Registers users before anything is killed."""
    longest_life: float = 1.2
    """Seconds until the next kill, at most."""
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def database_url(self) -> str:
        return self.first.database_url

    def device(self, ring: KeyRing, name: str) -> ServerProvider:
        """Return a new program of this user."""
        return new_device(self._stack, self.at, ring, name)

    def await_ready(self) -> None:
        """Wait until the first broker serves again. It is asked directly: a proxy hides /health."""
        try:
            wait_until(self._is_ready, "the first broker does not serve again")
        except AssertionError as error:
            error.add_note(self.first.log[-4_000:])
            raise

    def _is_ready(self) -> bool:
        link = http.client.HTTPConnection("127.0.0.1", self.first.port, timeout=PATIENCE)
        with closing(link), suppress(OSError, http.client.HTTPException):
            link.request("GET", "/health/ready")
            return link.getresponse().status == 200
        return False

    def close(self) -> None:
        """Closes all devices."""
        self._stack.close()


@contextmanager
def sqlite(folder: Path) -> Iterator[Scene]:
    """One broker on SQLite and a folder."""
    with BrokerProcess(folder, max_new_epochs=EPOCHS) as broker:
        yield from _scene(broker, [all_of(broker)])


@contextmanager
def postgresql(folder: Path, rng: random.Random) -> Iterator[Scene]:
    """One broker with two workers, on a PostgreSQL with fsync, and a folder."""
    with (
        PostgresServer(durable=True) as server,
        BrokerProcess(folder, server.createdatabase(), workers=2, max_new_epochs=EPOCHS) as broker,
    ):
        postgres = Victim("postgresql", server.crash, server.start)
        victims = [all_of(broker), worker_of(broker, rng), postgres]
        yield from _scene(broker, victims, _LIFE_OF_WORKERS)


@contextmanager
def cluster() -> Iterator[Scene]:
    """Three brokers behind HAProxy, PostgreSQL under Patroni, objects in Ceph. See assurance/cluster."""
    with Cluster(max_new_epochs=EPOCHS) as found, of(found) as scene:
        yield scene


@contextmanager
def of(found: Cluster) -> Iterator[Scene]:
    """A cluster that runs."""

    def start_members() -> None:
        found.patroni.await_primary()
        found.patroni.start_members()

    first, gateway = found.brokers[0], found.gateway
    victims = [all_of(each) for each in found.brokers]
    victims.append(Victim("osd", gateway.crash_osd, gateway.start_osd))
    victims.append(Victim("primary", found.patroni.kill_primary, start_members))
    scene = Scene(found, partial(in_bucket, first), victims, first, _FAILOVER)
    with closing(scene):
        yield scene


def _scene(
    broker: BrokerProcess, victims: Sequence[Victim], longest_life: float = 1.2
) -> Iterator[Scene]:
    objects = partial(files, broker.directory / "objects")
    scene = Scene(broker, objects, victims, broker, longest_life)
    with closing(scene):
        yield scene
