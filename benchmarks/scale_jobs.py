"""Define the operations that `scale` measures on each side."""

import itertools
import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text

from benchmarks.population import HEAVY, RARE_TYPE, Real, Size, on
from benchmarks.small import CONTENT, HEADER, device
from scbroker import AccessLevel, ContainerAccessLevel, KeyRing
from tests.kit.brokers import BrokerProcess, Wire

_PATIENCE: Final = 3600.0
_OWNER: Final = ContainerAccessLevel.DefaultOwnerPermissions
_PAGE: Final = 100
_BATCH: Final = 16
Work = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """A job: `prepare`, which is not timed, returns the work that is."""

    name: str
    prepare: Callable[[], Work]


class Side:
    """A broker with two users: the heavy user Alice, and Bob, with whom she shares."""

    def __init__(
        self,
        broker: BrokerProcess,
        stack: ExitStack,
        owner: KeyRing,
        reader: KeyRing,
        real: Real,
        size: Size,
    ) -> None:
        self.broker, self.real, self.size = broker, real, size
        self.owner = owner
        self.alice, self.bob = device(broker, stack, owner), device(broker, stack, reader)
        self.wire = stack.enter_context(Wire(broker, "bench")).log_in(owner)
        self.reading = stack.enter_context(Wire(broker, "bench")).log_in(reader)
        self.stack = stack
        self.two = [AccessLevel(owner.userId, _OWNER), AccessLevel(reader.userId)]
        self.copies = itertools.cycle(self._copies())

    def _copies(self) -> list[uuid.UUID]:
        """Return up to 2,000 of the heavy user's containers, from all over the tables."""
        some = text("SELECT id FROM containers WHERE creator_id = :owner")
        values = {"owner": self.owner.userId.bytes}
        url = self.broker.database_url
        found = on(url, lambda c: c.execute(some, values).scalars().all())
        copies = [uuid.UUID(bytes=each) for each in found if each != self.real.container.bytes]
        return random.sample(copies, min(len(copies), 2000))

    def create(self, access: Any = None) -> uuid.UUID:
        made = self.alice.createContainer(CONTENT, HEADER, accessLevels=access)
        return made.result(_PATIENCE).id

    def leave(self) -> None:
        """Delete the heavy user, with all that only she can access."""
        self.alice.deleteUser().result(_PATIENCE)

    def page(self, **query: object) -> Work:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        path = f"/v1/events?limit={_PAGE}&{asked}"
        return lambda: self.wire.call("GET", path).expect(200)


def jobs(side: Side) -> list[Job]:
    """Return the jobs in the order in which they are measured."""
    return [*_writing(side), *_reading(side), *_events(side), *_users(side)]


def _always(name: str, work: Work) -> Job:
    work()
    return Job(name, lambda: work)


def _writing(side: Side) -> list[Job]:
    alice, one, shared = side.alice, side.create(), side.create(side.two)
    lists = itertools.cycle([side.two[:1], side.two])

    def share() -> object:
        return alice.updateContainerAccessLevels(shared, next(lists)).result(_PATIENCE)

    def delete() -> Work:
        target = side.create()
        return lambda: alice.deleteContainer(target).result(_PATIENCE)

    return [
        _always("createContainer, 1 recipient", side.create),
        _always("createContainer, 2 recipients", lambda: side.create(side.two)),
        _always("updateContainerHeader",
                lambda: alice.updateContainerHeader(one, HEADER).result(_PATIENCE)),
        _always("updateContainerContent",
                lambda: alice.updateContainerContent(one, CONTENT).result(_PATIENCE)),
        _always("updateContainerAccessLevels, one of 2 out or in", share),
        Job("deleteContainer", delete),
    ]  # fmt: skip


def _reading(side: Side) -> list[Job]:
    several = [side.create(side.two) for _ in range(_BATCH)]
    read = several[0]

    def unread() -> Work:
        new = side.create(side.two)
        return lambda: side.bob.getContainer(new).result(_PATIENCE)

    def copy() -> Work:
        path = f"/v1/containers/{next(side.copies)}?header=1&content=1"
        return lambda: side.wire.call("GET", path).expect(200)

    return [
        _always("getContainer, read before", lambda: side.bob.getContainer(read).result(_PATIENCE)),
        Job("getContainer, not read before", unread),
        _always(f"getContainers, {_BATCH} read before",
                lambda: side.bob.getContainers(several).result(_PATIENCE)),
        Job("a view of any of the heavy user's containers, on the wire", copy),
    ]  # fmt: skip


def _events(side: Side) -> list[Job]:
    last = side.size.events // HEAVY
    container = side.real.container

    def unnumbered() -> Work:
        side.create()
        return side.page(startId=last)

    return [
        _always("getEvents, the first 100", side.page(startId=1)),
        _always("getEvents, 100 from the middle", side.page(startId=last // 2)),
        _always("getEvents, the last 100", side.page(startId=last - _PAGE + 1)),
        Job("getEvents, with new ones to be numbered", unnumbered),
        _always("getEvents of a container", side.page(containerId=container)),
        _always("getEvents of a container, from the middle on",
                side.page(containerId=container, startId=last // 2)),
        _always("getEvents of a common type of container", side.page(containerType="letter")),
        _always("getEvents of a rare type of container",
                side.page(containerType=RARE_TYPE.replace(" ", "%20"))),
        _always("getEvents of a type that no container has", side.page(containerType="none")),
        _always("getEvents, what was added", side.page(eventType="Added")),
        _always("getEvents, what was deleted (rare)", side.page(eventType="Deleted")),
        _always("getEvents, added and deleted, of a rare type, from the middle on",
                side.page(eventType="Added&eventType=Deleted", startId=last // 2,
                          containerType=RARE_TYPE.replace(" ", "%20"))),
    ]  # fmt: skip


def _users(side: Side) -> list[Job]:
    def log_in() -> object:
        return side.wire.call("POST", "/v1/sessions", side.wire.log_in_request(side.owner)).expect(
            201
        )

    def leave() -> Work:
        leaving = device(side.broker, side.stack)
        for _ in range(3):
            leaving.createContainer(CONTENT, HEADER).result(_PATIENCE)
        return lambda: leaving.deleteUser().result(_PATIENCE)

    return [_always("a log-in on the wire", log_in), Job("deleteUser with 3 containers", leave)]
