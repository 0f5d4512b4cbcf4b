"""Writers, readers and managers of a group at work while brokers die, each with a thread and a session.

They do not handle faults: the client retries. An operation that ends with an error other than a refusal is a
violation.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from assurance.faults.ledger import Ledger, digest, whole
from assurance.faults.scenes import Scene
from assurance.faults.team import Team
from assurance.people import OWNER, READER
from scbroker import AccessLevel, BrokerError, NewContainer, ServerProvider
from scbroker.keys import KeyRing
from scbroker.types import ContainerEvent
from tests.client.model import Field, Grant
from tests.kit.waiting import PATIENCE

TYPE: Final = "crowd"
_REFUSALS: Final = (
    BrokerError.conflictError,
    BrokerError.deletedError,
    BrokerError.notFoundError,
    BrokerError.permissionDeniedError,
)
_SMALL: Final = 3_000
# Too large for a row: in one chunk, and now and then in two.
_LARGE: Final = (70_000, 400_000)
_HUGE: Final = 8_600_000
_SHELF: Final = 80
_JOIN: Final = PATIENCE * 2


class Shelf:
    """The latest containers, which everybody works on, with the users who have access."""

    def __init__(self) -> None:
        self._latest: dict[uuid.UUID, set[int]] = {}
        self._lock = threading.Lock()

    def put(self, container: uuid.UUID, members: Iterable[int]) -> None:
        with self._lock:
            self._latest[container] = set(members)
            for old in list(self._latest)[:-_SHELF]:
                del self._latest[old]

    def take_down(self, container: uuid.UUID) -> None:
        with self._lock:
            self._latest.pop(container, None)

    def some(self, user: int, rng: random.Random, count: int = 1) -> list[uuid.UUID]:
        """Return some of those that this user has access to."""
        with self._lock:
            mine = [name for name, members in self._latest.items() if user in members]
        return rng.sample(mine, min(count, len(mine)))


@dataclass
class Crowd:
    """Writers, readers, and the managers of a group. Users are numbers, and writers come first."""

    scene: Scene
    seed: int
    writers: int = 8
    readers: int = 8
    huge: bool = True
    """Whether some contents have two chunks."""
    ledger: Ledger = field(default_factory=Ledger)
    shelf: Shelf = field(default_factory=Shelf)
    rings: list[KeyRing] = field(default_factory=list)
    told: dict[int, list[ContainerEvent]] = field(default_factory=dict)
    """The events that each reader has read, in order."""
    team: Team = field(init=False)
    longest: float = 0.0
    """Duration of the slowest operation in seconds."""
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def start(self) -> None:
        self.rings = [self.scene.first.new_user() for _ in range(self.writers + self.readers)]
        for user, ring in enumerate(self.rings):
            name = f"{'writer' if user < self.writers else 'reader'} {user}"
            device = self.scene.device(ring, name)
            rng = random.Random(f"{self.seed} {name}")
            kind = Writer if user < self.writers else Reader
            self._add(kind(self, user, device, rng))
        self.team = Team.of(self.scene)
        for number, part in enumerate(self.team.parts):
            name = f"manager {number}"
            device = self.scene.device(part.ring, name)
            self._add(Manager(self, number, device, random.Random(f"{self.seed} {name}")))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every worker finish its operation."""
        self._over.set()
        for thread in self._threads:
            thread.join(_JOIN)
            if thread.is_alive():
                self.ledger.broken(f"{thread.name} did not end its operation")

    def number(self) -> int:
        return next(self._numbers)

    def ids(self, *users: int) -> list[uuid.UUID]:
        return [self.rings[user].userId for user in users]

    def user_of(self, user_id: uuid.UUID) -> int:
        return [ring.userId for ring in self.rings].index(user_id)

    def _add(self, worker: Worker) -> None:
        name = worker.device.applicationName
        self._threads.append(threading.Thread(target=self._work, args=(worker,), name=name))

    def _work(self, worker: Worker) -> None:
        while not self._over.is_set():
            began = time.monotonic()  # about time
            try:
                worker.step()
            except _REFUSALS:
                self.ledger.was_refused()
            except Exception as error:  # any other error is a violation, and the others go on
                what = f"{type(error).__name__}: {error}"
                self.ledger.broken(f"{worker.device.applicationName} ended with {what}")
            self.longest = max(self.longest, time.monotonic() - began)  # about time


@dataclass
class Worker:
    crowd: Crowd
    user: int
    device: ServerProvider
    rng: random.Random

    @property
    def ledger(self) -> Ledger:
        return self.crowd.ledger

    def step(self) -> None:
        """One operation, chosen by weight."""
        names = [*self.choices()]
        weights = [self.choices()[name] for name in names]
        self.rng.choices(names, weights)[0]()

    def choices(self) -> dict[Callable[[], None], int]:
        raise NotImplementedError


