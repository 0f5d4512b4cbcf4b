"""Measure operations of one client on small containers against the sum of their parts."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import psutil

from benchmarks import floors
from benchmarks.floors import FloorServer
from benchmarks.result import Result, amount, cost, interleaved
from scbroker import AccessLevel, ContainerAccessLevel, MemoryTrustStore, ServerProvider
from scbroker.client.http.requests import Requests
from tests.kit.brokers import BrokerProcess

CONTENT: Final = bytes(1024)
HEADER: Final = {"title": "a small header", "tags": ["one", "two"]}
_PATIENCE: Final = 60.0
_TURNS: Final = 10
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions


@dataclass
class Traffic:
    """The requests of an operation, and the bytes of their bodies."""

    sent: int = 0
    received: int = 0
    requests: int = 0


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Count the client's requests and bytes."""
    counted, once = Traffic(), Requests._once

    async def counting(self: Requests, *arguments: Any) -> Any:
        answer = await once(self, *arguments)
        counted.sent += len(arguments[3] or b"")
        counted.received += len(answer)
        counted.requests += 1
        return answer

    with patch.object(Requests, "_once", counting):
        yield counted


@dataclass
class Job:
    """An operation, and the parts of its floor besides HTTP."""

    name: str
    once: Callable[[], object]
    parts: dict[str, Callable[[], object]]
    at_most: float | None = None


def device(broker: BrokerProcess, stack: ExitStack, ring: Any = None) -> ServerProvider:
    """Return a device: of a new user, or of the user with this KeyRing."""
    provider = ServerProvider(broker.api_key, broker.url, "bench", trustStore=MemoryTrustStore())
    stack.enter_context(provider)
    known = broker.new_user() if ring is None else ring
    provider.logIn(keyRing=known, userId=known.userId).result(_PATIENCE)
    return provider


class Stage:
    """Alice writes, Bob reads, and eight other users are members of the larger containers."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self.alice, self.bob = device(broker, stack), device(broker, stack)
        me, him = (each.getUserId().result(_PATIENCE) for each in (self.alice, self.bob))
        others = [broker.new_user().userId for _ in range(8)]
        self.two = [AccessLevel(me, _OWNER), AccessLevel(him)]
        self.ten = [*self.two, *(AccessLevel(user) for user in others)]
        self.nine = self.ten[:-1]

    def create(self, access: Any = None) -> uuid.UUID:
        made = self.alice.createContainer(CONTENT, HEADER, accessLevels=access)
        return made.result(_PATIENCE).id

    def unread(self, count: int) -> Iterator[uuid.UUID]:
        """Return an iterator of containers that Bob has not read yet."""
        return iter([self.create(self.two) for _ in range(count)])


def jobs(stage: Stage, folder: Path, count: int) -> list[Job]:
    alice, bob, ones = stage.alice, stage.bob, [stage.create() for _ in range(2)]
    shared, change = stage.create(stage.ten), itertools.cycle([stage.nine, stage.ten])
    total = 8 * count + 16
    unread, deletable = stage.unread(total), iter([stage.create() for _ in range(total)])
    read = stage.create(stage.two)
    bob.getContainer(read).result(_PATIENCE)
    commit = floors.commit(folder, 8192)
    sign, verify = floors.signing(), floors.verifying()
    seal = floors.sealing(1024)
    write = {"commit": commit, "sign": sign, "verify": verify}
    return [
        Job("createContainer, 1 recipient", stage.create,
            {**write, "wrap": floors.wraps(1), "seal": seal}, 2.0),
        Job("createContainer, 10 recipients", lambda: stage.create(stage.ten),
            {**write, "10 wraps": floors.wraps(10), "seal": seal}, 1.9),
        Job("getContainer, not read before", lambda: bob.getContainer(next(unread)).result(_PATIENCE),
            {"unwrap": floors.unwrapping(), "verify": verify, "unseal": floors.unsealing(1024)}, 2.0),
        Job("getContainer, read before", lambda: bob.getContainer(read).result(_PATIENCE),
            {"unwrap": floors.unwrapping(), "unseal": floors.unsealing(1024)}, 1.6),
        Job("updateContainerHeader",
            lambda: alice.updateContainerHeader(ones[0], HEADER).result(_PATIENCE), write),
        Job("updateContainerContent",
            lambda: alice.updateContainerContent(ones[1], CONTENT).result(_PATIENCE), write),
        Job("updateContainerAccessLevels, one of 10 out or in",
            lambda: alice.updateContainerAccessLevels(shared, next(change)).result(_PATIENCE),
            {**write, "10 wraps": floors.wraps(10)}),
        Job("deleteContainer", lambda: alice.deleteContainer(next(deletable)).result(_PATIENCE), write),
        Job("getEvents, the first 100", lambda: alice.getEvents(startId=1, endId=100).result(_PATIENCE), {}),
    ]  # fmt: skip


def run(folder: Path, *, quick: bool = False) -> list[Result]:
    """Run with one client on SQLite."""
    count, results = 8 if quick else 40, []
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder / "small"))
        server = stack.enter_context(FloorServer())
        stage = Stage(broker, stack)
        for job in jobs(stage, folder, count):
            job.once()  # the first call may ask for keys that later ones need not
            with traffic() as bytes_of:
                job.once()
            each = bytes_of.requests
            exchange = server.http(bytes_of.sent // each, bytes_of.received // each)
            parts = [exchange, *job.parts.values()]
            seconds, http, *others = interleaved([job.once, *parts], count)
            names = " + ".join([f"{each} HTTP" if each > 1 else "HTTP", *job.parts])
            results.append(cost(job.name, seconds, each * http + sum(others), names, job.at_most))
        read = stage.create(stage.two)
        return [
            *results,
            _processor_time("createContainer", stage.create, broker, count, 3.6),
            _processor_time(
                "getContainer, read before",
                lambda: stage.bob.getContainer(read).result(_PATIENCE), broker, count, 1.0,
            ),
        ]  # fmt: skip


def processor_seconds(broker: BrokerProcess) -> float:
    """Return the processor seconds that the broker has used."""
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def _processor_time(
    name: str, once: Callable[[], object], broker: BrokerProcess, count: int, at_most: float
) -> Result:
    """Measure what an operation costs client and broker together. The operating system counts in 10 ms."""
    once()
    began = time.process_time() + processor_seconds(broker)
    for _ in range(_TURNS * count):
        once()
    spent = time.process_time() + processor_seconds(broker) - began
    each = 1000 * spent / (_TURNS * count)
    return amount(f"{name}, processor time of client and broker", each, "ms", at_most)
