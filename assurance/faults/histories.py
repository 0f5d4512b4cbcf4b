"""Several clients write through several brokers, links are cut and brokers killed: one order must explain it.

    python -m assurance.faults.histories --histories 20 [--engine sqlite|postgresql] [--seed N]

In each history everybody reads and writes a few containers during a few disturbances. Requests have a short
timeout, so that some operations end without an answer: `history.check` must find a place for each of them,
or none.
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from assurance.faults.history import FOREVER, Operation, Value, check
from assurance.faults.proxy import Link
from assurance.faults.wholeness import check_stored
from assurance.people import OWNER, new_device
from scbroker import AccessLevel, BrokerError, ServerProvider
from scbroker.keys import KeyRing
from scbroker.vocabulary import ContainerEventType
from tests.kit.brokers import BrokerProcess
from tests.kit.engines import PostgresServer, free_port
from tests.kit.processes import want_forks
from tests.kit.waiting import PATIENCE, wait_until

CLIENTS: Final = 6
CONTAINERS: Final = 3
ENOUGH: Final = 15
"""More operations than this make a history."""
IMPATIENCE: Final = 1.5
"""Seconds that a request may take: less than a restart, so that some get no answer."""
_CHANGES: Final = [each for each in ContainerEventType if each is not ContainerEventType.Accessed]


@dataclass
class Machines:
    """Brokers on one database, each behind a link that can be cut."""

    brokers: Sequence[BrokerProcess]
    links: Sequence[Link]


@contextmanager
def machines(engine: str, folder: Path) -> Iterator[Machines]:
    """Start brokers and links. On SQLite there is one broker, with two links."""
    with ExitStack() as stack:
        url, ports = "", [free_port()]
        if engine == "postgresql":
            url = stack.enter_context(PostgresServer(durable=True)).createdatabase()
            ports += [free_port(), free_port()]
        links = [stack.enter_context(Link(port)) for port in (ports if url else ports * 2)]
        # A client signs for the origin that it uses, which is that of its link.
        every = [*ports, *(link.port for link in links)]
        # One folder for the objects, and one key, as brokers on several machines have.
        shared: dict[str, Any] = {
            "api_key": uuid.uuid4(),
            "broker_key": "ab" * 32,
            "object_store_url": (folder / "objects").as_uri(),
            "origins": ",".join(f"http://127.0.0.1:{port}" for port in every),
        }
        brokers = [
            stack.enter_context(BrokerProcess(folder / str(port), url, port=port, **shared))
            for port in ports
        ]
        yield Machines(brokers, links)


@dataclass
class Recorder:
    """The operations of all clients, by container."""

    operations: dict[uuid.UUID, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    strange: list[str] = field(default_factory=list)
    """Errors that are neither a refusal nor a missing answer."""

    def count(self) -> int:
        return sum(map(len, self.operations.values()))


@dataclass
class Client:
    number: int
    device: ServerProvider
    rng: random.Random
    recorder: Recorder
    containers: Sequence[uuid.UUID]
    values: Iterator[int]

    def step(self) -> None:
        container = self.rng.choice(self.containers)
        kind = self.rng.choices(["read", "header", "content", "log"], [6, 4, 4, 1])[0]
        began = time.monotonic()  # about time
        try:
            told = self._look(container, kind) if kind in ("read", "log") else None
            if told is None:
                self._write(container, kind, began)
                return
        except BrokerError.brokerUnavailableError:
            return  # a read without an answer proves nothing
        except BrokerError.conflictError:
            return  # its content was replaced during each attempt
        except BrokerError as error:
            self.recorder.strange.append(f"{kind}: {type(error).__name__}: {error}")
            return
        self._note(container, kind, began, **told)

    def _look(self, container: uuid.UUID, kind: str) -> dict[str, Any]:
        if kind == "log":
            events = self.device.getEvents(_CHANGES, container).result(PATIENCE)
            return {"log": tuple(event.version for event in events)}
        found = self.device.getContainer(container).result(PATIENCE)
        assert found.header is not None
        assert found.content is not None
        value = Value(found.header.customHeaderObject["n"], _number(found.content))
        return {"version": found.version, "value": value}

    def _write(self, container: uuid.UUID, kind: str, began: float) -> None:
        written, condition = next(self.values), None
        try:
            if self.rng.random() < 0.4:
                condition = self.device.getContainerMetadata(container).result(PATIENCE).version
        except BrokerError.brokerUnavailableError:
            return
        began = time.monotonic()  # about time
        asked: dict[str, Any] = {"written": written, "condition": condition}
        try:
            if kind == "header":
                header = {"n": written}
                made = self.device.updateContainerHeader(container, header, ifVersion=condition)
            else:
                # One in ten is too large for a row.
                size = 70_000 if self.rng.random() < 0.1 else 20
                content = b"%d:" % written + b"x" * size
                made = self.device.updateContainerContent(container, content, ifVersion=condition)
            version = made.result(PATIENCE).version
        except BrokerError.conflictError:
            self._note(container, kind, began, outcome="conflict", **asked)
        except BrokerError.brokerUnavailableError:
            self._note(container, kind, began, outcome="unknown", **asked)
        except BrokerError as error:
            self.recorder.strange.append(f"{kind}: {type(error).__name__}: {error}")
            self._note(container, kind, began, outcome="unknown", **asked)
        else:
            self._note(container, kind, began, version=version, **asked)

    def _note(self, container: uuid.UUID, kind: Any, began: float, **told: Any) -> None:
        ended = FOREVER if told.get("outcome") == "unknown" else time.monotonic()  # about time
        operation = Operation(self.number, kind, began, ended, **told)
        self.recorder.operations[container].append(operation)


def _number(content: bytes) -> int:
    return int(content.partition(b":")[0])


def live(found: Machines, rng: random.Random, disturbances: int) -> Recorder:
    """Run one history: clients work while links are cut and brokers die; then one reads everything."""
    recorder, values, over = Recorder(), itertools.count(1), threading.Event()
    with ExitStack() as stack:
        rings = [found.brokers[0].new_user() for _ in range(CLIENTS)]
        devices = [
            _device(stack, found, ring, found.links[n % len(found.links)], IMPATIENCE)
            for n, ring in enumerate(rings)
        ]
        first = _device(stack, found, rings[0], found.links[0], PATIENCE)
        containers = [_begin(first, rings, recorder, next(values)) for _ in range(CONTAINERS)]
        clients = [
            Client(n, device, random.Random(rng.random()), recorder, containers, values)
            for n, device in enumerate(devices)
        ]
        threads = [threading.Thread(target=_work, args=(client, over)) for client in clients]
        for thread in threads:
            thread.start()
        _disturb(found, rng, disturbances)
        wait_until(lambda: recorder.count() > ENOUGH)
        over.set()
        for thread in threads:
            thread.join(PATIENCE * 2)
        last = _device(stack, found, rings[0], found.links[0], PATIENCE)
        for container in containers:
            for kind in ("read", "log"):
                client = Client(CLIENTS, last, rng, recorder, [container], values)
                began = time.monotonic()  # about time
                client._note(container, kind, began, **client._look(container, kind))
    return recorder


def _work(client: Client, over: threading.Event) -> None:
    while not over.is_set():
        client.step()


def _begin(
    device: ServerProvider, rings: Sequence[KeyRing], recorder: Recorder, value: int
) -> uuid.UUID:
    levels = [AccessLevel(ring.userId, OWNER) for ring in rings]
    began = time.monotonic()  # about time
    made = device.createContainer(b"%d:" % value, {"n": value}, accessLevels=levels)
    found = made.result(PATIENCE)
    ended = time.monotonic()  # about time
    create = Operation(0, "create", began, ended, version=1, value=Value(value, value))
    recorder.operations[found.id].append(create)
    return found.id


def _device(
    stack: ExitStack, found: Machines, ring: KeyRing, link: Link, timeout: float
) -> ServerProvider:
    url = f"http://127.0.0.1:{link.port}"
    device = new_device(stack, found.brokers[0], url=url, timeout=timeout)

    def logs_in() -> bool:
        with suppress(BrokerError.brokerUnavailableError):
            device.logIn(userId=ring.userId, keyRing=ring).result(PATIENCE)
            return True
        return False

    wait_until(logs_in)
    return device


def _disturb(found: Machines, rng: random.Random, times: int) -> None:
    """Cut, freeze and kill, one after the other; at the end everything works."""
    for _ in range(times):
        time.sleep(rng.uniform(0.3, 1.0))  # about time
        link, what = rng.choice(found.links), rng.random()
        if what < 0.3:
            link.cut()
            time.sleep(rng.uniform(0.1, 2.5))  # about time
        elif what < 0.5:
            link.freeze()
            time.sleep(rng.uniform(0.1, 2.5))  # about time
        elif what < 0.8:
            link.cut_once(b"PUT /v1/containers", answered=True, times=rng.randint(1, 4))
            continue
        else:
            broker = rng.choice(found.brokers)
            broker.kill()
            broker.start()
        link.heal()


@dataclass
class Report:
    histories: int = 0
    operations: int = 0
    unknown: int = 0
    conflicts: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, recorder: Recorder, broker: BrokerProcess) -> None:
        self.violations += recorder.strange
        for container, operations in recorder.operations.items():
            self.histories += 1
            self.operations += len(operations)
            self.unknown += sum(each.outcome == "unknown" for each in operations)
            self.conflicts += sum(each.outcome == "conflict" for each in operations)
            self.violations += [f"{container}: {what}" for what in check(operations)]
        self.violations += check_stored(broker)

    def __str__(self) -> str:
        return (
            f"{self.histories} histories of {self.operations} operations, {self.unknown} of them "
            f"without an answer, {self.conflicts} conflicts; {len(self.violations)} violations"
        )


def run(engine: str, count: int, seed: int, folder: Path, disturbances: int = 6) -> Report:
    rng, report = random.Random(seed), Report()
    with machines(engine, folder) as found:
        for _ in range(count):
            recorder = live(found, rng, disturbances)
            report.add(recorder, found.brokers[0])
    return report


def main() -> None:
    want_forks()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--histories", type=int, default=10, help="rounds, of three containers each"
    )
    parser.add_argument("--engine", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = run(arguments.engine, arguments.histories, arguments.seed, Path(folder))
    print(report)
    print("\n".join(report.violations[:40]))
    sys.exit(bool(report.violations))


if __name__ == "__main__":
    main()