class Writer(Worker):
    """Creates, changes, shares and deletes."""

    def choices(self) -> dict[Callable[[], None], int]:
        return {
            self.create: 4,
            self.create_some: 1,
            self.change_header: 6,
            self.change_content: 5,
            self.change_access: 3,
            self.delete: 2,
        }

    def create(self) -> None:
        values = self._new_values()
        made = self.device.createContainer(
            values.pop("bytes"), values["header"], accessLevels=self._levels(values), type=TYPE
        ).result(PATIENCE)
        self._wrote(values, made)
        self.crowd.shelf.put(made.id, values["access"])

    def create_some(self) -> None:
        several = [self._new_values(small=True) for _ in range(self.rng.randint(2, 6))]
        new = [
            NewContainer(each.pop("bytes"), each["header"], self._levels(each), TYPE)
            for each in several
        ]
        made = self.device.createContainers(new).result(PATIENCE)
        for values, one in zip(several, made, strict=True):
            if isinstance(one, BrokerError):
                raise one
            self._wrote(values, one)
            self.crowd.shelf.put(one.id, values["access"])

    def change_header(self) -> None:
        for container in self.crowd.shelf.some(self.user, self.rng):
            header = {"n": self.crowd.number()}
            self._begins(container)
            made = self.device.updateContainerHeader(container, header).result(PATIENCE)
            self._wrote({"header": header}, made)

    def change_content(self) -> None:
        for container in self.crowd.shelf.some(self.user, self.rng):
            content = self._content()
            self._begins(container)
            made = self.device.updateContainerContent(container, content).result(PATIENCE)
            self._wrote({"content": digest(content)}, made)

    def change_access(self) -> None:
        """Add a reader, or remove one."""
        for container in self.crowd.shelf.some(self.user, self.rng):
            found = self.device.getContainerMetadata(container).result(PATIENCE)
            access = {
                self.crowd.user_of(each.userId): each.permissions for each in found.access or ()
            }
            reader = self._some_reader()
            if access.pop(reader, None) is None:
                access[reader] = READER
            values: dict[Field, Any] = {"access": whole(access)}
            self._begins(container)
            levels = self._levels(values)
            self.device.updateContainerAccessLevels(container, levels).result(PATIENCE)
            self.crowd.shelf.put(container, access)
            self.ledger.shared(self.user, self.device.applicationName, values, container)

    def delete(self) -> None:
        for container in self.crowd.shelf.some(self.user, self.rng):
            self._begins(container)
            self.device.deleteContainer(container).result(PATIENCE)
            self.crowd.shelf.take_down(container)
            self.ledger.removed(self.user, self.device.applicationName, container)

    def _begins(self, container: uuid.UUID) -> None:
        self.ledger.touched.add(container)

    def _wrote(self, values: Any, made: Any) -> None:
        self.ledger.wrote(self.user, self.device.applicationName, values, made)

    def _new_values(self, *, small: bool = False) -> dict[str, Any]:
        content = self._content(small=small)
        second = self.rng.choice([user for user in range(self.crowd.writers) if user != self.user])
        access = {self.user: OWNER, second: OWNER, self._some_reader(): READER}
        header = {"n": self.crowd.number()}
        return {
            "bytes": content,
            "header": header,
            "content": digest(content),
            "type": TYPE,
            "access": whole(access),
        }

    def _levels(self, values: Mapping[Any, Any]) -> list[AccessLevel]:
        access: dict[int, Grant] = values["access"]
        return [
            AccessLevel(self.crowd.rings[user].userId, grant.permissions)
            for user, grant in access.items()
        ]

    def _some_reader(self) -> int:
        return self.crowd.writers + self.rng.randrange(self.crowd.readers)

    def _content(self, *, small: bool = False) -> bytes:
        kind = self.rng.random()
        size = self.rng.randrange(_SMALL)
        if not small and kind < 0.004 and self.crowd.huge:
            size = _HUGE
        elif not small and kind < 0.12:
            size = self.rng.randint(*_LARGE)
        return b"%d:" % self.crowd.number() + self.rng.randbytes(size)


class Reader(Worker):
    """Reads containers of the shelf, and its own log from where it stopped."""

    def choices(self) -> dict[Callable[[], None], int]:
        return {self.read: 5, self.read_some: 1, self.look_at_log: 2}

    def read(self) -> None:
        for container in self.crowd.shelf.some(self.user, self.rng):
            self.ledger.was_read(self.device.getContainer(container).result(PATIENCE))

    def read_some(self) -> None:
        some = self.crowd.shelf.some(self.user, self.rng, 5)
        for found in self.device.getContainers(some).result(PATIENCE):
            if isinstance(found, _REFUSALS):
                self.ledger.was_refused()
            elif isinstance(found, BrokerError):
                raise found
            else:
                self.ledger.was_read(found)

    def look_at_log(self) -> None:
        seen = self.crowd.told.setdefault(self.user, [])
        first = seen[-1].id + 1 if seen else 1
        found = self.device.getEvents(startId=first).result(PATIENCE)
        if [event.id for event in found] != list(range(first, first + len(found))):
            self.ledger.broken(f"reader {self.user}: a log with a gap after {first}")
        seen += found
        self.ledger.was_told()


class Manager(Worker):
    """Changes the members of a group that another manager changes as well, and writes through it.

    `user` is the number of the manager's part.
    """

    def choices(self) -> dict[Callable[[], None], int]:
        return {self.add: 3, self.remove: 2, self.write: 3}

    def add(self) -> None:
        self._change(is_member=False)

    def remove(self) -> None:
        self._change(is_member=True)

    def _change(self, *, is_member: bool) -> None:
        team, part = self.crowd.team, self.crowd.team.parts[self.user]
        some = [ring.userId for ring in part.people if (ring.userId in part.members) == is_member]
        if not some:
            return
        user = self.rng.choice(some)
        if is_member:
            renew = self.rng.random() < 0.3
            self.device.removeGroupMembers(team.group, user, renew=renew).result(PATIENCE)
        else:
            self.device.addGroupMembers(team.group, user).result(PATIENCE)
        part.members ^= {user}
        part.changes += 1
        self.ledger.was_told()

    def write(self) -> None:
        part, content = self.crowd.team.parts[self.user], b"%d" % self.crowd.number()
        self.device.updateContainerContent(part.box, content).result(PATIENCE)
        part.content = content
        self.ledger.was_told()
